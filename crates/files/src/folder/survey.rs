//! Survey of a folder before an object is received: existing files, obstacles, and needed room.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use bstr::{BStr, BString};
use fixedbitset::FixedBitSet;
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;

use super::abilities::{Abilities, SameTime};
use super::attributes::Attributes;
use super::files::{Files, Identity, Location};
use super::state::StateFolder;
use super::{Folder, LeftOut, hard_links, links, locked, obstacles, reuse};
use crate::dir::{self, Cursor, Root};
use crate::error::{FilesError, Result};
use crate::layout::Layout;
use crate::manifest::Entry;
use crate::name;
use crate::store::Shared;

pub(super) const DIFFERS: &str =
    "is there already and differs; move it away, or start recv with --overwrite";

/// Object, and folder that is to receive it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) shared: &'a Shared<Folder>,
    pub(super) layout: &'a Layout,
    pub(super) root: &'a Root,
    pub(super) state: &'a StateFolder,
    pub(super) abilities: &'a Abilities,
    pub(super) left_out: &'a LeftOut,
}

/// Existing files of an object.
#[derive(Debug, Default)]
pub(super) struct Existing {
    /// Location of each file, by its number.
    pub(super) locations: Vec<Location>,
    /// Files at their paths with the object's size and time, ascending by number.
    pub(super) targets: Vec<(u32, Identity)>,
    /// Targets whose times match within rounding only.
    pub(super) doubtful: BTreeSet<u32>,
    /// Files at their paths that are shorter than the object's: logs and other files that grow.
    grown: BTreeSet<u32>,
    /// Read-only directories of this user, in which files are to be made.
    pub(super) locked: Vec<BString>,
}

/// Room that the rest of an object needs.
#[derive(Default)]
struct Need {
    bytes: u64,
    inodes: u64,
}

/// File system of the state folder, from which files are moved to their locations by a rename.
struct FileSystem {
    device: u64,
    mount: Option<u64>,
}

/// Comparison of an object with the existing entries of its folder.
pub(super) struct Survey<'a> {
    scope: Scope<'a>,
    file_system: FileSystem,
    existing: Existing,
    need: Need,
}

impl<'a> Survey<'a> {
    pub(super) fn new(scope: Scope<'a>) -> Result<Self> {
        let state = scope.state;
        let stat = rustix::fs::fstat(state.fd()).map_err(|error| state.cannot(error))?;
        let file_system = FileSystem { device: stat.st_dev, mount: obstacles::mount(state.fd()) };
        let locations = vec![Location::Nowhere; scope.layout.files() as usize];
        let existing = Existing { locations, ..Existing::default() };
        Ok(Self { scope, file_system, existing, need: Need::default() })
    }

    /// Finds existing entries, and obstacles to those that are to be made.
    pub(super) fn entries(&mut self) -> Result<()> {
        let Scope { shared, layout, root, left_out, abilities, .. } = self.scope;
        let mut attributes = Attributes::new(&shared.options, abilities);
        let mut cursor = Cursor::new(root);
        let mut next_file = 0;
        let mut checked: Option<Option<&BStr>> = None;
        for (index, entry) in layout.manifest.entries().iter().enumerate() {
            shared.go_on()?;
            let file = next_file;
            next_file += u32::from(entry.has_content());
            if left_out.contains(index) {
                continue;
            }
            let (parent, name) = name::split(&entry.path);
            let directory = cursor.enter(parent)?;
            let there = match directory {
                Some(fd) => dir::stat(fd, name).map_err(|error| {
                    FilesError::io(&root.path(&entry.path), "cannot be looked at", error)
                })?,
                None => None,
            };
            let is_target = match (directory, &there) {
                (Some(fd), Some(there)) => self.scope.is_target(entry, fd, there)?,
                _ => false,
            };
            let is_made = !is_target && (!entry.is_directory() || there.is_none());
            if let Some(fd) = directory.filter(|_| is_made && checked != Some(parent)) {
                self.check_directory(fd, parent)?;
                checked = Some(parent);
            }
            if is_made {
                self.need.add_inode(&self.scope, entry);
            }
            let (Some(parent), Some(stat)) = (directory, &there) else { continue };
            let path = &root.path(&entry.path);
            let present = obstacles::Present { path, parent, name, stat };
            if is_made {
                present.check_replaced()?;
            }
            if !entry.has_content() {
                continue;
            }
            if is_target && let Some(lack) = attributes.lacks(entry, stat) {
                present.check_changed(entry, lack)?;
            }
            self.existing.note(&self.scope, file, (stat, is_target));
        }
        Ok(())
    }

    fn check_directory(&mut self, fd: BorrowedFd<'_>, below: Option<&BStr>) -> Result<()> {
        let path = self.scope.root.path(below.unwrap_or_default());
        let cannot = |error| FilesError::io(&path, "cannot be written to", error);
        let stat = rustix::fs::fstat(fd).map_err(cannot)?;
        let FileSystem { device, mount } = self.file_system;
        if stat.st_dev != device || obstacles::mount(fd) != mount {
            return Err(cannot(Errno::XDEV));
        }
        obstacles::check_directory(&path, fd)?;
        if locked::is_locked(fd).map_err(cannot)? {
            self.existing.locked.push(below.unwrap_or_default().to_owned());
        }
        Ok(())
    }

    /// Copies or moves content of other objects and of grown files here. True if any was found.
    pub(super) fn reuse(&self, have: &mut FixedBitSet) -> Result<bool> {
        let Scope { shared, layout, root, state, .. } = self.scope;
        let before = have.count_ones(..);
        let has_nothing = |file: &u32| {
            let groups = layout.groups_of(*file);
            self.existing.locations[*file as usize] == Location::Nowhere
                && !groups.is_empty()
                && !groups.into_iter().any(|group| have.contains(group as usize))
        };
        let mut missing: Vec<u32> = (0..layout.files()).filter(has_nothing).collect();
        reuse::from_others(shared, (layout, state), &mut missing, have)?;
        missing.retain(|file| self.existing.grown.contains(file));
        reuse::from_targets(shared, (layout, root, state), &missing, have)?;
        Ok(have.count_ones(..) > before)
    }

    /// Finds the files of the state folder. Groups of the journal without a file are forgotten.
    pub(super) fn parts(&mut self, have: &mut FixedBitSet) -> Result<()> {
        let Scope { layout, abilities, .. } = self.scope;
        for file in 0..layout.files() {
            let groups = layout.groups_of(file);
            let location = &mut self.existing.locations[file as usize];
            if *location == Location::Target {
                // Existing targets provide these groups, not the journal.
                groups.for_each(|group| have.set(group as usize, false));
                continue;
            }
            let size = layout.entry(file).size();
            let mut missing = if abilities.sparse { layout.content_of(file) } else { size };
            if groups.clone().any(|group| have.contains(group as usize)) {
                match self.scope.part(file, size)? {
                    Some(kept) => {
                        *location = Location::Part;
                        missing = missing.saturating_sub(kept);
                    }
                    None => groups.for_each(|group| have.set(group as usize, false)),
                }
            }
            self.need.bytes += missing;
        }
        Ok(())
    }

    /// Returns the existing files, if the file system has room for the others.
    pub(super) fn finish(self) -> Result<Existing> {
        let Scope { root, shared, .. } = self.scope;
        let dir = &shared.options.dir;
        let space = rustix::fs::fstatvfs(root.fd())
            .map_err(|error| FilesError::io(dir, "cannot be looked at", error))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let Need { bytes, inodes } = self.need;
        if bytes > free {
            let what = format!(
                "{bytes} bytes are still to be received, and its file system has room for {free}; \
                 make room"
            );
            return Err(FilesError::refused(dir, what));
        }
        // Some file systems do not report inodes.
        if space.f_files > 0 && inodes > space.f_favail {
            let what = format!(
                "{inodes} files are to be made, and its file system has room for {}; make room",
                space.f_favail
            );
            return Err(FilesError::refused(dir, what));
        }
        Ok(self.existing)
    }
}

impl Existing {
    fn note(&mut self, scope: &Scope<'_>, file: u32, (there, is_target): (&Stat, bool)) {
        let entry = scope.layout.entry(file);
        if is_target {
            self.locations[file as usize] = Location::Target;
            self.targets.push((file, Identity::of(there)));
            if scope.abilities.compare_time(there, entry.mtime) == SameTime::Rounded {
                self.doubtful.insert(file);
            }
        } else if u64::try_from(there.st_size).is_ok_and(|size| size < entry.size())
            && entry.holes().is_empty()
        {
            self.grown.insert(file);
        }
    }
}

impl Need {
    /// Adds the inode of a new entry. Without hard links each name is a copy of its file.
    fn add_inode(&mut self, scope: &Scope<'_>, entry: &Entry) {
        let linked = scope.layout.hard_linked(entry);
        if scope.abilities.hard_links {
            self.inodes += u64::from(linked.is_none());
        } else {
            self.inodes += 1;
            self.bytes += linked.map_or(0, Entry::size);
        }
    }
}

impl Scope<'_> {
    /// True if the entry is in its place already, as far as size and time tell.
    ///
    /// # Errors
    /// Another kind of file is there, or a file that differs and may not be replaced.
    fn is_target(&self, entry: &Entry, parent: BorrowedFd<'_>, there: &Stat) -> Result<bool> {
        let overwrite = self.shared.options.overwrite;
        let path = || self.root.path(&entry.path);
        let refuse = |what: &str| Err(FilesError::refused(&path(), what));
        if let Some(target) = entry.link_target() {
            let same = links::is_same(parent, name::split(&entry.path).1, there, target)
                .map_err(|error| FilesError::io(&path(), "cannot be read", error))?;
            return match (same, links::is_link(there), overwrite) {
                (true, ..) => Ok(true),
                (_, false, _) => refuse(links::IN_THE_WAY),
                (_, true, true) => Ok(false),
                (_, true, false) => refuse(DIFFERS),
            };
        }
        if entry.is_directory() {
            return match rustix::fs::FileType::from_raw_mode(there.st_mode) {
                rustix::fs::FileType::Directory => Ok(false),
                _ => refuse(
                    "a directory is to be received, and something else is there; move it away",
                ),
            };
        }
        if !dir::is_file(there) {
            return refuse(hard_links::IN_THE_WAY);
        }
        let size = u64::try_from(there.st_size).unwrap_or(0);
        let linked = self.layout.hard_linked(entry);
        let whole = linked.unwrap_or(entry);
        let time = self.abilities.compare_time(there, whole.mtime);
        let same = size == whole.size() && time != SameTime::No;
        if !same && !overwrite {
            return refuse(DIFFERS);
        }
        match linked {
            Some(file) if same && self.abilities.hard_links => {
                let (parent, name) = name::split(&file.path);
                let mut cursor = Cursor::new(self.root);
                let file = cursor.enter(parent)?.map(|fd| dir::stat(fd, name));
                let file = file.transpose().map_err(|error| self.state.cannot(error))?.flatten();
                Ok(file.is_some_and(|file| hard_links::is_one(&file, there)))
            }
            _ => Ok(same),
        }
    }

    /// Returns the bytes on disk of a file in the state folder; removes what is no such file.
    fn part(&self, file: u32, size: u64) -> Result<Option<u64>> {
        let name = Files::part_name(file);
        let there = dir::stat(self.state.fd(), &name).map_err(|error| self.state.cannot(error))?;
        let Some(there) = there else { return Ok(None) };
        let is_part = dir::is_file(&there)
            && there.st_nlink == 1
            && (self.state.foreign || there.st_uid == rustix::process::geteuid().as_raw())
            && u64::try_from(there.st_size) == Ok(size);
        if !is_part {
            self.state.remove_file(&name)?;
            return Ok(None);
        }
        let owner = Mode::RUSR | Mode::WUSR;
        if !Mode::from_raw_mode(there.st_mode).contains(owner) {
            rustix::fs::chmodat(self.state.fd(), &*name, owner, AtFlags::empty())
                .map_err(|error| self.state.cannot(error))?;
        }
        Ok(Some(u64::try_from(there.st_blocks).unwrap_or(0) * 512))
    }
}
