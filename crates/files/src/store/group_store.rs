//! Store that accepts content in any order by groups, with a thread that writes them.

use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;

use faircast_proto::object::{Announcement, ObjectError, ObjectResult, Part, Store, Verdict};
use fixedbitset::FixedBitSet;

use super::StoreHandle;
use super::assembly::{Assembly, Flight};
use super::intake::{Intake, too_early};
use super::thread::{Job, Medium, Request, Shared, Worker, Written as _};
use crate::error::{At as _, Result};
use crate::layout::{GROUP_BYTES, Layout, Piece, push_joined};

/// Folder or device as a store: groups of 1 MiB, which a thread hashes and writes.
#[derive(Debug)]
pub struct GroupStore<M: Medium> {
    shared: Arc<Shared<M>>,
    thread: Option<JoinHandle<()>>,
    intake: Intake,
    stage: Stage,
    layout: Option<Arc<Layout>>,
    assembly: Assembly,
    /// Groups that need no more bytes: found, or complete in assembly and submitted.
    complete: FixedBitSet,
    discarded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Manifest,
    Opening,
    Open,
    Verifying,
    Intact,
}

impl<M: Medium> GroupStore<M> {
    /// Creates a store, which creates and opens no files before an announcement.
    pub fn new(options: M::Options) -> Self {
        let intake = Intake::new();
        Self {
            shared: Arc::new(Shared::new(options, &intake)),
            thread: None,
            intake,
            stage: Stage::Manifest,
            layout: None,
            assembly: Assembly::default(),
            complete: FixedBitSet::with_capacity(0),
            discarded: false,
        }
    }

    /// Returns a handle for observers.
    pub fn handle(&self) -> StoreHandle {
        StoreHandle { counters: self.shared.counters.clone() }
    }

    fn start(&mut self) -> Result<()> {
        let worker = Worker::new(self.shared.clone());
        let thread = std::thread::Builder::new()
            .name("faircast-write".into())
            .spawn(move || worker.run())
            .at(M::path(&self.shared.options), "cannot start")?;
        self.thread = Some(thread);
        Ok(())
    }

    fn submit(&self, job: Job) -> ObjectResult {
        self.shared.submit(job).map_err(ObjectError::new)
    }

    fn check(&self) -> ObjectResult {
        match &self.shared.inner.lock().failure {
            Some(reason) => Err(ObjectError::new(reason)),
            None => Ok(()),
        }
    }

    fn layout(&self) -> Result<&Arc<Layout>> {
        self.layout.as_ref().ok_or_else(too_early)
    }

    fn write_content(&mut self, offset: u64, mut bytes: &[u8], zeros: u32) -> ObjectResult {
        let layout = self.layout()?.clone();
        if self.stage != Stage::Open {
            return Ok(());
        }
        let end = self.intake.end(Part::Content, offset, bytes.len() as u64 + u64::from(zeros))?;
        for piece in layout.pieces(offset..end, self.assembly.current(offset)) {
            let group = piece.group;
            let (now, zeros) = piece.split(&mut bytes);
            if self.complete.contains(group.index as usize) {
                continue;
            }
            while self.assembly.must_evict(&group) {
                let flight = self.assembly.evict().expect("full");
                self.submit(Job::Write(Arc::new(flight)))?;
            }
            let whole = u64::from(group.len) == GROUP_BYTES;
            let buffer = || {
                if whole {
                    self.shared.inner.lock().pool.pop().unwrap_or_default()
                } else {
                    Vec::new()
                }
            };
            if let Some(flight) = self.assembly.insert(&group, piece.start, now, zeros, buffer) {
                self.complete.set(group.index as usize, flight.complete);
                self.submit(Job::Write(Arc::new(flight)))?;
            }
        }
        Ok(())
    }

    fn read_content(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult {
        let layout = self.layout()?;
        let end = self.intake.end(Part::Content, offset, len.into())?;
        for Piece { group, start, end } in layout.pieces(offset..end, None) {
            let before = out.len();
            out.resize(before + (end - start) as usize, 0);
            let piece = &mut out[before..];
            let slot = self.assembly.get(group.index);
            if !slot.is_some_and(|slot| slot.covers(start, end)) {
                // Flights first, then the file: a flight that has ended since is in the file.
                let flights = self.shared.flights(group.index);
                let covers = |flight: &Arc<Flight>| flight.covers(start, end);
                if !flights.last().is_some_and(covers) {
                    let written = self.shared.written.get().expect("opened");
                    written.read(&group, start, piece)?;
                }
                flights.iter().for_each(|flight| flight.overlay(start, piece));
            }
            if let Some(slot) = slot {
                slot.overlay(start, piece);
            }
        }
        Ok(())
    }

    fn opened(&mut self, found: FixedBitSet) -> Result<Vec<Range<u64>>> {
        let announced = self.intake.announced()?;
        let bytes = announced.len(Part::Content);
        self.intake.counters.update(|counts| counts.bytes = bytes);
        let written = self.shared.written.get().expect("opened");
        written.check_room(announced)?;
        let layout = written.layout(announced)?;
        let mut ranges = Vec::new();
        self.complete = found;
        self.complete.grow(layout.groups as usize);
        for index in 0..layout.groups {
            let range = layout.group(index).range();
            if range.end > bytes {
                self.complete.set(index as usize, false);
            } else if self.complete.contains(index as usize) {
                push_joined(&mut ranges, range);
            }
        }
        self.layout = Some(layout);
        self.stage = Stage::Open;
        Ok(ranges)
    }

    fn end(&mut self, flush: bool) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.stop(flush);
        let _ = thread.join();
        if flush
            && self.stage != Stage::Intact
            && let Some(written) = self.shared.written.get()
        {
            M::abandon(&self.shared.options, written, self.discarded);
        }
    }
}

impl<M: Medium> Store for GroupStore<M> {
    fn begin(&mut self, announcement: &Announcement) -> ObjectResult {
        let folder = || M::folder(&self.shared.options);
        Ok(self.intake.begin(announcement, M::FILES_MAX, folder)?)
    }

    fn grow(&mut self, announcement: &Announcement) -> ObjectResult {
        if !M::GROWS {
            return Err(ObjectError::unknown_length());
        }
        self.intake.grow(announcement)?;
        if self.layout.is_some() {
            let written = self.shared.written.get().expect("opened");
            written.check_room(announcement)?;
            let layout = written.layout(announcement)?;
            self.complete.grow(layout.groups as usize);
            self.layout = Some(layout);
        }
        Ok(())
    }

    fn write(&mut self, part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult {
        match part {
            Part::Content => self.write_content(offset, bytes, zeros),
            Part::Manifest if self.stage != Stage::Manifest => Ok(()),
            _ => Ok(self.intake.write(part, offset, bytes, zeros)?),
        }
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult {
        self.check()?;
        match part {
            Part::Content => self.read_content(offset, len, out),
            _ => Ok(self.intake.read(part, offset, len, out)?),
        }
    }

    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>> {
        if self.stage == Stage::Manifest {
            let announcement = *self.intake.announced()?;
            self.start()?;
            let manifest = self.intake.manifest.clone();
            self.submit(Job::Open(Request { announcement, manifest }))?;
            self.stage = Stage::Opening;
        }
        self.check()?;
        let found = self.shared.inner.lock().found.take();
        match found {
            Some(found) => Ok(Poll::Ready(self.opened(found)?)),
            None => Ok(Poll::Pending),
        }
    }

    fn verify(&mut self) -> ObjectResult<Poll<Verdict>> {
        let groups = self.layout()?.groups;
        match self.stage {
            Stage::Intact => return Ok(Poll::Ready(Verdict::Intact)),
            Stage::Open => {
                while let Some(flight) = self.assembly.evict() {
                    self.submit(Job::Write(Arc::new(flight)))?;
                }
                self.assembly.forget();
                self.submit(Job::Verify(*self.intake.announced()?))?;
                self.stage = Stage::Verifying;
            }
            Stage::Manifest | Stage::Opening | Stage::Verifying => {}
        }
        self.check()?;
        let Some((verdict, damaged)) = self.shared.inner.lock().verdict.take() else {
            return Ok(Poll::Pending);
        };
        self.stage = match verdict {
            Verdict::Intact => Stage::Intact,
            Verdict::Damaged(_) => Stage::Open,
        };
        (0..groups).for_each(|group| self.complete.set(group as usize, true));
        damaged.into_iter().for_each(|group| self.complete.set(group as usize, false));
        Ok(Poll::Ready(verdict))
    }

    fn discard(&mut self) {
        self.discarded = true;
        // State is removed now, since the machine may keep the store for long.
        self.end(true);
    }

    fn identity(&self) -> Option<u64> {
        self.shared.counters.identity.get().copied()
    }
}

impl<M: Medium> Drop for GroupStore<M> {
    fn drop(&mut self) {
        self.end(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<M: Medium> GroupStore<M> {
        pub(crate) fn journal_at_once(mut self) -> Self {
            let shared = Arc::get_mut(&mut self.shared).expect("nobody else has it yet");
            shared.journal_every = std::time::Duration::ZERO;
            self
        }

        /// Ends without further writes, like a killed process.
        pub(crate) fn kill(mut self) {
            self.end(false);
        }

        pub(crate) fn written(&self) -> &M::Written {
            self.shared.written.get().expect("opened")
        }
    }
}
