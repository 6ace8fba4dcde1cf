//! Files of a sender.

mod handle;
mod pipe;
mod reader;
mod scan;
mod skipped;
mod sources;
#[cfg(test)]
mod tests;
mod walk;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use faircast_proto::object::{ObjectError, ObjectResult, Part, Supply};

pub use self::handle::{FileHash, SupplyHandle};
pub use self::pipe::{PIPE_NAME, PipeSupply};
use self::reader::FileReader;
pub use self::scan::{Links, Scan, ScanOptions, ScanTotals};
pub use self::skipped::{Skip, Skipped, Warning};
use crate::error::{At as _, Result};
use crate::manifest::Manifest;
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
            let (mut found, on) = self.shared.peek(chunk);
            if on {
                found = self.shared.move_to(chunk);
            }
            match found {
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
