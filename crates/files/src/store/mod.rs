//! Common parts of all stores: manifest, digests, and content that a thread writes by groups.

mod assembly;
mod group_store;
mod intake;
mod journal;
mod thread;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use self::assembly::Flight;
pub(crate) use self::group_store::GroupStore;
pub(crate) use self::intake::{Intake, too_early};
pub(crate) use self::journal::Journal;
pub(crate) use self::thread::{Idle, Medium, Request, Shared, Written};
use crate::folder::LeftOut;
use crate::manifest::Manifest;

/// Progress of a store, shared with its observers. Facts are set once.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) manifest: OnceLock<Arc<Manifest>>,
    pub(crate) left_out: OnceLock<Arc<LeftOut>>,
    pub(crate) remarks: OnceLock<Vec<String>>,
    pub(crate) file_hashes: OnceLock<Vec<Option<[u8; 32]>>>,
    pub(crate) identity: OnceLock<u64>,
    counts: Mutex<StoreCounts>,
}

impl Counters {
    pub(crate) fn update(&self, change: impl FnOnce(&mut StoreCounts)) {
        change(&mut self.counts.lock());
    }
}

/// Handle to observe a store during a transfer.
#[derive(Clone, Debug)]
pub struct StoreHandle {
    pub(crate) counters: Arc<Counters>,
}

impl StoreHandle {
    /// Returns the progress.
    pub fn counts(&self) -> StoreCounts {
        *self.counters.counts.lock()
    }

    /// Returns the manifest, once it is complete and accepted.
    pub fn manifest(&self) -> Option<&crate::Manifest> {
        self.counters.manifest.get().map(|manifest| &**manifest)
    }

    /// Returns paths that the file system cannot store, the first with reasons, and a summary.
    pub fn left_out(&self) -> Option<(Vec<String>, String)> {
        self.counters.left_out.get()?.lines()
    }

    /// True if the manifest's entry `entry` is left out.
    pub fn leaves_out(&self, entry: usize) -> bool {
        self.counters.left_out.get().is_some_and(|left_out| left_out.entries.contains(entry))
    }

    /// Returns harmless differences to the object, such as lost modes; known at the end.
    pub fn remarks(&self) -> &[String] {
        self.counters.remarks.get().map_or(&[], |remarks| remarks)
    }

    /// Returns the BLAKE3 of each file, once all are in place; none beyond 64 GiB of holes.
    pub fn file_hashes(&self) -> Option<&[Option<[u8; 32]>]> {
        self.counters.file_hashes.get().map(|hashes| &**hashes)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Files of the object; 0 before its manifest.
    pub files: u32,
    pub files_done: u32,
    /// Bytes of content of the object; 0 before its manifest.
    pub bytes: u64,
    pub bytes_found: u64,
    /// Bytes of content written to files; zeros need no writes.
    pub bytes_written: u64,
    pub bytes_damaged: u64,
    pub journal_writes: u64,
    pub journal_bytes: u64,
    /// Time that writers of content waited for the disk.
    pub waited: Duration,
}
