//! Folder of a receiver as a store.

mod abilities;
mod attributes;
mod files;
mod finish;
mod left_out;
mod links;
mod locked;
mod obstacles;
mod open;
mod reuse;
mod state;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faircast_proto::content::only_zeros;
use faircast_proto::object::Announcement;
use fixedbitset::FixedBitSet;

use self::files::{Files, Identity, Location};
pub(crate) use self::left_out::LeftOut;
pub use self::state::clean;
use self::survey::Existing;
use crate::error::{At as _, FilesError, Result};
use crate::hash::{HoleHashes, group_digest};
use crate::layout::Group;
use crate::manifest::ENTRIES_MAX;
use crate::store::{Flight, GroupStore, Idle, Journal, Medium, Request, Shared, Written as _};
use crate::table::Table;

/// Store in a directory. Memory besides the manifest: 48 MiB, and three bits per MiB above 256 GiB
/// of content.
pub type FilesStore = GroupStore<Folder>;

/// Settings of a store in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Target directory; created if missing.
    pub dir: PathBuf,
    /// True if files that differ are replaced once the object is complete. Default: no.
    pub overwrite: bool,
    /// True if files, directories and links get the sender's owners. Default: no.
    pub owner: bool,
    /// True if files and directories get the sender's extended attributes. Default: no.
    pub xattrs: bool,
    /// True if an object counts as received only once it is on the disk. Default: yes.
    pub sync: bool,
    /// True if an incomplete object stays for a later run. Default: yes.
    pub keep_partial: bool,
    /// Host that sends the object: only its objects supersede leftovers. Default: unknown.
    pub source: Option<IpAddr>,
    #[cfg(test)]
    calls: abilities::Calls,
}

impl StoreOptions {
    /// Returns the default settings for a directory.
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
            calls: abilities::Calls::default(),
        }
    }

    const fn calls(&self) -> abilities::Calls {
        #[cfg(test)]
        return self.calls;
        #[cfg(not(test))]
        abilities::Calls {}
    }
}

#[derive(Debug)]
pub struct Folder {
    shared: Arc<Shared<Self>>,
    files: Arc<Files>,
    journal: Journal,
    /// Complete groups, before the comparison with digests.
    have: FixedBitSet,
    hashed: FixedBitSet,
    chain: Table,
    hole_hashes: HoleHashes,
    existing: Existing,
    /// Found files that turned out to be damaged; the last step replaces them.
    replaced: BTreeMap<u32, Identity>,
    /// First group that [`idle`](Medium::idle) has not looked at.
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
        std::fs::create_dir_all(&options.dir).at(&options.dir, "cannot be made")?;
        Ok(options.dir.clone())
    }

    fn open(
        shared: &Arc<Shared<Self>>,
        request: Request,
    ) -> Result<(Self, Arc<Files>, FixedBitSet)> {
        open::open(shared, &request)
    }

    fn journal(&mut self) -> Option<&mut Journal> {
        Some(&mut self.journal)
    }

    fn write(&mut self, flight: &Flight) -> Result<()> {
        let group = flight.group;
        self.files.part(group.file)?;
        let zero = flight.whole()
            && self.files.location(group.file) == Location::Fresh
            && only_zeros(&flight.bytes);
        if !flight.whole() {
            self.files.mark_written(group.file);
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

    fn idle(&mut self) -> Result<Idle> {
        while self.cursor < self.files.layout.groups {
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
            files.inner.lock().handles.open.clear();
            let _ = files.state.remove();
        }
    }
}
