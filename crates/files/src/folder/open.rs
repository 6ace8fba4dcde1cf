//! Opening of an object in a folder: existing files, and obstacles to the rest.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bstr::{BStr, BString};
use faircast_proto::object::Part;
use fixedbitset::FixedBitSet;
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;

use super::abilities::{Abilities, SameTime};
use super::attributes::Attributes;
use super::files::{Files, Identity, Place};
use super::state::{JOURNAL, MANIFEST, StateFolder};
use super::{
    Folder, LeftOut, StoreOptions, attributes, hard_links, links, locked, obstacles, reuse,
};
use crate::dir::{self, Cursor, Root};
use crate::error::{FilesError, Result};
use crate::layout::Layout;
use crate::manifest::{Entry, Kind, Manifest};
use crate::name;
use crate::store::{Journal, Request, Shared};

pub(super) const DIFFERS: &str =
    "is there already and differs; move it away, or start recv with --overwrite";

pub(super) struct Found {
    pub(super) journal: Journal,
    pub(super) have: FixedBitSet,
    pub(super) targets: Vec<(u32, Identity)>,
    pub(super) locked: Vec<BString>,
    pub(super) doubtful: BTreeSet<u32>,
}

type Parts = (Abilities, Arc<LeftOut>, Vec<Place>);

pub(super) fn open(shared: &Shared<Folder>, request: &Request) -> Result<(Files, Found)> {
    let layout = check_manifest(request)?;
    let options = &shared.options;
    let root = Root::open(&options.dir)?;
    let object = &request.announcement.object;
    let state = StateFolder::open(&root, object)?;
    match look(shared, request, &layout, &root, &state) {
        Ok((parts, found)) => Ok((Files::new(layout, root, state, parts), found)),
        Err(error) => {
            if state.find(JOURNAL)?.is_none() {
                let _ = state.remove();
            }
            Err(error)
        }
    }
}

fn look(
    shared: &Shared<Folder>,
    request: &Request,
    layout: &Layout,
    root: &Root,
    state: &StateFolder,
) -> Result<(Parts, Found)> {
    // Otherwise a directory that an interrupted run has left widened would count as writable.
    locked::restore_left(root, state.fd())?;
    state.neighbours().for_each(|neighbour| neighbour.restore_modes(root));
    let object = &request.announcement.object;
    let groups = layout.groups();
    let mut have = match state.find(JOURNAL)? {
        Some(file) => Journal::read(file, object, groups).map_err(|error| state.cannot(error))?,
        None => FixedBitSet::with_capacity(groups as usize),
    };
    let abilities = Abilities::learn(shared.options.calls(), layout, state)?;
    let left_out = Arc::new(LeftOut::find(layout, &abilities));
    state.save_source(shared.options.source)?;
    let mut survey = Survey::new(shared, layout, (root, state), (&abilities, &left_out));
    survey.targets()?;
    if survey.reuse(&mut have)? {
        begin_journal(state, object, &have, groups)?;
        save_manifest(state, &request.manifest)?;
    }
    survey.parts(&mut have)?;
    survey.room()?;
    attributes::check(&shared.options, layout, state, &abilities)?;
    let Survey { places, targets, locked, doubtful, .. } = survey;
    let journal = begin_journal(state, object, &have, groups)?;
    save_manifest(state, &request.manifest)?;
    for (file, _) in &targets {
        layout.groups_of(*file).for_each(|group| have.set(group as usize, true));
    }
    let counters = &shared.counters;
    counters.left_out.get_or_init(|| left_out.clone());
    counters.manifest.get_or_init(|| layout.manifest.clone());
    let found = (0..groups).filter(|group| have.contains(*group as usize));
    let found = found.map(|group| u64::from(layout.group(group).len)).sum();
    counters.update(|counts| {
        counts.files = layout.files();
        counts.bytes_found = found;
    });
    Ok(((abilities, left_out, places), Found { journal, have, targets, locked, doubtful }))
}

fn check_manifest(request: &Request) -> Result<Layout> {
    let announcement = &request.announcement;
    if *blake3::hash(&request.manifest).as_bytes() != announcement.object {
        return Err(FilesError::Sender("the list of files is not the one it announced".into()));
    }
    let manifest = Manifest::decode(&request.manifest)?;
    if let [Entry { kind: Kind::Image { size: None }, path, .. }] = manifest.entries() {
        let title = name::shown(path);
        let what = format!(
            "{title}: comes from a pipe, of unknown length: take it with `recv --object {title}` and \
             --to-device FILE or --to-command"
        );
        return Err(FilesError::Unwanted(what));
    }
    let layout = Layout::new(manifest);
    for (part, want) in
        [(Part::Content, layout.manifest.content_bytes()), (Part::Digests, layout.digest_bytes())]
    {
        let announced = announcement.len(part);
        if announced != want {
            return Err(FilesError::Sender(format!(
                "it announces {announced} bytes of {part:?}, and its list of files makes {want}"
            )));
        }
    }
    Ok(layout)
}

fn begin_journal(
    state: &StateFolder,
    object: &[u8; 32],
    have: &FixedBitSet,
    groups: u32,
) -> Result<Journal> {
    const NEW: &str = "journal.new";
    let file = state.create(NEW)?;
    let journal = Journal::begin(file, *object, have, groups);
    let journal = journal.map_err(|error| state.cannot(error))?;
    state.rename(NEW, JOURNAL)?;
    Ok(journal)
}

fn save_manifest(state: &StateFolder, manifest: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let there = state.find(MANIFEST)?.and_then(|file| file.metadata().ok());
    if there.is_some_and(|there| there.len() == manifest.len() as u64) {
        return Ok(());
    }
    state.create(MANIFEST)?.write_all(manifest).map_err(|error| state.cannot(error))
}

struct Survey<'a> {
    options: &'a StoreOptions,
    shared: &'a Shared<Folder>,
    layout: &'a Layout,
    root: &'a Root,
    state: &'a StateFolder,
    abilities: &'a Abilities,
    left_out: &'a LeftOut,
    places: Vec<Place>,
    locked: Vec<BString>,
    grown: BTreeSet<u32>,
    targets: Vec<(u32, Identity)>,
    doubtful: BTreeSet<u32>,
    device: u64,
    mount: Option<u64>,
    bytes: u64,
    inodes: u64,
}

impl<'a> Survey<'a> {
    fn new(
        shared: &'a Shared<Folder>,
        layout: &'a Layout,
        (root, state): (&'a Root, &'a StateFolder),
        (abilities, left_out): (&'a Abilities, &'a LeftOut),
    ) -> Self {
        let places = vec![Place::Nowhere; layout.files() as usize];
        let targets = Vec::new();
        let options = &shared.options;
        let (device, bytes, inodes) = (0, 0, 0);
        let (locked, mount) = (Vec::new(), None);
        let [grown, doubtful] = [const { BTreeSet::new() }; 2];
        Self {
            options,
            shared,
            layout,
            root,
            state,
            abilities,
            left_out,
            places,
            locked,
            grown,
            targets,
            doubtful,
            device,
            mount,
            bytes,
            inodes,
        }
    }

    fn targets(&mut self) -> Result<()> {
        let stat = rustix::fs::fstat(self.state.fd()).map_err(|error| self.state.cannot(error))?;
        self.device = stat.st_dev;
        self.mount = obstacles::mount(self.state.fd());
        let mut attributes = Attributes::new(self.options, self.abilities);
        let mut cursor = Cursor::new(self.root);
        let mut file = 0;
        let mut writable: Option<Option<&BStr>> = None;
        for (index, entry) in self.layout.manifest.entries().iter().enumerate() {
            self.shared.go_on()?;
            if self.left_out.contains(index) {
                file += u32::from(entry.has_content());
                continue;
            }
            let (parent, name) = name::split(&entry.path);
            let directory = cursor.enter(parent)?;
            let there = match directory {
                Some(fd) => dir::stat(fd, name).map_err(|error| {
                    FilesError::io(&self.root.path(&entry.path), "cannot be looked at", error)
                })?,
                None => None,
            };
            let claimed = match directory {
                Some(fd) => self.check_target(entry, fd, there.as_ref())?,
                None => false,
            };
            let make = !claimed && (!entry.is_directory() || there.is_none());
            if make
                && let Some(fd) = directory
                && writable != Some(parent)
            {
                self.check_directory(fd, parent)?;
                writable = Some(parent);
            }
            if let (Some(parent), Some(stat)) = (directory, &there) {
                let path = &self.root.path(&entry.path);
                let present = obstacles::Present { path, parent, name, stat };
                if make {
                    present.check_replaced()?;
                } else if claimed
                    && entry.has_content()
                    && let Some(lack) = attributes.lacks(entry, stat)
                {
                    present.check_changed(entry, lack)?;
                }
            }
            let whole = entry.hard_link_to().and_then(|to| self.layout.manifest.find(to));
            if make && !self.abilities.hard_links {
                self.bytes += whole.map_or(0, Entry::size);
            }
            self.inodes += u64::from(make && (whole.is_none() || !self.abilities.hard_links));
            if entry.has_content() {
                if claimed && let Some(there) = &there {
                    self.places[file as usize] = Place::Target;
                    self.targets.push((file, Identity::of(there)));
                    if self.abilities.compare_time(there, entry.mtime) == SameTime::Rounded {
                        self.doubtful.insert(file);
                    }
                } else if let Some(there) = &there
                    && u64::try_from(there.st_size).is_ok_and(|size| size < entry.size())
                    && entry.holes().is_empty()
                {
                    self.grown.insert(file);
                }
                file += 1;
            }
        }
        Ok(())
    }

    fn check_target(
        &self,
        entry: &Entry,
        parent: BorrowedFd<'_>,
        there: Option<&Stat>,
    ) -> Result<bool> {
        let Some(there) = there else { return Ok(false) };
        let path = || self.root.path(&entry.path);
        let refuse = |what: &str| Err(FilesError::refused(&path(), what));
        if let Some(target) = entry.link_target() {
            let same = links::is_same(parent, name::split(&entry.path).1, there, target)
                .map_err(|error| FilesError::io(&path(), "cannot be read", error))?;
            return match (same, links::is_link(there), self.options.overwrite) {
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
        let named = entry.hard_link_to().and_then(|to| self.layout.manifest.find(to));
        let whole = named.unwrap_or(entry);
        let time = self.abilities.compare_time(there, whole.mtime);
        let same = size == whole.size() && time != SameTime::No;
        if !same && !self.options.overwrite {
            return refuse(DIFFERS);
        }
        match named {
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

    fn check_directory(&mut self, fd: BorrowedFd<'_>, below: Option<&BStr>) -> Result<()> {
        let path = self.root.path(below.unwrap_or_default());
        let cannot = |error| FilesError::io(&path, "cannot be written to", error);
        let stat = rustix::fs::fstat(fd).map_err(cannot)?;
        if stat.st_dev != self.device || obstacles::mount(fd) != self.mount {
            return Err(cannot(Errno::XDEV));
        }
        obstacles::check_directory(&path, fd)?;
        if locked::is_locked(fd).map_err(cannot)? {
            self.locked.push(below.unwrap_or_default().to_owned());
        }
        Ok(())
    }

    fn reuse(&self, have: &mut FixedBitSet) -> Result<bool> {
        let before = have.count_ones(..);
        let without = |file: &u32| {
            let groups = self.layout.groups_of(*file);
            self.places[*file as usize] == Place::Nowhere
                && !groups.is_empty()
                && !groups.into_iter().any(|group| have.contains(group as usize))
        };
        let mut missing: Vec<u32> = (0..self.layout.files()).filter(without).collect();
        reuse::from_others(self.shared, (self.layout, self.state), &mut missing, have)?;
        missing.retain(|file| self.grown.contains(file));
        reuse::from_targets(self.shared, (self.layout, self.root, self.state), &missing, have)?;
        Ok(have.count_ones(..) > before)
    }

    fn parts(&mut self, have: &mut FixedBitSet) -> Result<()> {
        for file in 0..self.layout.files() {
            if self.places[file as usize] == Place::Target {
                // Existing targets provide these groups, not the journal.
                self.layout.groups_of(file).for_each(|group| have.set(group as usize, false));
                continue;
            }
            let groups = self.layout.groups_of(file);
            let size = self.layout.entry(file).size();
            let content = self.layout.content_of(file);
            let mut missing = if self.abilities.sparse { content } else { size };
            if groups.clone().any(|group| have.contains(group as usize)) {
                match self.part(file, size)? {
                    Some(kept) => {
                        self.places[file as usize] = Place::Part;
                        missing = missing.saturating_sub(kept);
                    }
                    None => groups.for_each(|group| have.set(group as usize, false)),
                }
            }
            self.bytes += missing;
        }
        Ok(())
    }

    fn part(&self, file: u32, size: u64) -> Result<Option<u64>> {
        let name = Files::part_name(file);
        let there = dir::stat(self.state.fd(), &name).map_err(|error| self.state.cannot(error))?;
        let Some(there) = there else { return Ok(None) };
        let ours = dir::is_file(&there)
            && there.st_nlink == 1
            && (self.state.foreign || there.st_uid == rustix::process::geteuid().as_raw())
            && u64::try_from(there.st_size) == Ok(size);
        if !ours {
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

    fn room(&self) -> Result<()> {
        let space = rustix::fs::fstatvfs(self.root.fd())
            .map_err(|error| FilesError::io(&self.options.dir, "cannot be looked at", error))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if self.bytes > free {
            return Err(FilesError::refused(
                &self.options.dir,
                format!(
                    "{} bytes are still to be received, and its file system has room for {free}; \
                     make room",
                    self.bytes
                ),
            ));
        }
        // Some file systems do not report inodes.
        if space.f_files > 0 && self.inodes > space.f_favail {
            return Err(FilesError::refused(
                &self.options.dir,
                format!(
                    "{} files are to be made, and its file system has room for {}; make room",
                    self.inodes, space.f_favail
                ),
            ));
        }
        Ok(())
    }
}
