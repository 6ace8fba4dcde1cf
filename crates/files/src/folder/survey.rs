//! Survey of a folder before an object is received: existing files, obstacles, and needed room.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use bstr::{BStr, BString};
use fixedbitset::FixedBitSet;
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use super::abilities::{Abilities, SameTime};
use super::attributes::Attributes;
use super::files::{Files, Identity, Location};
use super::state::StateFolder;
use super::{Folder, LeftOut, links, locked, obstacles, reuse};
use crate::dir::{self, Cursor, Root};
use crate::error::{At as _, Result, refuse};
use crate::layout::Layout;
use crate::manifest::Entry;
use crate::name;
use crate::store::Shared;

pub(super) const DIFFERS: &str =
    "is there already and differs; move it away, or start recv with --overwrite";

#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) shared: &'a Shared<Folder>,
    pub(super) layout: &'a Layout,
    pub(super) root: &'a Root,
    pub(super) state: &'a StateFolder,
    pub(super) abilities: &'a Abilities,
    pub(super) left_out: &'a LeftOut,
}

#[derive(Debug, Default)]
pub(super) struct Existing {
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

pub(super) struct Survey<'a> {
    scope: Scope<'a>,
    /// File system of the state folder, from which files are moved to their locations by a rename.
    device: u64,
    mount: Option<u64>,
    existing: Existing,
    needed_bytes: u64,
    needed_inodes: u64,
}

impl<'a> Survey<'a> {
    pub(super) fn new(scope: Scope<'a>) -> Result<Self> {
        let state = scope.state;
        let device = rustix::fs::fstat(state.fd()).map_err(|error| state.cannot(error))?.st_dev;
        let mount = obstacles::mount(state.fd());
        let locations = vec![Location::Nowhere; scope.layout.files() as usize];
        let existing = Existing { locations, ..Existing::default() };
        Ok(Self { scope, device, mount, existing, needed_bytes: 0, needed_inodes: 0 })
    }

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
            if left_out.entries.contains(index) {
                continue;
            }
            let (parent, name) = name::split(&entry.path);
            let directory = cursor.enter(parent)?;
            let there = match directory {
                Some(fd) => {
                    dir::stat(fd, name).at(root.path(&entry.path), "cannot be looked at")?
                }
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
                self.add_inode(entry);
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
            self.note_file(file, stat, is_target);
        }
        Ok(())
    }

    /// Adds the inode of a new entry. Without hard links each name is a copy of its file.
    fn add_inode(&mut self, entry: &Entry) {
        let linked = self.scope.layout.hard_linked(entry);
        if linked.is_none() || !self.scope.abilities.hard_links {
            self.needed_inodes += 1;
            self.needed_bytes += linked.map_or(0, Entry::size);
        }
    }

    fn note_file(&mut self, file: u32, there: &Stat, is_target: bool) {
        let entry = self.scope.layout.entry(file);
        let existing = &mut self.existing;
        if is_target {
            existing.locations[file as usize] = Location::Target;
            existing.targets.push((file, Identity::of(there)));
            if self.scope.abilities.compare_time(there, entry.mtime) == SameTime::Rounded {
                existing.doubtful.insert(file);
            }
        } else if u64::try_from(there.st_size).is_ok_and(|size| size < entry.size())
            && entry.holes().is_empty()
        {
            existing.grown.insert(file);
        }
    }

    fn check_directory(&mut self, fd: BorrowedFd<'_>, below: Option<&BStr>) -> Result<()> {
        const CANNOT: &str = "cannot be written to";
        let path = self.scope.root.path(below.unwrap_or_default());
        let device = rustix::fs::fstat(fd).at(&path, CANNOT)?.st_dev;
        if device != self.device || obstacles::mount(fd) != self.mount {
            return Err(Errno::XDEV).at(&path, CANNOT);
        }
        obstacles::check_directory(&path, fd)?;
        if locked::is_locked(fd).at(&path, CANNOT)? {
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
            self.needed_bytes += missing;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Existing> {
        let Scope { root, shared, .. } = self.scope;
        let dir = &shared.options.dir;
        let space = rustix::fs::fstatvfs(root.fd()).at(dir, "cannot be looked at")?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let Self { needed_bytes: bytes, needed_inodes: inodes, .. } = self;
        if bytes > free {
            let what = "bytes are still to be received, and its file system has room for";
            return refuse(dir, format!("{bytes} {what} {free}; make room"));
        }
        // Some file systems do not report inodes.
        if space.f_files > 0 && inodes > space.f_favail {
            let (what, free) =
                ("files are to be made, and its file system has room for", space.f_favail);
            return refuse(dir, format!("{inodes} {what} {free}; make room"));
        }
        Ok(self.existing)
    }
}

impl Scope<'_> {
    /// True if the entry is in its place already, as far as size and time tell.
    fn is_target(&self, entry: &Entry, parent: BorrowedFd<'_>, there: &Stat) -> Result<bool> {
        let overwrite = self.shared.options.overwrite;
        let path = || self.root.path(&entry.path);
        let refuse = |what: &str| refuse(path(), what);
        if let Some(target) = entry.link_target() {
            let same = links::is_same(parent, name::split(&entry.path).1, there, target)
                .at(path(), "cannot be read")?;
            return match (same, links::is_link(there), overwrite) {
                (true, ..) => Ok(true),
                (_, false, _) => refuse(links::IN_THE_WAY),
                (_, true, true) => Ok(false),
                (_, true, false) => refuse(DIFFERS),
            };
        }
        if entry.is_directory() {
            let what = "a directory is to be received, and something else is there; move it away";
            return match FileType::from_raw_mode(there.st_mode) {
                FileType::Directory => Ok(false),
                _ => refuse(what),
            };
        }
        if !dir::is_file(there) {
            return refuse(links::FILE_IN_THE_WAY);
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
                Ok(file.is_some_and(|file| links::is_one(&file, there)))
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
