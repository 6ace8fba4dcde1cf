//! Progress of a store, for those who watch.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::folder::LeftOut;
use crate::manifest::Manifest;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) manifest: OnceLock<Arc<Manifest>>,
    /// Entries that are not put into their places.
    pub(crate) left_out: OnceLock<Arc<LeftOut>>,
    /// Differences to the object that are no failure, in words.
    pub(crate) remarks: OnceLock<Vec<String>>,
    pub(crate) file_hashes: OnceLock<Vec<Option<[u8; 32]>>>,
    /// Identity of the receiver, kept in its folder.
    pub(crate) identity: OnceLock<u64>,
    counts: Mutex<StoreCounts>,
}

impl Counters {
    pub(crate) fn update(&self, change: impl FnOnce(&mut StoreCounts)) {
        change(&mut self.counts.lock());
    }
}

/// A view of a store for those who watch, usable while a transfer has it.
#[derive(Clone, Debug)]
pub struct StoreHandle {
    pub(crate) counters: Arc<Counters>,
}

impl StoreHandle {
    /// How far it is.
    pub fn counts(&self) -> StoreCounts {
        *self.counters.counts.lock()
    }

    /// What is received, once the list of files is there and taken.
    pub fn manifest(&self) -> Option<&crate::Manifest> {
        self.counters.manifest.get().map(|manifest| &**manifest)
    }

    /// Paths that the file system cannot hold, and a summary. The first paths have a reason each; the last line
    /// counts the others. `None` if nothing is left out.
    pub fn left_out(&self) -> Option<(Vec<String>, String)> {
        let left_out = self.counters.left_out.get().filter(|left_out| !left_out.is_empty())?;
        Some((left_out.lines(), left_out.summary()))
    }

    /// True if the entry with this number of the manifest is left out.
    pub fn leaves_out(&self, entry: usize) -> bool {
        self.counters.left_out.get().is_some_and(|left_out| left_out.contains(entry))
    }

    /// Harmless differences to the object in words, such as lost modes; known in the end.
    pub fn remarks(&self) -> &[String] {
        self.counters.remarks.get().map_or(&[], |remarks| remarks)
    }

    /// The BLAKE3 of each file, in the manifest's order, as `b3sum` prints it; once all is in its
    /// place. A file of which more than 64 GiB are holes has none.
    pub fn file_hashes(&self) -> Option<&[Option<[u8; 32]>]> {
        self.counters.file_hashes.get().map(|hashes| &**hashes)
    }
}

/// How far a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Files of the object; 0 before its list of files is there.
    pub files: u32,
    /// Of those, files that are in their place.
    pub files_done: u32,
    /// Bytes of content of the object; 0 before its list of files is there.
    pub bytes: u64,
    /// Bytes of content that were there at the start.
    pub bytes_found: u64,
    /// Bytes of content that were written to files; what was nothing but zeros needs no writing.
    pub bytes_written: u64,
    /// Bytes of content that were found damaged so far.
    pub bytes_damaged: u64,
    /// Times that the journal was written.
    pub journal_writes: u64,
    /// Bytes that were written to the journal.
    pub journal_bytes: u64,
    /// For how long whoever gave it content had to wait until the disk had taken some.
    pub waited: Duration,
}
