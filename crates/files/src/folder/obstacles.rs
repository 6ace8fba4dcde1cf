//! Obstacles to the last step, found before: mount points, immutable files, sticky directories.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use bstr::BStr;
use rustix::fs::{Access, AtFlags, Mode, OFlags, Stat, Statx, StatxAttributes, StatxFlags};

use super::attributes::{self, Lack};
use crate::dir;
use crate::error::{Result, refuse};
use crate::manifest::Entry;

pub(super) fn mount(directory: BorrowedFd<'_>) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(directory, "", flags, StatxFlags::MNT_ID).ok()?;
    let told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    told.then_some(stat.stx_mnt_id)
}

pub(super) fn check_directory(path: &Path, directory: BorrowedFd<'_>) -> Result<()> {
    match look(directory, "".into(), AtFlags::EMPTY_PATH) {
        Some(stat) if has(&stat, StatxAttributes::IMMUTABLE) => {
            refuse(path, "is immutable, so that nothing can be made in it; use chattr -i")
        }
        _ => Ok(()),
    }
}

pub(super) struct Present<'a> {
    pub(super) path: &'a Path,
    pub(super) parent: BorrowedFd<'a>,
    pub(super) name: &'a BStr,
    pub(super) stat: &'a Stat,
}

impl Present<'_> {
    pub(super) fn check_replaced(&self) -> Result<()> {
        if let Some(stat) = self.attributes() {
            if has(&stat, StatxAttributes::MOUNT_ROOT) {
                let what = "is a mount point and cannot be replaced; unmount it, or have the sender exclude it";
                return refuse(self.path, what);
            }
            check_flags(self.path, &stat)?;
        }
        if let Some(stat) = look(self.parent, "".into(), AtFlags::EMPTY_PATH)
            && has(&stat, StatxAttributes::APPEND)
        {
            let what = "lies in an append-only directory and cannot be replaced; use chattr -a";
            return refuse(self.path, what);
        }
        check_sticky(self.path, self.parent, self.stat)
    }

    pub(super) fn check_changed(&self, entry: &Entry, lack: Lack) -> Result<()> {
        if let Some(stat) = self.attributes() {
            check_flags(self.path, &stat)?;
        }
        let user = rustix::process::geteuid();
        let is_ours = user.is_root() || self.stat.st_uid == user.as_raw();
        let is_writable = || {
            let access = Access::WRITE_OK;
            rustix::fs::accessat(self.parent, &**self.name, access, AtFlags::EACCESS).is_ok()
        };
        if is_ours || lack == Lack::Xattrs && (is_writable() || self.has_xattrs(entry)) {
            return Ok(());
        }
        let what = format!(
            "is there already and belongs to user {}, so that its mode, owner and attributes cannot be \
             changed; move it away",
            self.stat.st_uid
        );
        refuse(self.path, what)
    }

    fn has_xattrs(&self, entry: &Entry) -> bool {
        dir::open_file(self.parent, self.name, OFlags::RDONLY)
            .is_ok_and(|file| attributes::has_xattrs(entry, file.as_fd()))
    }

    fn attributes(&self) -> Option<Statx> {
        look(self.parent, self.name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn check_flags(path: &Path, stat: &Statx) -> Result<()> {
    let flags = [
        (StatxAttributes::IMMUTABLE, "immutable", 'i'),
        (StatxAttributes::APPEND, "append-only", 'a'),
    ];
    match flags.into_iter().find(|(flag, ..)| has(stat, *flag)) {
        Some((_, what, letter)) => {
            let advice = format!("use chattr -{letter}");
            refuse(path, format!("is {what} and cannot be changed or replaced; {advice}"))
        }
        None => Ok(()),
    }
}

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
        return refuse(path, what);
    }
    Ok(())
}

fn look(parent: BorrowedFd<'_>, name: &BStr, flags: AtFlags) -> Option<Statx> {
    rustix::fs::statx(parent, &**name, flags, StatxFlags::empty()).ok()
}

fn has(stat: &Statx, attribute: StatxAttributes) -> bool {
    stat.stx_attributes_mask.contains(attribute) && stat.stx_attributes.contains(attribute)
}
