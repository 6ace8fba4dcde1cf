//! Owners and extended attributes of entries.

use faircast_base::is_format;

use super::{Entry, ManifestError};

/// Most bytes of names and values of an entry's extended attributes, as on Linux.
pub(crate) const XATTR_BYTES_MAX: usize = 64 << 10;
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Prefix of the attributes to send, besides [`ACLS`]. Capabilities and labels would grant rights.
const USER: &str = "user.";
/// POSIX access control lists, which extend permission bits.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Owner of a file, a directory or a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// User id at the sender.
    pub uid: u32,
    /// Group id at the sender.
    pub gid: u32,
    /// User name at the sender; empty if it has none.
    pub user: Box<str>,
    /// Group name at the sender; empty if it has none.
    pub group: Box<str>,
}

/// Extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Name, with its name space.
    pub name: Box<str>,
    /// Value.
    pub value: Box<[u8]>,
}

pub(crate) fn travels(name: &str) -> bool {
    let bare = name.strip_prefix(USER).is_some_and(|bare| !bare.is_empty());
    (bare || is_acl(name)) && name.len() <= NAME_BYTES_MAX && !name.contains(is_format)
}

pub(crate) fn is_acl(name: &str) -> bool {
    ACLS.contains(&name)
}

pub(super) fn check(entry: &Entry) -> Result<(), ManifestError> {
    let mut bytes = 0;
    let mut before: Option<&str> = None;
    for xattr in &entry.xattrs {
        bytes += xattr.name.len() + xattr.value.len();
        let ascends = before.is_none_or(|before| before < &*xattr.name);
        if !travels(&xattr.name) || !ascends || bytes > XATTR_BYTES_MAX {
            return Err(ManifestError::Xattr(super::said(entry)));
        }
        before = Some(&xattr.name);
    }
    if let Some(owner) = &entry.owner {
        for name in [&owner.user, &owner.group] {
            if name.len() > NAME_BYTES_MAX || name.contains(is_format) {
                return Err(ManifestError::Owner(super::said(entry)));
            }
        }
    }
    Ok(())
}
