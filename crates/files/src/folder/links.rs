//! Symbolic links of an object, created at the end of a transfer.

use std::os::fd::BorrowedFd;

use bstr::BStr;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::StoreOptions;
use super::attributes::Attributes;
use super::files::Files;
use crate::dir::{self, Cursor};
use crate::error::{FilesError, Result};
use crate::name;

/// Name of a new link in the state folder, before it is moved to its place.
const NEW: &str = "link.new";

pub(super) const IN_THE_WAY: &str =
    "a link is to be received, and something else is there; move it away";

/// Creates the symbolic links. Returns the directories with changed entries.
///
/// A link with another target is replaced, if `options.overwrite` is set; otherwise it is an error.
pub(super) fn make<'a>(
    options: &StoreOptions,
    files: &'a Files,
    attributes: &mut Attributes<'a>,
) -> Result<Vec<&'a BStr>> {
    let mut cursor = Cursor::new(&files.root);
    let mut touched = Vec::new();
    for entry in files.left_out.kept(&files.layout) {
        let Some(target) = entry.link_target() else { continue };
        let (parent, name) = name::split(&entry.path);
        let path = files.root.path(&entry.path);
        let cannot = |error: Errno| FilesError::io(&path, "cannot be put into its place", error);
        let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).map_err(cannot)?;
        let unreadable = |error: Errno| FilesError::io(&path, "cannot be read", error);
        if let Some(there) = dir::stat(fd, name).map_err(unreadable)? {
            if is_same(fd, name, &there, target).map_err(unreadable)? {
                continue;
            }
            if !is_link(&there) {
                return Err(FilesError::refused(&path, IN_THE_WAY));
            }
        }
        // An interrupted run may have left it.
        files.state.remove_file(NEW)?;
        let state = files.state.fd();
        files
            .abilities
            .calls
            .symlink(target, state, NEW)
            .map_err(|error| files.state.cannot(error))?;
        attributes.give_link(entry, &path, state, NEW)?;
        files.put_into_place(NEW, &path, fd, name, options.overwrite)?;
        touched.push(parent.unwrap_or_default());
    }
    Ok(touched)
}

/// True if `there` is a symbolic link to `target`.
pub(super) fn is_same(
    parent: BorrowedFd<'_>,
    name: &BStr,
    there: &Stat,
    target: &BStr,
) -> Result<bool, Errno> {
    if !is_link(there) {
        return Ok(false);
    }
    let text = rustix::fs::readlinkat(parent, &**name, Vec::new())?;
    Ok(text.to_bytes() == &**target)
}

pub(super) fn is_link(there: &Stat) -> bool {
    FileType::from_raw_mode(there.st_mode) == FileType::Symlink
}
