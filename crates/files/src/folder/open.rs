//! The opening of an object in a folder: what is there of it already, and whether the rest can be
//! received at all.

use std::os::fd::BorrowedFd;
use std::path::Path;

use faircast_proto::object::Part;
use fixedbitset::FixedBitSet;
use rustix::fs::{Access, AtFlags, Mode, Stat};
use rustix::io::Errno;

use super::files::{Files, Identity, Place};
use super::state::{JOURNAL, MANIFEST, StateFolder};
use super::{Folder, StoreOptions, attributes, links};
use crate::dir::{self, Cursor, Root};
use crate::error::{FilesError, Result};
use crate::layout::Layout;
use crate::manifest::{Entry, Kind, Manifest};
use crate::name::STATE_FOLDER;
use crate::store::{Journal, Request, Shared};

/// What is said of a file or a link in the place of another one.
const DIFFERS: &str = "is there already and differs; move it away, or start recv with --overwrite";

/// What was found.
pub(super) struct Found {
    pub(super) journal: Journal,
    pub(super) have: FixedBitSet,
    pub(super) targets: Vec<(u32, Identity)>,
    places: Vec<Place>,
}

/// Opens the state of an object. Everything that can be known to be in the way is found here,
/// before anything is received.
pub(super) fn open(shared: &Shared<Folder>, request: &Request) -> Result<(Files, Found)> {
    let layout = check_manifest(request)?;
    let options = &shared.options;
    let root = Root::open(&options.dir)?;
    let object = &request.announcement.object;
    let state = StateFolder::open(&root, object)?;
    let known = state.find(JOURNAL)?.is_some();
    match look(shared, request, &layout, &root, &state) {
        Ok(mut found) => {
            let places = std::mem::take(&mut found.places);
            Ok((Files::new(layout, root, state, places), found))
        }
        Err(error) => {
            // Nothing was received so far, so nothing needs to stay.
            if !known {
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
) -> Result<Found> {
    let object = &request.announcement.object;
    let groups = layout.groups();
    let mut have = match state.find(JOURNAL)? {
        Some(file) => Journal::read(file, object, groups).map_err(|error| state.cannot(error))?,
        None => FixedBitSet::with_capacity(groups as usize),
    };
    let mut survey = Survey::new(shared, layout, root, state);
    survey.targets()?;
    survey.parts(&mut have)?;
    survey.room()?;
    attributes::check(&shared.options, layout, state)?;
    let Survey { places, targets, .. } = survey;
    let journal = begin_journal(state, object, &have, groups)?;
    save_manifest(state, &request.manifest)?;
    for (file, _) in &targets {
        layout.groups_of(*file).for_each(|group| have.set(group as usize, true));
    }
    let counters = &shared.counters;
    counters.manifest.get_or_init(|| layout.manifest.clone());
    let found = (0..groups).filter(|group| have.contains(*group as usize));
    let found = found.map(|group| u64::from(layout.group(group).len)).sum();
    counters.update(|counts| {
        counts.files = layout.files();
        counts.bytes_found = found;
    });
    Ok(Found { journal, have, targets, places })
}

fn check_manifest(request: &Request) -> Result<Layout> {
    let announcement = &request.announcement;
    if *blake3::hash(&request.manifest).as_bytes() != announcement.object {
        return Err(FilesError::Sender("the list of files is not the one it announced".into()));
    }
    let manifest = Manifest::decode(&request.manifest)?;
    if let [Entry { kind: Kind::Image { size: None }, path, .. }] = manifest.entries() {
        let what = format!(
            "comes from a pipe, of unknown length: take it with `recv --object {path}` and --to-device \
             FILE or --to-command"
        );
        return Err(FilesError::refused(Path::new(&**path), what));
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

/// Writes a journal of what is there beside the old one, and then over it.
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

/// For whoever looks into the folder later.
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
    places: Vec<Place>,
    targets: Vec<(u32, Identity)>,
    /// Device of the state folder: a file can be moved to no other.
    device: u64,
    /// Bytes and files that are still to be made.
    bytes: u64,
    inodes: u64,
}

impl<'a> Survey<'a> {
    fn new(
        shared: &'a Shared<Folder>,
        layout: &'a Layout,
        root: &'a Root,
        state: &'a StateFolder,
    ) -> Self {
        let places = vec![Place::Nowhere; layout.files() as usize];
        let targets = Vec::new();
        let options = &shared.options;
        let (device, bytes, inodes) = (0, 0, 0);
        Self { options, shared, layout, root, state, places, targets, device, bytes, inodes }
    }

    /// Looks at what is in the places of files and directories.
    fn targets(&mut self) -> Result<()> {
        let stat = rustix::fs::fstat(self.state.fd()).map_err(|error| self.state.cannot(error))?;
        self.device = stat.st_dev;
        self.check_case()?;
        let space = self.file_system()?;
        let mut cursor = Cursor::new(self.root);
        let mut file = 0;
        // The directory that was last seen to be one in which files can be made.
        let mut writable: Option<Option<&str>> = None;
        for entry in self.layout.manifest.entries() {
            self.shared.go_on()?;
            let (parent, name) = dir::split(&entry.path);
            if name.len() as u64 > space.f_namemax {
                let path = self.root.path(&entry.path);
                return Err(FilesError::io(&path, "cannot be made", Errno::NAMETOOLONG));
            }
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
            self.inodes += u64::from(make);
            if entry.has_content() {
                if claimed && let Some(there) = &there {
                    self.places[file as usize] = Place::Target;
                    self.targets.push((file, Identity::of(there)));
                }
                file += 1;
            }
        }
        Ok(())
    }

    /// Whether what is there is what is to be received, by size and time.
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
            let same = links::is_same(parent, dir::split(&entry.path).1, there, target)
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
            return refuse("a file is to be received, and something else is there; move it away");
        }
        let size = u64::try_from(there.st_size).unwrap_or(0);
        let same = size == entry.size() && dir::same_mtime(there, entry.mtime);
        if !same && !self.options.overwrite {
            return refuse(DIFFERS);
        }
        Ok(same)
    }

    fn check_directory(&self, fd: BorrowedFd<'_>, path: Option<&str>) -> Result<()> {
        let path = self.root.path(path.unwrap_or(""));
        let cannot = |error| FilesError::io(&path, "cannot be written to", error);
        let device = rustix::fs::fstat(fd).map_err(cannot)?.st_dev;
        if device != self.device {
            return Err(cannot(Errno::XDEV));
        }
        let access = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(fd, ".", access, AtFlags::empty()).map_err(cannot)
    }

    /// Two names that are one on this file system would take each other's place.
    fn check_case(&self) -> Result<()> {
        let upper = dir::stat(self.root.fd(), &STATE_FOLDER.to_uppercase());
        if upper.is_ok_and(|there| there.is_none()) {
            return Ok(());
        }
        match self.layout.manifest.case_collisions(1).first() {
            Some((a, b)) => Err(FilesError::refused(
                &self.options.dir,
                format!("its file system ignores case, and takes `{a}` and `{b}` for one"),
            )),
            None => Ok(()),
        }
    }

    /// Looks at what an earlier run has received, as far as the journal knows of it.
    fn parts(&mut self, have: &mut FixedBitSet) -> Result<()> {
        for file in 0..self.layout.files() {
            if self.places[file as usize] == Place::Target {
                // Its groups are there by another reason than the journal.
                self.layout.groups_of(file).for_each(|group| have.set(group as usize, false));
                continue;
            }
            let groups = self.layout.groups_of(file);
            let size = self.layout.entry(file).size();
            let content = self.layout.content_of(file);
            let mut missing = content;
            if groups.clone().any(|group| have.contains(group as usize)) {
                match self.part(file, size)? {
                    Some(kept) => {
                        self.places[file as usize] = Place::Part;
                        missing = content.saturating_sub(kept);
                    }
                    None => groups.for_each(|group| have.set(group as usize, false)),
                }
            }
            self.bytes += missing;
        }
        Ok(())
    }

    /// Bytes that a part takes on disk; nothing where there is none that can be trusted.
    fn part(&self, file: u32, size: u64) -> Result<Option<u64>> {
        let name = Files::part_name(file);
        let there = dir::stat(self.state.fd(), &name).map_err(|error| self.state.cannot(error))?;
        let Some(there) = there else { return Ok(None) };
        let ours = dir::is_file(&there)
            && there.st_nlink == 1
            && there.st_uid == rustix::process::geteuid().as_raw()
            && u64::try_from(there.st_size) == Ok(size);
        if !ours {
            self.state.remove_file(&name)?;
            return Ok(None);
        }
        let owner = Mode::RUSR | Mode::WUSR;
        if !Mode::from_raw_mode(there.st_mode).contains(owner) {
            // It had got its final mode when the earlier run ended.
            rustix::fs::chmodat(self.state.fd(), &*name, owner, AtFlags::empty())
                .map_err(|error| self.state.cannot(error))?;
        }
        Ok(Some(u64::try_from(there.st_blocks).unwrap_or(0) * 512))
    }

    /// Refuses what there is no room for.
    fn room(&self) -> Result<()> {
        let space = self.file_system()?;
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
        // Some file systems do not tell.
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

    fn file_system(&self) -> Result<rustix::fs::StatVfs> {
        rustix::fs::fstatvfs(self.root.fd())
            .map_err(|error| FilesError::io(&self.options.dir, "cannot be looked at", error))
    }
}
