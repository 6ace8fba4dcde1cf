//! A source and its receivers on a virtual clock, with a network between them that does what a
//! test tells it to.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Event, NodeId, Purpose, Rng, Seq, Time, Trace};

use super::control::{Window, WindowFeedback};
use crate::congestion::{boxed_control, boxed_feedback};
use crate::content::{Content, InMemory};
use crate::pgm::wire::{Gsi, Nla, Packet, PacketType, Tsi};
use crate::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use crate::{AppEvent, Datagram, Destination, Machine, Transmit};

pub(super) const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
pub(super) const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };
pub(super) const SOURCE: NodeId = NodeId(1);
const FIRST_RECEIVER: u32 = 10;
pub(super) const DELAY: Duration = Duration::from_millis(10);

pub(super) fn ms(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// A packet on its way to one node.
pub(super) struct Hop<'a> {
    pub(super) now: Time,
    pub(super) to: NodeId,
    pub(super) kind: PacketType,
    pub(super) packet: Packet<'a>,
    /// How many of this kind have gone to this node before.
    pub(super) nth: u32,
}

impl Hop<'_> {
    /// The sequence number of data.
    pub(super) fn seq(&self) -> Option<u32> {
        match self.packet.body {
            crate::pgm::wire::Body::Odata(data) | crate::pgm::wire::Body::Rdata(data) => {
                Some(data.sequence.value())
            }
            _ => None,
        }
    }
}

/// What the network makes of a packet: copies with their delays, and whether they are damaged.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub(super) delays: Vec<Duration>,
    pub(super) damage: bool,
}

impl Fate {
    pub(super) fn pass() -> Self {
        Self { delays: vec![DELAY], damage: false }
    }

    pub(super) fn drop() -> Self {
        Self { delays: Vec::new(), damage: false }
    }
}

type Network = Box<dyn FnMut(&Hop<'_>, &mut Rng) -> Fate>;

/// A network that drops what `lose` says and passes the rest.
pub(super) fn losing(mut lose: impl FnMut(&Hop<'_>) -> bool + 'static) -> Network {
    Box::new(move |hop, _| if lose(hop) { Fate::drop() } else { Fate::pass() })
}

/// The events of one machine.
#[derive(Default)]
pub(super) struct Log(pub(super) Vec<(Time, Event)>);

impl Trace for Log {
    fn emit(&mut self, at: Time, event: Event) {
        self.0.push((at, event));
    }
}

impl Log {
    pub(super) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.iter().filter(|(_, event)| wanted(event)).count()
    }

    pub(super) fn refused(&self, reason: BadInput) -> usize {
        self.count(|event| *event == Event::BadInput { reason })
    }
}

/// A machine with what it has said.
pub(super) struct Host<M> {
    pub(super) node: NodeId,
    pub(super) machine: M,
    pub(super) log: Log,
    pub(super) app: Vec<AppEvent>,
    /// All payload, in the order of delivery.
    pub(super) payload: Vec<u8>,
    rng: Rng,
    spins: u32,
    last: Time,
}

impl<M: Machine> Host<M> {
    fn new(node: NodeId, machine: M, seed: u64) -> Self {
        let rng = Rng::new(seed, node, Purpose::Machine(0));
        let log = Log::default();
        let (app, payload) = (Vec::new(), Vec::new());
        Self { node, machine, log, app, payload, rng, spins: 0, last: Time::ZERO }
    }

    fn act<T>(&mut self, now: Time, act: impl FnOnce(&mut M, &mut Cx<'_>) -> T) -> T {
        self.spins = if now == self.last { self.spins + 1 } else { 0 };
        self.last = now;
        assert!(self.spins < 200_000, "{:?} does not let time pass at {now}", self.node);
        let mut cx = Cx { now, rng: &mut self.rng, trace: &mut self.log };
        act(&mut self.machine, &mut cx)
    }

    /// All that it wants to send now.
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
            if let AppEvent::Delivered { bytes, zeros } = &event {
                self.payload.extend_from_slice(bytes);
                self.payload.resize(self.payload.len() + *zeros as usize, 0);
            }
            self.app.push(event);
        }
        sent
    }

    pub(super) fn completed(&self) -> bool {
        self.app.last() == Some(&AppEvent::Completed)
    }

    /// How many packets the application was told to be lost.
    pub(super) fn lost(&self) -> u32 {
        let lost = |event: &AppEvent| match event {
            AppEvent::Lost { packets } => *packets,
            _ => 0,
        };
        self.app.iter().map(lost).sum()
    }
}

struct Flying {
    to: NodeId,
    from: NodeId,
    destination: Destination,
    bytes: Vec<u8>,
    zeros: u32,
}

/// A packet that some machine sent, for checks.
pub(super) struct Sent {
    pub(super) at: Time,
    pub(super) from: NodeId,
    pub(super) transmit: Transmit,
    pub(super) bytes: Vec<u8>,
}

impl Sent {
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet::decode(&self.bytes, self.transmit.zeros).expect("machines send valid packets")
    }
}

impl PgmSource {
    /// Its control, which is the tests' own.
    pub(super) fn window(&self) -> &Window {
        self.control().inner().downcast_ref().expect("sources of these tests have a window")
    }
}

impl PgmReceiver {
    /// Its half of the scheme, which is the tests' own.
    pub(super) fn window_feedback(&self) -> &WindowFeedback {
        self.feedback().inner().downcast_ref().expect("receivers of these tests speak of a window")
    }
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) source: Host<PgmSource>,
    pub(super) receivers: Vec<Host<PgmReceiver>>,
    pub(super) network: Network,
    pub(super) sent: Vec<Sent>,
    flying: BTreeMap<(Time, u64), Flying>,
    launched: u64,
    counts: BTreeMap<(u8, u32), u32>,
    rng: Rng,
}

pub(super) fn source_config() -> SourceConfig {
    let mut config = SourceConfig::new(SOURCE, GROUP, TSI);
    config.payload = 100;
    config
}

pub(super) fn object(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

impl World {
    pub(super) fn new(
        config: SourceConfig,
        content: Box<dyn Content>,
        receivers: impl IntoIterator<Item = ReceiverConfig>,
        seed: u64,
    ) -> Self {
        let source = PgmSource::new(config, content, boxed_control(Window::new(16)));
        let receivers = receivers.into_iter().enumerate().map(|(i, config)| {
            let node = NodeId(FIRST_RECEIVER + i as u32);
            Host::new(
                node,
                PgmReceiver::new(config, boxed_feedback(WindowFeedback::new(node))),
                seed,
            )
        });
        Self {
            now: Time::ZERO,
            source: Host::new(SOURCE, source, seed),
            receivers: receivers.collect(),
            network: losing(|_| false),
            sent: Vec::new(),
            flying: BTreeMap::new(),
            launched: 0,
            counts: BTreeMap::new(),
            rng: Rng::new(seed, NodeId(0), Purpose::Fault),
        }
    }

    /// `receivers` receivers with recommended settings and an object of `len` bytes.
    pub(super) fn simple(receivers: usize, len: usize) -> Self {
        let configs = vec![ReceiverConfig::new(GROUP); receivers];
        Self::new(source_config(), Box::new(InMemory(Arc::from(object(len)))), configs, 1)
    }

    pub(super) fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Runs until `end` or until nothing will happen any more.
    pub(super) fn run_until(&mut self, end: Time) {
        loop {
            let timers = self.receivers.iter().filter_map(|host| host.machine.next_timeout());
            let timer = timers.chain(self.source.machine.next_timeout()).min();
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let Some(next) = timer.into_iter().chain(arrival).min() else { break };
            let next = next.max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            if arrival.is_some_and(|at| at <= next) {
                self.arrive();
            } else {
                self.time_out();
            }
        }
        self.now = end;
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
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
    pub(super) fn inject(&mut self, to: NodeId, datagram: Datagram<'_>) {
        let now = self.now;
        if to == SOURCE {
            self.source.act(now, |machine, cx| machine.handle_datagram(cx, datagram));
            let sent = self.source.drain(now);
            self.launch(SOURCE, sent);
        } else if let Some(host) = self.receivers.iter_mut().find(|host| host.node == to) {
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

    /// Calls every machine's timeout handler now, asked for or not.
    pub(super) fn time_out_all(&mut self) {
        self.source.act(self.now, |machine, cx| machine.handle_timeout(cx));
        let sent = self.source.drain(self.now);
        self.launch(SOURCE, sent);
        for i in 0..self.receivers.len() {
            let host = &mut self.receivers[i];
            host.act(self.now, |machine, cx| machine.handle_timeout(cx));
            let (node, sent) = (host.node, host.drain(self.now));
            self.launch(node, sent);
        }
    }

    pub(super) fn close_source(&mut self) {
        self.source.act(self.now, |machine, cx| machine.handle_close(cx));
        let sent = self.source.drain(self.now);
        self.launch(SOURCE, sent);
    }

    pub(super) fn close_receiver(&mut self, i: usize) {
        let host = &mut self.receivers[i];
        host.act(self.now, |machine, cx| machine.handle_close(cx));
        let (node, sent) = (host.node, host.drain(self.now));
        self.launch(node, sent);
    }

    fn launch(&mut self, from: NodeId, sent: Vec<(Transmit, Vec<u8>)>) {
        for (transmit, bytes) in sent {
            let nodes: Vec<_> = match transmit.to {
                Destination::Node(node) => vec![node],
                Destination::Group(_) => self
                    .receivers
                    .iter()
                    .map(|host| host.node)
                    .chain([SOURCE])
                    .filter(|node| *node != from)
                    .collect(),
            };
            for to in nodes {
                self.fly(from, to, &transmit, &bytes);
            }
            self.sent.push(Sent { at: self.now, from, transmit, bytes });
        }
    }

    fn fly(&mut self, from: NodeId, to: NodeId, transmit: &Transmit, bytes: &[u8]) {
        let packet = Packet::decode(bytes, transmit.zeros).expect("machines send valid packets");
        let payload = packet.payload.len();
        assert_eq!(payload, u64::from(transmit.payload_len));
        let kind = packet.kind();
        let count = self.counts.entry((kind as u8, to.0)).or_insert(0);
        let hop = Hop { now: self.now, to, kind, packet, nth: *count };
        *count += 1;
        let fate = (self.network)(&hop, &mut self.rng);
        for delay in fate.delays {
            let mut bytes = bytes.to_vec();
            if fate.damage {
                let at = self.rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.rng.below(8);
            }
            let flying =
                Flying { to, from, destination: transmit.to, bytes, zeros: transmit.zeros };
            self.launched += 1;
            self.flying.insert((self.now + delay, self.launched), flying);
        }
    }

    /// How many packets of `kind` were sent, by anybody.
    pub(super) fn sent_of(&self, kind: PacketType) -> usize {
        self.sent.iter().filter(|sent| sent.packet().kind() == kind).count()
    }

    /// When packets of `kind` were sent, in milliseconds.
    pub(super) fn times_of(&self, kind: PacketType) -> Vec<u64> {
        let sent = self.sent.iter().filter(|sent| sent.packet().kind() == kind);
        sent.map(|sent| sent.at.as_nanos() / 1_000_000).collect()
    }

    /// All sequence numbers that were repaired, in order of repair.
    pub(super) fn repaired(&self) -> Vec<u32> {
        let rdata = |sent: &Sent| match sent.packet().body {
            crate::pgm::wire::Body::Rdata(data) => Some(data.sequence.value()),
            _ => None,
        };
        self.sent.iter().filter_map(rdata).collect()
    }

    /// Everything arrived everywhere, in order and intact.
    pub(super) fn assert_all_delivered(&self, object: &[u8]) {
        for host in &self.receivers {
            assert!(host.completed(), "{:?}: {:?}", host.node, host.machine);
            assert!(host.payload == object, "{:?} got other bytes", host.node);
        }
    }
}

/// A sequence number.
pub(super) fn seq(value: u32) -> Seq {
    Seq::new(value)
}
