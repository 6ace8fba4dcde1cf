//! State folder of an incomplete object at a receiver: `DIR/.faircast/<object>/`.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use fixedbitset::FixedBitSet;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::abilities::{Calls, is_foreign};
use super::locked;
use crate::dir::{self, Root};
use crate::error::{At as _, FilesError, Result, refuse};
use crate::layout::Layout;
use crate::lock::Locked;
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::name::STATE_FOLDER;
use crate::store::Journal;

pub(crate) const JOURNAL: &str = "journal";
pub(crate) const MANIFEST: &str = "manifest";
const RECEIVER: &str = "receiver";
const SOURCE: &str = "source";
const LOCK: &str = "lock";
pub(super) const TRIAL: &str = "names";
const TRIES: u32 = 100;
const LOCK_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct StateFolder {
    parent: OwnedFd,
    fd: OwnedFd,
    name: String,
    pub(crate) path: PathBuf,
    /// True if the file system keeps no owners and modes, which then identify no owner.
    pub(crate) foreign: bool,
    _lock: Locked,
}

impl StateFolder {
    pub(crate) fn open(root: &Root, object: &[u8; 32]) -> Result<Self> {
        let name = folder_name(object);
        let path = root.path(STATE_FOLDER.as_bytes());
        let begun = Instant::now();
        for _ in 0..=2 * TRIES {
            match Self::try_open(root, &name) {
                Ok(Some(folder)) => return Ok(folder),
                // Another process removed it between two steps.
                Ok(None) | Err(Errno::NOENT) => {}
                Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(LOCK_WAIT / TRIES);
                }
                Err(Errno::WOULDBLOCK) => {
                    let what = "another faircast is receiving the same object there, or removes what \
                                is left of it; let it finish, or choose another directory";
                    return refuse(&root.path, what);
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let what =
                        "must be a directory of your own and is something else; move it away";
                    return refuse(&path, what);
                }
                Err(error) => return Err(error).at(&path, "cannot be used"),
            }
        }
        refuse(&path, "is removed again and again by somebody else")
    }

    fn try_open(root: &Root, name: &str) -> Result<Option<Self>, Errno> {
        let (parent, foreign) = own_directory(root.fd(), STATE_FOLDER)?;
        let (fd, _) = own_directory(parent.as_fd(), name)?;
        let Some(lock) = lock(fd.as_fd())? else { return Ok(None) };
        let path = root.path(STATE_FOLDER.as_bytes()).join(name);
        Ok(Some(Self { parent, fd, name: name.into(), path, foreign, _lock: lock }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn neighbours(&self) -> impl Iterator<Item = Neighbour> + '_ {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_str().unwrap_or_default();
            if is_folder_name(name) && name != self.name {
                names.push(name.to_string());
            }
        }
        names.into_iter().filter_map(|name| self.neighbour(name))
    }

    fn neighbour(&self, name: String) -> Option<Neighbour> {
        let fd = dir::open_directory(self.parent.as_fd(), &name).ok()?;
        if !self.foreign && is_foreign(fd.as_fd()).unwrap_or(true) {
            return None;
        }
        // A folder under construction lacks these, and has nothing to reuse.
        for file in [MANIFEST, JOURNAL] {
            dir::stat(fd.as_fd(), file).ok()??;
        }
        let parent = self.parent.try_clone().ok()?;
        let path = self.path.with_file_name(&name);
        Some(Neighbour { name, parent, fd, path })
    }

    pub(crate) fn find(&self, name: &str) -> Result<Option<File>> {
        match dir::open_file(self.fd(), name, OFlags::RDONLY) {
            Err(Errno::NOENT) => Ok(None),
            file => file.map(Some).map_err(|error| self.cannot(error)),
        }
    }

    pub(crate) fn create(&self, name: &str) -> Result<File> {
        self.remove_file(name)?;
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        dir::open_file(self.fd(), name, how).map_err(|error| self.cannot(error))
    }

    /// Returns the receiver's random identity, by which a sender recognises it after a restart.
    pub(crate) fn identity(&self) -> Result<u64> {
        let mut text = String::new();
        if let Some(file) = self.find(RECEIVER)? {
            let read = file.take(64).read_to_string(&mut text);
            read.map_err(|error| self.cannot(error))?;
        }
        if let Ok(identity) = u64::from_str_radix(text.trim(), 16) {
            return Ok(identity);
        }
        let identity = RandomState::new().build_hasher().finish();
        let mut file = self.create(RECEIVER)?;
        writeln!(file, "{identity:016x}").map_err(|error| self.cannot(error))?;
        Ok(identity)
    }

    pub(super) fn save_source(&self, source: Option<IpAddr>) -> Result<()> {
        match source {
            Some(source) if read_source(self.fd()) != Some(source) => {
                writeln!(self.create(SOURCE)?, "{source}").map_err(|error| self.cannot(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(self.fd(), from, self.fd(), to).map_err(|error| self.cannot(error))
    }

    pub(crate) fn remove_file(&self, name: &str) -> Result<()> {
        dir::remove_file(self.fd(), name).map_err(|error| self.cannot(error))
    }

    pub(crate) fn cannot(&self, error: impl Into<io::Error>) -> FilesError {
        FilesError::io(&self.path, "cannot be written", error)
    }

    pub(super) fn make_directory(&self, name: &str) -> Result<OwnedFd> {
        self.remove_directory(name)?;
        rustix::fs::mkdirat(self.fd(), name, Mode::RWXU)
            .and_then(|()| dir::open_directory(self.fd(), name))
            .map_err(|error| self.cannot(error))
    }

    pub(crate) fn remove_directory(&self, name: &str) -> Result<()> {
        remove_directory(self.fd(), name).map_err(|error| self.cannot(error))
    }

    pub(crate) fn remove(&self) -> Result<()> {
        remove(self.parent.as_fd(), self.fd(), (&self.name, &self.path))
    }
}

fn remove(
    parent: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    (name, path): (&str, &Path),
) -> Result<()> {
    const CANNOT: &str = "cannot be removed";
    let root = rustix::fs::openat(parent, "..", OFlags::RDONLY, Mode::empty()).at(path, CANNOT)?;
    let root = Root { fd: root, path: path.ancestors().nth(2).unwrap_or(path).to_path_buf() };
    locked::restore_left(&root, folder)?;
    remove_directory(folder, TRIAL).at(path, CANNOT)?;
    for name in dir::names_in(folder).at(path, CANNOT)? {
        // The lock goes last: until then no other process can use the folder.
        if name.to_bytes() != LOCK.as_bytes() {
            rustix::fs::unlinkat(folder, &*name, AtFlags::empty()).at(path, CANNOT)?;
        }
    }
    dir::remove_file(folder, LOCK).at(path, CANNOT)?;
    // Another process may use the folder by now, which is no error.
    let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
    let _ = rustix::fs::unlinkat(root.fd(), STATE_FOLDER, AtFlags::REMOVEDIR);
    Ok(())
}

fn remove_directory(parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let fd = match dir::open_directory(parent, name) {
        Err(Errno::NOENT) => return Ok(()),
        fd => fd?,
    };
    for found in dir::names_in(fd.as_fd())? {
        rustix::fs::unlinkat(&fd, &*found, AtFlags::empty())?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

pub(super) struct Neighbour {
    name: String,
    parent: OwnedFd,
    fd: OwnedFd,
    path: PathBuf,
}

impl Neighbour {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn lock(&self) -> Option<Locked> {
        lock(self.fd()).ok().flatten()
    }

    /// Reads manifest and complete groups: takes seconds, so the caller must not hold the lock.
    pub(super) fn content(&self) -> Option<(Manifest, FixedBitSet)> {
        let mut bytes = Vec::new();
        let file = dir::open_file(self.fd(), MANIFEST, OFlags::RDONLY).ok()?;
        file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let object = *blake3::hash(&bytes).as_bytes();
        if folder_name(&object) != self.name {
            return None;
        }
        let manifest = Manifest::decode(&bytes).ok()?;
        let groups = Layout::new(manifest.clone()).groups;
        let journal = dir::open_file(self.fd(), JOURNAL, OFlags::RDONLY).ok()?;
        let complete = Journal::read(journal, &object, groups).ok()?;
        Some((manifest, complete))
    }

    pub(super) fn remove_if_empty(&self) {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.fd) else { return };
        if !entries.flatten().any(|it| it.file_name().to_bytes().ends_with(b".part")) {
            self.remove();
        }
    }

    /// Removes the folder, unless a receiver uses it. Files that cannot be removed only take space.
    pub(super) fn remove(&self) {
        if let Some(_lock) = self.lock() {
            let _ = remove(self.parent.as_fd(), self.fd(), (&self.name, &self.path));
        }
    }
}

pub(super) fn read_source(folder: BorrowedFd<'_>) -> Option<IpAddr> {
    let mut text = String::new();
    dir::open_file(folder, SOURCE, OFlags::RDONLY).ok()?.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn folder_name(object: &[u8; 32]) -> String {
    object[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_folder_name(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes leftovers in `dir` that are unused and unchanged for `age`; adds them to `removed`.
///
/// # Errors
/// The first error of the directory or a leftover, after all leftovers were tried.
pub fn clean(dir: &Path, age: Duration, removed: &mut Vec<PathBuf>) -> Result<()> {
    const CANNOT: &str = "cannot be cleaned";
    let mut failed = Ok(());
    let path = dir.join(STATE_FOLDER);
    let root = File::open(dir).at(dir, "cannot be opened")?;
    let parent = match dir::open_directory(root.as_fd(), STATE_FOLDER) {
        Err(Errno::NOENT) => return Ok(()),
        parent => parent.at(&path, CANNOT)?,
    };
    for name in dir::names_in(parent.as_fd()).at(&path, CANNOT)? {
        let Some(name) = name.to_str().ok().filter(|name| is_folder_name(name)) else { continue };
        let Ok(fd) = dir::open_directory(parent.as_fd(), name) else { continue };
        let touched = [".", JOURNAL].into_iter().filter_map(|name| {
            let stat = dir::stat(fd.as_fd(), name).ok()??;
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).ok()?))
        });
        let touched = touched.max().unwrap_or(SystemTime::UNIX_EPOCH);
        if touched.elapsed().unwrap_or_default() < age {
            continue;
        }
        let Ok(Some(_lock)) = lock(fd.as_fd()) else { continue };
        let path = path.join(name);
        match remove(parent.as_fd(), fd.as_fd(), (name, &path)) {
            Ok(()) => removed.push(path),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    let _ = fs::remove_dir(&path);
    failed
}

/// Opens or creates this user's directory; true beside it if the file system keeps no owners.
fn own_directory(parent: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, bool), Errno> {
    if let Err(error) = rustix::fs::mkdirat(parent, name, Mode::RWXU)
        && error != Errno::EXIST
    {
        return Err(error);
    }
    let fd = dir::open_directory(parent, name)?;
    // In another user's directory files could be exchanged; without owners mount options decide.
    let foreign = is_foreign(fd.as_fd())?;
    if foreign && !Calls::default().ignores_owners(parent)? {
        return Err(Errno::NOTDIR);
    }
    Ok((fd, foreign))
}

fn lock(folder: BorrowedFd<'_>) -> Result<Option<Locked>, Errno> {
    let lock = dir::open_file(folder, LOCK, OFlags::RDWR | OFlags::CREATE)?;
    let lock = Locked::new(lock)?;
    let ours = rustix::fs::fstat(&lock.0)?;
    let there = dir::stat(folder, LOCK)?;
    Ok(there.filter(|there| there.st_ino == ours.st_ino).map(|_| lock))
}
