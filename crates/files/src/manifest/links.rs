//! Check of symbolic links, which may not lead out of their object.

use super::Entry;
use crate::name::{self, NameError, PATH_BYTES_MAX};

/// Reason to refuse a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The target is empty or longer than 4095 bytes.
    #[error("it is empty or too long")]
    Length,
    #[error("it is absolute")]
    Absolute,
    #[error("it leads out of what is sent")]
    Outside,
    /// The target has `..` after something other than a directory of the object.
    #[error("it goes back from something that is no directory here")]
    Back,
    #[error("{0}")]
    Name(NameError),
}

/// Checks the target of the link at `path`; `find` returns entries. A `..` may only follow
/// directories, so a chain of links, each inside, cannot lead out. The destination may be missing.
pub(crate) fn check<'a>(
    path: &[u8],
    target: &[u8],
    find: impl Fn(&[u8]) -> Option<&'a Entry>,
) -> Result<(), LinkError> {
    if target.is_empty() || target.len() > PATH_BYTES_MAX {
        return Err(LinkError::Length);
    }
    if target.starts_with(b"/") {
        return Err(LinkError::Absolute);
    }
    let mut at = name::parent(path).unwrap_or_default().to_vec();
    let mut in_directory = true;
    for part in name::components(target) {
        match part {
            b"" | b"." => {}
            b".." if !in_directory => return Err(LinkError::Back),
            b".." if at.is_empty() => return Err(LinkError::Outside),
            b".." => at.truncate(name::parent(&at).map_or(0, |parent| parent.len())),
            part => {
                name::check_component(part).map_err(LinkError::Name)?;
                if !at.is_empty() {
                    at.push(b'/');
                }
                at.extend_from_slice(part);
                in_directory = in_directory && find(&at).is_some_and(Entry::is_directory);
            }
        }
    }
    let first = name::components(&at).next().unwrap_or_default();
    match find(first) {
        Some(_) if !at.is_empty() => Ok(()),
        _ => Err(LinkError::Outside),
    }
}
