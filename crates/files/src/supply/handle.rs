//! A view of a supply for those who watch.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bstr::BStr;

use crate::manifest::Manifest;
use crate::name;

/// A view of a supply for those who watch, usable while a transfer has it.
#[derive(Clone, Debug)]
pub struct SupplyHandle(pub(super) Arc<dyn Watched>);

/// What is shared with those who watch.
pub(super) trait Watched: fmt::Debug + Send + Sync {
    fn counts(&self) -> SupplyCounts;
    fn manifest(&self) -> &Manifest;
    fn file_hashes(&self) -> io::Result<Option<Vec<FileHash>>>;
}

impl SupplyHandle {
    /// How far it is.
    pub fn counts(&self) -> SupplyCounts {
        self.0.counts()
    }

    /// What will be, or is, sent.
    pub fn manifest(&self) -> &Manifest {
        self.0.manifest()
    }

    /// Path and hash of each file, in order; `None` before all are known.
    ///
    /// # Errors
    /// Digests that were too many for memory cannot be read back.
    pub fn file_hashes(&self) -> io::Result<Option<Vec<FileHash>>> {
        self.0.file_hashes()
    }
}

/// What a file hashes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHash {
    /// Its path in the object.
    pub path: Box<BStr>,
    /// Its BLAKE3, as `b3sum` prints it; `None` beyond 64 GiB of holes in the object.
    pub hash: Option<[u8; 32]>,
}

impl FileHash {
    /// The path as one of this system.
    pub fn local_path(&self) -> PathBuf {
        name::local_path(&self.path)
    }
}

/// How far a supply is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupplyCounts {
    /// Files of the object.
    pub files: u32,
    /// Bytes of content.
    pub bytes: u64,
    /// Of those, bytes whose digests are known.
    pub bytes_hashed: u64,
    /// Bytes that were read from files so far, those read twice counted twice.
    pub bytes_read: u64,
    /// For how long whoever asked for content had to wait until it was read.
    pub waited: Duration,
}
