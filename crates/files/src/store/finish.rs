//! The end of a transfer: what came is compared with its digests, and put into its place.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use faircast_proto::object::Verdict;
use rustix::fs::{Mode, RenameFlags, Stat};
use rustix::io::Errno;

use super::attributes::Attributes;
use super::files::{Files, Place};
use super::links;
use super::worker::{Ready, Shared};
use crate::dir::{self, Cursor};
use crate::error::FilesError;
use crate::hole_hashes::file_hashes;
use crate::layout::push_joined;
use crate::manifest::Entry;

/// Times that content may be found damaged until the source is at fault.
const ROUNDS_MAX: u32 = 8;
/// Files and directories from which on a whole file system is synced at once.
const SYNC_ONE_BY_ONE_MAX: usize = 32;

/// By which it is known that a file is the same as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Self {
        let nanos = i64::try_from(stat.st_ctime_nsec).unwrap_or(0);
        let changed = (stat.st_ctime, nanos);
        Self { device: stat.st_dev, inode: stat.st_ino, size: stat.st_size, changed }
    }
}

/// Compares, and where all is intact puts it into its place. Returns the damaged groups too.
pub(crate) fn verify(
    shared: &Shared,
    files: &Files,
    ready: &mut Ready,
    announced: Option<&[u8; 32]>,
) -> Result<(Verdict, Vec<u32>), FilesError> {
    check_digests(shared, files, announced)?;
    check_holes(files, ready)?;
    let damaged = compare(shared, files, ready)?;
    ready.flush(shared, files)?;
    if damaged.is_empty() {
        let hashes = hash_files(shared, files, ready)?;
        let attributes = Attributes::new(&shared.options);
        Finish { shared, files, attributes, made: Vec::new(), touched: BTreeSet::new() }
            .run(ready)?;
        shared.counters.file_hashes.get_or_init(|| hashes);
        return Ok((Verdict::Intact, damaged));
    }
    ready.rounds += 1;
    if ready.rounds > ROUNDS_MAX {
        let path = files.target_path(files.layout.group(damaged[0]).file);
        return Err(FilesError::Sender(format!(
            "{} does not become what its digests say, after {ROUNDS_MAX} times; send it again",
            path.display()
        )));
    }
    ready.gone(shared, files, &damaged)?;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for index in &damaged {
        let group = files.layout.group(*index);
        shared.counters.bytes_damaged.fetch_add(group.len.into(), Ordering::Relaxed);
        push_joined(&mut ranges, group.range());
        match files.place(group.file) {
            Place::Target => take_over(files, ready, group.file)?,
            _ => files.not_fresh(group.file),
        }
    }
    ready.flush(shared, files)?;
    Ok((Verdict::Damaged(ranges), damaged))
}

fn check_digests(
    shared: &Shared,
    files: &Files,
    announced: Option<&[u8; 32]>,
) -> Result<(), FilesError> {
    let Some(announced) = announced else { return Ok(()) };
    let hash = shared.digests().hash().map_err(|error| files.state.cannot(error))?;
    match hash == *announced {
        true => Ok(()),
        false => Err(FilesError::Sender("the digests are not the ones it announced".into())),
    }
}

/// The groups that are not what their digests say.
fn compare(shared: &Shared, files: &Files, ready: &mut Ready) -> Result<Vec<u32>, FilesError> {
    let mut damaged = Vec::new();
    for index in 0..files.layout.groups() {
        if shared.stopping() {
            return Err(FilesError::refused(&shared.options.dir, "was given up"));
        }
        let cannot = |error| files.state.cannot(error);
        if !ready.hashed.get(index) {
            ready.hash(files, &files.layout.group(index))?;
        }
        let want = shared.digests().digest(index).map_err(cannot)?;
        if ready.chain.digest(index).map_err(cannot)? != want {
            damaged.push(index);
        } else if !ready.have.get(index) {
            ready.complete(&files.layout.group(index));
        }
    }
    Ok(damaged)
}

/// Where something else than zeros is in a hole of a file that was there before, or of one of an
/// earlier run, all of its content is taken over into a file with that hole.
fn check_holes(files: &Files, ready: &mut Ready) -> Result<(), FilesError> {
    for file in 0..files.layout.files() {
        let written = matches!(files.place(file), Place::Target | Place::Part);
        if written && !files.layout.entry(file).holes().is_empty() && !files.holes_are_zero(file)? {
            take_over(files, ready, file)?;
        }
    }
    Ok(())
}

/// What every file hashes to, from the digests that all were compared with.
fn hash_files(
    shared: &Shared,
    files: &Files,
    ready: &mut Ready,
) -> Result<Vec<Option<[u8; 32]>>, FilesError> {
    let Ready { hole_hashes, chain, .. } = ready;
    let hashes =
        file_hashes(hole_hashes, &files.layout, || shared.stopping(), |group| chain.digest(group));
    hashes
        .map_err(|error| files.state.cannot(error))?
        .ok_or_else(|| FilesError::refused(&shared.options.dir, "was given up"))
}

/// Copies a file that was there before, and of which something must be had anew, so that what is
/// there stays as it is until the end. Of one from an earlier run the copy takes the place.
fn take_over(files: &Files, ready: &mut Ready, file: u32) -> Result<(), FilesError> {
    const COPY: &str = "copy";
    let Some(old) = files.handle(file)? else { return Ok(()) };
    let path = files.target_path(file);
    let cannot = |error| FilesError::io(&path, "cannot be copied", error);
    let entry = files.layout.entry(file);
    let copy = files.state.create(COPY)?;
    copy.set_len(entry.size()).map_err(|error| files.state.cannot(error))?;
    if entry.holes().is_empty() {
        std::io::copy(&mut (&*old).take(entry.size()), &mut (&copy)).map_err(cannot)?;
    } else {
        let mut piece = vec![0; 1 << 20];
        for index in files.layout.groups_of(file) {
            let group = files.layout.group(index);
            let piece = &mut piece[..group.len as usize];
            files.read(&group, 0, piece)?;
            copy.write_all_at(piece, group.file_offset).map_err(cannot)?;
        }
    }
    drop(copy);
    files.state.rename(COPY, &Files::part_name(file))?;
    files.set_place(file, Place::Part);
    // They ascend by file.
    if let Ok(at) = ready.targets.binary_search_by_key(&file, |(of, _)| *of) {
        let (_, identity) = ready.targets.remove(at);
        ready.replaced.insert(file, identity);
    }
    for index in files.layout.groups_of(file) {
        // What was copied is hashed again: it may have changed in between.
        ready.hashed.set(index, false);
        if ready.have.get(index) {
            ready.complete(&files.layout.group(index));
        }
    }
    ready.rehash();
    Ok(())
}

/// Putting everything into its place.
struct Finish<'a> {
    shared: &'a Shared,
    files: &'a Files,
    attributes: Attributes<'a>,
    /// Entries of directories that were made.
    made: Vec<&'a Entry>,
    /// Directories in which something was made; the root is "".
    touched: BTreeSet<&'a str>,
}

impl Finish<'_> {
    fn run(mut self, ready: &Ready) -> Result<(), FilesError> {
        self.check_unchanged(ready)?;
        self.prepare()?;
        self.make_directories()?;
        self.rename(ready)?;
        let touched = links::make(self.shared, self.files, &mut self.attributes)?;
        self.touched.extend(touched);
        self.files.close();
        self.finish_directories()?;
        self.sync_directories()?;
        self.files.state.remove()
    }

    /// What was there before and was compared must be what is there now.
    fn check_unchanged(&mut self, ready: &Ready) -> Result<(), FilesError> {
        let mut cursor = Cursor::new(&self.files.root);
        for (file, identity) in &ready.targets {
            let entry = self.files.layout.entry(*file);
            let path = self.files.target_path(*file);
            let cannot = |error| FilesError::io(&path, "cannot be looked at", error);
            let (parent, name) = dir::split(&entry.path);
            let parent = cursor.enter(parent)?;
            let there = match parent {
                Some(parent) => dir::stat(parent, name).map_err(cannot)?,
                None => None,
            };
            if there.as_ref().map(Identity::of) != Some(*identity) {
                return Err(FilesError::refused(
                    &path,
                    "was changed while it was compared; receive again when nothing writes to it",
                ));
            }
            if let Some(there) = there.filter(|there| self.attributes.lacks(entry, there))
                && let Some(handle) = self.files.handle(*file)?
            {
                self.attributes.renew(entry, &path, handle.as_fd(), &there)?;
            }
            self.shared.counters.files_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives what was received its mode and time, and gets it to the disk.
    fn prepare(&mut self) -> Result<(), FilesError> {
        let files = self.files;
        let own = |file: &u32| files.place(*file) != Place::Target;
        let count = (0..files.layout.files()).filter(own).count();
        let one_by_one = count <= SYNC_ONE_BY_ONE_MAX || !CAN_SYNC_ALL;
        for file in (0..files.layout.files()).filter(own) {
            if self.shared.stopping() {
                return Err(FilesError::refused(&self.shared.options.dir, "was given up"));
            }
            let entry = files.layout.entry(file);
            let part = files.part(file)?;
            let path = files.target_path(file);
            self.attributes.give(entry, &path, part.as_fd())?;
            if self.shared.options.sync && one_by_one {
                part.sync_all()
                    .map_err(|error| FilesError::io(&path, "cannot be synced", error))?;
            }
        }
        if self.shared.options.sync && !one_by_one {
            sync_all(files.state.fd()).map_err(|error| files.state.cannot(error))?;
        }
        Ok(())
    }

    fn make_directories(&mut self) -> Result<(), FilesError> {
        let files = self.files;
        let mut cursor = Cursor::new(&files.root);
        for entry in files.layout.manifest.entries().iter().filter(|entry| entry.is_directory()) {
            let path = files.root.path(&entry.path);
            let cannot = |error: Errno| FilesError::io(&path, "cannot be made", error);
            let (parent, name) = dir::split(&entry.path);
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).map_err(cannot)?;
            match rustix::fs::mkdirat(fd, name, Mode::RWXU) {
                Ok(()) => {
                    self.made.push(entry);
                    self.touched.insert(parent.unwrap_or(""));
                    self.touched.insert(&entry.path);
                    cursor.look_again();
                    // Now, so that a run that is cut off here leaves no more than the time wrong.
                    let made = cursor.enter(Some(&entry.path))?.ok_or(Errno::NOENT);
                    dir::set_mode(made.map_err(cannot)?, entry.mode | 0o700).map_err(cannot)?;
                }
                Err(Errno::EXIST) => {
                    // It is one, and no link, or entering it fails.
                    cursor.enter(Some(&entry.path))?;
                }
                Err(error) => return Err(cannot(error)),
            }
        }
        Ok(())
    }

    fn rename(&mut self, ready: &Ready) -> Result<(), FilesError> {
        let files = self.files;
        let mut cursor = Cursor::new(&files.root);
        for file in 0..files.layout.files() {
            if files.place(file) == Place::Target {
                continue;
            }
            let (parent, name) = dir::split(&files.layout.entry(file).path);
            let path = files.target_path(file);
            let cannot =
                |error: Errno| FilesError::io(&path, "cannot be put into its place", error);
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).map_err(cannot)?;
            let part = Files::part_name(file);
            let overwrite = self.shared.options.overwrite
                || match ready.replaced.get(&file) {
                    // What was damaged may be replaced, and nothing that came since.
                    Some(old) => {
                        let there = dir::stat(fd, name).map_err(cannot)?;
                        there.as_ref().map(Identity::of) == Some(*old)
                    }
                    None => false,
                };
            match rename(files.state.fd(), &part, fd, name, overwrite) {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    return Err(FilesError::refused(
                        &path,
                        "has appeared while it was received; move it away, or start recv with --overwrite",
                    ));
                }
                Err(error) => return Err(cannot(error)),
            }
            files.set_place(file, Place::Done);
            self.touched.insert(parent.unwrap_or(""));
            self.shared.counters.files_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Modes and times of directories that were made; the innermost first, since what is made in
    /// one changes its time, and a mode may take away the right to.
    fn finish_directories(&mut self) -> Result<(), FilesError> {
        let mut cursor = Cursor::new(&self.files.root);
        for entry in self.made.iter().rev() {
            let path = self.files.root.path(&entry.path);
            let cannot = |error: Errno| FilesError::io(&path, "cannot be opened", error);
            let fd = cursor.enter(Some(&entry.path))?.ok_or(Errno::NOENT).map_err(cannot)?;
            self.attributes.give(entry, &path, fd)?;
        }
        Ok(())
    }

    fn sync_directories(&self) -> Result<(), FilesError> {
        if !self.shared.options.sync {
            return Ok(());
        }
        let root = &self.files.root;
        let cannot = |path: &str| {
            let path = root.path(path);
            move |error: Errno| FilesError::io(&path, "cannot be synced", error)
        };
        if self.touched.len() > SYNC_ONE_BY_ONE_MAX && CAN_SYNC_ALL {
            return sync_all(root.fd()).map_err(cannot(""));
        }
        let mut cursor = Cursor::new(root);
        for path in &self.touched {
            let fd = cursor.enter((!path.is_empty()).then_some(*path));
            // One whose mode forbids to look into it was just made by us, and its parent says so.
            if let Ok(Some(fd)) = fd {
                rustix::fs::fsync(fd).map_err(cannot(path))?;
            }
        }
        Ok(())
    }
}

/// Moves a file or a link into its place; unless `overwrite`, only where nothing is.
pub(super) fn rename(
    from: BorrowedFd<'_>,
    part: &str,
    to: BorrowedFd<'_>,
    name: &str,
    overwrite: bool,
) -> Result<(), Errno> {
    if !overwrite {
        match rustix::fs::renameat_with(from, part, to, name, RenameFlags::NOREPLACE) {
            // Some file systems cannot; then we look, which leaves a moment in between.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                if dir::stat(to, name)?.is_some() {
                    return Err(Errno::EXIST);
                }
            }
            done => return done,
        }
    }
    rustix::fs::renameat(from, part, to, name)
}

#[cfg(target_os = "linux")]
const CAN_SYNC_ALL: bool = true;
#[cfg(not(target_os = "linux"))]
const CAN_SYNC_ALL: bool = false;

/// Gets all of a file system to the disk: much cheaper than thousands of files one by one.
fn sync_all(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::syncfs(fd.as_fd());
    #[cfg(not(target_os = "linux"))]
    rustix::fs::fsync(fd.as_fd())
}
