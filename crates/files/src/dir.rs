//! Paths below a directory, opened component by component without symbolic links.
//! Unlike in `cap-std`, a link in the way is an error: components are opened with `O_NOFOLLOW`.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bstr::{BStr, ByteSlice as _};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::error::{At as _, Result, refuse};
use crate::manifest::{Mtime, boxed};
use crate::name;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).at(path, "cannot be made")?;
        let fd = File::open(path).at(path, "cannot be opened")?;
        // Another program may have put something else there meanwhile.
        if !fd.metadata().at(path, "cannot be read")?.is_dir() {
            return refuse(path, "is not a directory");
        }
        Ok(Self { fd: fd.into(), path: path.to_path_buf() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn path(&self, below: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(below))
    }
}

/// Position in the tree below a root. Directories above the position stay open.
#[derive(Debug)]
pub(crate) struct Cursor<'r> {
    root: &'r Root,
    /// Directories from the root to the position, by path; without a descriptor if missing.
    open: Vec<(Box<BStr>, Option<OwnedFd>)>,
}

impl<'r> Cursor<'r> {
    pub(crate) const fn new(root: &'r Root) -> Self {
        Self { root, open: Vec::new() }
    }

    /// Moves to a directory; `None` if it does not exist.
    pub(crate) fn enter(&mut self, path: Option<&BStr>) -> Result<Option<BorrowedFd<'_>>> {
        let path = path.unwrap_or_default();
        while let Some((last, _)) = self.open.last()
            && !name::is_within(last, path)
        {
            self.open.pop();
        }
        while self.open.last().map_or(0, |(last, _)| last.len()) < path.len() {
            let from = self.open.last().map_or(0, |(last, _)| last.len() + 1);
            let to = path[from..].find_byte(b'/').map_or(path.len(), |slash| from + slash);
            let fd = match self.open.last() {
                Some((_, None)) => None,
                Some((_, Some(parent))) => self.open_one(parent.as_fd(), &path[from..to], path)?,
                None => self.open_one(self.root.fd(), &path[from..to], path)?,
            };
            self.open.push((boxed(&path[..to]), fd));
        }
        Ok(match self.open.last() {
            Some((_, fd)) => fd.as_ref().map(AsFd::as_fd),
            None => Some(self.root.fd()),
        })
    }

    /// Forgets that directories are missing, after some were made.
    pub(crate) fn look_again(&mut self) {
        while let Some((_, None)) = self.open.last() {
            self.open.pop();
        }
    }

    fn open_one(
        &self,
        parent: BorrowedFd<'_>,
        component: &BStr,
        path: &BStr,
    ) -> Result<Option<OwnedFd>> {
        match open_directory(parent, component) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let name = name::shown(component);
                let what = "must be a directory and is something else; move it away";
                refuse(self.root.path(path), format!("`{name}` {what}"))
            }
            Err(error) => Err(error).at(self.root.path(path), "cannot be opened"),
        }
    }
}

pub(crate) fn stat(parent: BorrowedFd<'_>, name: impl AsRef<[u8]>) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(parent, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

pub(crate) fn open_directory(
    parent: BorrowedFd<'_>,
    name: impl AsRef<[u8]>,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name.as_ref(), DIRECTORY, Mode::empty())
}

pub(crate) fn open_file(
    parent: BorrowedFd<'_>,
    name: impl AsRef<[u8]>,
    how: OFlags,
) -> Result<File, Errno> {
    let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(parent, name.as_ref(), flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

pub(crate) fn remove_file(parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

pub(crate) fn names_in(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for found in rustix::fs::Dir::read_from(directory)? {
        let name = found?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

pub(crate) fn times(mtime: Mtime) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let change = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
    Timestamps { last_access: omit, last_modification: change }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_opens_directories_and_follows_no_link() {
        let temporary = tempfile::tempdir().unwrap();
        let root = Root::open(&temporary.path().join("new/dir")).unwrap();
        fs::create_dir_all(root.path(b"a/b/c")).unwrap();
        fs::create_dir(root.path(b"ab")).unwrap();
        std::os::unix::fs::symlink(root.path(b"a"), root.path(b"link")).unwrap();
        let mut cursor = Cursor::new(&root);
        for (path, there) in [
            (None, true),
            (Some("a/b/c"), true),
            (Some("a/b"), true),
            (Some("ab"), true),
            (Some("a/x"), false),
            (Some("a/x/y"), false),
            (Some("a"), true),
        ] {
            assert_eq!(cursor.enter(path.map(BStr::new)).unwrap().is_some(), there, "{path:?}");
        }
        assert!(cursor.enter(Some("link".into())).is_err());
        assert!(cursor.enter(Some("link/b".into())).is_err());
        assert!(cursor.enter(Some("later".into())).unwrap().is_none());
        fs::create_dir(root.path(b"later")).unwrap();
        cursor.look_again();
        assert!(cursor.enter(Some("later".into())).unwrap().is_some());
    }
}
