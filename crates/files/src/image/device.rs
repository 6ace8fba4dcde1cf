//! A device, or a file in place, as a store: written where the bytes belong, compared by reading back.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use faircast_proto::object::{Announcement, Part, Store, StoreError, StoreProgress, Verdict};
use rustix::fs::{Advice, FallocateFlags, OFlags};

use super::{Intake, check_target, digest_of, hole_range, told};
use crate::error::FilesError;
use crate::guard::PanicGuard;
use crate::hash::group_digest;
use crate::hole_hashes::{HoleHashes, file_hashes};
use crate::layout::{Bits, Layout, Piece, push_joined};
use crate::lock::Locked;
use crate::manifest::Entry;
use crate::store::{Assembly, Counters, Flight, Journal, StoreHandle};
use crate::table::Table;

/// Groups on their way to the device, of at most 1 MiB each; who brings more waits.
const QUEUE_MAX: usize = 8;
/// The journal is written so often, or after so many groups.
const JOURNAL_EVERY: Duration = Duration::from_secs(1);
const JOURNAL_GROUPS: usize = 64;
/// Times that content may be found damaged until the device is at fault.
const ROUNDS_MAX: u32 = 8;
/// Bytes of zeros that are written at once where a device cannot make them by itself.
const ZEROS_BYTES: u64 = 1 << 20;

/// What is written, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// A block device, or a file, which is made where it is not there.
    pub target: PathBuf,
    /// The name of the object that may be written to it. Nothing else ever is.
    pub object: String,
    /// Where it is noted what has been written, so that a later run goes on with the rest. Default:
    /// nowhere, and a later run begins anew.
    pub journal: Option<PathBuf>,
    /// Whether it is read back from the device itself, after everything has got there. Default: yes.
    pub sync: bool,
}

impl DeviceOptions {
    /// The defaults, for an object and a target.
    pub fn new(target: impl AsRef<Path>, object: impl Into<String>) -> Self {
        let target = target.as_ref().to_path_buf();
        Self { target, object: object.into(), journal: None, sync: true }
    }

    /// Finds out whether the target and the journal can be written, as far as that can be known before
    /// there is an object.
    ///
    /// # Errors
    /// It says what is wrong with which of them.
    pub fn check(&self) -> Result<(), FilesError> {
        check_target(&self.target)?;
        if let Some(path) = &self.journal {
            journal_file(path)?;
        }
        Ok(())
    }
}

/// A device or a file as a store of one image. It is open exclusively from when its object is there:
/// what is mounted cannot be opened, and what is open not be mounted. Takes at most 32 MiB.
#[derive(Debug)]
pub struct DeviceStore {
    options: DeviceOptions,
    intake: Intake,
    shared: Arc<Shared>,
    device: Option<Arc<Device>>,
    writer: Option<(SyncSender<Job>, JoinHandle<()>)>,
    assembly: Assembly,
    /// What the thread has not written yet, and some of what it has.
    flights: Vec<Arc<Flight>>,
    /// Groups that are complete, as far as is known.
    complete: Bits,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Manifest,
    Open,
    Verifying,
    Intact,
}

/// What the store and its thread share.
#[derive(Debug, Default)]
struct Shared {
    failure: OnceLock<String>,
    /// What came of comparing, with the damaged groups.
    verdict: Mutex<Option<(Verdict, Vec<u32>)>>,
    stopping: AtomicBool,
}

/// An open target.
#[derive(Debug)]
struct Device {
    path: PathBuf,
    file: File,
    /// Of a file; a device is open exclusively.
    _lock: Option<Locked>,
    /// Bytes that it has room for; `None` of a file.
    room: Option<u64>,
}

#[derive(Debug)]
enum Job {
    Write(Arc<Flight>),
    Verify(Box<Comparison>),
}

/// What is compared with what.
#[derive(Debug)]
struct Comparison {
    layout: Arc<Layout>,
    entry: Entry,
    size: u64,
    digests: Arc<Mutex<Table>>,
    sync: bool,
}

impl DeviceStore {
    /// A store that has not seen an object yet. Nothing is opened before the right one is there.
    pub fn new(options: DeviceOptions) -> Self {
        Self {
            options,
            intake: Intake::new(),
            shared: Arc::default(),
            device: None,
            writer: None,
            assembly: Assembly::default(),
            flights: Vec::new(),
            complete: Bits::new(0),
            stage: Stage::Manifest,
        }
    }

    /// For those who watch.
    pub fn handle(&self) -> StoreHandle {
        StoreHandle::new(self.intake.counters.clone())
    }

    fn begin(&mut self) -> Result<Vec<Range<u64>>, FilesError> {
        // Again: it may have been mounted meanwhile.
        self.options.check()?;
        let layout = self.intake.open(&self.options.object)?;
        let device = Device::open(&self.options.target)?;
        device.check_room(&self.intake)?;
        let object = self.intake.announced()?.object;
        let (journal, found) = match &self.options.journal {
            Some(path) => {
                let (journal, found) = open_journal(path, object, layout.groups())?;
                (Some(journal), found)
            }
            None => (None, Bits::new(layout.groups())),
        };
        let mut ranges = Vec::new();
        // Of what may still grow the last group is not all there.
        let whole = |index: &u32| {
            let end = layout.group(*index).range().end;
            self.intake.announced().is_ok_and(|it| end <= it.len(Part::Content))
        };
        self.complete = Bits::new(layout.groups());
        for index in (0..layout.groups()).filter(|group| found.get(*group)).filter(whole) {
            self.complete.set(index, true);
            push_joined(&mut ranges, layout.group(index).range());
        }
        let device = Arc::new(device);
        let writer = Writer {
            device: device.clone(),
            journal,
            pending: Vec::new(),
            since: None,
            rounds: 0,
            counters: self.intake.counters.clone(),
            shared: self.shared.clone(),
        };
        let (give, take) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("faircast-write".into())
            .spawn(move || writer.run(&take))
            .map_err(|error| FilesError::io(&self.options.target, "cannot start", error))?;
        self.writer = Some((give, thread));
        self.device = Some(device);
        self.stage = Stage::Open;
        Ok(ranges)
    }

    fn submit(&mut self, job: Job) -> Result<(), StoreError> {
        self.flights.retain(|flight| Arc::strong_count(flight) > 1);
        if let Job::Write(flight) = &job {
            self.flights.push(flight.clone());
        }
        let sent = self.writer.as_ref().is_some_and(|(give, _)| give.send(job).is_ok());
        if sent { Ok(()) } else { Err(self.failed()) }
    }

    fn failed(&self) -> StoreError {
        let reason = self.shared.failure.get().cloned();
        let reason = reason.unwrap_or_else(|| "the thread that writes has ended".to_string());
        StoreError { reason }
    }

    fn write_content(&mut self, offset: u64, bytes: &[u8], zeros: u32) -> Result<(), StoreError> {
        let layout = self.intake.layout().map_err(told)?.clone();
        if self.stage != Stage::Open {
            // It was complete, and nothing is needed while it is compared.
            return Ok(());
        }
        let end = self.intake.end(Part::Content, offset, bytes.len() as u64 + u64::from(zeros))?;
        let mut bytes = bytes;
        for piece in layout.pieces(offset..end, self.assembly.current(offset)) {
            let group = piece.group;
            let (now, zeros) = piece.split(&mut bytes);
            if self.complete.get(group.index) {
                continue;
            }
            while self.assembly.must_evict(&group) {
                let flight = self.assembly.evict().expect("full");
                self.submit(Job::Write(Arc::new(flight)))?;
            }
            let done = self.assembly.insert(&group, piece.start, now, zeros, Vec::new);
            if let Some(flight) = done {
                self.complete.set(group.index, true);
                self.submit(Job::Write(Arc::new(flight)))?;
            }
        }
        Ok(())
    }

    fn read_content(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let layout = self.intake.layout().map_err(told)?;
        let end = self.intake.end(Part::Content, offset, len.into())?;
        let Some(device) = &self.device else { return Err(self.failed()) };
        for Piece { group, start, end } in layout.pieces(offset..end, None) {
            let before = out.len();
            out.resize(before + (end - start) as usize, 0);
            let piece = &mut out[before..];
            // Asked before the device is read: what is not on its way any more is in there.
            let flights: Vec<_> =
                self.flights.iter().filter(|it| it.group.index == group.index).collect();
            device.read(group.file_offset + u64::from(start), piece).map_err(told)?;
            flights.iter().for_each(|flight| flight.overlay(start, piece));
            if let Some(slot) = self.assembly.get(group.index) {
                slot.overlay(start, piece);
            }
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<(), StoreError> {
        while let Some(flight) = self.assembly.drain() {
            self.submit(Job::Write(Arc::new(flight)))?;
        }
        self.assembly.forget();
        let comparison = || -> Result<Comparison, FilesError> {
            Ok(Comparison {
                layout: self.intake.layout()?.clone(),
                entry: self.intake.entry()?.clone(),
                size: self.intake.size()?,
                digests: self.intake.shared_digests(),
                sync: self.options.sync,
            })
        };
        let comparison = comparison().map_err(told)?;
        self.submit(Job::Verify(Box::new(comparison)))?;
        self.stage = Stage::Verifying;
        Ok(())
    }
}

impl Store for DeviceStore {
    fn announce(&mut self, announcement: &Announcement) -> Result<(), StoreError> {
        self.intake.announce(announcement).map_err(told)
    }

    fn grow(&mut self, announcement: &Announcement) -> Result<(), StoreError> {
        self.intake.grow(announcement).map_err(told)?;
        if let Some(device) = &self.device {
            device.check_room(&self.intake).map_err(told)?;
            self.complete.grow(self.intake.layout().map_err(told)?.groups());
        }
        Ok(())
    }

    fn write(
        &mut self,
        part: Part,
        offset: u64,
        bytes: &[u8],
        zeros: u32,
    ) -> Result<(), StoreError> {
        match part {
            Part::Content => self.write_content(offset, bytes, zeros),
            _ => self.intake.write(part, offset, bytes, zeros),
        }
    }

    fn read(
        &mut self,
        part: Part,
        offset: u64,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        match part {
            Part::Content => self.read_content(offset, len, out),
            _ => self.intake.read(part, offset, len, out),
        }
    }

    fn open(&mut self) -> Result<StoreProgress<Vec<Range<u64>>>, StoreError> {
        self.begin().map(StoreProgress::Done).map_err(told)
    }

    fn verify(&mut self) -> Result<StoreProgress<Verdict>, StoreError> {
        match self.stage {
            Stage::Intact => return Ok(StoreProgress::Done(Verdict::Intact)),
            Stage::Manifest | Stage::Open => self.compare()?,
            Stage::Verifying => {}
        }
        if self.shared.failure.get().is_some() {
            return Err(self.failed());
        }
        let verdict = self.shared.verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((verdict, damaged)) = verdict else { return Ok(StoreProgress::Pending) };
        self.stage = match verdict {
            Verdict::Intact => Stage::Intact,
            Verdict::Damaged(_) => Stage::Open,
        };
        let groups = self.intake.layout().map_err(told)?.groups();
        (0..groups).for_each(|group| self.complete.set(group, true));
        damaged.into_iter().for_each(|group| self.complete.set(group, false));
        Ok(StoreProgress::Done(verdict))
    }
}

impl Drop for DeviceStore {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        if let Some((give, thread)) = self.writer.take() {
            // What is in the queue is written, and noted, before it ends.
            drop(give);
            let _ = thread.join();
        }
    }
}

impl Device {
    fn open(path: &Path) -> Result<Self, FilesError> {
        let is_device = std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
        // Of a device: nobody else has mounted or claimed it, and nobody will meanwhile.
        let exclusive = if is_device { OFlags::EXCL } else { OFlags::empty() };
        let flags = (exclusive | OFlags::CLOEXEC).bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(!is_device)
            .truncate(false)
            .custom_flags(flags)
            .mode(0o600)
            .open(path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => FilesError::refused(
                    path,
                    "is in use by the system (mounted, swap, a volume manager, a RAID); free it first",
                ),
                _ => FilesError::io(path, "cannot be opened for writing", error),
            })?;
        let cannot = |error| FilesError::io(path, "cannot be looked at", error);
        let lock = match is_device {
            true => None,
            false => Some(Locked::new(file.try_clone().map_err(cannot)?).map_err(|_| {
                let what = "is being written by another faircast; give each a file of its own";
                FilesError::refused(path, what)
            })?),
        };
        let room = match is_device {
            true => Some((&file).seek(SeekFrom::End(0)).map_err(cannot)?),
            false => None,
        };
        Ok(Self { path: path.to_path_buf(), file, _lock: lock, room })
    }

    /// Checks that what is announced fits.
    fn check_room(&self, intake: &Intake) -> Result<(), FilesError> {
        let what = match self.room {
            Some(room) => {
                let bytes = intake.size()?;
                let what =
                    format!("is too small: it has {room} bytes, and the object {bytes} or more");
                (room < bytes).then_some(what)
            }
            None => {
                let bytes = intake.announced()?.len(Part::Content);
                let cannot = |error| FilesError::io(&self.path, "cannot be looked at", error);
                let space = rustix::fs::fstatvfs(&self.file).map_err(cannot)?;
                let there = rustix::fs::fstat(&self.file).map_err(cannot)?.st_blocks;
                let there = u64::try_from(there).unwrap_or(0).saturating_mul(512);
                let free = space.f_bavail.saturating_mul(space.f_frsize).saturating_add(there);
                let what =
                    format!("is to get {bytes} bytes, and there is room for {free}; make room");
                (free < bytes).then_some(what)
            }
        };
        what.map_or(Ok(()), |what| Err(FilesError::refused(&self.path, what)))
    }

    /// Fills `out`; of a file that ends before, with zeros.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), FilesError> {
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) if self.room.is_none() => {
                    out[done..].fill(0);
                    return Ok(());
                }
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(FilesError::io(&self.path, "cannot be read back", error));
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FilesError::io(&self.path, "cannot be read back", error)),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| FilesError::io(&self.path, "cannot be written", error))
    }

    /// Makes all of a range zeros.
    fn zero(&self, range: Range<u64>) -> Result<(), FilesError> {
        // A file gets a hole; a device does it by itself, or the kernel for it.
        let how = match self.room {
            Some(_) => FallocateFlags::ZERO_RANGE,
            None => FallocateFlags::PUNCH_HOLE,
        };
        let how = how | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, how, range.start, range.end - range.start).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(ZEROS_BYTES).expect("small")];
        let mut offset = range.start;
        while offset < range.end {
            let piece = usize::try_from((range.end - offset).min(ZEROS_BYTES)).expect("small");
            self.write(offset, &zeros[..piece])?;
            offset += piece as u64;
        }
        Ok(())
    }
}

/// Opens or makes the file of a journal, which must be none of anything else.
fn journal_file(path: &Path) -> Result<File, FilesError> {
    let cannot = |error: io::Error| FilesError::io(path, "cannot be used as a journal", error);
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = how.open(path).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() || !Journal::may_be(&file).map_err(cannot)? {
        let what = "is something else than a journal of faircast; name another file";
        return Err(FilesError::refused(path, what));
    }
    Ok(file)
}

/// Opens or makes a journal; what it says of this object is complete. Locked while it is open.
fn open_journal(
    path: &Path,
    object: [u8; 32],
    groups: u32,
) -> Result<(OpenJournal, Bits), FilesError> {
    let cannot = |error: io::Error| FilesError::io(path, "cannot be used as a journal", error);
    let mut file = journal_file(path)?;
    let lock = Locked::new(file.try_clone().map_err(cannot)?).map_err(|_| {
        let what =
            "is the journal of another faircast that is running; let it finish, or name another";
        FilesError::refused(path, what)
    })?;
    let found =
        Journal::read(file.try_clone().map_err(cannot)?, &object, groups).map_err(cannot)?;
    // In place: were it to be lost here, all would be received again, and nothing worse.
    file.set_len(0).map_err(cannot)?;
    file.seek(SeekFrom::Start(0)).map_err(cannot)?;
    let journal = Journal::begin(file, object, &found, groups).map_err(cannot)?;
    Ok((OpenJournal { path: path.to_path_buf(), journal, _lock: lock }, found))
}

/// What was written, as far as it was noted; nobody else's while this lives.
struct OpenJournal {
    path: PathBuf,
    journal: Journal,
    _lock: Locked,
}

/// The thread that writes, and compares at the end.
struct Writer {
    device: Arc<Device>,
    journal: Option<OpenJournal>,
    /// Groups that are written and not noted yet, and since when.
    pending: Vec<u32>,
    since: Option<Instant>,
    rounds: u32,
    counters: Arc<Counters>,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>) {
        let shared = self.shared.clone();
        let _guard = PanicGuard::new("writes", |fault| {
            shared.failure.get_or_init(|| fault);
        });
        if let Err(error) = self.work(jobs) {
            let _ = self.note();
            self.shared.failure.get_or_init(|| error.to_string());
        }
    }

    fn work(&mut self, jobs: &Receiver<Job>) -> Result<(), FilesError> {
        loop {
            match jobs.recv_timeout(JOURNAL_EVERY) {
                Ok(Job::Write(flight)) => self.write(&flight)?,
                Ok(Job::Verify(comparison)) => {
                    self.note()?;
                    let Some(answer) = self.verify(&comparison)? else { return Ok(()) };
                    *self.shared.verdict.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(answer);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.note(),
            }
            let due = self.since.is_some_and(|since| since.elapsed() >= JOURNAL_EVERY);
            if due || self.pending.len() >= JOURNAL_GROUPS {
                self.note()?;
            }
        }
    }

    fn write(&mut self, flight: &Flight) -> Result<(), FilesError> {
        for (start, end) in flight.ranges.iter() {
            let bytes = &flight.bytes[start as usize..end as usize];
            self.device.write(flight.group.file_offset + u64::from(start), bytes)?;
            self.counters.written(u64::from(end - start));
        }
        if flight.complete && self.journal.is_some() {
            self.pending.push(flight.group.index);
            self.since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Says in the journal what is written.
    fn note(&mut self) -> Result<(), FilesError> {
        self.since = None;
        let Some(OpenJournal { path, journal, .. }) = &mut self.journal else { return Ok(()) };
        let bytes = journal.append(&mut self.pending, true);
        let bytes = bytes.map_err(|error| FilesError::io(path, "cannot be written", error))?;
        if bytes > 0 {
            self.counters.journal(bytes);
        }
        Ok(())
    }

    /// Reads all back and compares it; nothing where it is to end before.
    fn verify(&mut self, it: &Comparison) -> Result<Option<(Verdict, Vec<u32>)>, FilesError> {
        let device = self.device.clone();
        for hole in it.entry.holes() {
            device.zero(hole_range(hole, it.size))?;
        }
        if device.room.is_none() {
            let set = device.file.set_len(it.size);
            set.map_err(|error| FilesError::io(&device.path, "cannot get its length", error))?;
        }
        if it.sync {
            let synced = device.file.sync_all();
            synced.map_err(|error| FilesError::io(&device.path, "cannot be synced", error))?;
            // Read from the device itself, and not from memory. Where that cannot be asked for it
            // is compared nevertheless.
            let _ = rustix::fs::fadvise(&device.file, 0, None, Advice::DontNeed);
        }
        let mut buffer = Vec::new();
        let mut damaged = Vec::new();
        for index in 0..it.layout.groups() {
            if self.shared.stopping.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let group = it.layout.group(index);
            buffer.resize(group.len as usize, 0);
            device.read(group.file_offset, &mut buffer)?;
            if group_digest(&group, &buffer) != digest_of(&it.digests, index)? {
                damaged.push(index);
                self.counters.bytes_damaged.fetch_add(group.len.into(), Ordering::Relaxed);
            }
        }
        for hole in it.entry.holes() {
            self.check_zeros(hole_range(hole, it.size), &mut buffer)?;
        }
        if damaged.is_empty() {
            let cannot = |error| FilesError::io(&std::env::temp_dir(), "lost digests", error);
            let mut holes = HoleHashes::new(&it.layout, &std::env::temp_dir()).map_err(cannot)?;
            let digests = it.digests.lock().unwrap_or_else(PoisonError::into_inner);
            let stop = || self.shared.stopping.load(Ordering::Relaxed);
            let hashes = file_hashes(&mut holes, &it.layout, stop, |group| digests.digest(group));
            let Some(hashes) = hashes.map_err(cannot)? else { return Ok(None) };
            self.counters.file_hashes.get_or_init(|| hashes);
            self.counters.files_done.store(1, Ordering::Relaxed);
            if let Some(OpenJournal { path, .. }) = self.journal.take() {
                // It says nothing any more that the next run could use.
                let _ = std::fs::remove_file(path);
            }
            return Ok(Some((Verdict::Intact, damaged)));
        }
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            let what = format!(
                "does not keep what is written to it, after {ROUNDS_MAX} times; try another device"
            );
            return Err(FilesError::refused(&device.path, what));
        }
        if let Some(OpenJournal { path, journal, .. }) = &mut self.journal {
            let gone = journal.append(&mut damaged.clone(), false);
            gone.map_err(|error| FilesError::io(path, "cannot be written", error))?;
        }
        let mut ranges = Vec::new();
        damaged.iter().for_each(|index| push_joined(&mut ranges, it.layout.group(*index).range()));
        Ok(Some((Verdict::Damaged(ranges), damaged)))
    }

    /// Checks that a hole reads as zeros.
    fn check_zeros(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<(), FilesError> {
        let mut offset = range.start;
        while offset < range.end && !self.shared.stopping.load(Ordering::Relaxed) {
            let piece = (range.end - offset).min(ZEROS_BYTES);
            buffer.resize(usize::try_from(piece).expect("small"), 0);
            self.device.read(offset, buffer)?;
            if buffer.iter().any(|byte| *byte != 0) {
                let what = "does not keep the zeros that are written to it; try another device";
                return Err(FilesError::refused(&self.device.path, what));
            }
            offset += piece;
        }
        Ok(())
    }
}
