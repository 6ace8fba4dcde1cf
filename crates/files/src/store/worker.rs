//! The thread of a store, which does all that touches files: writes and hashes groups, keeps the
//! journal, hashes what was there before, compares, and puts files into their places.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use faircast_proto::object::Verdict;

use super::assembly::Flight;
use super::counts::Counters;
use super::files::{Files, Place};
use super::journal::Journal;
use super::open::{self, Opened, Request};
use super::{StoreOptions, finish};
use crate::error::FilesError;
use crate::guard::PanicGuard;
use crate::hash::group_digest;
use crate::hole_hashes::HoleHashes;
use crate::layout::{Bits, GROUP_BYTES, Group};
use crate::table::Table;

/// Bytes that wait to be written; a store waits while there are more.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Then it waits until no more than these are left, so that the two do not wake each other for
/// every group; and no longer, for meanwhile nobody reads from the network or answers.
const QUEUE_BYTES_LOW: usize = 6 << 20;
const QUEUE_LOW: usize = 64;
/// Jobs that wait; small files have small ones.
const QUEUE_MAX: usize = 256;
/// Buffers that are kept for the next groups: new memory costs as much as what is done with it.
const POOL_MAX: usize = 8;
/// How long it is waited between two groups of holes that are hashed.
const HOLE_PAUSE: Duration = Duration::from_millis(1);
/// The journal is written so often, or after so many bytes.
const JOURNAL_EVERY: Duration = Duration::from_secs(1);
const JOURNAL_BYTES: u64 = 64 << 20;

/// What the store and its thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    /// For those who watch, and who may do so longer than the store lives.
    pub(crate) counters: Arc<Counters>,
    pub(crate) files: OnceLock<Files>,
    pub(crate) digests: Mutex<Table>,
    /// How long what is complete may wait until the journal says so.
    pub(crate) journal_every: Duration,
    inner: Mutex<Inner>,
    /// A job came, or the thread is to stop.
    work: Condvar,
    /// A job was done.
    done: Condvar,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Job>,
    queued_bytes: usize,
    active: Option<Arc<Flight>>,
    pool: Vec<Vec<u8>>,
    found: Option<Bits>,
    verdict: Option<(Verdict, Vec<u32>)>,
    failure: Option<String>,
    /// Whether what is queued is written before the thread ends.
    flush: bool,
}

#[derive(Debug)]
pub(crate) enum Job {
    Open(Box<Request>),
    Write(Arc<Flight>),
    Verify(Option<[u8; 32]>),
}

impl Shared {
    pub(crate) fn new(options: StoreOptions, digests: Table) -> Self {
        Self {
            options,
            counters: Arc::default(),
            files: OnceLock::new(),
            digests: Mutex::new(digests),
            journal_every: JOURNAL_EVERY,
            inner: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Hands a job over, after waiting where too much waits already.
    pub(crate) fn submit(&self, job: Job) -> Result<(), String> {
        let bytes = job.bytes();
        let mut inner = self.inner();
        let full = inner.queued_bytes + bytes > QUEUE_BYTES_MAX || inner.queue.len() >= QUEUE_MAX;
        if full {
            let since = Instant::now();
            while inner.failure.is_none() && !inner.low() {
                inner = self.done.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            self.counters.waited(since.elapsed());
        }
        if let Some(failure) = &inner.failure {
            return Err(failure.clone());
        }
        inner.queued_bytes += bytes;
        inner.queue.push_back(job);
        drop(inner);
        self.work.notify_one();
        Ok(())
    }

    /// What is on its way to the file of this group, oldest first.
    pub(crate) fn flights(&self, group: u32) -> Vec<Arc<Flight>> {
        let inner = self.inner();
        let queued = inner.queue.iter().filter_map(|job| match job {
            Job::Write(flight) => Some(flight),
            _ => None,
        });
        let all = inner.active.iter().chain(queued);
        all.filter(|flight| flight.group.index == group).cloned().collect()
    }

    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.inner().pool.pop().unwrap_or_default()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.inner().failure.clone()
    }

    pub(crate) fn take_found(&self) -> Option<Bits> {
        self.inner().found.take()
    }

    pub(crate) fn take_verdict(&self) -> Option<(Verdict, Vec<u32>)> {
        self.inner().verdict.take()
    }

    /// Ends the thread; with `flush`, after what was handed over is written.
    pub(crate) fn stop(&self, flush: bool) {
        let mut inner = self.inner();
        inner.flush = flush;
        // While locked, so that the thread is not about to wait without having seen it.
        self.stopping.store(true, Ordering::Relaxed);
        drop(inner);
        self.work.notify_one();
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn digests(&self) -> MutexGuard<'_, Table> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether so little waits that more is taken from one who waited.
    fn low(&self) -> bool {
        self.queued_bytes <= QUEUE_BYTES_LOW && self.queue.len() <= QUEUE_LOW
    }
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Self::Write(flight) => flight.bytes.len(),
            Self::Open(_) | Self::Verify(_) => 0,
        }
    }
}

/// The thread's own.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    opened: Option<Ready>,
}

/// What the thread knows once it has opened an object.
pub(crate) struct Ready {
    pub(crate) journal: Journal,
    /// Groups that are complete, as far as is known without comparing.
    pub(crate) have: Bits,
    /// Groups whose digest is in `chain`.
    pub(crate) hashed: Bits,
    pub(crate) chain: Table,
    pub(crate) hole_hashes: HoleHashes,
    /// Identity of targets that were there before.
    pub(crate) targets: Vec<(u32, finish::Identity)>,
    /// The same, of those that turned out to be damaged and are replaced.
    pub(crate) replaced: BTreeMap<u32, finish::Identity>,
    /// Times that something was found damaged.
    pub(crate) rounds: u32,
    pending: Vec<u32>,
    pending_bytes: u64,
    pending_since: Option<Instant>,
    /// No group below was there before and is without digest.
    cursor: u32,
    scratch: Vec<u8>,
}

impl Worker {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, opened: None }
    }

    /// Runs until told to stop or something fails.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let _guard = PanicGuard::new("writes files", |fault| {
            shared.inner().failure.get_or_insert(fault);
            shared.done.notify_all();
        });
        if let Err(error) = self.work() {
            // What was received so far is kept for a later run.
            let _ = self.flush_journal();
            let mut inner = self.shared.inner();
            inner.failure.get_or_insert(error.to_string());
            inner.queue.clear();
            drop(inner);
            self.shared.done.notify_all();
        }
    }

    fn work(&mut self) -> Result<(), FilesError> {
        loop {
            let mut inner = self.shared.inner();
            if self.shared.stopping() && (!inner.flush || inner.queue.is_empty()) {
                let flush = inner.flush;
                drop(inner);
                return if flush { self.flush_journal() } else { Ok(()) };
            }
            if let Some(job) = inner.queue.pop_front() {
                inner.queued_bytes -= job.bytes();
                if let Job::Write(flight) = &job {
                    inner.active = Some(flight.clone());
                }
                drop(inner);
                self.job(job)?;
                if self.shared.inner().low() {
                    self.shared.done.notify_all();
                }
                self.flush_journal_if_due()?;
                continue;
            }
            drop(inner);
            self.flush_journal_if_due()?;
            if self.hash_found()? {
                continue;
            }
            let more = self.hash_hole()?;
            self.wait(more);
        }
    }

    /// Waits for work; only for a moment where holes are still to be hashed.
    fn wait(&self, more: bool) {
        let since = self.opened.as_ref().and_then(|ready| ready.pending_since);
        let inner = self.shared.inner();
        if !inner.queue.is_empty() || self.shared.stopping() {
            return;
        }
        // Woken early or for nothing, it only looks again.
        match since {
            // So that receiving has the processor.
            _ if more => drop(self.shared.work.wait_timeout(inner, HOLE_PAUSE)),
            Some(since) => {
                let rest = self.shared.journal_every.saturating_sub(since.elapsed());
                drop(self.shared.work.wait_timeout(inner, rest));
            }
            None => drop(self.shared.work.wait(inner)),
        }
    }

    fn job(&mut self, job: Job) -> Result<(), FilesError> {
        match job {
            Job::Open(request) => {
                let opened = open::open(&self.shared, &request)?;
                let Opened { files, journal, have, targets } = opened;
                let groups = files.layout.groups();
                let folder = &self.shared.options.dir;
                let cannot = |error| files.state.cannot(error);
                let chain = Table::new(files.layout.digest_bytes(), folder).map_err(cannot)?;
                let hole_hashes = HoleHashes::new(&files.layout, folder).map_err(cannot)?;
                let mut found = Bits::new(groups);
                (0..groups).filter(|group| have.get(*group)).for_each(|g| found.set(g, true));
                self.shared.files.get_or_init(|| files);
                self.opened = Some(Ready {
                    journal,
                    have,
                    hashed: Bits::new(groups),
                    chain,
                    hole_hashes,
                    targets,
                    replaced: BTreeMap::new(),
                    rounds: 0,
                    pending: Vec::new(),
                    pending_bytes: 0,
                    pending_since: None,
                    cursor: 0,
                    scratch: Vec::new(),
                });
                self.shared.inner().found = Some(found);
                Ok(())
            }
            Job::Write(flight) => self.write(flight),
            // With a store that is going away nobody waits for the answer.
            Job::Verify(_) if self.shared.stopping() => Ok(()),
            Job::Verify(announced) => {
                let shared = self.shared.clone();
                let (ready, files) = self.ready();
                let answer = finish::verify(&shared, files, ready, announced.as_ref())?;
                shared.inner().verdict = Some(answer);
                Ok(())
            }
        }
    }

    fn write(&mut self, flight: Arc<Flight>) -> Result<(), FilesError> {
        let shared = self.shared.clone();
        let (ready, files) = self.ready();
        let group = flight.group;
        // Makes the file, so that one of nothing but zeros is there too.
        files.part(group.file)?;
        let zero = flight.whole()
            && files.place(group.file) == Place::Fresh
            && flight.bytes.iter().all(|byte| *byte == 0);
        if !flight.whole() {
            // From now on zeros must be written, over what may be there.
            files.not_fresh(group.file);
        }
        if !zero {
            for (start, end) in flight.ranges.iter() {
                let bytes = &flight.bytes[start as usize..end as usize];
                files.write(&group, start, bytes)?;
                shared.counters.written(u64::from(end - start));
            }
        }
        if flight.complete {
            match flight.whole() {
                true => ready.set_digest(files, &group, &group_digest(&group, &flight.bytes))?,
                false => ready.hash(files, &group)?,
            }
            ready.complete(&group);
        }
        let mut inner = shared.inner();
        inner.active = None;
        if let Some(flight) = Arc::into_inner(flight)
            && inner.pool.len() < POOL_MAX
            && flight.bytes.capacity() as u64 == GROUP_BYTES
        {
            inner.pool.push(flight.bytes);
        }
        Ok(())
    }

    /// Hashes one group that was there before; false where there is none left.
    fn hash_found(&mut self) -> Result<bool, FilesError> {
        if self.opened.is_none() {
            return Ok(false);
        }
        let (ready, files) = self.ready();
        while ready.cursor < files.layout.groups() {
            let index = ready.cursor;
            ready.cursor += 1;
            if ready.have.get(index) && !ready.hashed.get(index) {
                ready.hash(files, &files.layout.group(index))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Hashes as much of a hole; false where there is none left.
    fn hash_hole(&mut self) -> Result<bool, FilesError> {
        if self.opened.is_none() {
            return Ok(false);
        }
        let (ready, files) = self.ready();
        ready.hole_hashes.step(&files.layout).map_err(|error| files.state.cannot(error))
    }

    fn flush_journal_if_due(&mut self) -> Result<(), FilesError> {
        let due = self.opened.as_ref().is_some_and(|ready| {
            ready.pending_bytes >= JOURNAL_BYTES
                || ready
                    .pending_since
                    .is_some_and(|since| since.elapsed() >= self.shared.journal_every)
        });
        if due { self.flush_journal() } else { Ok(()) }
    }

    fn flush_journal(&mut self) -> Result<(), FilesError> {
        let Some(ready) = &mut self.opened else { return Ok(()) };
        let files = self.shared.files.get().expect("opened");
        ready.flush(&self.shared, files)
    }

    fn ready(&mut self) -> (&mut Ready, &Files) {
        let ready = self.opened.as_mut().expect("groups come after the manifest");
        (ready, self.shared.files.get().expect("set when opened"))
    }
}

impl Ready {
    /// Hashes a group from its file.
    pub(crate) fn hash(&mut self, files: &Files, group: &Group) -> Result<(), FilesError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(group.len as usize, 0);
        files.read(group, 0, &mut scratch)?;
        let digest = group_digest(group, &scratch);
        self.scratch = scratch;
        self.set_digest(files, group, &digest)
    }

    /// Looks once more for groups without digest.
    pub(crate) const fn rehash(&mut self) {
        self.cursor = 0;
    }

    /// Says in the journal that groups are no longer complete.
    pub(crate) fn gone(
        &mut self,
        shared: &Shared,
        files: &Files,
        groups: &[u32],
    ) -> Result<(), FilesError> {
        self.flush(shared, files)?;
        for group in groups {
            self.have.set(*group, false);
            self.hashed.set(*group, false);
        }
        let bytes = self.journal.append(&mut groups.to_vec(), false);
        shared.counters.journal(bytes.map_err(|error| files.state.cannot(error))?);
        Ok(())
    }

    /// Notes for the journal that a group is complete.
    pub(crate) fn complete(&mut self, group: &Group) {
        self.have.set(group.index, true);
        self.pending.push(group.index);
        self.pending_bytes += u64::from(group.len);
        self.pending_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn flush(&mut self, shared: &Shared, files: &Files) -> Result<(), FilesError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = self.journal.append(&mut self.pending, true);
        shared.counters.journal(bytes.map_err(|error| files.state.cannot(error))?);
        self.pending_bytes = 0;
        self.pending_since = None;
        Ok(())
    }

    fn set_digest(
        &mut self,
        files: &Files,
        group: &Group,
        digest: &[u8; 32],
    ) -> Result<(), FilesError> {
        self.chain.set_digest(group.index, digest).map_err(|error| files.state.cannot(error))?;
        self.hashed.set(group.index, true);
        Ok(())
    }
}
