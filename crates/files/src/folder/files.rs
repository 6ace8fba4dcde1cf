//! Files of an object at a receiver, with the present place of each.

use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::BStr;
use faircast_proto::object::Announcement;
use parking_lot::Mutex;
use rustix::fs::{OFlags, RenameFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::LeftOut;
use super::abilities::Abilities;
use super::state::StateFolder;
use crate::dir::{self, Cursor, Root};
use crate::error::{At as _, FilesError, Result};
use crate::handles::{Handles, read_or_zero};
use crate::layout::{Group, Layout};
use crate::name;
use crate::store::Written;

pub(super) const MISPLACED: &str = "cannot be put into its place";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Nowhere,
    /// In a file of the state folder that this run has created: unwritten parts are zero.
    Fresh,
    /// In a file of the state folder, as an earlier run or a copy left it.
    Part,
    /// At its path, from before.
    Target,
    /// At its path, moved there by this run.
    Done,
}

/// File as `stat` saw it. Any later change makes another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    size: i64,
    /// Seconds and nanoseconds of the last change of the inode.
    changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Self {
        let nanos = i64::try_from(stat.st_ctime_nsec).unwrap_or(0);
        let changed = (stat.st_ctime, nanos);
        Self { device: stat.st_dev, inode: stat.st_ino, size: stat.st_size, changed }
    }
}

#[derive(Debug)]
pub struct Files {
    pub(crate) layout: Arc<Layout>,
    pub(crate) root: Root,
    pub(crate) state: StateFolder,
    pub(super) abilities: Abilities,
    pub(super) left_out: Arc<LeftOut>,
    pub(super) inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) handles: Handles,
    locations: Vec<Location>,
}

impl Files {
    pub(super) fn new(
        layout: Layout,
        root: Root,
        state: StateFolder,
        (abilities, left_out, locations): (Abilities, Arc<LeftOut>, Vec<Location>),
    ) -> Self {
        let inner = Mutex::new(Inner { handles: Handles::default(), locations });
        Self { layout: Arc::new(layout), root, state, abilities, left_out, inner }
    }

    pub(crate) fn location(&self, file: u32) -> Location {
        self.inner.lock().locations[file as usize]
    }

    pub(crate) fn set_location(&self, file: u32, location: Location) {
        let mut inner = self.inner.lock();
        inner.locations[file as usize] = location;
        inner.handles.open.pop(&file);
    }

    pub(crate) fn mark_written(&self, file: u32) {
        let mut inner = self.inner.lock();
        if inner.locations[file as usize] == Location::Fresh {
            inner.locations[file as usize] = Location::Part;
        }
    }

    pub(crate) fn part_name(file: u32) -> String {
        format!("{file}.part")
    }

    pub(crate) fn target_path(&self, file: u32) -> PathBuf {
        self.root.path(&self.layout.entry(file).path)
    }

    pub(crate) fn write(&self, group: &Group, within: u32, bytes: &[u8]) -> Result<()> {
        let handle = self.part(group.file)?;
        handle.write_all_at(bytes, group.file_offset + u64::from(within)).map_err(|error| {
            FilesError::io(&self.target_path(group.file), "cannot be written", error)
        })
    }

    fn read_at(&self, file: u32, offset: u64, out: &mut [u8]) -> Result<()> {
        let Some(handle) = self.handle(file)? else {
            out.fill(0);
            return Ok(());
        };
        let read = read_or_zero(&handle, offset, out).map(drop);
        read.map_err(|error| FilesError::io(&self.target_path(file), "cannot be read back", error))
    }

    pub(crate) fn holes_are_zero(&self, file: u32) -> Result<bool> {
        let mut piece = vec![0; 1 << 16];
        for Range { start: mut at, end } in self.layout.entry(file).hole_ranges() {
            while let Some(data) = self.data_from(file, at)?.filter(|data| *data < end) {
                let rest = usize::try_from(end - data).unwrap_or(piece.len());
                let piece = &mut piece[..rest.min(1 << 16)];
                self.read_at(file, data, piece)?;
                if piece.iter().any(|byte| *byte != 0) {
                    return Ok(false);
                }
                at = data + piece.len() as u64;
            }
        }
        Ok(true)
    }

    /// Returns the start of data at or after `at`; `at` if the file system has no holes.
    fn data_from(&self, file: u32, at: u64) -> Result<Option<u64>> {
        let Some(handle) = self.handle(file)? else { return Ok(None) };
        match rustix::fs::seek(&*handle, SeekFrom::Data(at)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::NOTSUP) => Ok(Some(at)),
            Err(error) => Err(error).at(self.target_path(file), "cannot be read back"),
        }
    }

    pub(crate) fn part(&self, file: u32) -> Result<Arc<File>> {
        debug_assert!(!matches!(self.location(file), Location::Target | Location::Done));
        if let Some(handle) = self.handle(file)? {
            return Ok(handle);
        }
        let mut inner = self.inner.lock();
        let handle = inner.handles.get(file, || {
            let new = self.state.create(&Self::part_name(file))?;
            let size = self.layout.entry(file).size();
            new.set_len(size).map_err(|error| self.state.cannot(error))?;
            Ok::<_, FilesError>(new)
        })?;
        inner.locations[file as usize] = Location::Fresh;
        Ok(handle)
    }

    pub(crate) fn put_into_place(
        &self,
        part: &str,
        path: &Path,
        to: BorrowedFd<'_>,
        name: &BStr,
        overwrite: bool,
    ) -> Result<()> {
        rename(self.state.fd(), part, to, name, overwrite).map_err(|error| match error {
            Errno::EXIST => FilesError::refused(
                path,
                "has appeared while it was received; move it away, or start recv with --overwrite",
            ),
            error => FilesError::io(path, MISPLACED, error),
        })
    }

    pub(crate) fn handle(&self, file: u32) -> Result<Option<Arc<File>>> {
        let mut inner = self.inner.lock();
        let Inner { handles, locations } = &mut *inner;
        match locations[file as usize] {
            Location::Nowhere => Ok(None),
            Location::Fresh | Location::Part => {
                handles.get(file, || self.open_part(file)).map(Some)
            }
            Location::Target | Location::Done => {
                handles.get(file, || self.open_target(file)).map(Some)
            }
        }
    }

    fn open_part(&self, file: u32) -> Result<File> {
        dir::open_file(self.state.fd(), Self::part_name(file), OFlags::RDWR)
            .map_err(|error| self.state.cannot(error))
    }

    fn open_target(&self, file: u32) -> Result<File> {
        const CANNOT: &str = "cannot be read";
        let path = self.target_path(file);
        let (parent, name) = name::split(&self.layout.entry(file).path);
        let mut cursor = Cursor::new(&self.root);
        let parent = cursor.enter(parent)?.ok_or(Errno::NOENT).at(&path, CANNOT)?;
        dir::open_file(parent, name, OFlags::RDONLY).at(&path, CANNOT)
    }
}

impl Written for Files {
    fn layout(&self, _announced: &Announcement) -> Result<Arc<Layout>> {
        Ok(self.layout.clone())
    }

    fn read(&self, group: &Group, within: u32, out: &mut [u8]) -> Result<()> {
        self.read_at(group.file, group.file_offset + u64::from(within), out)
    }
}

fn rename(
    from: BorrowedFd<'_>,
    part: &str,
    to: BorrowedFd<'_>,
    name: &BStr,
    overwrite: bool,
) -> Result<(), Errno> {
    if !overwrite {
        match rustix::fs::renameat_with(from, part, to, &**name, RenameFlags::NOREPLACE) {
            // Some file systems lack `NOREPLACE`; the check before the rename leaves a race.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                if dir::stat(to, name)?.is_some() {
                    return Err(Errno::EXIST);
                }
            }
            done => return done,
        }
    }
    rustix::fs::renameat(from, part, to, &**name)
}
