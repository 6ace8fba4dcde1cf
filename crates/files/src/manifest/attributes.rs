//! Owners and extended attributes of entries.

use faircast_base::is_format;

use super::{Entry, ManifestError};

/// Bytes of names and values of one entry's extended attributes, as on Linux.
pub(crate) const XATTR_BYTES_MAX: usize = 64 << 10;
/// Bytes of a name of a user, a group or an extended attribute.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// What extended attributes that are sent begin with, besides [`ACLS`]. No others: file
/// capabilities and security labels would give rights that a receiver has not given.
const USER: &str = "user.";
/// The access control lists of POSIX, which say what permission bits say.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Who a file, a directory or a link belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The user's number at the sender.
    pub uid: u32,
    /// The group's number at the sender.
    pub gid: u32,
    /// The user's name at the sender; empty where it has none.
    pub user: Box<str>,
    /// The group's name at the sender; empty where it has none.
    pub group: Box<str>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Its name, with the name space.
    pub name: Box<str>,
    /// Its value.
    pub value: Box<[u8]>,
}

/// True if an extended attribute of this name is sent and accepted.
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
