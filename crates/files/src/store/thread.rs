//! Thread of a store, which does all work on files, and its shared state.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use faircast_proto::object::{Announcement, Verdict};
use fixedbitset::FixedBitSet;
use parking_lot::{Condvar, Mutex};

use super::Counters;
use super::assembly::Flight;
use super::intake::Intake;
use super::journal::Journal;
use crate::error::{FilesError, Result, refuse};
use crate::guard::guarded;
use crate::layout::{GROUP_BYTES, Group, Layout, push_joined};
use crate::table::Table;

/// Most bytes in the queue; the store waits above.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Low mark: a higher one wakes both threads for each group, a lower one starves the network.
const QUEUE_BYTES_LOW: usize = 6 << 20;
/// Marks of the queue in jobs, since jobs of small groups are many.
const QUEUE_LOW: usize = 64;
const QUEUE_MAX: usize = 256;
/// Most buffers to reuse: fresh memory costs as much as the work on it.
const POOL_MAX: usize = 8;
/// Pause between steps of hashing holes, in which other threads run.
const HOLE_PAUSE: Duration = Duration::from_millis(1);
/// Rounds of repair after which the source or the device is at fault.
const ROUNDS_MAX: u32 = 8;

/// Destination of groups in any order, in the thread of its store: a folder or a device.
pub trait Medium: fmt::Debug + Sized + Send + 'static {
    type Options: fmt::Debug + Send + Sync;
    type Written: Written;
    const FILES_MAX: u32;
    const GROWS: bool;

    fn path(options: &Self::Options) -> &Path;

    /// Returns the folder for digests beyond the memory limit, created if missing.
    fn folder(options: &Self::Options) -> Result<PathBuf>;

    /// Opens the medium for the announced object, finds obstacles, and returns existing groups.
    fn open(
        shared: &Arc<Shared<Self>>,
        request: Request,
    ) -> Result<(Self, Arc<Self::Written>, FixedBitSet)>;

    fn journal(&mut self) -> Option<&mut Journal>;

    fn write(&mut self, flight: &Flight) -> Result<()>;

    fn idle(&mut self) -> Result<Idle> {
        Ok(Idle::Nothing)
    }

    /// Returns the groups that differ from their digests, once all content is received.
    fn compare(&mut self, announced: &Announcement) -> Result<Vec<u32>>;

    fn finish(&mut self, announced: &Announcement) -> Result<()>;

    /// Prepares groups to be written again.
    fn reopen(&mut self, _damaged: &[u32]) -> Result<()> {
        Ok(())
    }

    /// Returns the error for a group that stays damaged after `times` writes.
    fn give_up(&self, group: u32, times: u32) -> FilesError;

    /// Removes the remains of an incomplete object, as far as settings say; all if `discarded`.
    fn abandon(_options: &Self::Options, _written: &Self::Written, _discarded: bool) {}
}

pub trait Written: fmt::Debug + Send + Sync + 'static {
    fn layout(&self, announced: &Announcement) -> Result<Arc<Layout>>;

    /// Fails if there is no room for the announced content. Called before its arrival.
    fn check_room(&self, _announced: &Announcement) -> Result<()> {
        Ok(())
    }

    fn read(&self, group: &Group, within: u32, out: &mut [u8]) -> Result<()>;
}

#[derive(Debug)]
pub struct Request {
    pub(crate) announcement: Announcement,
    pub(crate) manifest: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    Again,
    /// More work is ready after a pause for other threads.
    Later,
    Nothing,
}

#[derive(Debug)]
pub struct Shared<M: Medium> {
    pub(crate) options: M::Options,
    pub(crate) counters: Arc<Counters>,
    pub(crate) written: OnceLock<Arc<M::Written>>,
    pub(crate) digests: Arc<Mutex<Table>>,
    pub(crate) journal_every: Duration,
    pub(super) inner: Mutex<Inner>,
    /// Wakes the thread: a job, or the end.
    work: Condvar,
    /// Wakes the store: room in the queue, or a failure.
    done: Condvar,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    queue: VecDeque<Job>,
    queued_bytes: usize,
    active: Option<Arc<Flight>>,
    pub(super) pool: Vec<Vec<u8>>,
    pub(super) found: Option<FixedBitSet>,
    pub(super) verdict: Option<(Verdict, Vec<u32>)>,
    pub(super) failure: Option<String>,
    flush: bool,
}

#[derive(Debug)]
pub(super) enum Job {
    Open(Request),
    Write(Arc<Flight>),
    Verify(Announcement),
}

impl<M: Medium> Shared<M> {
    pub(super) fn new(options: M::Options, intake: &Intake) -> Self {
        Self {
            options,
            counters: intake.counters.clone(),
            written: OnceLock::new(),
            digests: intake.digests.clone(),
            journal_every: super::journal::EVERY,
            inner: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), String> {
        let bytes = job.bytes();
        let mut inner = self.inner.lock();
        let full = inner.queued_bytes + bytes > QUEUE_BYTES_MAX || inner.queue.len() >= QUEUE_MAX;
        if full {
            let since = Instant::now();
            while inner.failure.is_none() && !inner.has_room() {
                self.done.wait(&mut inner);
            }
            self.counters.update(|counts| counts.waited += since.elapsed());
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

    pub(super) fn flights(&self, group: u32) -> Vec<Arc<Flight>> {
        let inner = self.inner.lock();
        let queued = inner.queue.iter().filter_map(|job| match job {
            Job::Write(flight) => Some(flight),
            _ => None,
        });
        let all = inner.active.iter().chain(queued);
        all.filter(|flight| flight.group.index == group).cloned().collect()
    }

    pub(super) fn stop(&self, flush: bool) {
        let mut inner = self.inner.lock();
        inner.flush = flush;
        // The lock prevents a lost wake-up.
        self.stopping.store(true, Ordering::Relaxed);
        drop(inner);
        self.work.notify_one();
    }

    pub(crate) fn journal(&self) -> (Arc<Counters>, Duration) {
        (self.counters.clone(), self.journal_every)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        if self.stopping() { refuse(M::path(&self.options), "was given up") } else { Ok(()) }
    }
}

impl Inner {
    fn has_room(&self) -> bool {
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

pub(super) struct Worker<M: Medium> {
    shared: Arc<Shared<M>>,
    medium: Option<M>,
    rounds: u32,
}

impl<M: Medium> Worker<M> {
    pub(super) const fn new(shared: Arc<Shared<M>>) -> Self {
        Self { shared, medium: None, rounds: 0 }
    }

    pub(super) fn run(mut self) {
        let work = || {
            self.work().inspect_err(|_| {
                let _ = self.flush_journal();
            })
        };
        if let Err(fault) = guarded("writes files", work) {
            let mut inner = self.shared.inner.lock();
            inner.failure.get_or_insert(fault);
            inner.queue.clear();
            drop(inner);
            self.shared.done.notify_all();
        }
    }

    fn work(&mut self) -> Result<()> {
        loop {
            let mut inner = self.shared.inner.lock();
            let flush = inner.flush;
            if self.shared.stopping() && (!flush || inner.queue.is_empty()) {
                drop(inner);
                return if flush { self.flush_journal() } else { Ok(()) };
            }
            let job = inner.queue.pop_front();
            inner.queued_bytes -= job.as_ref().map_or(0, Job::bytes);
            if let Some(Job::Write(flight)) = &job {
                inner.active = Some(flight.clone());
            }
            drop(inner);
            let is_idle = job.is_none();
            if let Some(job) = job {
                self.job(job)?;
                if self.shared.inner.lock().has_room() {
                    self.shared.done.notify_all();
                }
            }
            if self.journal_due_in().is_some_and(|rest| rest.is_zero()) {
                self.flush_journal()?;
            }
            if is_idle {
                match self.medium.as_mut().map_or(Ok(Idle::Nothing), M::idle)? {
                    Idle::Again => {}
                    Idle::Later => self.wait(Some(HOLE_PAUSE)),
                    Idle::Nothing => {
                        let rest = self.journal_due_in();
                        self.wait(rest);
                    }
                }
            }
        }
    }

    fn wait(&self, at_most: Option<Duration>) {
        let mut inner = self.shared.inner.lock();
        if !inner.queue.is_empty() || self.shared.stopping() {
            return;
        }
        match at_most {
            Some(time) => drop(self.shared.work.wait_for(&mut inner, time)),
            None => self.shared.work.wait(&mut inner),
        }
    }

    fn job(&mut self, job: Job) -> Result<()> {
        match (job, &mut self.medium) {
            (Job::Open(request), _) => {
                let (medium, written, found) = M::open(&self.shared, request)?;
                self.shared.written.get_or_init(|| written);
                self.medium = Some(medium);
                self.shared.inner.lock().found = Some(found);
            }
            (Job::Write(flight), Some(medium)) => {
                medium.write(&flight)?;
                let mut inner = self.shared.inner.lock();
                inner.active = None;
                if let Some(flight) = Arc::into_inner(flight)
                    && inner.pool.len() < POOL_MAX
                    && flight.bytes.capacity() as u64 == GROUP_BYTES
                {
                    inner.pool.push(flight.bytes);
                }
            }
            (Job::Verify(announced), Some(_)) if !self.shared.stopping() => {
                let answer = self.verify(&announced)?;
                self.shared.inner.lock().verdict = Some(answer);
            }
            (Job::Write(_) | Job::Verify(_), _) => {}
        }
        Ok(())
    }

    fn verify(&mut self, announced: &Announcement) -> Result<(Verdict, Vec<u32>)> {
        self.flush_journal()?;
        let Self { shared, medium: Some(medium), rounds } = self else { unreachable!("opened") };
        let damaged = medium.compare(announced)?;
        if let Some(journal) = medium.journal() {
            journal.flush()?;
        }
        if damaged.is_empty() {
            medium.finish(announced)?;
            return Ok((Verdict::Intact, damaged));
        }
        *rounds += 1;
        if *rounds > ROUNDS_MAX {
            return Err(medium.give_up(damaged[0], ROUNDS_MAX));
        }
        if let Some(journal) = medium.journal() {
            journal.retract(&damaged)?;
        }
        medium.reopen(&damaged)?;
        if let Some(journal) = medium.journal() {
            journal.flush()?;
        }
        let layout = shared.written.get().expect("opened").layout(announced)?;
        let mut ranges = Vec::new();
        for group in damaged.iter().map(|index| layout.group(*index)) {
            shared.counters.update(|counts| counts.bytes_damaged += u64::from(group.len));
            push_joined(&mut ranges, group.range());
        }
        Ok((Verdict::Damaged(ranges), damaged))
    }

    fn journal_due_in(&mut self) -> Option<Duration> {
        self.medium.as_mut().and_then(M::journal).and_then(|journal| journal.due_in())
    }

    fn flush_journal(&mut self) -> Result<()> {
        self.medium.as_mut().and_then(M::journal).map_or(Ok(()), Journal::flush)
    }
}
