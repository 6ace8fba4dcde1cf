//! How far a store is, for those who watch.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::manifest::Manifest;

/// Counted by the store and its thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) manifest: OnceLock<Arc<Manifest>>,
    pub(crate) file_hashes: OnceLock<Vec<Option<[u8; 32]>>>,
    pub(crate) files: AtomicU32,
    pub(crate) files_done: AtomicU32,
    pub(crate) bytes: AtomicU64,
    pub(crate) bytes_found: AtomicU64,
    bytes_written: AtomicU64,
    pub(crate) bytes_damaged: AtomicU64,
    journal_writes: AtomicU64,
    journal_bytes: AtomicU64,
    waited_ns: AtomicU64,
}

impl Counters {
    pub(crate) fn waited(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn journal(&self, bytes: u64) {
        self.journal_writes.fetch_add(1, Ordering::Relaxed);
        self.journal_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A view of a store for those who watch, usable while a transfer has it.
#[derive(Clone, Debug)]
pub struct StoreHandle {
    counters: Arc<Counters>,
}

impl StoreHandle {
    pub(crate) const fn new(counters: Arc<Counters>) -> Self {
        Self { counters }
    }

    /// How far it is.
    pub fn counts(&self) -> StoreCounts {
        let counters = &self.counters;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StoreCounts {
            files: counters.files.load(Ordering::Relaxed),
            files_done: counters.files_done.load(Ordering::Relaxed),
            bytes: load(&counters.bytes),
            bytes_found: load(&counters.bytes_found),
            bytes_written: load(&counters.bytes_written),
            bytes_damaged: load(&counters.bytes_damaged),
            journal_writes: load(&counters.journal_writes),
            journal_bytes: load(&counters.journal_bytes),
            waited: Duration::from_nanos(load(&counters.waited_ns)),
        }
    }

    /// What is received, once the list of files is there and taken.
    pub fn manifest(&self) -> Option<&crate::Manifest> {
        self.counters.manifest.get().map(|manifest| &**manifest)
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
