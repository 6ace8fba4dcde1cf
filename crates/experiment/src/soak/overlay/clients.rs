//! Clients of the round: programs of ten clients each, which are threads of the soak.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use faircast::groups::{Client, ClientOptions, GroupEvent, GroupMessage, SendError, Service};
use faircast_base::{NodeId, Purpose, Rng};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::plan::{DAEMONS, PROGRAMS, name};

/// Clients of a program.
const CLIENTS: usize = 10;
/// Clients with messages. An observer at each daemon has a number above them.
pub(super) const TALKERS: usize = DAEMONS * PROGRAMS * CLIENTS;
pub(super) const GROUPS: usize = 50;
/// Number of groups, from g0 on, whose members ask that senders wait for slow ones.
const HOLDING: usize = 5;
/// Every fourth client has virtual synchrony.
const SYNCHRONOUS: usize = 4;
/// Most groups of a client.
const GROUPS_MAX: usize = 4;
/// Bytes of a payload that name its message, and the place of the mark of messages after faults.
const ID_BYTES: usize = 16;
/// Pause of a client without a daemon.
const AGAIN: Duration = Duration::from_millis(200);
/// Pause of a client after each of its first joins.
const JOIN_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause between two messages of a client in milliseconds; the mean is the half.
const PAUSE_MAX_MS: u64 = 2_000;
/// Most bytes of a message, and the number of ranges of sizes, each half of the one before.
const LARGEST_BYTES: u64 = 20_000;
const SIZES: u64 = 10;
/// Messages of a burst: enough that clients that stand still are cut off.
const BURST: usize = 40;

/// Time of a round, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Faults,
    /// All messages are marked, those of a client go to all its groups until it has got one, and no
    /// burst has a slow client cut off.
    Healed,
    /// Clients send nothing more.
    Quiet,
}

/// State that all clients share.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) sockets: PathBuf,
    pub(super) traces: PathBuf,
    phase: AtomicU8,
    runs: AtomicU32,
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Clients whose requests the daemons have handled after the last message.
    pub(super) flushed: AtomicUsize,
    notes: Mutex<Notes>,
}

/// Notes of clients.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) problems: Vec<String>,
    /// Clients that have got a marked message.
    pub(super) served: BTreeSet<usize>,
    /// Requests of each client that have no receipt.
    pub(super) unanswered: BTreeMap<usize, BTreeSet<u64>>,
    pub(super) receipts: u64,
    pub(super) refusals: u64,
    /// Members of groups, as the observer at each daemon has seen them last.
    pub(super) tables: [BTreeMap<String, BTreeSet<String>>; DAEMONS],
}

impl Notes {
    /// A request has its receipt, or needs none. Returns true if it waited for one.
    fn answer(&mut self, number: usize, request: u64) -> bool {
        self.unanswered.get_mut(&number).is_some_and(|requests| requests.remove(&request))
    }
}

impl World {
    pub(super) fn new(seed: u64, sockets: PathBuf, traces: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            seed,
            sockets,
            traces,
            phase: AtomicU8::new(Phase::Faults as u8),
            runs: AtomicU32::new(0),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            flushed: AtomicUsize::new(0),
            notes: Mutex::default(),
        })
    }

    pub(super) fn begin(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Program of clients. Dropped, it ends as by a kill: connections close without a last frame.
pub(super) struct Program {
    pauses: Option<UnboundedSender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Program {
    /// Starts the program with a number, or the observers of all daemons.
    pub(super) fn start(world: &Arc<World>, program: Option<usize>) -> io::Result<Self> {
        let clients = match program {
            Some(program) => program * CLIENTS..(program + 1) * CLIENTS,
            None => TALKERS..TALKERS + DAEMONS,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (pauses, orders) = unbounded_channel();
        for client in clients {
            let run = world.runs.fetch_add(1, Ordering::Relaxed);
            runtime.spawn(live(world.clone(), client, run));
        }
        let thread = std::thread::Builder::new()
            .name("clients".into())
            .spawn(move || runtime.block_on(pause(orders)))?;
        Ok(Self { pauses: Some(pauses), thread: Some(thread) })
    }

    /// Has all clients of the program stand still.
    pub(super) fn pause(&self, time: Duration) {
        if let Some(pauses) = &self.pauses {
            // The thread ends after the sender alone.
            let _ = pauses.send(time);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.pauses = None;
        if let Some(thread) = self.thread.take() {
            // A panic of a client is in the log of the soak.
            let _ = thread.join();
        }
    }
}

async fn pause(mut orders: UnboundedReceiver<Duration>) {
    while let Some(time) = orders.recv().await {
        // The thread stands still, and all its clients with it.
        std::thread::sleep(time);
    }
}

/// Lives as a client until the program is dropped.
async fn live(world: Arc<World>, number: usize, run: u32) {
    let is_observer = number >= TALKERS;
    let daemon = if is_observer { number - TALKERS } else { number / (CLIENTS * PROGRAMS) };
    let (own, mut options) = (format!("c{number}"), ClientOptions::default());
    options.trace = Some(world.traces.join(format!("{own}.jsonl")));
    options.virtual_synchrony = !is_observer && number.is_multiple_of(SYNCHRONOUS);
    let address = format!("unix:{}", world.sockets.join(name(daemon)).display());
    let client = loop {
        match Client::connect_with(&address, &own, options.clone()).await {
            Ok(client) => break client,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    };
    world.notes().unanswered.remove(&number);
    let rng = Rng::new(world.seed, NodeId(number as u32), Purpose::Machine(run));
    let mut writer = Writer { world: &world, client: &client, number, run, sent: 0, rng };
    let ended = tokio::select! {
        ended = read(&world, &client, number) => ended,
        Err(ended) = writer.write(is_observer) => ended,
    };
    world.notes().problems.push(format!("client {own} ended: {ended}"));
}

type Ended = faircast::groups::GroupError;

/// Takes events until the session ends.
async fn read(world: &World, client: &Client, number: usize) -> Ended {
    loop {
        match client.next().await {
            Ok(GroupEvent::Message(message)) => {
                world.messages.fetch_add(1, Ordering::Relaxed);
                world.bytes.fetch_add(message.payload.len() as u64, Ordering::Relaxed);
                take(world, number, &message);
            }
            Ok(GroupEvent::Group { group, members, .. }) if number >= TALKERS => {
                let members = members.iter().map(|it| format!("{}@d{}", it.name, it.daemon));
                let members = members.collect();
                world.notes().tables[number - TALKERS].insert(group.to_string(), members);
            }
            // The session of the asked daemon may be gone, or the receipt among the lost events.
            Ok(GroupEvent::Restarted { .. } | GroupEvent::Cut { .. }) => {
                world.notes().unanswered.remove(&number);
            }
            Ok(GroupEvent::Receipt { request, .. }) => {
                let mut notes = world.notes();
                notes.receipts += u64::from(notes.answer(number, request));
            }
            Ok(GroupEvent::Refused { request, reason }) => {
                let mut notes = world.notes();
                notes.answer(number, request);
                notes.refusals += 1;
                if !number.is_multiple_of(SYNCHRONOUS) || reason != SendError::View {
                    notes.problems.push(format!("a request of c{number} is refused: {reason}"));
                }
            }
            Ok(_) => {}
            Err(ended) => return ended,
        }
    }
}

fn take(world: &World, number: usize, message: &GroupMessage) {
    let payload = &message.payload;
    let is_whole = payload.first_chunk().is_some_and(|id| {
        payload[ID_BYTES + 1..].iter().zip(filler(id)).all(|(byte, wanted)| *byte == wanted)
    });
    if !is_whole {
        let problem = format!("c{number} got a damaged message of {}", message.from);
        world.notes().problems.push(problem);
    } else if payload[ID_BYTES] > 0 {
        world.notes().served.insert(number);
    }
}

/// Bytes of a message after its name and its mark.
fn filler(id: &[u8; ID_BYTES]) -> impl Iterator<Item = u8> {
    let first = id.iter().fold(0u8, |sum, byte| sum.rotate_left(1) ^ byte);
    (0u8..=255).cycle().map(move |byte| byte ^ first)
}

struct Writer<'a> {
    world: &'a World,
    client: &'a Client,
    number: usize,
    run: u32,
    sent: u64,
    rng: Rng,
}

impl Writer<'_> {
    /// Joins, sends and leaves until the phase is quiet. Observers join all groups.
    async fn write(&mut self, is_observer: bool) -> Result<(), Ended> {
        let wanted = 1 + self.rng.below(GROUPS_MAX as u64) as usize;
        let mut groups: Vec<String> = Vec::new();
        if is_observer {
            groups.extend((0..GROUPS).map(|group| format!("g{group}")));
        }
        while groups.len() < wanted {
            let group = self.group();
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        for group in &groups {
            match is_observer {
                true => self.client.join(group).await?,
                false => self.join(group).await?,
            };
            // Observers get the members of each group at the pace of a reader that is not cut off.
            tokio::time::sleep(JOIN_PAUSE).await;
        }
        while !self.world.is(Phase::Quiet) {
            let pause = self.rng.below(PAUSE_MAX_MS);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if is_observer {
                continue;
            }
            // A message may be refused that the client has sent before it knew the last view.
            let is_served = self.world.notes().served.contains(&self.number);
            match self.world.is(Phase::Healed) && !is_served {
                true => self.send(Service::Agreed, &groups, (true, SIZES)).await?,
                false => self.act(&mut groups).await?,
            }
        }
        self.client.flush().await?;
        self.world.flushed.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }

    async fn act(&mut self, groups: &mut Vec<String>) -> Result<(), Ended> {
        let other = self.group();
        match self.rng.below(400) {
            0..8 if groups.len() < GROUPS_MAX && !groups.contains(&other) => {
                self.join(&other).await?;
                groups.push(other);
            }
            8..16 if groups.len() > 1 => {
                let group = groups.remove(self.rng.below(groups.len() as u64) as usize);
                self.client.leave(&group).await?;
            }
            draw => {
                let service = Service::ALL[1 + self.rng.below(5) as usize];
                let own = groups[self.rng.below(groups.len() as u64) as usize].clone();
                let to = match draw {
                    16..50 => vec![other],
                    50..100 if own != other => vec![own, other],
                    _ => vec![own],
                };
                let is_healed = self.world.is(Phase::Healed);
                let is_burst = draw == 399 && !is_healed;
                let (count, sizes) = if is_burst { (BURST, 1) } else { (1, SIZES) };
                for _ in 0..count {
                    self.send(service, &to, (is_healed, sizes)).await?;
                }
            }
        }
        Ok(())
    }

    /// Joins a group, and asks for what all members of the group ask for.
    async fn join(&self, group: &str) -> Result<u64, Ended> {
        match group[1..].parse::<usize>().is_ok_and(|number| number < HOLDING) {
            true => self.client.join_and_hold_senders(group).await,
            false => self.client.join(group).await,
        }
    }

    fn group(&mut self) -> String {
        format!("g{}", self.rng.below(GROUPS as u64))
    }

    /// Sends a message with a mark or without, of one of the largest `sizes` ranges.
    async fn send(
        &mut self,
        service: Service,
        to: &[String],
        (mark, sizes): (bool, u64),
    ) -> Result<(), Ended> {
        let mut id = [0; ID_BYTES];
        id[..4].copy_from_slice(&(self.number as u32).to_be_bytes());
        id[4..8].copy_from_slice(&self.run.to_be_bytes());
        id[8..].copy_from_slice(&self.sent.to_be_bytes());
        self.sent += 1;
        let largest = LARGEST_BYTES >> self.rng.below(sizes);
        let filled = 15 + self.rng.below(largest) as usize;
        let mut payload = id.to_vec();
        payload.push(mark.into());
        payload.extend(filler(&id).take(filled));
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let wants_receipt = service >= Service::Causal && self.rng.below(2) == 0;
        if !wants_receipt {
            return self.client.send(service, &to, payload).await.map(drop);
        }
        let request = self.client.send_for_receipt(service, &to, payload).await?;
        self.world.notes().unanswered.entry(self.number).or_default().insert(request);
        Ok(())
    }
}
