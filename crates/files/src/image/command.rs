//! Shell command as a store: it reads the content from its standard input, in order.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::thread::JoinHandle;

use faircast_proto::RangeSet;
use faircast_proto::object::{Announcement, ObjectError, ObjectResult, Part, Store, Verdict};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{At as _, FilesError, Result};
use crate::guard::panicked;
use crate::hash::{HoleHashes, file_hashes, piece_digest};
use crate::layout::{GROUP_BYTES, Group, Layout, Piece};
use crate::manifest::Entry;
use crate::store::{Counters, Intake, StoreHandle, too_early};
use crate::table::LOST;

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
    object: Option<Entry>,
    layout: Option<Arc<Layout>>,
    /// Shell, which leads a process group of all it starts.
    child: Option<Child>,
    /// Thread that writes to the command, and its input until the end of the content.
    thread: Option<JoinHandle<io::Result<Fed>>>,
    feed: Option<Sender<Feed>>,
    fed: Option<Fed>,
    failure: Option<String>,
    shared: Arc<FeedState>,
    /// Groups in assembly, and the last ones that the command was given, for parity.
    groups: BTreeMap<u32, Slot>,
    next: u32,
    intact: bool,
}

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

#[derive(Debug, Default)]
struct FeedState {
    taken: AtomicU64,
    stopping: AtomicBool,
}

#[derive(Debug)]
enum Feed {
    /// Group, with the zeros before it.
    Group { group: Group, bytes: Arc<Vec<u8>>, zeros: u64 },
    /// End of the content, with the zeros after the last group.
    End { zeros: u64, layout: Arc<Layout> },
}

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
            child: None,
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
        const SHELL: &str = "/bin/sh";
        const CANNOT: &str = "cannot be started";
        let announced = self.intake.announced()?;
        let (manifest, counters) = (&self.intake.manifest, &self.intake.counters);
        let object = super::open_single(manifest, announced, &self.options.object, counters)?;
        counters.update(|counts| counts.bytes = announced.len(Part::Content));
        self.layout = Some(super::layout(&object, announced)?);
        self.object = Some(object);
        let prints = io::stderr().as_fd().try_clone_to_owned().at(SHELL, CANNOT)?;
        let mut child = Command::new(SHELL)
            .args(["-c", &self.options.command])
            .stdin(Stdio::piped())
            .stdout(Stdio::from(prints))
            // A process group, so that a kill reaches all its processes.
            .process_group(0)
            .spawn()
            .at(SHELL, CANNOT)?;
        let input = child.stdin.take().expect("it was asked for");
        self.child = Some(child);
        let (shared, counters) = (self.shared.clone(), self.intake.counters.clone());
        let (give, take) = channel();
        let thread = std::thread::Builder::new()
            .name("faircast-pipe".into())
            .spawn(move || feed(input, &take, &shared, &counters))
            .at(SHELL, CANNOT)?;
        (self.thread, self.feed) = (Some(thread), Some(give));
        Ok(())
    }

    fn layout(&self) -> Result<&Arc<Layout>> {
        self.layout.as_ref().ok_or_else(too_early)
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    fn check(&mut self) -> ObjectResult {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            match thread.join() {
                Ok(Ok(fed)) => self.fed = Some(fed),
                Ok(Err(error)) => {
                    self.failure = Some(format!("the command does not take its input: {error}"));
                }
                Err(_) => self.failure = Some(panicked("feeds the command")),
            }
        }
        let Some(reason) = self.failure.clone() else { return Ok(()) };
        // A command that takes no input ends soon, and its status says more.
        for _ in 0..50 {
            if let Some(status) = self.status() {
                let command = &self.options.command;
                let what = format!("ended ({status}) before it had taken everything");
                return Err(ObjectError::new(format!("the command `{command}` {what}")));
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Err(ObjectError::new(reason))
    }

    fn write_content(&mut self, offset: u64, mut bytes: &[u8], zeros: u32) -> ObjectResult {
        self.check()?;
        let layout = self.layout()?.clone();
        let end = self.intake.end(Part::Content, offset, bytes.len() as u64 + u64::from(zeros))?;
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
        Ok(self.hand_over(&layout)?)
    }

    fn hand_over(&mut self, layout: &Layout) -> Result<()> {
        while let Some(slot) = self.groups.get(&self.next).filter(|slot| slot.is_whole()) {
            let group = layout.group(self.next);
            let zeros = group.file_offset - end_before(layout, self.next);
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

    fn read_content(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult {
        let end = self.intake.end(Part::Content, offset, len.into())?;
        for Piece { group, start, end } in self.layout()?.pieces(offset..end, None) {
            let Some(slot) = self.groups.get(&group.index) else {
                return Err(ObjectError::new("it is not here any more"));
            };
            out.extend_from_slice(&slot.bytes[start as usize..end as usize]);
        }
        Ok(())
    }

    fn compare(&self, fed: &mut Fed) -> Result<()> {
        let layout = self.layout()?;
        let mut digests = self.intake.digests.lock();
        let one = layout.groups == 1 && layout.group(0).alone;
        let given = &fed.digests[if one { 0 } else { fed.digests.len().min(1) }..];
        for (index, digest) in (0..layout.groups).zip(given) {
            if *digest != digests.digest(index).at(std::env::temp_dir(), LOST)? {
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
        let hashes = file_hashes(&mut fed.holes, layout, go_on, given);
        let hashes = hashes.at(std::env::temp_dir(), LOST)??;
        self.intake.counters.file_hashes.get_or_init(|| hashes);
        Ok(())
    }

    fn kill(&mut self) {
        if self.status().is_none()
            && let Some(child) = &mut self.child
        {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

impl Store for CommandStore {
    fn begin(&mut self, announcement: &Announcement) -> ObjectResult {
        Ok(self.intake.begin(announcement, 1, || Ok(std::env::temp_dir()))?)
    }

    fn grow(&mut self, announcement: &Announcement) -> ObjectResult {
        self.intake.grow(announcement)?;
        let Some(object) = &self.object else { return Ok(()) };
        let layout = super::layout(object, announcement)?;
        self.layout = Some(layout.clone());
        if !announcement.growing && self.child.is_some() {
            // Only now the length of the last group is known.
            if let Some(last) = layout.groups.checked_sub(1)
                && let Some(slot) = self.groups.get_mut(&last)
            {
                Arc::make_mut(&mut slot.bytes).truncate(layout.group(last).len as usize);
            }
            self.hand_over(&layout)?;
        }
        Ok(())
    }

    fn window_end(&mut self) -> ObjectResult<u64> {
        self.check()?;
        Ok(self.shared.taken.load(Ordering::Relaxed) + WINDOW_BYTES)
    }

    fn write(&mut self, part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult {
        match part {
            Part::Content => self.write_content(offset, bytes, zeros),
            _ => Ok(self.intake.write(part, offset, bytes, zeros)?),
        }
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult {
        match part {
            Part::Content => self.read_content(offset, len, out),
            _ => Ok(self.intake.read(part, offset, len, out)?),
        }
    }

    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>> {
        self.begin()?;
        Ok(Poll::Ready(Vec::new()))
    }

    fn verify(&mut self) -> ObjectResult<Poll<Verdict>> {
        if self.intact {
            return Ok(Poll::Ready(Verdict::Intact));
        }
        self.check()?;
        let layout = self.layout()?;
        let announced = self.intake.announced()?;
        let size = self.object.as_ref().map_or(0, |object| super::size(object, announced));
        let zeros = size - end_before(layout, layout.groups);
        let end = Feed::End { zeros, layout: layout.clone() };
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
                return Err(error.into());
            }
            drop(fed.input);
        }
        match self.status() {
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

/// Returns the offset in the file at which the group before `index` ends.
fn end_before(layout: &Layout, index: u32) -> u64 {
    let Some(before) = index.checked_sub(1) else { return 0 };
    let group = layout.group(before);
    group.file_offset + u64::from(group.len)
}
