//! Clients of the round, in programs of ten clients each; a program is a thread of the soak.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use faircast::groups::{Client, ClientOptions, GroupEvent, GroupMessage, SendError, Service};
use faircast_base::{NodeId, Purpose, Rng};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::plan::{DAEMONS, PROGRAMS, name};

const CLIENTS: usize = 10;
/// Number of clients that send messages. Higher numbers are the observers, one at each daemon.
pub(super) const TALKERS: usize = DAEMONS * PROGRAMS * CLIENTS;
/// Number of the observers' program, after all others.
pub(super) const OBSERVERS: usize = DAEMONS * PROGRAMS;
pub(super) const GROUPS: usize = 50;
/// Number of groups, from g0 on, whose members request that senders wait for slow members.
const HOLDING: usize = 5;
const SYNCHRONOUS: usize = 4;
const GROUPS_MAX: usize = 4;
/// Bytes of a payload that identify its message; offset of the mark of messages after faults.
const ID_BYTES: usize = 16;
const AGAIN: Duration = Duration::from_millis(200);
const JOIN_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause between two messages of a client in milliseconds; the mean is half of this.
const PAUSE_MAX_MS: u64 = 2_000;
/// Most bytes of a message, and the number of size ranges, each half of the previous one.
const LARGEST_BYTES: u64 = 20_000;
const SIZES: u64 = 10;
/// Messages of a burst: enough that the daemon cuts off paused clients.
const BURST: usize = 40;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Faults,
    /// All messages have the mark. A client sends until it has received one. No bursts.
    Healed,
    Quiet,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) sockets: PathBuf,
    pub(super) traces: PathBuf,
    pub(super) notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) phase: Phase,
    runs: u32,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) flushed: usize,
    pub(super) problems: Vec<String>,
    pub(super) served: BTreeSet<usize>,
    pub(super) unanswered: BTreeMap<usize, BTreeSet<u64>>,
    pub(super) receipts: u64,
    pub(super) refusals: u64,
    pub(super) tables: [BTreeMap<String, BTreeSet<String>>; DAEMONS],
}

impl Notes {
    fn answer(&mut self, number: usize, request: u64) -> bool {
        self.unanswered.get_mut(&number).is_some_and(|requests| requests.remove(&request))
    }
}

impl World {
    fn is(&self, phase: Phase) -> bool {
        self.notes().phase == phase
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Program of clients. Dropping it acts like a kill: connections close without a last frame.
pub(super) struct Program {
    pauses: Option<UnboundedSender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Program {
    pub(super) fn start(world: &Arc<World>, program: usize) -> io::Result<Self> {
        let clients = match program {
            OBSERVERS => TALKERS..TALKERS + DAEMONS,
            program => program * CLIENTS..(program + 1) * CLIENTS,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (pauses, orders) = unbounded_channel();
        for client in clients {
            let mut notes = world.notes();
            runtime.spawn(live(world.clone(), client, notes.runs));
            notes.runs += 1;
        }
        let thread = std::thread::Builder::new()
            .name("clients".into())
            .spawn(move || runtime.block_on(pause(orders)))?;
        Ok(Self { pauses: Some(pauses), thread: Some(thread) })
    }

    pub(super) fn pause(&self, time: Duration) {
        if let Some(pauses) = &self.pauses {
            let _ = pauses.send(time);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.pauses = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn pause(mut orders: UnboundedReceiver<Duration>) {
    while let Some(time) = orders.recv().await {
        std::thread::sleep(time);
    }
}

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

async fn read(world: &World, client: &Client, number: usize) -> Ended {
    loop {
        match client.next().await {
            Ok(GroupEvent::Message(message)) => {
                take(&mut world.notes(), number, &message);
            }
            Ok(GroupEvent::Group { group, members, .. }) if number >= TALKERS => {
                let members = members.iter().map(|it| format!("{}@d{}", it.name, it.daemon));
                let members = members.collect();
                world.notes().tables[number - TALKERS].insert(group.to_string(), members);
            }
            // The session of the daemon may be gone, or the receipt may be among the lost events.
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

fn take(notes: &mut Notes, number: usize, message: &GroupMessage) {
    let payload = &message.payload;
    notes.messages += 1;
    notes.bytes += payload.len() as u64;
    let is_whole = payload.first_chunk().is_some_and(|id| {
        payload[ID_BYTES + 1..].iter().zip(filler(id)).all(|(byte, wanted)| *byte == wanted)
    });
    if !is_whole {
        notes.problems.push(format!("c{number} got a damaged message of {}", message.from));
    } else if payload[ID_BYTES] > 0 {
        notes.served.insert(number);
    }
}

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
            // The pause keeps observers from being cut off as slow readers of member lists.
            tokio::time::sleep(JOIN_PAUSE).await;
        }
        while !self.world.is(Phase::Quiet) {
            let pause = self.rng.below(PAUSE_MAX_MS);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if is_observer {
                continue;
            }
            // A daemon may refuse a message that the client sent before it knew the last view.
            let is_served = self.world.notes().served.contains(&self.number);
            match self.world.is(Phase::Healed) && !is_served {
                true => self.send(Service::Agreed, &groups, (true, SIZES)).await?,
                false => self.act(&mut groups).await?,
            }
        }
        self.client.flush().await?;
        self.world.notes().flushed += 1;
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

    async fn join(&self, group: &str) -> Result<u64, Ended> {
        match group[1..].parse::<usize>().is_ok_and(|number| number < HOLDING) {
            true => self.client.join_and_hold_senders(group).await,
            false => self.client.join(group).await,
        }
    }

    fn group(&mut self) -> String {
        format!("g{}", self.rng.below(GROUPS as u64))
    }

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
