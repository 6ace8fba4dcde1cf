//! Obstacles to the last step of a transfer that can be known before the first: mount points, immutable and
//! append-only files, and directories in which files of others stay.

use std::os::fd::BorrowedFd;
use std::path::Path;

use bstr::BStr;
use rustix::fs::{AtFlags, Mode, Stat, Statx, StatxAttributes, StatxFlags};

use crate::error::{FilesError, Result};

/// Number of the mount that a directory lies in; `None` where the system does not tell.
pub(super) fn mount(directory: BorrowedFd<'_>) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(directory, "", flags, StatxFlags::MNT_ID).ok()?;
    let told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    told.then_some(stat.stx_mnt_id)
}

/// Refuses a directory in which nothing can be made.
pub(super) fn check_directory(path: &Path, directory: BorrowedFd<'_>) -> Result<()> {
    match look(directory, "".into(), AtFlags::EMPTY_PATH) {
        Some(stat) if has(&stat, StatxAttributes::IMMUTABLE) => Err(FilesError::refused(
            path,
            "is immutable, so that nothing can be made in it; use chattr -i",
        )),
        _ => Ok(()),
    }
}

/// Refuses a file or link that cannot be replaced.
pub(super) fn check_replaced(
    path: &Path,
    parent: BorrowedFd<'_>,
    name: &BStr,
    there: &Stat,
) -> Result<()> {
    if let Some(stat) = look(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        if has(&stat, StatxAttributes::MOUNT_ROOT) {
            return Err(FilesError::refused(
                path,
                "is a mount point and cannot be replaced; unmount it, or have the sender exclude it",
            ));
        }
        check_flags(path, &stat)?;
    }
    if let Some(stat) = look(parent, "".into(), AtFlags::EMPTY_PATH)
        && has(&stat, StatxAttributes::APPEND)
    {
        let what = "lies in an append-only directory and cannot be replaced; use chattr -a";
        return Err(FilesError::refused(path, what));
    }
    check_sticky(path, parent, there)
}

/// Refuses a file whose mode, owner or attributes are to be changed and cannot be.
pub(super) fn check_changed(
    path: &Path,
    parent: BorrowedFd<'_>,
    name: &BStr,
    there: &Stat,
) -> Result<()> {
    if let Some(stat) = look(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        check_flags(path, &stat)?;
    }
    let user = rustix::process::geteuid();
    if !user.is_root() && there.st_uid != user.as_raw() {
        let what = format!(
            "is there already and belongs to user {}, so that its mode and owner cannot be changed; \
             move it away",
            there.st_uid
        );
        return Err(FilesError::refused(path, what));
    }
    Ok(())
}

fn check_flags(path: &Path, stat: &Statx) -> Result<()> {
    for (flag, what) in [
        (
            StatxAttributes::IMMUTABLE,
            "is immutable and cannot be changed or replaced; use chattr -i",
        ),
        (
            StatxAttributes::APPEND,
            "is append-only and cannot be changed or replaced; use chattr -a",
        ),
    ] {
        if has(stat, flag) {
            return Err(FilesError::refused(path, what));
        }
    }
    Ok(())
}

/// In a sticky directory, files belong to their owners.
fn check_sticky(path: &Path, parent: BorrowedFd<'_>, there: &Stat) -> Result<()> {
    let Ok(directory) = rustix::fs::fstat(parent) else { return Ok(()) };
    let user = rustix::process::geteuid();
    let sticky = Mode::from_raw_mode(directory.st_mode).contains(Mode::SVTX);
    let ours = [directory.st_uid, there.st_uid].contains(&user.as_raw());
    if sticky && !ours && !user.is_root() {
        let what = format!(
            "belongs to user {} and lies in a directory with the sticky bit, so that it cannot be \
             replaced; move it away",
            there.st_uid
        );
        return Err(FilesError::refused(path, what));
    }
    Ok(())
}

/// Attributes of a file; `None` where the system does not tell.
fn look(parent: BorrowedFd<'_>, name: &BStr, flags: AtFlags) -> Option<Statx> {
    rustix::fs::statx(parent, &**name, flags, StatxFlags::empty()).ok()
}

fn has(stat: &Statx, attribute: StatxAttributes) -> bool {
    stat.stx_attributes_mask.contains(attribute) && stat.stx_attributes.contains(attribute)
}
