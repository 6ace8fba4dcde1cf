//! Thread that reads ahead of the sender and hashes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fixedbitset::FixedBitSet;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::OFlags;

use super::chunks::Chunks;
use super::handle::SupplyCounts;
use super::sources::{Sources, changed};
use crate::error::{FilesError, Result};
use crate::guard::PanicGuard;
use crate::handles::Handles;
use crate::hash::group_digest;
use crate::hole_hashes::HoleHashes;
use crate::layout::{Group, Layout};
use crate::table::Table;

/// Chunks in memory from the sender's position on.
const AHEAD: u32 = 12;
/// Chunks in memory behind the sender, for repairs.
const BEHIND: u32 = 4;
/// Pause of the sender after which hashing may use the disk.
const IDLE: Duration = Duration::from_millis(100);
/// Wait for a sender's first read before hashing, since chunks hashed before are read twice.
const IDLE_FIRST: Duration = Duration::from_millis(500);

const HOLE_PAUSE: Duration = Duration::from_millis(1);

/// State shared by a supply and the thread that reads ahead.
#[derive(Debug)]
pub(crate) struct FileReader {
    pub(crate) layout: Layout,
    pub(crate) chunks: Chunks,
    /// Hash of all digests, once all chunks are hashed.
    pub(crate) digests: OnceLock<[u8; 32]>,
    counts: Mutex<SupplyCounts>,
    sources: Sources,
    handles: Mutex<Handles>,
    state: Mutex<State>,
    /// Wakes the thread: another position, or the end.
    moved: Condvar,
    holes: Mutex<HoleHashes>,
    /// True once a file has changed or is missing.
    pub(crate) stale: AtomicBool,
}

/// State under the lock, between the reading threads and the sender.
#[derive(Debug)]
struct State {
    /// Chunks in memory, by number.
    cache: Vec<(u32, Arc<Vec<u8>>)>,
    /// Position of the sender: chunks from here on are read ahead.
    position: u32,
    moved_at: Option<Instant>,
    started_at: Instant,
    /// Chunks with digests in `table`.
    hashed: FixedBitSet,
    /// Lower bound of chunks without a digest.
    hashed_below: u32,
    table: Table,
    failure: Option<String>,
    stop: bool,
}

/// Next work of the thread.
enum Task {
    /// Read a chunk into memory, and hash it if it has no digests yet.
    Fetch {
        chunk: u32,
        hash: bool,
    },
    Hash(u32),
    Wait(Option<Duration>),
    End,
}

impl FileReader {
    pub(crate) fn new(layout: Layout, sources: Sources) -> io::Result<Self> {
        let chunks = Chunks::new(&layout);
        let state = State {
            cache: Vec::new(),
            position: 0,
            moved_at: None,
            started_at: Instant::now(),
            hashed: FixedBitSet::with_capacity(chunks.count() as usize),
            hashed_below: 0,
            table: Table::new(layout.digest_bytes(), &std::env::temp_dir())?,
            failure: None,
            stop: false,
        };
        let (files, bytes) = (layout.files(), layout.manifest.content_bytes());
        let counts = SupplyCounts { files, bytes, ..SupplyCounts::default() };
        let holes = Mutex::new(HoleHashes::new(&layout, &std::env::temp_dir())?);
        Ok(Self {
            layout,
            chunks,
            digests: OnceLock::new(),
            counts: Mutex::new(counts),
            sources,
            handles: Mutex::default(),
            state: Mutex::new(state),
            moved: Condvar::new(),
            holes,
            stale: AtomicBool::new(false),
        })
    }

    pub(crate) fn run(&self) {
        let _guard = PanicGuard::new("reads files", |fault| {
            self.state.lock().failure.get_or_insert(fault);
        });
        let mut buffer = Vec::new();
        loop {
            let mut state = self.state.lock();
            let (chunk, hash, keep) = match self.task(&state) {
                Task::End => return,
                Task::Wait(time) => {
                    drop(state);
                    let more = self.holes.lock().step(&self.layout).unwrap_or(false);
                    state = self.state.lock();
                    if !matches!(self.task(&state), Task::Wait(_)) {
                        continue;
                    }
                    // The pause leaves the processor to the sender.
                    let time = if more { Some(HOLE_PAUSE) } else { time };
                    match time {
                        Some(time) => drop(self.moved.wait_for(&mut state, time)),
                        None => self.moved.wait(&mut state),
                    }
                    continue;
                }
                Task::Fetch { chunk, hash } => (chunk, hash, true),
                Task::Hash(chunk) => (chunk, true, false),
            };
            if keep && let Some(freed) = self.make_room(&mut state) {
                buffer = freed;
            }
            drop(state);
            if let Err(error) = self.process(chunk, hash, keep, &mut buffer) {
                self.state.lock().failure = Some(error.to_string());
                return;
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.moved.notify_all();
    }

    pub(crate) fn close(&self) {
        self.state.lock().cache.clear();
        self.handles.lock().clear();
    }

    pub(crate) fn move_to(&self, chunk: u32) -> Option<Arc<Vec<u8>>> {
        let mut state = self.state.lock();
        state.position = chunk;
        state.moved_at = Some(Instant::now());
        let found = state.find(chunk);
        drop(state);
        self.moved.notify_all();
        found
    }

    pub(crate) fn peek(&self, chunk: u32) -> (Option<Arc<Vec<u8>>>, bool) {
        let state = self.state.lock();
        let on = chunk > state.position && chunk - state.position <= AHEAD;
        (state.find(chunk), on)
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    pub(crate) fn read_digests(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.state.lock().table.read(offset, len, out)
    }

    pub(crate) fn read_direct(&self, mut offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut start = out.len();
        out.resize(start + len, 0);
        while start < out.len() {
            let group = self.layout.group_at(offset);
            let within = offset - group.offset;
            let rest = usize::try_from(u64::from(group.len) - within).expect("at most a group");
            let piece = rest.min(out.len() - start);
            self.read_file(&group, within, &mut out[start..start + piece])?;
            start += piece;
            offset += piece as u64;
        }
        Ok(())
    }

    pub(crate) fn hash_holes(&self) -> io::Result<()> {
        while self.holes.lock().step(&self.layout)? {}
        Ok(())
    }

    pub(crate) fn file_hash(&self, file: u32) -> io::Result<Option<[u8; 32]>> {
        self.holes
            .lock()
            .file_hash(&self.layout, file, |group| self.state.lock().table.digest(group))
    }

    #[cfg(test)]
    pub(crate) fn opened(&self) -> u64 {
        self.handles.lock().opened()
    }

    fn process(&self, chunk: u32, hash: bool, keep: bool, buffer: &mut Vec<u8>) -> Result<()> {
        let groups = self.chunks.groups(&self.layout, chunk);
        let mut digests = Vec::new();
        let mut start = 0;
        for index in groups.clone() {
            let group = self.layout.group(index);
            let end = start + group.len as usize;
            if buffer.len() < end {
                buffer.resize(end, 0);
            }
            self.read_file(&group, 0, &mut buffer[start..end])?;
            if hash {
                digests.extend_from_slice(&group_digest(&group, &buffer[start..end]));
            }
            start = end;
        }
        buffer.truncate(start);
        let mut state = self.state.lock();
        if hash {
            let at = u64::from(groups.start) * crate::layout::DIGEST_BYTES;
            let temporary = std::env::temp_dir();
            let cannot = |error| FilesError::io(&temporary, "cannot keep digests", error);
            state.table.write(at, &digests).map_err(cannot)?;
            state.hashed.set(chunk as usize, true);
            self.counts().bytes_hashed += start as u64;
            let rest = state.hashed_below..self.chunks.count();
            let below = rest.clone().find(|chunk| !state.hashed.contains(*chunk as usize));
            state.hashed_below = below.unwrap_or(rest.end);
            if below.is_none() {
                let hash = state.table.hash().map_err(cannot)?;
                self.digests.get_or_init(|| hash);
            }
        }
        if keep {
            state.cache.push((chunk, Arc::new(std::mem::take(buffer))));
        }
        Ok(())
    }

    fn task(&self, state: &State) -> Task {
        if state.stop {
            return Task::End;
        }
        let count = self.chunks.count();
        let ahead = state.position..(state.position + AHEAD).min(count);
        for chunk in ahead {
            if state.find(chunk).is_none() {
                return Task::Fetch { chunk, hash: !state.hashed.contains(chunk as usize) };
            }
        }
        let todo = (state.hashed_below < count).then_some(state.hashed_below);
        let (since, idle_min) = match state.moved_at {
            Some(at) => (at, IDLE),
            None => (state.started_at, IDLE_FIRST),
        };
        let idle = since.elapsed();
        match todo {
            // Chunks behind the sender come at once. Chunks ahead would be read twice.
            Some(chunk) if chunk < state.position || idle >= idle_min => Task::Hash(chunk),
            Some(_) => Task::Wait(Some(idle_min - idle)),
            None => Task::Wait(None),
        }
    }

    /// Removes a far chunk if memory is full, for its buffer: fresh memory is as slow as reading.
    fn make_room(&self, state: &mut State) -> Option<Vec<u8>> {
        if state.cache.len() < (AHEAD + BEHIND) as usize {
            return None;
        }
        let window = state.position.saturating_sub(BEHIND)..state.position.saturating_add(AHEAD);
        let index = state.cache.iter().position(|(chunk, _)| !window.contains(chunk))?;
        Arc::into_inner(state.cache.swap_remove(index).1)
    }

    fn read_file(&self, group: &Group, within: u64, out: &mut [u8]) -> Result<()> {
        let path = || self.sources.path(&self.layout, group.file);
        let cannot = |error| FilesError::io(&path(), "cannot be read", error);
        let handle = self.handles.lock().get(group.file, || {
            // The path may be a pipe now, which must not block.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            OpenOptions::new().read(true).custom_flags(flags).open(path()).map_err(|error| {
                if error.kind() == io::ErrorKind::NotFound {
                    self.stale.store(true, Ordering::Relaxed);
                }
                cannot(error)
            })
        })?;
        let read = handle.read_exact_at(out, group.file_offset + within);
        // The check follows the read, so that the content is from before any change.
        if !self.unchanged(group.file, &handle).map_err(cannot)? {
            self.stale.store(true, Ordering::Relaxed);
            return Err(changed(&path()));
        }
        self.counts().bytes_read += out.len() as u64;
        read.map_err(cannot)
    }

    fn unchanged(&self, file: u32, handle: &File) -> io::Result<bool> {
        Ok(self.sources.same(&self.layout, file, &handle.metadata()?))
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, SupplyCounts> {
        self.counts.lock()
    }
}

impl State {
    fn find(&self, chunk: u32) -> Option<Arc<Vec<u8>>> {
        self.cache.iter().find(|(of, _)| *of == chunk).map(|(_, bytes)| bytes.clone())
    }
}
