//! Files of a receiver: a folder as a store.

mod attributes;
mod files;
mod finish;
mod links;
mod open;
mod options;
mod state;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faircast_proto::object::Announcement;
use fixedbitset::FixedBitSet;

use self::files::{Files, Place};
pub use self::options::StoreOptions;
pub use self::state::clean;
use self::work::Folder;
use crate::error::{FilesError, Result};
use crate::hash::group_digest;
use crate::hole_hashes::HoleHashes;
use crate::manifest::ENTRIES_MAX;
use crate::store::{Flight, GroupStore, Idle, JournalWriter, Medium, Request, Shared};
use crate::table::Table;

/// A directory as a store. Takes at most 48 MiB besides the manifest and where its files lie, for
/// objects up to 256 GiB, and three bits for each MiB beyond.
pub type FilesStore = GroupStore<Folder>;

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
        let open::Found { journal, have, targets, .. } = found;
        let folder = &shared.options.dir;
        let cannot = |error| files.state.cannot(error);
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
            && flight.bytes.iter().all(|byte| *byte == 0);
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
            path.display()
        ))
    }

    fn abandon(options: &StoreOptions, files: &Files) {
        if !options.keep_partial {
            files.close();
            // Nobody is left to be told.
            let _ = files.state.remove();
        }
    }
}
