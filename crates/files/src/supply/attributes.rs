//! Owners and extended attributes at a sender.

use std::path::Path;

use faircast_base::is_format;
use nix::unistd::{Gid, Group, Uid, User};
use rustix::io::Errno;

use crate::error::{FilesError, Result};
use crate::manifest::{Owner, Xattr, travels};

pub(super) fn owner((uid, gid): (u32, u32)) -> Owner {
    let name = |name: String| if name.contains(is_format) { "".into() } else { name.into() };
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    Owner {
        uid,
        gid,
        user: user.map_or("".into(), |user| name(user.name)),
        group: group.map_or("".into(), |group| name(group.name)),
    }
}

pub(super) fn xattrs(path: &Path) -> Result<Box<[Xattr]>> {
    let cannot =
        |error: Errno| FilesError::io(path, "its extended attributes cannot be read", error);
    let mut names = Vec::with_capacity(BYTES_MAX);
    match rustix::fs::listxattr(path, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(Errno::NOTSUP) => return Ok(Box::default()),
        Err(error) => return Err(cannot(error)),
    }
    let mut xattrs = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| travels(name)) else {
            continue;
        };
        let mut value = Vec::with_capacity(BYTES_MAX);
        match rustix::fs::getxattr(path, name, rustix::buffer::spare_capacity(&mut value)) {
            Ok(_) => xattrs.push(Xattr { name: name.into(), value: value.into() }),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(cannot(error)),
        }
    }
    xattrs.sort_by(|a: &Xattr, b| a.name.cmp(&b.name));
    Ok(xattrs.into())
}

/// Limit of Linux for all names, and for a value.
const BYTES_MAX: usize = 64 << 10;
