//! Hard links of an object, created after its files; copies where links are impossible.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use bstr::BStr;
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;

use super::StoreOptions;
use super::attributes::Attributes;
use super::files::{Files, Identity, Location};
use super::survey::DIFFERS;
use crate::dir::{self, Cursor};
use crate::error::{FilesError, Result};
use crate::manifest::Entry;
use crate::name;

/// Name of a new link in the state folder, before it is moved to its place.
const NEW: &str = "name.new";

#[derive(Debug, Default)]
pub(super) struct NewLinks<'a> {
    /// Directories with changed entries.
    pub(super) touched: Vec<&'a BStr>,
    /// Names that are copies, where no link was possible.
    pub(super) copies: u64,
}

pub(super) fn make<'a>(
    options: &StoreOptions,
    files: &'a Files,
    attributes: &mut Attributes<'a>,
    replaced: &BTreeMap<u32, Identity>,
) -> Result<NewLinks<'a>> {
    let mut made = NewLinks::default();
    let numbers: BTreeMap<&BStr, u32> = match has_any(files) {
        true => (0..files.layout.files()).map(|it| (&*files.layout.entry(it).path, it)).collect(),
        false => return Ok(made),
    };
    let mut cursor = Cursor::new(&files.root);
    for entry in files.left_out.kept(&files.layout) {
        let Some(to) = entry.hard_link_to() else { continue };
        let (parent, name) = name::split(&entry.path);
        let path = files.root.path(&entry.path);
        let cannot = |error: Errno| FilesError::io(&path, "cannot be put into its place", error);
        let file = numbers[to];
        let whole = files.layout.entry(file);
        let source = Source::find(files, file)?;
        let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).map_err(cannot)?;
        let there = dir::stat(fd, name).map_err(cannot)?;
        let mut overwrite = options.overwrite;
        if let Some(there) = &there {
            if !dir::is_file(there) {
                return Err(FilesError::refused(&path, IN_THE_WAY));
            }
            if is_one(there, &source.stat) {
                continue;
            }
            let equal = source
                .is_equal(fd, name, there)
                .map_err(|error| FilesError::io(&path, "cannot be compared", error))?;
            if equal && !files.abilities.hard_links {
                continue;
            }
            let damaged = replaced.get(&file).is_some_and(|old| old.is_inode_of(there));
            overwrite |= damaged;
            if !equal && !overwrite {
                return Err(FilesError::refused(&path, DIFFERS));
            }
            overwrite |= equal;
        }
        files.state.remove_file(NEW)?;
        if !source.link(files)? {
            made.copies += 1;
            source.copy(options, files, (attributes, whole))?;
        }
        files.put_into_place(NEW, &path, fd, name, overwrite)?;
        files.state.remove_file(NEW)?;
        made.touched.push(parent.unwrap_or_default());
    }
    Ok(made)
}

pub(super) const IN_THE_WAY: &str =
    "a file is to be received, and something else is there; move it away";

fn has_any(files: &Files) -> bool {
    files.left_out.kept(&files.layout).any(|entry| entry.hard_link_to().is_some())
}

pub(super) fn is_one(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// File that gets another name: in its place, or in the state folder if left out itself.
struct Source {
    stat: Stat,
    directory: std::os::fd::OwnedFd,
    name: Vec<u8>,
}

impl Source {
    fn find(files: &Files, file: u32) -> Result<Self> {
        let path = files.target_path(file);
        let cannot = |error: Errno| FilesError::io(&path, "cannot be opened", error);
        let own = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(|error| FilesError::io(&path, "cannot be opened", error))
        };
        let (directory, name) = match files.location(file) {
            Location::Target | Location::Done => {
                let (parent, name) = name::split(&files.layout.entry(file).path);
                let mut cursor = Cursor::new(&files.root);
                let fd = cursor.enter(parent)?.ok_or(Errno::NOENT).map_err(cannot)?;
                (own(fd)?, name.to_vec())
            }
            _ => (own(files.state.fd())?, Files::part_name(file).into_bytes()),
        };
        let stat = dir::stat(directory.as_fd(), &name).map_err(cannot)?;
        let stat = stat.ok_or(Errno::NOENT).map_err(cannot)?;
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
        match files.abilities.calls.link(from, (files.state.fd(), NEW.as_bytes())) {
            Ok(()) => Ok(true),
            Err(Errno::MLINK | Errno::PERM | Errno::NOTSUP) => Ok(false),
            Err(error) => Err(files.state.cannot(error)),
        }
    }

    fn copy<'a>(
        &self,
        options: &StoreOptions,
        files: &Files,
        (attributes, whole): (&mut Attributes<'a>, &'a Entry),
    ) -> Result<()> {
        let copy = files.state.create(NEW)?;
        let path = files.root.path(&whole.path);
        self.content()
            .and_then(|mut content| std::io::copy(&mut content, &mut &copy))
            .map_err(|error| FilesError::io(&path, "cannot be copied", error))?;
        attributes.give(whole, &path, copy.as_fd())?;
        if options.sync {
            copy.sync_all().map_err(|error| FilesError::io(&path, "cannot be synced", error))?;
        }
        Ok(())
    }
}
