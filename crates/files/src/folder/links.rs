//! Symbolic and hard links of an object, created at the end of a transfer; copies if impossible.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use bstr::BStr;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use super::files::{Files, Identity, Location, MISPLACED};
use super::finish::Finish;
use super::survey::DIFFERS;
use crate::dir::{self, Cursor};
use crate::error::{At as _, Result, refuse};
use crate::manifest::Entry;
use crate::name;

/// Names of a new link in the state folder, before it is moved to its place.
const NEW: &str = "link.new";
const NEW_FILE: &str = "name.new";

pub(super) const IN_THE_WAY: &str =
    "a link is to be received, and something else is there; move it away";

impl Finish<'_> {
    /// Makes the symbolic links. One with another target is replaced only with `overwrite`.
    pub(super) fn make_links(&mut self) -> Result<()> {
        const UNREADABLE: &str = "cannot be read";
        let files = self.files;
        let mut cursor = Cursor::new(&files.root);
        for entry in files.left_out.kept(&files.layout) {
            let Some(target) = entry.link_target() else { continue };
            let (parent, name) = name::split(&entry.path);
            let path = files.root.path(&entry.path);
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).at(&path, MISPLACED)?;
            if let Some(there) = dir::stat(fd, name).at(&path, UNREADABLE)? {
                if is_same(fd, name, &there, target).at(&path, UNREADABLE)? {
                    continue;
                }
                if !is_link(&there) {
                    return refuse(&path, IN_THE_WAY);
                }
            }
            // An interrupted run may have left it.
            files.state.remove_file(NEW)?;
            let state = files.state.fd();
            let made = files.abilities.calls.symlink(target, state, NEW);
            made.map_err(|error| files.state.cannot(error))?;
            self.attributes.give_link(entry, &path, state, NEW)?;
            files.put_into_place(NEW, &path, fd, name, self.shared.options.overwrite)?;
            self.touched.insert(parent.unwrap_or_default());
        }
        Ok(())
    }
}

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

pub(super) const FILE_IN_THE_WAY: &str =
    "a file is to be received, and something else is there; move it away";

impl<'a> Finish<'a> {
    /// Makes the hard links. Returns the number of copies where no link was possible.
    pub(super) fn make_hard_links(&mut self, replaced: &BTreeMap<u32, Identity>) -> Result<u64> {
        let files = self.files;
        let links = || {
            let kept = files.left_out.kept(&files.layout);
            kept.filter_map(|entry| Some((entry, entry.hard_link_to()?)))
        };
        if links().next().is_none() {
            return Ok(0);
        }
        let path = |file: u32| &*files.layout.entry(file).path;
        let numbers: BTreeMap<&BStr, u32> =
            (0..files.layout.files()).map(|file| (path(file), file)).collect();
        let mut copies = 0;
        let mut cursor = Cursor::new(&files.root);
        for (entry, to) in links() {
            let (parent, name) = name::split(&entry.path);
            let path = files.root.path(&entry.path);
            let file = numbers[to];
            let source = Source::find(files, file)?;
            let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).at(&path, MISPLACED)?;
            let mut overwrite = self.shared.options.overwrite;
            if let Some(there) = dir::stat(fd, name).at(&path, "cannot be looked at")? {
                if !dir::is_file(&there) {
                    return refuse(&path, FILE_IN_THE_WAY);
                }
                if is_one(&there, &source.stat) {
                    continue;
                }
                let equal = source.is_equal(fd, name, &there).at(&path, "cannot be compared")?;
                if equal && !files.abilities.hard_links {
                    continue;
                }
                let inode = (there.st_dev, there.st_ino);
                overwrite |=
                    replaced.get(&file).is_some_and(|old| (old.device, old.inode) == inode);
                if !equal && !overwrite {
                    return refuse(&path, DIFFERS);
                }
                overwrite |= equal;
            }
            files.state.remove_file(NEW_FILE)?;
            if !source.link(files)? {
                copies += 1;
                self.copy(&source, files.layout.entry(file))?;
            }
            files.put_into_place(NEW_FILE, &path, fd, name, overwrite)?;
            files.state.remove_file(NEW_FILE)?;
            self.touched.insert(parent.unwrap_or_default());
        }
        Ok(copies)
    }

    fn copy(&mut self, source: &Source, whole: &'a Entry) -> Result<()> {
        let copy = self.files.state.create(NEW_FILE)?;
        let path = self.files.root.path(&whole.path);
        source
            .content()
            .and_then(|mut content| std::io::copy(&mut content, &mut &copy))
            .at(&path, "cannot be copied")?;
        self.attributes.give(whole, &path, copy.as_fd())?;
        if self.shared.options.sync {
            copy.sync_all().at(&path, "cannot be synced")?;
        }
        Ok(())
    }
}

pub(super) fn is_one(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// File that gets another name: in its place, or in the state folder if left out itself.
struct Source {
    stat: Stat,
    directory: OwnedFd,
    name: Vec<u8>,
}

impl Source {
    fn find(files: &Files, file: u32) -> Result<Self> {
        const CANNOT: &str = "cannot be opened";
        let path = files.target_path(file);
        let mut cursor = Cursor::new(&files.root);
        let (directory, name) = match files.location(file) {
            Location::Target | Location::Done => {
                let (parent, name) = name::split(&files.layout.entry(file).path);
                let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).at(&path, CANNOT)?;
                (fd, name.to_vec())
            }
            _ => (files.state.fd(), Files::part_name(file).into_bytes()),
        };
        let stat = dir::stat(directory, &name).at(&path, CANNOT)?;
        let stat = stat.ok_or(Errno::NOENT).at(&path, CANNOT)?;
        let directory = directory.try_clone_to_owned().at(&path, CANNOT)?;
        Ok(Self { stat, directory, name })
    }

    /// Opens the content. A link needs no open file: the sender's mode may forbid to read.
    fn content(&self) -> std::io::Result<File> {
        Ok(dir::open_file(self.directory.as_fd(), &self.name, OFlags::RDONLY)?)
    }

    fn is_equal(&self, parent: BorrowedFd<'_>, name: &BStr, there: &Stat) -> std::io::Result<bool> {
        if there.st_size != self.stat.st_size {
            return Ok(false);
        }
        let other = dir::open_file(parent, name, OFlags::RDONLY)?;
        let (mut ours, mut theirs) = (BufReader::new(self.content()?), BufReader::new(other));
        let (mut a, mut b) = ([0; 1 << 14], [0; 1 << 14]);
        loop {
            let count = ours.read(&mut a)?;
            if count == 0 {
                return Ok(true);
            }
            if theirs.read_exact(&mut b[..count]).is_err() || a[..count] != b[..count] {
                return Ok(false);
            }
        }
    }

    fn link(&self, files: &Files) -> Result<bool> {
        if !files.abilities.hard_links {
            return Ok(false);
        }
        let from = (self.directory.as_fd(), &*self.name);
        match files.abilities.calls.link(from, (files.state.fd(), NEW_FILE.as_bytes())) {
            Ok(()) => Ok(true),
            Err(Errno::MLINK | Errno::PERM | Errno::NOTSUP) => Ok(false),
            Err(error) => Err(files.state.cannot(error)),
        }
    }
}
