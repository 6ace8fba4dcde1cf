//! Files of a receiver: a folder as a store.

mod abilities;
mod attributes;
mod calls;
mod files;
mod finish;
mod hard_links;
mod left_out;
mod links;
mod locked;
mod obstacles;
mod open;
mod reuse;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::BString;
use faircast_proto::content::only_zeros;
use faircast_proto::object::Announcement;
use fixedbitset::FixedBitSet;

use self::files::{Files, Identity, Place};
pub(crate) use self::left_out::LeftOut;
pub use self::state::clean;
use crate::error::{FilesError, Result};
use crate::hash::group_digest;
use crate::hole_hashes::HoleHashes;
use crate::layout::Group;
use crate::manifest::ENTRIES_MAX;
use crate::store::{
    Flight, GroupStore, Idle, JournalWriter, Medium, Request, Shared, Written as _,
};
use crate::table::Table;

/// A directory as a store. Takes at most 48 MiB besides the manifest and where its files lie, for
/// objects up to 256 GiB, and three bits for each MiB beyond.
pub type FilesStore = GroupStore<Folder>;

/// Where and how an object is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The directory that it goes into; made where it is not there.
    pub dir: PathBuf,
    /// Whether files that are there and differ are replaced. They stay until the whole object is
    /// there. Default: no.
    pub overwrite: bool,
    /// Whether files, directories and links get the owners that the sender tells of. Default: no.
    pub owner: bool,
    /// Whether files and directories get the extended attributes that the sender tells of.
    /// Default: no.
    pub xattrs: bool,
    /// Whether an object counts as received only once it is on the disk. Default: yes.
    pub sync: bool,
    /// Whether what was received stays for a later run where this one ends early. Default: yes.
    pub keep_partial: bool,
    /// Host that sends the object, by whose objects alone leftovers are superseded. Default: not known.
    pub source: Option<IpAddr>,
    #[cfg(test)]
    calls: calls::Calls,
}

impl StoreOptions {
    /// The defaults, in a directory.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref().to_path_buf();
        let [overwrite, owner, xattrs] = [false; 3];
        Self {
            dir,
            overwrite,
            owner,
            xattrs,
            sync: true,
            keep_partial: true,
            source: None,
            #[cfg(test)]
            calls: calls::Calls::default(),
        }
    }

    const fn calls(&self) -> calls::Calls {
        #[cfg(test)]
        return self.calls;
        #[cfg(not(test))]
        calls::Calls {}
    }
}

/// What the thread of a store of files knows of its object.
#[derive(Debug)]
pub struct Folder {
    shared: Arc<Shared<Self>>,
    files: Arc<Files>,
    journal: JournalWriter,
    /// Groups that are complete, as far as is known without comparing.
    have: FixedBitSet,
    /// Groups whose digest is in `chain`.
    hashed: FixedBitSet,
    chain: Table,
    hole_hashes: HoleHashes,
    /// Identity of targets that were there before.
    targets: Vec<(u32, Identity)>,
    /// Directories that are ours and read-only, and in which something is to be made.
    locked: Vec<BString>,
    /// Targets whose time is that of the entry only if the file system rounds times.
    doubtful: BTreeSet<u32>,
    /// Identity of targets that turned out to be damaged and are replaced.
    replaced: BTreeMap<u32, Identity>,
    /// No group below was there before and is without digest.
    cursor: u32,
    scratch: Vec<u8>,
}

impl Folder {
    fn hash(&mut self, group: &Group) -> Result<()> {
        self.scratch.resize(group.len as usize, 0);
        self.files.read(group, 0, &mut self.scratch)?;
        let digest = group_digest(group, &self.scratch);
        self.set_digest(group, &digest)
    }

    fn complete(&mut self, group: &Group) {
        self.have.set(group.index as usize, true);
        self.journal.complete(group);
    }

    fn set_digest(&mut self, group: &Group, digest: &[u8; 32]) -> Result<()> {
        let set = self.chain.set_digest(group.index, digest);
        set.map_err(|error| self.files.state.cannot(error))?;
        self.hashed.set(group.index as usize, true);
        Ok(())
    }
}

impl Medium for Folder {
    type Options = StoreOptions;
    type Written = Files;
    const FILES_MAX: u32 = ENTRIES_MAX;
    const GROWS: bool = false;

    fn path(options: &StoreOptions) -> &Path {
        &options.dir
    }

    fn folder(options: &StoreOptions) -> Result<PathBuf> {
        std::fs::create_dir_all(&options.dir)
            .map_err(|error| FilesError::io(&options.dir, "cannot be made", error))?;
        Ok(options.dir.clone())
    }

    fn open(
        shared: &Arc<Shared<Self>>,
        request: Request,
    ) -> Result<(Self, Arc<Files>, FixedBitSet)> {
        let (files, found) = open::open(shared, &request)?;
        let open::Found { journal, have, targets, locked, doubtful } = found;
        let folder = &shared.options.dir;
        let cannot = |error| files.state.cannot(error);
        let identity = files.state.identity()?;
        shared.counters.identity.get_or_init(|| identity);
        let opened = Self {
            shared: shared.clone(),
            journal: JournalWriter::new(
                journal,
                files.state.path.clone(),
                shared.counters.clone(),
                shared.journal_every,
            ),
            hashed: FixedBitSet::with_capacity(files.layout.groups() as usize),
            have,
            chain: Table::new(files.layout.digest_bytes(), folder).map_err(cannot)?,
            hole_hashes: HoleHashes::new(&files.layout, folder).map_err(cannot)?,
            targets,
            locked,
            doubtful,
            replaced: BTreeMap::new(),
            cursor: 0,
            scratch: Vec::new(),
            files: Arc::new(files),
        };
        let (files, found) = (opened.files.clone(), opened.have.clone());
        Ok((opened, files, found))
    }

    fn journal(&mut self) -> Option<&mut JournalWriter> {
        Some(&mut self.journal)
    }

    fn write(&mut self, flight: &Flight) -> Result<()> {
        let group = flight.group;
        // Makes the file, so that one of nothing but zeros is there too.
        self.files.part(group.file)?;
        let zero = flight.whole()
            && self.files.place(group.file) == Place::Fresh
            && only_zeros(&flight.bytes);
        if !flight.whole() {
            // From now on zeros must be written, over what may be there.
            self.files.not_fresh(group.file);
        }
        if !zero {
            flight.write(&self.shared.counters, |at, bytes| self.files.write(&group, at, bytes))?;
        }
        if flight.complete {
            match flight.whole() {
                true => self.set_digest(&group, &group_digest(&group, &flight.bytes))?,
                false => self.hash(&group)?,
            }
            self.complete(&group);
        }
        Ok(())
    }

    /// Hashes one group that was there before, or a piece of a hole.
    fn idle(&mut self) -> Result<Idle> {
        while self.cursor < self.files.layout.groups() {
            let index = self.cursor;
            self.cursor += 1;
            if self.have.contains(index as usize) && !self.hashed.contains(index as usize) {
                self.hash(&self.files.layout.group(index))?;
                return Ok(Idle::Again);
            }
        }
        let more = self.hole_hashes.step(&self.files.layout);
        let more = more.map_err(|error| self.files.state.cannot(error))?;
        Ok(if more { Idle::Later } else { Idle::Nothing })
    }

    fn compare(&mut self, announced: &Announcement) -> Result<Vec<u32>> {
        finish::compare(self, announced.digests.as_ref())
    }

    fn finish(&mut self, _announced: &Announcement) -> Result<()> {
        finish::finish(self)
    }

    fn reopen(&mut self, damaged: &[u32]) -> Result<()> {
        finish::reopen(self, damaged)
    }

    fn give_up(&self, group: u32, times: u32) -> FilesError {
        let path = self.files.target_path(self.files.layout.group(group).file);
        FilesError::Sender(format!(
            "{} does not become what its digests say, after {times} times; send it again",
            crate::name::shown_path(path)
        ))
    }

    fn abandon(options: &StoreOptions, files: &Files, discarded: bool) {
        if discarded || !options.keep_partial {
            files.close();
            // Nobody is left to be told.
            let _ = files.state.remove();
        }
    }
}
