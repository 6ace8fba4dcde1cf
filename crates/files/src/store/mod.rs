//! Files of a receiver.

mod assembly;
mod attributes;
mod counts;
mod files;
mod finish;
mod journal;
mod links;
mod open;
mod state;
#[cfg(test)]
mod tests;
mod worker;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use faircast_proto::object::{Announcement, Part, Store, StoreError, StoreProgress, Verdict};

pub(crate) use self::assembly::{Assembly, Flight, Ranges};
pub(crate) use self::counts::Counters;
pub use self::counts::{StoreCounts, StoreHandle};
pub(crate) use self::journal::Journal;
use self::open::Request;
pub use self::state::clean;
use self::worker::{Job, Shared, Worker};
use crate::error::FilesError;
use crate::layout::{Bits, DIGEST_BYTES, GROUP_BYTES, Piece, push_joined};
use crate::manifest::{CONTENT_BYTES_MAX, ENTRIES_MAX, MANIFEST_BYTES_MAX};
use crate::table::Table;

/// Where and how an object is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The directory that it goes into; made where it is not there.
    pub dir: PathBuf,
    /// Whether files that are there and differ are replaced. They stay until the whole object is
    /// there. Default: no.
    pub overwrite: bool,
    /// Whether files, directories and links get the owners that the sender tells of. Default: no.
    pub owner: bool,
    /// Whether files and directories get the extended attributes that the sender tells of.
    /// Default: no.
    pub xattrs: bool,
    /// Whether an object counts as received only once it is on the disk. Default: yes.
    pub sync: bool,
    /// Whether what was received stays for a later run where this one ends early. Default: yes.
    pub keep_partial: bool,
}

impl StoreOptions {
    /// The defaults, in a directory.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref().to_path_buf();
        let [overwrite, owner, xattrs] = [false; 3];
        Self { dir, overwrite, owner, xattrs, sync: true, keep_partial: true }
    }
}

/// A directory as a store. What comes is put together in memory by groups of 1 MiB; a thread hashes
/// and writes them. Takes at most 48 MiB besides the manifest and where its files lie, for objects
/// up to 256 GiB, and three bits for each MiB beyond.
#[derive(Debug)]
pub struct FilesStore {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    announcement: Option<Announcement>,
    manifest: Vec<u8>,
    stage: Stage,
    assembly: Assembly,
    /// Groups that are complete, as far as is known: what comes for them is not needed.
    complete: Bits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Manifest,
    Opening,
    Open,
    Verifying,
    Intact,
}

impl FilesStore {
    /// A store that has not seen an object yet. Nothing is made before one is announced.
    pub fn new(options: StoreOptions) -> Self {
        Self {
            shared: Arc::new(Shared::new(options, Table::Memory(Vec::new()))),
            thread: None,
            announcement: None,
            manifest: Vec::new(),
            stage: Stage::Manifest,
            assembly: Assembly::default(),
            complete: Bits::new(0),
        }
    }

    /// For those who watch.
    pub fn handle(&self) -> StoreHandle {
        StoreHandle::new(self.shared.counters.clone())
    }

    /// With a journal that is written after each group, and not once a second.
    #[cfg(test)]
    fn journal_at_once(mut self) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("nobody else has it yet");
        shared.journal_every = std::time::Duration::ZERO;
        self
    }

    /// Ends as a killed process does: nothing more is written.
    #[cfg(test)]
    fn kill(mut self) {
        self.end(false);
    }

    fn begin(&mut self, announcement: &Announcement) -> Result<(), FilesError> {
        let [manifest, content, digests] = announcement.lens;
        let digests_max = (content / GROUP_BYTES + u64::from(ENTRIES_MAX)) * DIGEST_BYTES;
        if manifest > MANIFEST_BYTES_MAX {
            return Err(FilesError::Sender(format!("its list of files has {manifest} bytes")));
        }
        if content > CONTENT_BYTES_MAX || digests > digests_max || digests % DIGEST_BYTES != 0 {
            return Err(FilesError::Sender(format!(
                "it announces {content} bytes of content and {digests} of digests"
            )));
        }
        let dir = &self.shared.options.dir;
        let cannot = |error| FilesError::io(dir, "cannot be made", error);
        std::fs::create_dir_all(dir).map_err(cannot)?;
        *self.shared.digests() = Table::new(digests, dir)
            .map_err(|error| FilesError::io(dir, "cannot be written to", error))?;
        self.manifest = vec![0; usize::try_from(manifest).expect("limited")];
        Ok(())
    }

    fn start(&mut self) -> Result<(), FilesError> {
        let worker = Worker::new(self.shared.clone());
        let thread = std::thread::Builder::new()
            .name("faircast-write".into())
            .spawn(move || worker.run())
            .map_err(|error| FilesError::io(&self.shared.options.dir, "cannot start", error))?;
        self.thread = Some(thread);
        Ok(())
    }

    fn submit(&mut self, job: Job) -> Result<(), StoreError> {
        self.shared.submit(job).map_err(|reason| StoreError { reason })
    }

    fn write_content(&mut self, offset: u64, bytes: &[u8], zeros: u32) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let Some(files) = shared.files.get() else { return Err(too_early()) };
        match self.stage {
            Stage::Manifest | Stage::Opening => return Err(too_early()),
            Stage::Open => {}
            // It was complete, and nothing is needed while it is compared.
            Stage::Verifying | Stage::Intact => return Ok(()),
        }
        let end = offset.checked_add(bytes.len() as u64 + u64::from(zeros));
        let total = files.layout.manifest.content_bytes();
        let Some(end) = end.filter(|end| *end <= total) else { return Err(beyond(Part::Content)) };
        let mut bytes = bytes;
        for piece in files.layout.pieces(offset..end, self.assembly.current(offset)) {
            let group = piece.group;
            let (now, zeros) = piece.split(&mut bytes);
            if self.complete.get(group.index) {
                continue;
            }
            while self.assembly.must_evict(&group) {
                let flight = self.assembly.evict().expect("full");
                self.submit(Job::Write(Arc::new(flight)))?;
            }
            let whole = u64::from(group.len) == GROUP_BYTES;
            let buffer = || if whole { shared.buffer() } else { Vec::new() };
            let done = self.assembly.insert(&group, piece.start, now, zeros, buffer);
            if let Some(flight) = done {
                self.complete.set(group.index, true);
                self.submit(Job::Write(Arc::new(flight)))?;
            }
        }
        Ok(())
    }

    fn read_content(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let Some(files) = self.shared.files.get() else { return Err(too_early()) };
        let end = offset.checked_add(len.into());
        let total = files.layout.manifest.content_bytes();
        let Some(end) = end.filter(|end| *end <= total) else { return Err(beyond(Part::Content)) };
        for Piece { group, start, end } in files.layout.pieces(offset..end, None) {
            let before = out.len();
            out.resize(before + (end - start) as usize, 0);
            let piece = &mut out[before..];
            let slot = self.assembly.get(group.index);
            if !slot.is_some_and(|slot| slot.ranges.covers(start, end)) {
                // Asked before the file is read: what is not on its way any more is in there.
                let flights = self.shared.flights(group.index);
                let covers = |flight: &Arc<Flight>| flight.ranges.covers(start, end);
                if !flights.last().is_some_and(covers) {
                    files.read(&group, start, piece).map_err(told)?;
                }
                flights.iter().for_each(|flight| flight.overlay(start, piece));
            }
            if let Some(slot) = slot {
                slot.overlay(start, piece);
            }
        }
        Ok(())
    }

    fn opened(&mut self, found: Bits) -> Vec<Range<u64>> {
        let files = self.shared.files.get().expect("opened");
        let mut ranges = Vec::new();
        for index in (0..files.layout.groups()).filter(|group| found.get(*group)) {
            push_joined(&mut ranges, files.layout.group(index).range());
        }
        self.complete = found;
        self.stage = Stage::Open;
        ranges
    }

    fn end(&mut self, flush: bool) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.stop(flush);
        // Its failures are in what is shared.
        let _ = thread.join();
        if flush
            && self.stage != Stage::Intact
            && !self.shared.options.keep_partial
            && let Some(files) = self.shared.files.get()
        {
            files.close();
            // Nobody is left to be told.
            let _ = files.state.remove();
        }
    }
}

impl Store for FilesStore {
    fn announce(&mut self, announcement: &Announcement) -> Result<(), StoreError> {
        match &mut self.announcement {
            // The same again: what is new is the digests' hash.
            Some(known)
                if known.object == announcement.object && known.lens == announcement.lens =>
            {
                known.digests = announcement.digests.or(known.digests);
                return Ok(());
            }
            Some(_) => {
                let sender = FilesError::Sender("it announces another object".into());
                return Err(told(sender));
            }
            None => {}
        }
        self.begin(announcement).map_err(told)?;
        self.announcement = Some(*announcement);
        Ok(())
    }

    fn write(
        &mut self,
        part: Part,
        offset: u64,
        bytes: &[u8],
        zeros: u32,
    ) -> Result<(), StoreError> {
        if part == Part::Content {
            return self.write_content(offset, bytes, zeros);
        }
        let mut zeroed;
        let bytes = match zeros {
            0 => bytes,
            _ => {
                zeroed = bytes.to_vec();
                zeroed.resize(bytes.len() + zeros as usize, 0);
                &zeroed
            }
        };
        let end = offset.checked_add(bytes.len() as u64);
        if part == Part::Manifest {
            // Once opened it is not needed any more.
            if self.stage == Stage::Manifest {
                let at =
                    usize::try_from(offset).ok().zip(end.and_then(|e| usize::try_from(e).ok()));
                let place = at.and_then(|(start, end)| self.manifest.get_mut(start..end));
                place.ok_or_else(|| beyond(part))?.copy_from_slice(bytes);
            }
            return Ok(());
        }
        let mut digests = self.shared.digests();
        if end.is_none_or(|end| end > digests.len()) {
            return Err(beyond(part));
        }
        digests.write(offset, bytes).map_err(|error| self.lost(error))
    }

    fn read(
        &mut self,
        part: Part,
        offset: u64,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if let Some(reason) = self.shared.failure() {
            return Err(StoreError { reason });
        }
        let end = offset.checked_add(len.into());
        match part {
            Part::Content => self.read_content(offset, len, out),
            Part::Manifest => {
                let at =
                    usize::try_from(offset).ok().zip(end.and_then(|e| usize::try_from(e).ok()));
                let bytes = at.and_then(|(start, end)| self.manifest.get(start..end));
                out.extend_from_slice(bytes.ok_or_else(|| beyond(part))?);
                Ok(())
            }
            Part::Digests => {
                let digests = self.shared.digests();
                if end.is_none_or(|end| end > digests.len()) {
                    return Err(beyond(part));
                }
                digests.read(offset, len as usize, out).map_err(|error| self.lost(error))
            }
        }
    }

    fn open(&mut self) -> Result<StoreProgress<Vec<Range<u64>>>, StoreError> {
        if self.stage == Stage::Manifest {
            let Some(announcement) = self.announcement else { return Err(too_early()) };
            self.start().map_err(told)?;
            let manifest = self.manifest.clone();
            self.submit(Job::Open(Box::new(Request { announcement, manifest })))?;
            self.stage = Stage::Opening;
        }
        if let Some(reason) = self.shared.failure() {
            return Err(StoreError { reason });
        }
        match self.shared.take_found() {
            Some(found) => Ok(StoreProgress::Done(self.opened(found))),
            None => Ok(StoreProgress::Pending),
        }
    }

    fn verify(&mut self) -> Result<StoreProgress<Verdict>, StoreError> {
        match self.stage {
            Stage::Manifest | Stage::Opening => return Err(too_early()),
            Stage::Intact => return Ok(StoreProgress::Done(Verdict::Intact)),
            Stage::Open => {
                while let Some(flight) = self.assembly.drain() {
                    self.submit(Job::Write(Arc::new(flight)))?;
                }
                // From now on the digests say what is there.
                self.assembly.forget();
                let announced = self.announcement.and_then(|announcement| announcement.digests);
                self.submit(Job::Verify(announced))?;
                self.stage = Stage::Verifying;
            }
            Stage::Verifying => {}
        }
        if let Some(reason) = self.shared.failure() {
            return Err(StoreError { reason });
        }
        let Some((verdict, damaged)) = self.shared.take_verdict() else {
            return Ok(StoreProgress::Pending);
        };
        self.stage = match verdict {
            Verdict::Intact => Stage::Intact,
            Verdict::Damaged(_) => Stage::Open,
        };
        let files = self.shared.files.get().expect("opened");
        (0..files.layout.groups()).for_each(|group| self.complete.set(group, true));
        damaged.into_iter().for_each(|group| self.complete.set(group, false));
        Ok(StoreProgress::Done(verdict))
    }
}

impl FilesStore {
    fn lost(&self, error: std::io::Error) -> StoreError {
        told(FilesError::io(&self.shared.options.dir, "cannot keep digests", error))
    }
}

impl Drop for FilesStore {
    fn drop(&mut self) {
        self.end(true);
    }
}

fn told(error: FilesError) -> StoreError {
    StoreError { reason: error.to_string() }
}

fn too_early() -> StoreError {
    told(FilesError::Sender("content came before the list of files".into()))
}

fn beyond(part: Part) -> StoreError {
    told(FilesError::Sender(format!("it sent bytes beyond the end of {part:?}")))
}
