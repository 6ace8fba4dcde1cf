//! Test world: a source and receivers on a virtual clock, with a network that the test controls.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{
    BadInput, Cx, Duration, Event, FlowId, GroupId, NodeId, Purpose, Rng, Time, Trace,
};

use crate::options::{OptionSpec, OptionValue, Options};
use crate::pgm::wire::{Body, Encoder, Gsi, Header, Nla, Packet, PacketType, Tsi};
use crate::relay::{PacketKey, PortId, RelayPacket};
use crate::{Datagram, Destination, FlowEvent, Machine, StreamEvent, Transmit};

pub(crate) const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
pub(crate) const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };
pub(crate) const SOURCE: NodeId = NodeId(1);
pub(crate) const FIRST_RECEIVER: u32 = 10;
pub(crate) const DELAY: Duration = Duration::from_millis(10);

pub(crate) fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

pub(crate) fn s(s: u64) -> Time {
    Time::ZERO + Duration::from_secs(s)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn packet(body: &Body, fill: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let upstream = body.kind().is_upstream();
    let header = if upstream { Header::upstream(TSI, 7500) } else { Header::downstream(TSI, 7500) };
    let mut encoder = Encoder::new(&mut bytes, &header, body);
    fill(&mut encoder);
    encoder.finish();
    bytes
}

pub(crate) fn forge(body: &Body, options: &[(u8, &[u8])], payload: &[u8]) -> Vec<u8> {
    packet(body, |encoder| {
        for (kind, value) in options {
            encoder.raw_option(*kind, 0, value);
        }
        if body.kind().is_data() {
            encoder.payload(|out| {
                out.extend_from_slice(payload);
                0
            });
        }
    })
}

pub(crate) fn options(raw: &[(&str, &str)], table: &[OptionSpec]) -> Options {
    let text = |text: &str| OptionValue::Text(text.to_string());
    Options::checked(raw.iter().map(|&(key, value)| (key.to_string(), text(value))), table).unwrap()
}

/// Packet of flow 0 that comes to a router by port 0.
pub(crate) fn relayed<'a>(
    key: u64,
    ports_out: &'a [PortId],
    datagram: Datagram<'a>,
) -> RelayPacket<'a> {
    let (key, flow, port) = (PacketKey(key), FlowId(0), PortId(0));
    RelayPacket { key, flow, port, ports_out, datagram, time_to_live: 9 }
}

pub(crate) struct Hop<'a> {
    pub(crate) now: Time,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) kind: PacketType,
    pub(crate) packet: Packet<'a>,
    pub(crate) len: usize,
    pub(crate) nth: u32,
}

impl Hop<'_> {
    pub(crate) fn is_data(&self) -> bool {
        self.kind == PacketType::Odata
    }

    pub(crate) fn has(&self, option: u8) -> bool {
        self.packet.options.has(option)
    }

    pub(crate) fn seq(&self) -> Option<u32> {
        match self.packet.body {
            Body::Odata(data) | Body::Rdata(data) => Some(data.sequence.value()),
            _ => None,
        }
    }
}

/// Fate of a packet in the network: a delay for each copy, and damage.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    pub(crate) delays: Vec<Duration>,
    pub(crate) damage: bool,
}

impl Fate {
    pub(crate) fn pass() -> Self {
        Self { delays: vec![DELAY], damage: false }
    }

    pub(crate) fn drop() -> Self {
        Self { delays: Vec::new(), damage: false }
    }
}

pub(crate) type Network = Box<dyn FnMut(&Hop<'_>, &mut Rng) -> Fate>;

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<(Time, Event)>,
    keeps: bool,
    bad: BTreeMap<u8, usize>,
    pub(crate) representatives: Vec<Option<NodeId>>,
}

impl Trace for Log {
    fn emit(&mut self, at: Time, event: Event) {
        match event {
            Event::BadInput { reason } => *self.bad.entry(reason as u8).or_default() += 1,
            Event::Representative { node, .. } => self.representatives.push(node),
            _ => {}
        }
        if self.keeps {
            self.events.push((at, event));
        }
    }
}

impl Log {
    pub(crate) fn keeping() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(_, event)| wanted(event)).count()
    }

    pub(crate) fn refused(&self, reason: BadInput) -> usize {
        self.bad.get(&(reason as u8)).copied().unwrap_or(0)
    }
}

pub(crate) struct Host<M> {
    pub(crate) node: NodeId,
    pub(crate) machine: M,
    pub(crate) log: Log,
    pub(crate) app: Vec<(Time, StreamEvent)>,
    pub(crate) payload: Vec<u8>,
    pub(crate) sent: u64,
    pub(crate) data_sent: u64,
    pub(crate) bytes_sent: u64,
    rng: Rng,
    spins: u32,
    last: Time,
}

impl<M: Machine<Event: Into<StreamEvent>>> Host<M> {
    pub(crate) fn new(node: NodeId, machine: M, seed: u64) -> Self {
        Self {
            node,
            machine,
            log: Log::default(),
            app: Vec::new(),
            payload: Vec::new(),
            sent: 0,
            data_sent: 0,
            bytes_sent: 0,
            rng: Rng::new(seed, node, Purpose::Machine(0)),
            spins: 0,
            last: Time::ZERO,
        }
    }

    pub(crate) fn keeping(mut self) -> Self {
        self.log = Log::keeping();
        self
    }

    pub(crate) fn act<T>(&mut self, now: Time, act: impl FnOnce(&mut M, &mut Cx<'_>) -> T) -> T {
        self.spins = if now == self.last { self.spins + 1 } else { 0 };
        self.last = now;
        assert!(self.spins < 200_000, "{:?} does not let time pass at {now}", self.node);
        let mut cx = Cx::new(now, &mut self.rng, &mut self.log);
        act(&mut self.machine, &mut cx)
    }

    pub(crate) fn drain(&mut self, now: Time) -> Vec<(Transmit, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            let mut buf = Vec::new();
            match self.act(now, |machine, cx| machine.poll_transmit(cx, &mut buf)) {
                Some(transmit) => sent.push((transmit, buf)),
                None => break,
            }
        }
        while let Some(event) = self.machine.poll_event() {
            let event = event.into();
            if let StreamEvent::Flow(FlowEvent::Delivered { bytes, zeros }) = &event {
                self.payload.extend_from_slice(bytes);
                self.payload.resize(self.payload.len() + *zeros as usize, 0);
            }
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

    pub(crate) fn said(&self, event: &FlowEvent) -> bool {
        self.app.iter().any(|(_, said)| *said == event.clone().into())
    }

    pub(crate) fn last_word(&self) -> Option<&FlowEvent> {
        match self.app.last()? {
            (_, StreamEvent::Flow(event)) => Some(event),
            _ => None,
        }
    }

    pub(crate) fn completed(&self) -> bool {
        self.last_word() == Some(&FlowEvent::Completed)
    }

    pub(crate) fn completed_at(&self) -> Option<Time> {
        let found = self.app.iter().find(|(_, event)| *event == FlowEvent::Completed.into());
        found.map(|(at, _)| *at)
    }

    pub(crate) fn lost(&self) -> u32 {
        let lost = |(_, event): &(Time, StreamEvent)| match event {
            StreamEvent::Flow(FlowEvent::Lost { packets }) => *packets,
            _ => 0,
        };
        self.app.iter().map(lost).sum()
    }
}

struct Flying {
    to: NodeId,
    from: NodeId,
    destination: Destination,
    bytes: Arc<Vec<u8>>,
    zeros: u32,
}

pub(crate) struct SentPacket {
    pub(crate) at: Time,
    pub(crate) from: NodeId,
    pub(crate) transmit: Transmit,
    pub(crate) bytes: Arc<Vec<u8>>,
}

impl SentPacket {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::decode(&self.bytes, self.transmit.zeros).expect("machines send valid packets")
    }
}

pub(crate) struct World<S, R> {
    pub(crate) now: Time,
    pub(crate) source: Host<S>,
    pub(crate) receivers: Vec<Host<R>>,
    pub(crate) network: Network,
    pub(crate) spacing: Duration,
    pub(crate) sent: Vec<SentPacket>,
    subnet: bool,
    free_at: Time,
    flying: BTreeMap<(Time, u64), Flying>,
    launched: u64,
    counts: BTreeMap<(u8, u32), u32>,
    rng: Rng,
}

impl<S: Machine<Event: Into<StreamEvent>>, R: Machine<Event: Into<StreamEvent>>> World<S, R> {
    pub(crate) fn of(source: Host<S>, subnet: bool, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            source,
            receivers: Vec::new(),
            network: Box::new(|_, _| Fate::pass()),
            spacing: Duration::ZERO,
            sent: Vec::new(),
            subnet,
            free_at: Time::ZERO,
            flying: BTreeMap::new(),
            launched: 0,
            counts: BTreeMap::new(),
            rng: Rng::new(seed, NodeId(0), Purpose::Fault),
        }
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        self.run_while(end, |_| true);
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    pub(crate) fn run_to_end(&mut self, end: Time) {
        self.run_while(end, |world| world.receivers.iter().any(|host| host.app.is_empty()));
    }

    fn run_while(&mut self, end: Time, go_on: impl Fn(&Self) -> bool) {
        let mut steps = 0u64;
        loop {
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
            // All packets of one moment precede the timers.
            while self.flying.first_key_value().is_some_and(|(&(at, _), _)| at <= next) {
                self.arrive();
            }
            if timer.is_some_and(|at| at <= next) {
                self.time_out(|at| at.is_some_and(|at| at <= next));
            }
        }
        self.now = end;
    }

    fn arrive(&mut self) {
        let (_, flying) = self.flying.pop_first().expect("something is on its way");
        let datagram = Datagram::new(flying.from, flying.destination, &flying.bytes);
        self.inject(flying.to, Datagram { zeros: flying.zeros, ..datagram });
    }

    pub(crate) fn multicast(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        self.inject(to, Datagram::new(from, Destination::Group(GroupId::SESSION), bytes));
    }

    pub(crate) fn unicast(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        self.inject(to, Datagram::new(from, Destination::Node(to), bytes));
    }

    pub(crate) fn inject(&mut self, to: NodeId, datagram: Datagram<'_>) {
        if to == SOURCE {
            self.at_source(|machine, cx| machine.handle_datagram(cx, datagram));
        } else if let Some(i) = to.0.checked_sub(FIRST_RECEIVER) {
            self.at_receiver(i as usize, |machine, cx| machine.handle_datagram(cx, datagram));
        }
    }

    fn at_source(&mut self, act: impl FnOnce(&mut S, &mut Cx<'_>)) {
        self.source.act(self.now, act);
        let sent = self.source.drain(self.now);
        self.launch(SOURCE, sent);
    }

    fn at_receiver(&mut self, i: usize, act: impl FnOnce(&mut R, &mut Cx<'_>)) {
        let Some(host) = self.receivers.get_mut(i) else { return };
        host.act(self.now, act);
        let (node, sent) = (host.node, host.drain(self.now));
        self.launch(node, sent);
    }

    fn time_out(&mut self, due: impl Fn(Option<Time>) -> bool) {
        if due(self.source.machine.next_timeout()) {
            self.at_source(|machine, cx| machine.handle_timeout(cx));
        }
        for i in 0..self.receivers.len() {
            if due(self.receivers[i].machine.next_timeout()) {
                self.at_receiver(i, |machine, cx| machine.handle_timeout(cx));
            }
        }
    }

    pub(crate) fn time_out_all(&mut self) {
        self.time_out(|_| true);
    }

    pub(crate) fn close_source(&mut self) {
        self.at_source(|machine, cx| machine.handle_close(cx));
    }

    pub(crate) fn close_receiver(&mut self, i: usize) {
        self.at_receiver(i, |machine, cx| machine.handle_close(cx));
    }

    fn launch(&mut self, from: NodeId, sent: Vec<(Transmit, Vec<u8>)>) {
        for (transmit, bytes) in sent {
            let mut wait = Duration::ZERO;
            if transmit.payload_len > 0 && self.spacing > Duration::ZERO {
                self.free_at = self.free_at.max(self.now) + self.spacing;
                wait = self.free_at.since(self.now);
            }
            let bytes = Arc::new(bytes);
            let near = transmit.time_to_live <= 1;
            match transmit.to {
                Destination::Node(node) => self.fly(from, node, &transmit, &bytes, wait),
                Destination::Group(_) if near && !self.subnet => {}
                Destination::Group(_) => {
                    for i in 0..self.receivers.len() {
                        let node = self.receivers[i].node;
                        if node != from {
                            self.fly(from, node, &transmit, &bytes, wait);
                        }
                    }
                    if from != SOURCE && self.subnet {
                        self.fly(from, SOURCE, &transmit, &bytes, wait);
                    }
                }
            }
            if self.subnet {
                self.sent.push(SentPacket { at: self.now, from, transmit, bytes });
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
        let count = self.counts.entry((kind as u8, to.0)).or_insert(0);
        let len = bytes.len() + transmit.zeros as usize;
        let hop = Hop { now: self.now, from, to, kind, packet, len, nth: *count };
        *count += 1;
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

    pub(crate) fn sent_of(&self, kind: PacketType) -> usize {
        self.sent.iter().filter(|sent| sent.packet().kind() == kind).count()
    }

    pub(crate) fn times_of(&self, kind: PacketType) -> Vec<u64> {
        let sent = self.sent.iter().filter(|sent| sent.packet().kind() == kind);
        sent.map(|sent| sent.at.as_nanos() / 1_000_000).collect()
    }
}
