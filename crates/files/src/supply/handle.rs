//! Handle to observe a supply.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bstr::BStr;

use crate::manifest::Manifest;
use crate::name;

/// Handle to observe a supply during a transfer.
#[derive(Clone, Debug)]
pub struct SupplyHandle(pub(super) Arc<dyn Observed>);

pub(super) trait Observed: fmt::Debug + Send + Sync {
    fn counts(&self) -> SupplyCounts;
    fn manifest(&self) -> &Manifest;
    fn file_hashes(&self) -> io::Result<Option<Vec<FileHash>>>;
}

impl SupplyHandle {
    /// Returns the progress.
    pub fn counts(&self) -> SupplyCounts {
        self.0.counts()
    }

    /// Returns the manifest of the content.
    pub fn manifest(&self) -> &Manifest {
        self.0.manifest()
    }

    /// Returns the path and hash of each file, in order; `None` before all are known.
    ///
    /// # Errors
    /// Digests beyond the memory limit cannot be read back.
    pub fn file_hashes(&self) -> io::Result<Option<Vec<FileHash>>> {
        self.0.file_hashes()
    }
}

/// Hash of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHash {
    /// Path in the object.
    pub path: Box<BStr>,
    /// BLAKE3, as `b3sum` prints it; `None` beyond 64 GiB of holes in the object.
    pub hash: Option<[u8; 32]>,
}

impl FileHash {
    /// Returns the path on this system.
    pub fn local_path(&self) -> PathBuf {
        name::local_path(&self.path)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupplyCounts {
    pub files: u32,
    pub bytes: u64,
    pub bytes_hashed: u64,
    /// Bytes read from files so far, with repetitions.
    pub bytes_read: u64,
    /// Time that readers of content waited for the disk.
    pub waited: Duration,
}
