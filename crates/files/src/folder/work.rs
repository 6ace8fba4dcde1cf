//! What the thread of a store of files knows of its object.

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::files::{Files, Identity};
use crate::error::Result;
use crate::hash::group_digest;
use crate::hole_hashes::HoleHashes;
use crate::layout::Group;
use crate::store::{JournalWriter, Shared, Written as _};
use crate::table::Table;

/// What the thread of a store of files knows of its object.
#[derive(Debug)]
pub struct Folder {
    pub(super) shared: Arc<Shared<Self>>,
    pub(super) files: Arc<Files>,
    pub(super) journal: JournalWriter,
    /// Groups that are complete, as far as is known without comparing.
    pub(super) have: FixedBitSet,
    /// Groups whose digest is in `chain`.
    pub(super) hashed: FixedBitSet,
    pub(super) chain: Table,
    pub(super) hole_hashes: HoleHashes,
    /// Identity of targets that were there before.
    pub(super) targets: Vec<(u32, Identity)>,
    /// The same, of those that turned out to be damaged and are replaced.
    pub(super) replaced: BTreeMap<u32, Identity>,
    /// No group below was there before and is without digest.
    pub(super) cursor: u32,
    pub(super) scratch: Vec<u8>,
}

impl Folder {
    /// Hashes a group from its file.
    pub(super) fn hash(&mut self, group: &Group) -> Result<()> {
        self.scratch.resize(group.len as usize, 0);
        self.files.read(group, 0, &mut self.scratch)?;
        let digest = group_digest(group, &self.scratch);
        self.set_digest(group, &digest)
    }

    /// Notes that a group is complete.
    pub(super) fn complete(&mut self, group: &Group) {
        self.have.set(group.index as usize, true);
        self.journal.complete(group);
    }

    pub(super) fn set_digest(&mut self, group: &Group, digest: &[u8; 32]) -> Result<()> {
        let set = self.chain.set_digest(group.index, digest);
        set.map_err(|error| self.files.state.cannot(error))?;
        self.hashed.set(group.index as usize, true);
        Ok(())
    }
}
