//! A source and its receivers on a virtual clock, with a network between them that does what a
//! test tells it to.

mod disk;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Mutex;

use faircast_base::{BadInput, Bitrate, Cx, Duration, Event, NodeId, Purpose, Rng, Time, Trace};

use crate::catalog::{self, SchemeEntry};
use crate::object::{
    Fec, ObjectReceiver, ObjectReceiverSetup, ObjectSource, ObjectSourceSetup, SlowPolicy, Supply,
};
use crate::options::Options;
use crate::pgm::wire::{Gsi, Nla, Packet, PacketType, Tsi};
use crate::{AppEvent, Datagram, Destination, Machine, Transmit};

pub(crate) use disk::{Disk, DiskStore, Object};

pub(crate) const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
pub(crate) const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };
pub(crate) const SOURCE: NodeId = NodeId(1);
pub(crate) const SYMBOL: u16 = 100;
const FIRST_RECEIVER: u32 = 10;

pub(crate) fn s(s: u64) -> Time {
    Time::ZERO + Duration::from_secs(s)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A packet on its way to one node.
pub(crate) struct Hop<'a> {
    pub(crate) now: Time,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) kind: PacketType,
    pub(crate) packet: Packet<'a>,
}

impl Hop<'_> {
    /// Whether it carries a symbol.
    pub(crate) fn is_data(&self) -> bool {
        self.kind == PacketType::Odata
    }

    /// Whether it carries this option.
    pub(crate) fn has(&self, option: u8) -> bool {
        self.packet.options.has(option)
    }
}

/// What the network makes of a packet: copies with their delays, and whether they are damaged.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    pub(crate) delays: Vec<Duration>,
    pub(crate) damage: bool,
}

pub(crate) const DELAY: Duration = Duration::from_millis(10);

impl Fate {
    pub(crate) fn pass() -> Self {
        Self { delays: vec![DELAY], damage: false }
    }

    pub(crate) fn drop() -> Self {
        Self { delays: Vec::new(), damage: false }
    }
}

type Network = Box<dyn FnMut(&Hop<'_>, &mut Rng) -> Fate>;

/// The events of one machine, counted; most are too many to keep.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) bad: BTreeMap<u8, usize>,
    pub(crate) representatives: Vec<Option<NodeId>>,
}

impl Trace for Log {
    fn emit(&mut self, _at: Time, event: Event) {
        match event {
            Event::BadInput { reason } => *self.bad.entry(reason as u8).or_default() += 1,
            Event::Representative { node, .. } => self.representatives.push(node),
            _ => {}
        }
    }
}

impl Log {
    pub(crate) fn refused(&self, reason: BadInput) -> usize {
        self.bad.get(&(reason as u8)).copied().unwrap_or(0)
    }
}

pub(crate) struct Host<M> {
    pub(crate) node: NodeId,
    pub(crate) machine: M,
    pub(crate) log: Log,
    pub(crate) app: Vec<(Time, AppEvent)>,
    /// Packets that it sent: all, and with symbols.
    pub(crate) sent: u64,
    pub(crate) data_sent: u64,
    pub(crate) bytes_sent: u64,
    rng: Rng,
    spins: u32,
    last: Time,
}

impl<M: Machine> Host<M> {
    pub(crate) fn new(node: NodeId, machine: M, seed: u64) -> Self {
        Self {
            node,
            machine,
            log: Log::default(),
            app: Vec::new(),
            sent: 0,
            data_sent: 0,
            bytes_sent: 0,
            rng: Rng::new(seed, node, Purpose::Machine(0)),
            spins: 0,
            last: Time::ZERO,
        }
    }

    pub(crate) fn act<T>(&mut self, now: Time, act: impl FnOnce(&mut M, &mut Cx<'_>) -> T) -> T {
        self.spins = if now == self.last { self.spins + 1 } else { 0 };
        self.last = now;
        assert!(self.spins < 200_000, "{:?} does not let time pass at {now}", self.node);
        let mut cx = Cx { now, rng: &mut self.rng, trace: &mut self.log };
        act(&mut self.machine, &mut cx)
    }

    fn drain(&mut self, now: Time) -> Vec<(Transmit, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            let mut buf = Vec::new();
            match self.act(now, |machine, cx| machine.poll_transmit(cx, &mut buf)) {
                Some(transmit) => sent.push((transmit, buf)),
                None => break,
            }
        }
        while let Some(event) = self.machine.poll_event() {
            self.app.push((now, event));
        }
        let at = self.machine.next_timeout();
        assert!(at.is_none_or(|at| at > now || self.spins < 1000), "{:?}: {at:?}", self.node);
        self.sent += sent.len() as u64;
        for (transmit, bytes) in &sent {
            self.data_sent += u64::from(transmit.payload_len > 0);
            self.bytes_sent += bytes.len() as u64 + u64::from(transmit.zeros);
        }
        sent
    }

    /// By which a source knows it.
    pub(crate) fn id(&self) -> u64 {
        id_of(self.node)
    }

    pub(crate) fn said(&self, event: &AppEvent) -> bool {
        self.app.iter().any(|(_, said)| said == event)
    }

    /// When it said that it is complete.
    pub(crate) fn completed_at(&self) -> Option<Time> {
        let found = self.app.iter().find(|(_, event)| *event == AppEvent::Completed);
        found.map(|(at, _)| *at)
    }
}

struct Flying {
    to: NodeId,
    from: NodeId,
    destination: Destination,
    bytes: Arc<Vec<u8>>,
    zeros: u32,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) object: Object,
    scheme: &'static SchemeEntry,
    pub(crate) source: Host<ObjectSource>,
    pub(crate) receivers: Vec<Host<ObjectReceiver>>,
    pub(crate) disks: Vec<Arc<Mutex<Disk>>>,
    pub(crate) network: Network,
    /// Time that a data packet takes to leave the source, for a bottleneck.
    pub(crate) spacing: Duration,
    free_at: Time,
    flying: BTreeMap<(Time, u64), Flying>,
    launched: u64,
    /// How often receivers were started again.
    starts: u64,
    rng: Rng,
    seed: u64,
}

/// What a test may choose of a source.
#[derive(Clone)]
pub(crate) struct Choices {
    pub(crate) fec: Fec,
    pub(crate) wait_for: u32,
    pub(crate) give_up: Duration,
    pub(crate) slow: SlowPolicy,
    pub(crate) options: Options,
    /// What all speak.
    pub(crate) scheme: &'static SchemeEntry,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            fec: Fec::Auto,
            wait_for: 1,
            give_up: Duration::from_secs(20),
            slow: SlowPolicy::Wait,
            options: Options::default(),
            scheme: catalog::scheme(catalog::DEFAULT_SCHEME).unwrap(),
        }
    }
}

fn id_of(node: NodeId) -> u64 {
    u64::from(node.0) << 20
}

pub(crate) fn floor(bits_per_s: u64) -> SlowPolicy {
    SlowPolicy::DropBelow(Bitrate::from_bits_per_s(bits_per_s))
}

impl World {
    pub(crate) fn new(content: usize, receivers: usize, choices: &Choices, seed: u64) -> Self {
        let object = Object::new(content);
        let source = Host::new(SOURCE, source(&object, choices, Time::ZERO), seed);
        let mut world = Self {
            now: Time::ZERO,
            object,
            scheme: choices.scheme,
            source,
            receivers: Vec::new(),
            disks: Vec::new(),
            network: Box::new(|_, _| Fate::pass()),
            spacing: Duration::from_micros(200),
            free_at: Time::ZERO,
            flying: BTreeMap::new(),
            launched: 0,
            starts: 0,
            rng: Rng::new(seed, NodeId(0), Purpose::Fault),
            seed,
        };
        for _ in 0..receivers {
            world.add(Disk::default(), Time::ZERO);
        }
        world
    }

    /// Adds a receiver that starts at `start`; returns which it is.
    pub(crate) fn add(&mut self, disk: Disk, start: Time) -> usize {
        let which = self.receivers.len();
        let disk = Arc::new(Mutex::new(disk));
        let node = NodeId(FIRST_RECEIVER + which as u32);
        let machine = receiver(self.scheme, node, id_of(node), disk.clone(), start);
        self.receivers.push(Host::new(node, machine, self.seed));
        self.disks.push(disk);
        which
    }

    /// Receiver `i` is killed and started again: what it had written of whole blocks it finds, and
    /// of the rest its disk has something else. Its application tells the source, as it does where
    /// somebody of the same name comes back.
    pub(crate) fn restart_receiver(&mut self, i: usize) {
        let old = self.source.machine.status().members;
        let old = old.iter().find(|member| member.node == self.receivers[i].node).map(|m| m.id);
        if let Some(id) = old {
            self.source.act(self.now, |machine, cx| machine.dismiss(cx, id));
        }
        let node = self.receivers[i].node;
        let disk = &mut *self.disks[i].lock().unwrap();
        disk.found.clear();
        let block = 64 * usize::from(SYMBOL);
        for start in (0..disk.parts[1].len()).step_by(block) {
            let place = start..(start + block).min(disk.parts[1].len());
            if disk.written[1][place.clone()].iter().all(|written| *written) {
                disk.found.push(place.start as u64..place.end as u64);
            } else {
                disk.parts[1][place].fill(0xee);
            }
        }
        self.starts += 1;
        let id = u64::from(node.0) << 20 | self.starts;
        let machine = receiver(self.scheme, node, id, self.disks[i].clone(), self.now);
        self.receivers[i] = Host::new(node, machine, self.seed + self.starts);
    }

    /// Another source takes the place of the present one.
    pub(crate) fn restart_source(&mut self, choices: &Choices) {
        let machine = source(&self.object, choices, self.now);
        self.source = Host::new(SOURCE, machine, self.seed + 77);
    }

    pub(crate) fn with_network(
        mut self,
        network: impl FnMut(&Hop<'_>, &mut Rng) -> Fate + 'static,
    ) -> Self {
        self.network = Box::new(network);
        self
    }

    /// Runs until `end` or until nothing will happen any more.
    pub(crate) fn run_until(&mut self, end: Time) {
        self.run_while(end, |_| true);
    }

    /// Runs until all receivers have said how it ended for them, or `end`.
    pub(crate) fn run_to_end(&mut self, end: Time) {
        self.run_while(end, |world| world.receivers.iter().any(|host| host.app.is_empty()));
    }

    fn run_while(&mut self, end: Time, go_on: impl Fn(&Self) -> bool) {
        let mut steps = 0u64;
        loop {
            // Looking at all receivers after each packet would take the longest.
            steps += 1;
            if steps.is_multiple_of(64) && !go_on(self) {
                return;
            }
            let timers = self.receivers.iter().filter_map(|host| host.machine.next_timeout());
            let timer = timers.chain(self.source.machine.next_timeout()).min();
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let Some(next) = timer.into_iter().chain(arrival).min() else { break };
            let next = next.max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            // All that happens at one moment before the clocks are asked again.
            while self.flying.first_key_value().is_some_and(|(&(at, _), _)| at <= next) {
                self.arrive();
            }
            if timer.is_some_and(|at| at <= next) {
                self.time_out();
            }
        }
        self.now = end;
    }

    fn arrive(&mut self) {
        let (_, flying) = self.flying.pop_first().expect("something is on its way");
        let datagram = Datagram {
            from: flying.from,
            to: flying.destination,
            bytes: &flying.bytes,
            zeros: flying.zeros,
            congestion_experienced: false,
        };
        self.inject(flying.to, datagram);
    }

    /// Hands a datagram to a node, as if it came from the network.
    pub(crate) fn inject(&mut self, to: NodeId, datagram: Datagram<'_>) {
        let now = self.now;
        if to == SOURCE {
            self.source.act(now, |machine, cx| machine.handle_datagram(cx, datagram));
            let sent = self.source.drain(now);
            self.launch(SOURCE, sent);
        } else {
            let Some(host) = self.receivers.get_mut((to.0 - FIRST_RECEIVER) as usize) else {
                return;
            };
            host.act(now, |machine, cx| machine.handle_datagram(cx, datagram));
            let sent = host.drain(now);
            self.launch(to, sent);
        }
    }

    fn time_out(&mut self) {
        let now = self.now;
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.source.machine.next_timeout()) {
            self.source.act(now, |machine, cx| machine.handle_timeout(cx));
            let sent = self.source.drain(now);
            self.launch(SOURCE, sent);
        }
        for i in 0..self.receivers.len() {
            let host = &mut self.receivers[i];
            if due(host.machine.next_timeout()) {
                host.act(now, |machine, cx| machine.handle_timeout(cx));
                let (node, sent) = (host.node, host.drain(now));
                self.launch(node, sent);
            }
        }
    }

    pub(crate) fn close_receiver(&mut self, i: usize) {
        let host = &mut self.receivers[i];
        host.act(self.now, |machine, cx| machine.handle_close(cx));
        let (node, sent) = (host.node, host.drain(self.now));
        self.launch(node, sent);
    }

    pub(crate) fn close_source(&mut self) {
        self.source.act(self.now, |machine, cx| machine.handle_close(cx));
        let sent = self.source.drain(self.now);
        self.launch(SOURCE, sent);
    }

    fn launch(&mut self, from: NodeId, sent: Vec<(Transmit, Vec<u8>)>) {
        for (transmit, bytes) in sent {
            let mut wait = Duration::ZERO;
            if transmit.payload_len > 0 {
                self.free_at = self.free_at.max(self.now) + self.spacing;
                wait = self.free_at.since(self.now);
            }
            let bytes = Arc::new(bytes);
            match transmit.to {
                Destination::Node(node) => self.fly(from, node, &transmit, &bytes, wait),
                Destination::Group(_) => {
                    let own_neighbours = transmit.time_to_live <= 1;
                    for i in 0..if own_neighbours { 0 } else { self.receivers.len() } {
                        let node = self.receivers[i].node;
                        if node != from {
                            self.fly(from, node, &transmit, &bytes, wait);
                        }
                    }
                }
            }
        }
    }

    fn fly(
        &mut self,
        from: NodeId,
        to: NodeId,
        transmit: &Transmit,
        bytes: &Arc<Vec<u8>>,
        wait: Duration,
    ) {
        let packet = Packet::decode(bytes, transmit.zeros).expect("machines send valid packets");
        assert_eq!(packet.payload.len(), u64::from(transmit.payload_len));
        let kind = packet.kind();
        let hop = Hop { now: self.now, from, to, kind, packet };
        let fate = (self.network)(&hop, &mut self.rng);
        for delay in fate.delays {
            let mut bytes = bytes.clone();
            if fate.damage {
                let copy = Arc::make_mut(&mut bytes);
                let at = self.rng.below(copy.len() as u64) as usize;
                copy[at] ^= 1 << self.rng.below(8);
            }
            let flying =
                Flying { to, from, destination: transmit.to, bytes, zeros: transmit.zeros };
            self.launched += 1;
            self.flying.insert((self.now + wait + delay, self.launched), flying);
        }
    }

    /// All of receiver `i` is there, and as it was sent.
    pub(crate) fn is_intact(&self, i: usize) -> bool {
        let disk = self.disks[i].lock().unwrap();
        disk.parts.iter().zip(&self.object.0).all(|(have, sent)| have == &**sent)
    }

    /// Everything arrived everywhere, and the source knows.
    pub(crate) fn assert_all_complete(&self) {
        for (i, host) in self.receivers.iter().enumerate() {
            let status = host.machine.status();
            assert!(host.said(&AppEvent::Completed), "{i} at {}: {status:?}", self.now);
            assert!(self.is_intact(i), "{i} got other bytes");
        }
    }

    /// Bytes of data packets that left the source for each byte of the object.
    pub(crate) fn overhead(&self) -> f64 {
        let status = self.source.machine.status();
        let symbols = status.symbols + status.parity;
        symbols as f64 * f64::from(SYMBOL) / self.object.len() as f64
    }
}

pub(crate) fn source(object: &Object, choices: &Choices, start: Time) -> ObjectSource {
    source_of(Box::new(object.clone()), choices, start)
}

pub(crate) fn source_of(supply: Box<dyn Supply>, choices: &Choices, start: Time) -> ObjectSource {
    choices.scheme.object_source(ObjectSourceSetup {
        node: SOURCE,
        group: GROUP,
        tsi: TSI,
        data_port: 7500,
        start,
        supply,
        symbol_bytes: SYMBOL,
        fec: choices.fec,
        wait_for: choices.wait_for,
        give_up: choices.give_up,
        slow: choices.slow,
        options: &choices.options,
    })
}

pub(crate) fn receiver(
    scheme: &SchemeEntry,
    node: NodeId,
    id: u64,
    disk: Arc<Mutex<Disk>>,
    start: Time,
) -> ObjectReceiver {
    scheme.object_receiver(ObjectReceiverSetup {
        node,
        group: GROUP,
        tsi: TSI,
        data_port: 7500,
        start,
        store: Box::new(DiskStore(disk)),
        id,
        name: alloc::format!("receiver {}", node.0),
        options: &Options::default(),
    })
}

/// A network that loses packets with symbols to each receiver independently, a share of them, and
/// everything else never.
pub(crate) fn losing_data(share: f64) -> impl FnMut(&Hop<'_>, &mut Rng) -> Fate {
    move |hop, rng| {
        if hop.is_data() && rng.chance(share) { Fate::drop() } else { Fate::pass() }
    }
}
