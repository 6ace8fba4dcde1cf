//! Thread that reads ahead of the sender and hashes.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fixedbitset::FixedBitSet;
use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;

use super::{FileHash, Observed, Sources, SupplyCounts, changed};
use crate::error::{At as _, FilesError, Result};
use crate::guard::guarded;
use crate::handles::Handles;
use crate::hash::{HoleHashes, group_digest};
use crate::layout::{DIGEST_BYTES, GROUP_BYTES, Group, Layout};
use crate::manifest::Manifest;
use crate::table::Table;

/// Chunks in memory from the sender's position on.
const AHEAD: u32 = 12;
const BEHIND: u32 = 4;
/// Pause of the sender after which hashing may use the disk.
const IDLE: Duration = Duration::from_millis(100);
/// Wait for a sender's first read before hashing, since chunks hashed before are read twice.
const IDLE_FIRST: Duration = Duration::from_millis(500);

const HOLE_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct FileReader {
    pub(crate) layout: Layout,
    pub(crate) chunks: Chunks,
    /// Hash of all digests, once all chunks are hashed.
    pub(crate) digests: OnceLock<[u8; 32]>,
    pub(super) counts: Mutex<SupplyCounts>,
    sources: Sources,
    pub(super) handles: Mutex<Handles>,
    pub(super) state: Mutex<State>,
    moved: Condvar,
    holes: Mutex<HoleHashes>,
    pub(crate) stale: AtomicBool,
}

#[derive(Debug)]
pub(super) struct State {
    cache: Vec<(u32, Arc<Vec<u8>>)>,
    /// Position of the sender: chunks from here on are read ahead.
    position: u32,
    moved_at: Option<Instant>,
    started_at: Instant,
    hashed: FixedBitSet,
    /// Lower bound of chunks without a digest.
    hashed_below: u32,
    pub(super) table: Table,
    pub(super) failure: Option<String>,
    stop: bool,
}

enum Task {
    /// Read a chunk, to keep it in memory, or for its digests alone.
    Read {
        chunk: u32,
        hash: bool,
        keep: bool,
    },
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
            hashed: FixedBitSet::with_capacity(chunks.count as usize),
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
        if let Err(fault) = guarded("reads files", || self.work()) {
            self.state.lock().failure.get_or_insert(fault);
        }
    }

    fn work(&self) -> Result<()> {
        let mut buffer = Vec::new();
        loop {
            let mut state = self.state.lock();
            match self.task(&state) {
                Task::End => return Ok(()),
                Task::Wait(time) => {
                    drop(state);
                    let more = self.holes.lock().step(&self.layout).unwrap_or(false);
                    // The pause leaves the processor to the sender.
                    let time = if more { Some(HOLE_PAUSE) } else { time };
                    state = self.state.lock();
                    match (self.task(&state), time) {
                        (Task::Wait(_), Some(time)) => {
                            self.moved.wait_for(&mut state, time);
                        }
                        (Task::Wait(_), None) => self.moved.wait(&mut state),
                        _ => {}
                    }
                }
                Task::Read { chunk, hash, keep } => {
                    if keep && let Some(freed) = self.make_room(&mut state) {
                        buffer = freed;
                    }
                    drop(state);
                    self.process(chunk, hash, keep, &mut buffer)?;
                }
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.moved.notify_all();
    }

    pub(crate) fn close(&self) {
        self.state.lock().cache.clear();
        self.handles.lock().open.clear();
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
            const CANNOT: &str = "cannot keep digests";
            let at = u64::from(groups.start) * DIGEST_BYTES;
            let temporary = std::env::temp_dir();
            state.table.write(at, &digests).at(&temporary, CANNOT)?;
            state.hashed.set(chunk as usize, true);
            self.counts.lock().bytes_hashed += start as u64;
            let rest = state.hashed_below..self.chunks.count;
            let below = rest.clone().find(|chunk| !state.hashed.contains(*chunk as usize));
            state.hashed_below = below.unwrap_or(rest.end);
            if below.is_none() {
                let hash = state.table.hash().at(&temporary, CANNOT)?;
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
        let count = self.chunks.count;
        let ahead = state.position..(state.position + AHEAD).min(count);
        for chunk in ahead {
            if state.find(chunk).is_none() {
                let hash = !state.hashed.contains(chunk as usize);
                return Task::Read { chunk, hash, keep: true };
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
            Some(chunk) if chunk < state.position || idle >= idle_min => {
                Task::Read { chunk, hash: true, keep: false }
            }
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
        let now = handle.metadata().map_err(cannot)?;
        if !self.sources.same(&self.layout, group.file, &now) {
            self.stale.store(true, Ordering::Relaxed);
            return Err(changed(&path()));
        }
        self.counts.lock().bytes_read += out.len() as u64;
        read.map_err(cannot)
    }
}

impl Observed for FileReader {
    fn counts(&self) -> SupplyCounts {
        *self.counts.lock()
    }

    fn manifest(&self) -> &Manifest {
        &self.layout.manifest
    }

    fn file_hashes(&self) -> io::Result<Option<Vec<FileHash>>> {
        if self.digests.get().is_none() {
            return Ok(None);
        }
        let layout = &self.layout;
        while self.holes.lock().step(layout)? {}
        let hash = |file: u32| {
            let path = layout.entry(file).path.clone();
            let digest = |group| self.state.lock().table.digest(group);
            let hash = self.holes.lock().file_hash(layout, file, digest)?;
            Ok(FileHash { path, hash })
        };
        (0..layout.files()).map(hash).collect::<io::Result<_>>().map(Some)
    }
}

impl State {
    fn find(&self, chunk: u32) -> Option<Arc<Vec<u8>>> {
        self.cache.iter().find(|(of, _)| *of == chunk).map(|(_, bytes)| bytes.clone())
    }
}

const CHUNK_FILES_MAX: u32 = 256;

#[derive(Debug)]
pub(crate) struct Chunks {
    /// First chunk of each file. A chunk starts with the first file of its number, or inside one.
    firsts: Vec<u32>,
    pub(crate) count: u32,
}

impl Chunks {
    pub(crate) fn new(layout: &Layout) -> Self {
        let mut firsts = Vec::with_capacity(layout.files() as usize);
        let mut next = 0;
        let (mut bytes, mut files) = (0, 0);
        for file in 0..layout.files() {
            let groups = layout.groups_of(file);
            let size = layout.content_of(file);
            let joins = groups.len() <= 1 && bytes + size <= GROUP_BYTES && files < CHUNK_FILES_MAX;
            if files > 0 && !joins && !groups.is_empty() {
                next += 1;
                (bytes, files) = (0, 0);
            }
            firsts.push(next);
            match groups.len() {
                0 => {}
                1 => (bytes, files) = (bytes + size, files + 1),
                _ => next += groups.end - groups.start,
            }
        }
        Self { firsts, count: next + u32::from(files > 0) }
    }

    pub(crate) fn of_group(&self, layout: &Layout, group: u32, file: u32) -> u32 {
        self.firsts[file as usize]
            + (group - layout.groups_of(file).start) * u32::from(layout.groups_of(file).len() > 1)
    }

    pub(crate) fn at(&self, layout: &Layout, offset: u64) -> u32 {
        let group = layout.group_at(offset);
        self.of_group(layout, group.index, group.file)
    }

    pub(crate) fn groups(&self, layout: &Layout, chunk: u32) -> Range<u32> {
        self.start(layout, chunk)..self.start(layout, chunk + 1)
    }

    fn start(&self, layout: &Layout, chunk: u32) -> u32 {
        if chunk >= self.count {
            return layout.groups;
        }
        let file = self.firsts.partition_point(|first| *first < chunk);
        if self.firsts.get(file) == Some(&chunk) {
            return layout.groups_of(u32::try_from(file).expect("limited")).start;
        }
        let file = file - 1;
        let groups = layout.groups_of(u32::try_from(file).expect("limited"));
        groups.start + (chunk - self.firsts[file])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Hole;
    use crate::testing::layout;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_group_is_in_one_chunk_of_bounded_size(
            sizes in prop::collection::vec(
                prop_oneof![Just(0), 1..2000u64, 300_000..5_000_000u64, Just(GROUP_BYTES)],
                0..40,
            ),
            holes in any::<bool>(),
        ) {
            let hole = |size: u64| match holes && size > 3 * GROUP_BYTES {
                true => vec![Hole { first: 1, groups: 2 }],
                false => Vec::new(),
            };
            let files: Vec<_> = sizes.iter().map(|size| (*size, hole(*size))).collect();
            let layout = layout(&files);
            let chunks = Chunks::new(&layout);
            let mut next = 0;
            for chunk in 0..chunks.count {
                let groups = chunks.groups(&layout, chunk);
                prop_assert_eq!(groups.start, next);
                prop_assert!(!groups.is_empty());
                next = groups.end;
                let mut bytes = 0;
                for index in groups {
                    let group = layout.group(index);
                    bytes += u64::from(group.len);
                    prop_assert_eq!(chunks.at(&layout, group.offset), chunk);
                    prop_assert_eq!(chunks.of_group(&layout, index, group.file), chunk);
                }
                prop_assert!(bytes <= GROUP_BYTES);
            }
            prop_assert_eq!(next, layout.groups);
        }
    }
}
