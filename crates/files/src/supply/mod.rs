//! Files of a sender: their supply, its observers, and checks that they are unchanged.

mod pipe;
mod reader;
mod scan;
mod skipped;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bstr::{BStr, BString, ByteSlice as _};
use faircast_proto::object::{ObjectError, ObjectResult, Part, Supply};

pub use self::pipe::{PIPE_NAME, PipeSupply};
use self::reader::FileReader;
pub use self::scan::{Links, Scan, ScanOptions, ScanTotals};
pub use self::skipped::{Skip, Skipped, Warning};
use crate::error::{At as _, FilesError, Result};
use crate::layout::Layout;
use crate::manifest::{Manifest, Mtime};
use crate::name;
use crate::table::LOST;

/// Files and directories as a supply. The scan uses `stat` alone; a thread then reads ahead and
/// hashes. Memory besides manifest and locations: at most 32 MiB.
#[derive(Debug)]
pub struct FilesSupply {
    shared: Arc<FileReader>,
    thread: Option<JoinHandle<()>>,
    manifest: Vec<u8>,
    object: [u8; 32],
    /// Chunk of the last read: its bytes, its offset in the content, and its number.
    current: Option<(Arc<Vec<u8>>, u64, u32)>,
    /// Ends of recent reads, and contiguous bytes read up to them; the most recent first.
    tails: [(u64, u64); TAILS],
}

/// Sequential reads to track: of the sweep, and of repairs in between.
const TAILS: usize = 4;
/// Contiguous bytes that reveal the sweep, which deserves read-ahead: more than a block's repair.
const RUN_BYTES: u64 = 256 << 10;

impl FilesSupply {
    /// Scans `paths` with the default options, and starts to hash.
    pub fn scan<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        Self::new(Scan::new(paths, &ScanOptions::default())?)
    }

    /// Starts to hash the files of a scan.
    pub fn new(found: Scan) -> Result<Self> {
        let manifest = found.layout.manifest.encode();
        let object = blake3::hash(&manifest).into();
        let temporary = std::env::temp_dir();
        let shared = FileReader::new(found.layout, found.sources);
        let shared = Arc::new(shared.at(&temporary, "cannot keep digests")?);
        if shared.chunks.count == 0 {
            shared.digests.get_or_init(|| blake3::hash(&[]).into());
        }
        let reader = shared.clone();
        let thread = std::thread::Builder::new()
            .name("faircast-read".into())
            .spawn(move || reader.run())
            .at("faircast", "cannot start")?;
        let thread = Some(thread);
        Ok(Self { shared, thread, manifest, object, current: None, tails: [(0, 0); TAILS] })
    }

    /// Returns the manifest of the content.
    pub fn manifest(&self) -> &Manifest {
        &self.shared.layout.manifest
    }

    /// Returns a handle for observers.
    pub fn handle(&self) -> SupplyHandle {
        SupplyHandle(self.shared.clone())
    }

    fn read_content(&mut self, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<()> {
        let (mut offset, end) = (offset, offset + u64::from(len));
        while offset < end {
            if let Some((bytes, start, _)) = &self.current
                && let Some(from) = offset.checked_sub(*start)
                && let Ok(from) = usize::try_from(from)
                && from < bytes.len()
            {
                let rest = usize::try_from(end - offset).expect("at most len");
                let piece = &bytes[from..bytes.len().min(from + rest)];
                out.extend_from_slice(piece);
                offset += piece.len() as u64;
                continue;
            }
            let layout = &self.shared.layout;
            let chunk = self.shared.chunks.at(layout, offset);
            let groups = self.shared.chunks.groups(layout, chunk);
            let start = layout.group(groups.start).offset;
            let stop = layout.group(groups.end - 1).range().end;
            let (found, on) = self.shared.peek(chunk);
            match if on { self.shared.move_to(chunk) } else { found } {
                Some(bytes) => self.current = Some((bytes, start, chunk)),
                None => {
                    let piece = usize::try_from(end.min(stop) - offset).expect("at most len");
                    let since = Instant::now();
                    let read = self.shared.read_direct(offset, piece, out);
                    self.shared.counts.lock().waited += since.elapsed();
                    read?;
                    if self.follow(offset, piece as u64) {
                        self.shared.move_to(chunk);
                    }
                    offset += piece as u64;
                }
            }
        }
        Ok(())
    }

    /// True if a direct read continues a sequence that is long enough to be the sweep.
    fn follow(&mut self, offset: u64, len: u64) -> bool {
        let known = self.tails.iter().position(|(end, _)| *end == offset);
        let at = known.unwrap_or(TAILS - 1);
        let before = if known.is_some() { self.tails[at].1 } else { 0 };
        let bytes = before + len;
        let moved = bytes >= RUN_BYTES;
        self.tails[at] = (offset + len, if moved { 0 } else { bytes });
        self.tails[..=at].rotate_right(1);
        moved
    }
}

impl Supply for FilesSupply {
    fn len(&self, part: Part) -> u64 {
        match part {
            Part::Manifest => self.manifest.len() as u64,
            Part::Content => self.shared.layout.manifest.content_bytes(),
            Part::Digests => self.shared.layout.digest_bytes(),
        }
    }

    fn object(&self) -> [u8; 32] {
        self.object
    }

    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
        match &self.shared.state.lock().failure {
            Some(reason) => Err(ObjectError::new(reason)),
            None => Ok(self.shared.digests.get().copied()),
        }
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32> {
        let end = offset.checked_add(u64::from(len)).filter(|end| *end <= Supply::len(self, part));
        assert!(end.is_some(), "a sender asks for what it announced");
        let size = len as usize;
        let before = out.len();
        let result = match part {
            Part::Manifest => {
                let start = usize::try_from(offset).expect("within what is in memory");
                out.extend_from_slice(&self.manifest[start..start + size]);
                Ok(())
            }
            Part::Content => self.read_content(offset, len, out),
            Part::Digests => {
                let read = self.shared.state.lock().table.read(offset, size, out);
                read.at(std::env::temp_dir(), LOST)
            }
        };
        result.inspect_err(|_| out.truncate(before))?;
        Ok(0)
    }

    fn is_repeatable(&self) -> bool {
        !self.shared.stale.load(Ordering::Relaxed)
    }

    fn expect(&mut self, offset: u64) {
        if offset < self.shared.layout.manifest.content_bytes() {
            let chunk = self.shared.chunks.at(&self.shared.layout, offset);
            if self.current.as_ref().is_none_or(|(_, _, current)| *current != chunk) {
                self.shared.move_to(chunk);
            }
        }
    }
}

impl Drop for FilesSupply {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.shared.close();
    }
}

/// Handle to observe a supply during a transfer.
#[derive(Clone, Debug)]
pub struct SupplyHandle(Arc<dyn Observed>);

trait Observed: fmt::Debug + Send + Sync {
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

#[derive(Debug)]
pub(crate) struct Sources {
    roots: BTreeMap<BString, PathBuf>,
    identities: Vec<(u64, u64)>,
}

impl Sources {
    fn path(&self, layout: &Layout, file: u32) -> PathBuf {
        self.at(&layout.entry(file).path)
    }

    fn at(&self, path: &BStr) -> PathBuf {
        match path.split_once_str("/") {
            Some((root, rest)) => self.roots[root.as_bstr()].join(OsStr::from_bytes(rest)),
            None => self.roots[path].clone(),
        }
    }

    fn same(&self, layout: &Layout, file: u32, now: &Metadata) -> bool {
        let entry = layout.entry(file);
        // Writes to a device do not change the times of its node.
        let changed = entry.is_file() && (entry.size() != now.len() || entry.mtime != mtime(now));
        self.identities[file as usize] == identity(now) && !changed
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn mtime(metadata: &Metadata) -> Mtime {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Mtime { seconds: metadata.mtime(), nanos }
}

fn changed(path: &Path) -> FilesError {
    FilesError::refused(
        path,
        "changed while it was being sent; send again when nothing writes to it",
    )
}
