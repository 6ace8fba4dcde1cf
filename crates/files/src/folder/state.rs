//! The folder in which a receiver keeps what is not complete: `DIR/.faircast/<object>/`.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::dir::{self, Root};
use crate::error::{FilesError, Result};
use crate::lock::Locked;
use crate::name::STATE_FOLDER;

pub(crate) const JOURNAL: &str = "journal";
pub(crate) const MANIFEST: &str = "manifest";
/// The receiver's identity: 16 hexadecimal digits.
const RECEIVER: &str = "receiver";
const LOCK: &str = "lock";
/// Tries to get hold of a folder that somebody else is removing at the moment.
const TRIES: u32 = 100;

/// A folder that is ours alone while this lives.
#[derive(Debug)]
pub(crate) struct StateFolder {
    parent: OwnedFd,
    fd: OwnedFd,
    name: String,
    pub(crate) path: PathBuf,
    /// Holds the lock.
    _lock: Locked,
}

impl StateFolder {
    /// Makes or finds the folder of an object, and takes it for ourselves.
    pub(crate) fn open(root: &Root, object: &[u8; 32]) -> Result<Self> {
        let name: String = object[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = root.path(STATE_FOLDER);
        for _ in 0..TRIES {
            match Self::try_open(root, &name) {
                Ok(Some(folder)) => return Ok(folder),
                // Removed between two steps of ours, by one that has just finished.
                Ok(None) | Err(Errno::NOENT) => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err(FilesError::refused(
                        &root.path(""),
                        "another faircast is receiving the same object there; let it finish, or \
                         choose another directory",
                    ));
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(FilesError::refused(
                        &path,
                        "must be a directory of your own and is something else; move it away",
                    ));
                }
                Err(error) => return Err(FilesError::io(&path, "cannot be used", error)),
            }
        }
        Err(FilesError::refused(&path, "is removed again and again by somebody else"))
    }

    fn try_open(root: &Root, name: &str) -> Result<Option<Self>, Errno> {
        let parent = own_directory(root.fd(), STATE_FOLDER)?;
        let fd = own_directory(parent.as_fd(), name)?;
        let Some(lock) = lock(fd.as_fd())? else { return Ok(None) };
        let path = root.path(STATE_FOLDER).join(name);
        Ok(Some(Self { parent, fd, name: name.into(), path, _lock: lock }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens a file in it for reading; nothing where there is none.
    pub(crate) fn find(&self, name: &str) -> Result<Option<File>> {
        match dir::open_file(self.fd(), name, OFlags::RDONLY) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.cannot(error)),
        }
    }

    /// Makes an empty file in it, whatever was there before.
    pub(crate) fn create(&self, name: &str) -> Result<File> {
        self.remove_file(name)?;
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        dir::open_file(self.fd(), name, how).map_err(|error| self.cannot(error))
    }

    /// Identity of the receiver that goes on with this folder: random, and kept in it, so that a sender knows a
    /// receiver again that was started anew at another address.
    pub(crate) fn identity(&self) -> Result<u64> {
        let mut text = String::new();
        if let Some(file) = self.find(RECEIVER)? {
            let read = file.take(64).read_to_string(&mut text);
            read.map_err(|error| self.cannot(error))?;
        }
        if let Ok(identity) = u64::from_str_radix(text.trim(), 16) {
            return Ok(identity);
        }
        // The standard library seeds its hashers from the system.
        let identity = RandomState::new().build_hasher().finish();
        let mut file = self.create(RECEIVER)?;
        writeln!(file, "{identity:016x}").map_err(|error| self.cannot(error))?;
        Ok(identity)
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(self.fd(), from, self.fd(), to).map_err(|error| self.cannot(error))
    }

    pub(crate) fn remove_file(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(self.fd(), name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.cannot(error)),
        }
    }

    pub(crate) fn cannot(&self, error: impl Into<io::Error>) -> FilesError {
        FilesError::io(&self.path, "cannot be written", error)
    }

    /// Removes it with all that is in it; and what it lies in, where that is empty.
    pub(crate) fn remove(&self) -> Result<()> {
        for found in rustix::fs::Dir::read_from(self.fd()).map_err(|error| self.cannot(error))? {
            let found = found.map_err(|error| self.cannot(error))?;
            let name = found.file_name();
            // The lock goes last: until then nobody else takes the folder for their own.
            if !matches!(name.to_bytes(), b"." | b"..") && name.to_bytes() != LOCK.as_bytes() {
                rustix::fs::unlinkat(self.fd(), name, AtFlags::empty())
                    .map_err(|error| self.cannot(error))?;
            }
        }
        self.remove_file(LOCK)?;
        // Somebody who came in the meantime keeps the folder, which is no error.
        let _ = rustix::fs::unlinkat(&self.parent, &*self.name, AtFlags::REMOVEDIR);
        if let Ok(root) = rustix::fs::openat(&self.parent, "..", OFlags::RDONLY, Mode::empty()) {
            let _ = rustix::fs::unlinkat(root, STATE_FOLDER, AtFlags::REMOVEDIR);
        }
        Ok(())
    }
}

/// Removes what interrupted transfers left in `dir` and did not touch for `age`; what is in use
/// stays. Returns what was removed. Thirty days are a good age.
///
/// # Errors
/// The directory cannot be read, or something in it not be removed.
pub fn clean(dir: &Path, age: Duration) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    let path = dir.join(STATE_FOLDER);
    let cannot = |error: io::Error| FilesError::io(&path, "cannot be cleaned", error);
    let root = match File::open(dir) {
        Ok(root) => root,
        Err(error) => return Err(FilesError::io(dir, "cannot be opened", error)),
    };
    let parent = match dir::open_directory(root.as_fd(), STATE_FOLDER) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(removed),
        Err(error) => return Err(cannot(error.into())),
    };
    for found in rustix::fs::Dir::read_from(&parent).map_err(|error| cannot(error.into()))? {
        let found = found.map_err(|error| cannot(error.into()))?;
        let Ok(name) = found.file_name().to_str() else { continue };
        if name.len() != 16 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        let Ok(fd) = dir::open_directory(parent.as_fd(), name) else { continue };
        // Both change with every group: the folder for a new file, the journal for what it has.
        let touched = [Some("."), Some(JOURNAL)].into_iter().flatten().filter_map(|name| {
            let stat = dir::stat(fd.as_fd(), name).ok()??;
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).ok()?))
        });
        let touched = touched.max().unwrap_or(SystemTime::UNIX_EPOCH);
        if touched.elapsed().unwrap_or_default() < age {
            continue;
        }
        let Ok(Some(lock)) = lock(fd.as_fd()) else { continue };
        let parent = parent.try_clone().map_err(cannot)?;
        let path = path.join(name);
        let folder = StateFolder { parent, fd, name: name.into(), path, _lock: lock };
        folder.remove()?;
        removed.push(folder.path.clone());
    }
    // Where nothing is left, neither is the folder.
    let _ = fs::remove_dir(&path);
    Ok(removed)
}

/// Makes or opens a directory that belongs to us.
fn own_directory(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let fd = dir::open_directory(parent, name)?;
    // In one of somebody else, files could be exchanged under our hands.
    let stat = rustix::fs::fstat(&fd)?;
    let others = Mode::from_raw_mode(stat.st_mode) & (Mode::WGRP | Mode::WOTH);
    if stat.st_uid != rustix::process::geteuid().as_raw() || !others.is_empty() {
        return Err(Errno::NOTDIR);
    }
    Ok(fd)
}

/// Locks a folder; nothing where it was removed before we had the lock.
fn lock(folder: BorrowedFd<'_>) -> Result<Option<Locked>, Errno> {
    let lock = dir::open_file(folder, LOCK, OFlags::RDWR | OFlags::CREATE)?;
    let lock = Locked::new(lock)?;
    let ours = rustix::fs::fstat(&lock.0)?;
    let there = dir::stat(folder, LOCK)?;
    Ok(there.filter(|there| there.st_ino == ours.st_ino).map(|_| lock))
}
