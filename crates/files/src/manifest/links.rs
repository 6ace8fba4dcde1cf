//! The check of symbolic links: none may lead outside of the object that it is in.

use super::Entry;
use crate::name::{self, NameError, PATH_BYTES_MAX};

/// Why a link is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// It is empty or has more than 4095 bytes.
    #[error("it is empty or too long")]
    Length,
    /// It begins with `/`.
    #[error("it is absolute")]
    Absolute,
    /// It leads out of what is sent.
    #[error("it leads out of what is sent")]
    Outside,
    /// It goes back with `..` from something that is no directory of the object: where that leads
    /// to, nobody knows.
    #[error("it goes back from something that is no directory here")]
    Back,
    /// It has a part that is not allowed in names.
    #[error("{0}")]
    Name(NameError),
}

/// Checks the text of the link at `path`. `find` finds entries of the object.
///
/// A link may not go back from anything but directories, which stay directories at receivers: so a
/// chain of links that each lead inside cannot lead out. What it leads to need not be there.
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
    // Where it is led to so far; the directory of a link is one.
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
    // The directory that is received into is not sent, nor is what else lies in it.
    let first = name::components(&at).next().unwrap_or_default();
    match find(first) {
        Some(_) if !at.is_empty() => Ok(()),
        _ => Err(LinkError::Outside),
    }
}
