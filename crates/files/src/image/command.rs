//! Shell command as a store: it reads the content from its standard input, in order.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::thread::JoinHandle;

use faircast_proto::RangeSet;
use faircast_proto::object::{Announcement, ObjectError, ObjectResult, Part, Store, Verdict};
use rustix::process::{Pid, Signal, kill_process_group};

use super::single::Single;
use crate::error::{FilesError, Result};
use crate::guard::panicked;
use crate::hash::piece_digest;
use crate::hole_hashes::{HoleHashes, file_hashes};
use crate::layout::{GROUP_BYTES, Group, Layout, Piece};
use crate::store::{Counters, Intake, StoreHandle, object_error, too_early};

/// Window beyond the bytes that the command has read: most bytes to request and keep.
const WINDOW_BYTES: u64 = 32 << 20;
const ZEROS_BYTES: u64 = 1 << 18;

/// Settings of a command store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOptions {
    /// Line for `/bin/sh`, which reads the content; its output goes to standard error.
    pub command: String,
    /// Name of the only accepted object.
    pub object: String,
}

/// Command as a store of one file or image, fed in order. Its input is closed only after all
/// digests match; any earlier end kills the command. Memory: at most 48 MiB.
#[derive(Debug)]
pub struct CommandStore {
    options: CommandOptions,
    intake: Intake,
    /// Object and layout, once the manifest is complete.
    object: Option<Single>,
    layout: Option<Arc<Layout>>,
    process: Option<Process>,
    /// Thread that writes to the command, and its input until the end of the content.
    thread: Option<JoinHandle<io::Result<Fed>>>,
    feed: Option<Sender<Feed>>,
    /// Result of the thread.
    fed: Option<Fed>,
    failure: Option<String>,
    shared: Arc<FeedState>,
    /// Groups in assembly, and the last ones that the command was given, for parity.
    groups: BTreeMap<u32, Slot>,
    /// First group that the command was not given.
    next: u32,
    /// True once the command has succeeded.
    intact: bool,
}

/// Running command.
#[derive(Debug)]
struct Process {
    child: Child,
    /// Process group of the shell and all it starts.
    group: Pid,
    status: Option<ExitStatus>,
}

/// Group in assembly.
#[derive(Debug)]
struct Slot {
    bytes: Arc<Vec<u8>>,
    received: RangeSet,
}

impl Slot {
    fn is_whole(&self) -> bool {
        self.received.around(0).is_some_and(|range| self.bytes.len() as u64 <= range.end)
    }
}

/// State that the feeding thread shares with the store.
#[derive(Debug, Default)]
struct FeedState {
    /// Bytes of content that the command has read.
    taken: AtomicU64,
    stopping: AtomicBool,
}

/// Job of the feeding thread.
#[derive(Debug)]
enum Feed {
    /// Group, with the zeros before it.
    Group { group: Group, bytes: Arc<Vec<u8>>, zeros: u64 },
    /// End of the content, with the zeros after the last group.
    End { zeros: u64, layout: Arc<Layout> },
}

/// Input of the command and the hashes of the content so far.
#[derive(Debug)]
struct Fed {
    input: ChildStdin,
    /// Digests of the groups in order, after the digest of the first one as the only group.
    digests: Vec<[u8; 32]>,
    holes: HoleHashes,
}

impl CommandStore {
    /// Creates a store, which starts no command before its object.
    pub fn new(options: CommandOptions) -> Self {
        Self {
            options,
            intake: Intake::new(),
            object: None,
            layout: None,
            process: None,
            thread: None,
            feed: None,
            fed: None,
            failure: None,
            shared: Arc::default(),
            groups: BTreeMap::new(),
            next: 0,
            intact: false,
        }
    }

    /// Returns a handle for observers.
    pub fn handle(&self) -> StoreHandle {
        StoreHandle { counters: self.intake.counters.clone() }
    }

    fn begin(&mut self) -> Result<()> {
        let announced = self.intake.announced()?;
        let (manifest, counters) = (self.intake.manifest(), &self.intake.counters);
        let object = Single::open(manifest, announced, &self.options.object, counters)?;
        counters.update(|counts| counts.bytes = announced.len(Part::Content));
        self.layout = Some(object.layout(announced)?);
        self.object = Some(object);
        let cannot = |error| FilesError::io(Path::new("/bin/sh"), "cannot be started", error);
        let prints = io::stderr().as_fd().try_clone_to_owned().map_err(cannot)?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", &self.options.command])
            .stdin(Stdio::piped())
            .stdout(Stdio::from(prints))
            // A process group, so that a kill reaches all its processes.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let group = Pid::from_child(&child);
        let input = child.stdin.take().expect("it was asked for");
        self.process = Some(Process { child, group, status: None });
        let (shared, counters) = (self.shared.clone(), self.intake.counters.clone());
        let (give, take) = channel();
        let thread = std::thread::Builder::new()
            .name("faircast-pipe".into())
            .spawn(move || feed(input, &take, &shared, &counters))
            .map_err(cannot)?;
        (self.thread, self.feed) = (Some(thread), Some(give));
        Ok(())
    }

    fn layout(&self) -> Result<&Arc<Layout>> {
        self.layout.as_ref().ok_or_else(too_early)
    }

    fn check(&mut self) -> ObjectResult<()> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            match thread.join() {
                Ok(Ok(fed)) => self.fed = Some(fed),
                Ok(Err(error)) => {
                    self.failure = Some(format!("the command does not take its input: {error}"));
                }
                Err(_) => self.failure = Some(panicked("feeds the command")),
            }
        }
        let Some(mut reason) = self.failure.clone() else { return Ok(()) };
        if let Some(process) = &mut self.process
            && let Some(status) = process.wait_shortly()
        {
            reason = format!(
                "the command `{}` ended ({status}) before it had taken everything",
                self.options.command
            );
        }
        Err(ObjectError::new(reason))
    }

    fn write_content(&mut self, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult<()> {
        self.check()?;
        let layout = self.layout().map_err(object_error)?.clone();
        let end = self.intake.end(Part::Content, offset, bytes.len() as u64 + u64::from(zeros))?;
        let mut bytes = bytes;
        for piece @ Piece { group, start, end } in layout.pieces(offset..end, None) {
            let (now, _) = piece.split(&mut bytes);
            if group.index < self.next {
                continue;
            }
            let new = || Slot {
                bytes: Arc::new(vec![0; group.len as usize]),
                received: RangeSet::default(),
            };
            let slot = self.groups.entry(group.index).or_insert_with(new);
            if !slot.is_whole() {
                let all = &mut Arc::make_mut(&mut slot.bytes)[start as usize..end as usize];
                let (given, zeros) = all.split_at_mut(now.len());
                given.copy_from_slice(now);
                zeros.fill(0);
                slot.received.insert(start.into()..end.into());
            }
        }
        self.hand_over().map_err(object_error)
    }

    fn hand_over(&mut self) -> Result<()> {
        let layout = self.layout()?.clone();
        while let Some(slot) = self.groups.get(&self.next).filter(|slot| slot.is_whole()) {
            let group = layout.group(self.next);
            let before =
                self.next.checked_sub(1).map_or(0, |last| end_in_file(&layout.group(last)));
            let zeros = group.file_offset - before;
            if let Some(feed) = &self.feed {
                let _ = feed.send(Feed::Group { group, bytes: slot.bytes.clone(), zeros });
            }
            self.next += 1;
        }
        let block = 64 * u64::from(self.intake.announced()?.symbol_bytes);
        let keep = u32::try_from(block.div_ceil(GROUP_BYTES) + 1).expect("small");
        let first = self.next.saturating_sub(keep);
        while self.groups.first_key_value().is_some_and(|(index, _)| *index < first) {
            self.groups.pop_first();
        }
        Ok(())
    }

    fn read_content(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<()> {
        let layout = self.layout().map_err(object_error)?;
        let end = self.intake.end(Part::Content, offset, len.into())?;
        for Piece { group, start, end } in layout.pieces(offset..end, None) {
            let Some(slot) = self.groups.get(&group.index) else {
                return Err(ObjectError::new("it is not here any more"));
            };
            out.extend_from_slice(&slot.bytes[start as usize..end as usize]);
        }
        Ok(())
    }

    fn shorten(&mut self) -> Result<()> {
        let layout = self.layout()?.clone();
        if let Some(last) = layout.groups().checked_sub(1)
            && let Some(slot) = self.groups.get_mut(&last)
        {
            Arc::make_mut(&mut slot.bytes).truncate(layout.group(last).len as usize);
        }
        self.hand_over()
    }

    fn compare(&self, fed: &mut Fed) -> Result<()> {
        let lost = |error| FilesError::io(&std::env::temp_dir(), "lost digests", error);
        let layout = self.layout()?;
        let mut digests = self.intake.digests();
        let one = layout.groups() == 1 && layout.group(0).alone;
        let given = &fed.digests[if one { 0 } else { fed.digests.len().min(1) }..];
        for (index, digest) in (0..layout.groups()).zip(given) {
            if *digest != digests.digest(index).map_err(lost)? {
                let at = layout.group(index).file_offset;
                return Err(FilesError::Sender(format!(
                    "what the command `{}` was given is damaged within 1 MiB from byte {at} on, and \
                     cannot be taken back; it was killed: receive again",
                    self.options.command
                )));
            }
        }
        let go_on = || Ok::<_, FilesError>(());
        let given = |group: u32| Ok(given[group as usize]);
        let hashes = file_hashes(&mut fed.holes, layout, go_on, given).map_err(lost)??;
        self.intake.counters.file_hashes.get_or_init(|| hashes);
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(process) = &mut self.process
            && process.status().is_none()
        {
            let _ = kill_process_group(process.group, Signal::KILL);
            let _ = process.child.wait();
        }
    }
}

impl Store for CommandStore {
    fn begin(&mut self, announcement: &Announcement) -> ObjectResult<()> {
        self.intake.begin(announcement, 1, || Ok(std::env::temp_dir())).map_err(object_error)
    }

    fn grow(&mut self, announcement: &Announcement) -> ObjectResult<()> {
        self.intake.grow(announcement).map_err(object_error)?;
        if let Some(object) = &self.object {
            self.layout = Some(object.layout(announcement).map_err(object_error)?);
        }
        if !announcement.growing && self.process.is_some() {
            self.shorten().map_err(object_error)?;
        }
        Ok(())
    }

    fn window_end(&mut self) -> ObjectResult<u64> {
        self.check()?;
        Ok(self.shared.taken.load(Ordering::Relaxed) + WINDOW_BYTES)
    }

    fn write(&mut self, part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult<()> {
        match part {
            Part::Content => self.write_content(offset, bytes, zeros),
            _ => self.intake.write(part, offset, bytes, zeros),
        }
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<()> {
        match part {
            Part::Content => self.read_content(offset, len, out),
            _ => self.intake.read(part, offset, len, out),
        }
    }

    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>> {
        self.begin().map_err(object_error)?;
        Ok(Poll::Ready(Vec::new()))
    }

    fn verify(&mut self) -> ObjectResult<Poll<Verdict>> {
        if self.intact {
            return Ok(Poll::Ready(Verdict::Intact));
        }
        self.check()?;
        let layout = self.layout().map_err(object_error)?;
        let announced = self.intake.announced().map_err(object_error)?;
        let size = self.object.as_ref().map_or(0, |object| object.size(announced));
        let last =
            layout.groups().checked_sub(1).map_or(0, |last| end_in_file(&layout.group(last)));
        let end = Feed::End { zeros: size - last, layout: layout.clone() };
        if let Some(feed) = self.feed.take() {
            let _ = feed.send(end);
        }
        if self.thread.is_some() {
            return Ok(Poll::Pending);
        }
        if let Some(mut fed) = self.fed.take() {
            if let Err(error) = self.compare(&mut fed) {
                // The kill comes before the end of input, which would look like complete content.
                self.kill();
                return Err(object_error(error));
            }
            drop(fed.input);
        }
        let Some(process) = &mut self.process else {
            let reason = format!("the command `{}` was not begun", self.options.command);
            return Err(ObjectError::new(reason));
        };
        match process.status() {
            None => Ok(Poll::Pending),
            Some(status) if status.success() => {
                self.intact = true;
                self.intake.counters.update(|counts| counts.files_done = 1);
                Ok(Poll::Ready(Verdict::Intact))
            }
            Some(status) => {
                let reason = format!("the command `{}` failed: {status}", self.options.command);
                Err(ObjectError::new(reason))
            }
        }
    }
}

impl Drop for CommandStore {
    fn drop(&mut self) {
        if !self.intact {
            self.kill();
        }
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

impl Process {
    fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    fn wait_shortly(&mut self) -> Option<ExitStatus> {
        for _ in 0..50 {
            if let Some(status) = self.status() {
                return Some(status);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        None
    }
}

fn feed(
    mut input: ChildStdin,
    feed: &Receiver<Feed>,
    shared: &FeedState,
    counters: &Counters,
) -> io::Result<Fed> {
    let mut digests = Vec::new();
    loop {
        match feed.recv().map_err(|_| io::ErrorKind::BrokenPipe)? {
            Feed::Group { group, bytes, zeros } => {
                write_zeros(&mut input, zeros)?;
                if group.index == 0 {
                    digests.push(piece_digest(true, 0, &bytes));
                }
                digests.push(piece_digest(false, group.file_offset, &bytes));
                input.write_all(&bytes)?;
                counters.update(|counts| counts.bytes_written += bytes.len() as u64);
                shared.taken.store(group.range().end, Ordering::Relaxed);
            }
            Feed::End { zeros, layout } => {
                write_zeros(&mut input, zeros)?;
                input.flush()?;
                let mut holes = HoleHashes::new(&layout, &std::env::temp_dir())?;
                while holes.step(&layout)? {
                    if shared.stopping.load(Ordering::Relaxed) {
                        break;
                    }
                }
                return Ok(Fed { input, digests, holes });
            }
        }
    }
}

fn write_zeros(input: &mut impl Write, mut zeros: u64) -> io::Result<()> {
    let some = vec![0; usize::try_from(zeros.min(ZEROS_BYTES)).expect("small")];
    while zeros > 0 {
        let piece = zeros.min(ZEROS_BYTES);
        input.write_all(&some[..usize::try_from(piece).expect("small")])?;
        zeros -= piece;
    }
    Ok(())
}

fn end_in_file(group: &Group) -> u64 {
    group.file_offset + u64::from(group.len)
}
