//! System calls that depend on the file system, with a simulation of FAT for tests.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::dir;
use crate::manifest::Mtime;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// True to simulate FAT: times of 2 s from 1980; modes, links and some names refused.
    #[cfg(test)]
    pub(super) fat: bool,
}

impl Calls {
    const fn is_fat(self) -> bool {
        #[cfg(test)]
        return self.fat;
        #[cfg(not(test))]
        false
    }

    pub(super) fn set_mode(self, fd: BorrowedFd<'_>, mode: u16) -> Result<(), Errno> {
        if self.is_fat() {
            return Err(Errno::PERM);
        }
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode.into()))
    }

    pub(super) fn set_mtime(self, fd: BorrowedFd<'_>, mtime: Mtime) -> Result<(), Errno> {
        let mtime = match self.is_fat() {
            true => Mtime { seconds: (mtime.seconds & !1).max(315_532_800), nanos: 0 },
            false => mtime,
        };
        dir::set_mtime(fd, mtime)
    }

    pub(super) fn symlink(
        self,
        text: &[u8],
        parent: BorrowedFd<'_>,
        name: &str,
    ) -> Result<(), Errno> {
        if self.is_fat() {
            return Err(Errno::PERM);
        }
        rustix::fs::symlinkat(text, parent, name)
    }

    pub(super) fn link(
        self,
        (parent, from): (BorrowedFd<'_>, &[u8]),
        (to, name): (BorrowedFd<'_>, &[u8]),
    ) -> Result<(), Errno> {
        if self.is_fat() {
            return Err(Errno::PERM);
        }
        rustix::fs::linkat(parent, from, to, name, AtFlags::empty())
    }

    pub(super) fn create(self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<File, Errno> {
        let mut name = name;
        if self.is_fat() {
            if name.iter().any(|byte| *byte < 32 || b"\"*:<>?|\\\xff".contains(byte)) {
                return Err(Errno::INVAL);
            }
            while let [rest @ .., b'.' | b' '] = name {
                name = rest;
            }
        }
        dir::open_file(parent, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// True if a new directory of mode 0700 in `parent` has another owner, or is open to others.
    pub(super) fn ignores_owners(self, parent: BorrowedFd<'_>) -> Result<bool, Errno> {
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let name = format!(".faircast-probe-{}-{:x}", std::process::id(), time.as_nanos());
        rustix::fs::mkdirat(parent, &*name, Mode::RWXU)?;
        let looked = dir::open_directory(parent, &name).and_then(|fd| is_foreign(fd.as_fd()));
        rustix::fs::unlinkat(parent, &*name, AtFlags::REMOVEDIR)?;
        looked
    }
}

pub(super) fn is_foreign(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let stat = rustix::fs::fstat(directory)?;
    let others = Mode::from_raw_mode(stat.st_mode) & (Mode::WGRP | Mode::WOTH);
    Ok(stat.st_uid != rustix::process::geteuid().as_raw() || !others.is_empty())
}
