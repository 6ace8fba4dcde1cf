//! Catalogue of forged packets: every kind, with every field at harmful values, in the names of the
//! source, a head, a receiver and an unknown node. Sessions end intact.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use faircast_base::{Cx, Duration, Event, FlowId, GroupId, NodeId, Time};
use faircast_proto::catalog::scheme;
use faircast_proto::forgery::{CREDIT, Change, Format, PGM, TRAM, Value};
use faircast_proto::relay::{Egress, Handling, Interest, PacketKey, PortId, Relay, RelayPacket};
use faircast_proto::stack::Stack;
use faircast_proto::transport::Role;
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit, passes, passes_on};
use faircast_scenario::{Flow, Program};
use faircast_sim::{Protocols, Simulation, Unobserved};
use faircast_trace::{Record, Sink, Subject};

use crate::lies::{Boxed, Mixed};
use crate::watch::{Captured, Watched};
use crate::world::{World, plain, protocols};

/// Size of the object in bytes, and rate of the path: a session of about 12 s.
const OBJECT: u64 = 2_500_000;
const RATE: &str = "2 Mbit/s";

const FIRST: Duration = Duration::from_millis(2500);
const SPACING: Duration = Duration::from_millis(500);

const PER_RUN: usize = 12;

/// Most seconds that a run may take beyond [`SHARE`] times an undisturbed run. Longest stall of a
/// receiver in seconds, for schemes that state no recovery time.
const LOST_MAX: f64 = 3.0;
const SHARE: f64 = 1.3;

/// Most seconds that forgeries may cost with TFMCC, whose rate rises slowly after a report.
const RISE_MAX: f64 = 14.0;

/// Longest stall under credits, in seconds: branches wait 3 and 4 s for an absent node.
const SILENCE_MAX: f64 = 5.0;

const FRESH: Duration = Duration::from_millis(1500);

/// Receivers (the first is a head, the last its member), and the number of an unknown node.
const RECEIVERS: u32 = 3;
const INVENTED: NodeId = NodeId(900);

fn format_of(protocol: Stack) -> Format {
    match protocol.transport.name {
        _ if protocol.hop.is_some() => CREDIT,
        "tram" => TRAM,
        _ => PGM,
    }
}

const DATA_BYTES: usize = 900;

const ORIGINAL: u8 = 4;
const DATA: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Source,
    Head,
    Receiver,
    Invented,
}

const NAMES: [Name; 4] = [Name::Source, Name::Head, Name::Receiver, Name::Invented];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Forgery {
    name: Name,
    specimen: usize,
    change: Change,
}

#[derive(Default)]
struct Attacker {
    heard: BTreeMap<(NodeId, u8), (Time, Captured)>,
    data: Option<Captured>,
    senders: BTreeMap<NodeId, Vec<u8>>,
    nodes: BTreeMap<Name, NodeId>,
    plan: Vec<(Time, Forgery)>,
    made: Vec<Option<Captured>>,
    mask: Vec<u8>,
    repeated: Option<Captured>,
    taken: u64,
}

impl Attacker {
    fn overhear(&mut self, now: Time, format: Format, datagram: &Datagram<'_>) {
        let Datagram { from, to, bytes, zeros, .. } = *datagram;
        if !format.owns(bytes) {
            return;
        }
        let captured = Captured { from, to, bytes: bytes.to_vec(), zeros };
        if let Some(place) = format.sender() {
            self.senders.entry(from).or_insert_with(|| bytes[place].to_vec());
        }
        let is_long = bytes.len() + zeros as usize >= DATA_BYTES;
        let is_original = match format {
            TRAM => true,
            PGM => format.kind(bytes) == ORIGINAL,
            _ => format.kind(bytes) == DATA,
        };
        if Some(&from) == self.nodes.get(&Name::Source) && is_long && is_original {
            self.data = Some(captured.clone());
        }
        self.heard.insert((from, format.kind(bytes)), (now, captured));
    }

    fn due(&mut self, now: Time, format: Format, next: &mut usize) -> Option<Option<Captured>> {
        self.plan.get(*next).filter(|(at, _)| *at <= now)?;
        *next += 1;
        Some(self.forge(now, format, *next - 1))
    }

    fn forge(&mut self, now: Time, format: Format, number: usize) -> Option<Captured> {
        if let Some(Some(made)) = self.made.get(number) {
            return Some(made.clone());
        }
        let Forgery { name, specimen, change } = self.plan[number].1;
        let from = self.nodes[&name];
        let data = self.data.clone()?;
        let bytes = format.specimens(&data.bytes, data.zeros).get(specimen)?.clone();
        let kind = format.kind(&bytes);
        let is_plain = format.is_plain(&bytes);
        let fresh = |(at, real): &(Time, Captured)| {
            (is_plain && now.since(*at) < FRESH).then(|| real.clone())
        };
        let of = |node: NodeId| self.heard.get(&(node, kind)).and_then(fresh);
        let of_kind = self.heard.iter().filter(|((_, it), _)| *it == kind);
        let of_any = || of_kind.map(|it| it.1).find_map(fresh);
        let to = Destination::Group(GroupId::SESSION);
        let made = of(from).or_else(of_any).unwrap_or(Captured { from, to, bytes, zeros: 0 });
        let mut made = Captured { from, ..made };
        if let Some(place) = format.sender() {
            let invented = vec![7; place.len()];
            made.bytes[place].copy_from_slice(self.senders.get(&from).unwrap_or(&invented));
        }
        if self.mask.is_empty() || format.kind(&made.bytes) as usize != ACK + 1 {
            format.apply(change, &mut made.bytes);
        } else if let Some(repeated) = self.repeated.clone() {
            made = repeated;
        } else {
            made.bytes = format.specimens(&data.bytes, data.zeros)[specimen].clone();
            made.bytes.resize(ACK_MASK, 0);
            made.bytes.extend_from_slice(&self.mask);
            made.bytes[16..24].fill(7);
            format.apply(change, &mut made.bytes);
            self.repeated = Some(made.clone());
        }
        self.made.resize(self.plan.len(), None);
        self.made[number] = Some(made.clone());
        Some(made)
    }
}

struct Attacked {
    inner: Boxed,
    node: NodeId,
    format: Format,
    attacker: Rc<RefCell<Attacker>>,
    next: usize,
}

impl Attacked {
    fn strike(&mut self, cx: &mut Cx<'_>) {
        loop {
            let due = self.attacker.borrow_mut().due(cx.now, self.format, &mut self.next);
            let Some(forged) = due else { return };
            let Some(Captured { from, to, bytes, zeros }) =
                forged.filter(|it| it.from != self.node)
            else {
                continue;
            };
            let to = match to {
                Destination::Node(_) => Destination::Node(self.node),
                group @ Destination::Group(_) => group,
            };
            self.attacker.borrow_mut().taken += 1;
            self.inner.handle_datagram(cx, Datagram { zeros, ..Datagram::new(from, to, &bytes) });
        }
    }
}

impl Machine for Attacked {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        self.attacker.borrow_mut().overhear(cx.now, self.format, &datagram);
        self.inner.handle_datagram(cx, datagram);
        self.strike(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.inner.handle_timeout(cx);
        self.strike(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let transmit = self.inner.poll_transmit(cx, buf)?;
            // The network has no route to unknown nodes.
            if !matches!(transmit.to, Destination::Node(node) if node.0 > RECEIVERS + 1) {
                return Some(transmit);
            }
            buf.clear();
        }
    }

    passes_on!(inner: handle_close, poll_membership, poll_event, next_timeout);
}

struct AttackedRelay {
    inner: Box<dyn Relay>,
    format: Format,
    attacker: Rc<RefCell<Attacker>>,
    next: usize,
    /// Path of each kind's latest real packet: flow, incoming port, outgoing ports, time to live.
    ways: BTreeMap<u8, (FlowId, PortId, Vec<PortId>, u8)>,
    key: u64,
}

const FORGED_KEYS: u64 = 1 << 63;

impl AttackedRelay {
    fn strike(&mut self, cx: &mut Cx<'_>) {
        loop {
            let due = self.attacker.borrow_mut().due(cx.now, self.format, &mut self.next);
            let Some(forged) = due else { return };
            let Some(Captured { from, to, bytes, zeros }) = forged else { continue };
            let kind = self.format.kind(&bytes);
            let way = self.ways.get(&kind).or_else(|| self.ways.values().next());
            let Some((flow, port, ports_out, time_to_live)) = way.cloned() else { continue };
            self.key += 1;
            let packet = RelayPacket {
                key: PacketKey(FORGED_KEYS + self.key),
                flow,
                port,
                ports_out: &ports_out,
                datagram: Datagram { zeros, ..Datagram::new(from, to, &bytes) },
                time_to_live,
            };
            self.attacker.borrow_mut().taken += 1;
            self.inner.handle_packet(cx, &packet, &mut Vec::new());
        }
    }
}

impl Relay for AttackedRelay {
    passes! { inner:
        fn interest(&self) -> Interest;
        fn handle_writable(&mut self, cx: &mut Cx<'_>, port: PortId);
    }
    passes_on!(inner: next_timeout);

    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        buf: &mut Vec<u8>,
    ) -> Handling {
        let RelayPacket { flow, port, ports_out, ref datagram, time_to_live, .. } = *packet;
        if self.format.owns(datagram.bytes) {
            self.attacker.borrow_mut().overhear(cx.now, self.format, datagram);
            let kind = self.format.kind(datagram.bytes);
            self.ways.insert(kind, (flow, port, ports_out.to_vec(), time_to_live));
        }
        let handling = self.inner.handle_packet(cx, packet, buf);
        self.strike(cx);
        handling
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.inner.handle_timeout(cx);
        self.strike(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Egress> {
        loop {
            let egress = self.inner.poll_transmit(cx, buf)?;
            let is_forged = match egress {
                Egress::Copy(PacketKey(key), _) | Egress::Release(PacketKey(key)) => {
                    key > FORGED_KEYS
                }
                Egress::Send(transmit) => {
                    matches!(transmit.to, Destination::Node(node) if node.0 > RECEIVERS + 1)
                }
                Egress::Await(_) => false,
            };
            if !is_forged {
                return Some(egress);
            }
            buf.clear();
        }
    }
}

struct WithRelays<P> {
    inner: P,
    format: Format,
    attacker: Rc<RefCell<Attacker>>,
}

impl<P: Protocols> Protocols for WithRelays<P> {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> Boxed {
        self.inner.end(flow, id, node, role, start)
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        let inner = self.inner.relay(program, node);
        let (format, attacker) = (self.format, self.attacker.clone());
        Box::new(AttackedRelay { inner, format, attacker, next: 0, ways: BTreeMap::new(), key: 0 })
    }

    fn sees_corruption(&self, flow: &Flow) -> bool {
        self.inner.sees_corruption(flow)
    }
}

#[derive(Default)]
pub(crate) struct Arrivals {
    bytes: BTreeMap<NodeId, u64>,
    last: BTreeMap<NodeId, Time>,
    done: BTreeMap<NodeId, Time>,
    stall: Duration,
    named: bool,
    goal: u64,
}

impl Arrivals {
    pub(crate) fn of(bytes: u64) -> Self {
        Self { goal: bytes / 100 * 99, ..Self::default() }
    }

    pub(crate) fn done_s(&self, receivers: usize) -> Option<f64> {
        let last = self.done.values().max().filter(|_| self.done.len() == receivers);
        last.map(|at| at.as_secs_f64())
    }

    pub(crate) fn longest_stall(&self, end: Time) -> f64 {
        let unfinished = self.last.iter().filter(|(node, _)| !self.done.contains_key(node));
        let silent = unfinished.map(|(_, last)| end.since(*last)).max().unwrap_or_default();
        self.stall.max(silent).as_secs_f64()
    }
}

impl Sink for Arrivals {
    fn record(&mut self, record: &Record) {
        let Subject::Endpoint { node, .. } = record.subject else { return };
        match record.event {
            Event::Delivered { bytes, .. } => {
                let sum = self.bytes.entry(node).or_default();
                *sum += u64::from(bytes);
                let before = self.last.insert(node, record.at);
                if !self.done.contains_key(&node)
                    && let Some(before) = before
                {
                    self.stall = self.stall.max(record.at.since(before));
                }
                if *sum >= self.goal {
                    self.done.entry(node).or_insert(record.at);
                }
            }
            Event::Incomplete { node, .. } => self.named |= node != Some(INVENTED),
            _ => {}
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    protocol: Stack,
    delivery: &'static str,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.protocol.name(), self.delivery)
    }
}

struct Outcome {
    done: f64,
    stall: f64,
    intact: bool,
    named: bool,
    taken: u64,
    attacker: Attacker,
}

impl Outcome {
    /// Describes a session's failure; all arguments in seconds, `quiet` for an undisturbed session.
    fn fault(&self, quiet: f64, (lost_max, stall_max): (f64, f64)) -> Option<String> {
        let Self { done, stall, intact, named, .. } = *self;
        let slow = done > SHARE * quiet + lost_max || stall > stall_max;
        (slow || !intact || named).then(|| {
            let damaged = if intact { "" } else { ", not intact" };
            let named = if named { ", receivers named" } else { "" };
            format!("{done:.1} s for {quiet:.1} s, stall of {stall:.1} s{damaged}{named}")
        })
    }
}

impl Case {
    fn run(self, forgeries: &[(usize, Forgery)]) -> Outcome {
        self.run_spaced(forgeries, SPACING, &[])
    }

    /// Runs a session, forging every `spacing`; `mask` follows repeated acknowledgements.
    fn run_spaced(self, forgeries: &[(usize, Forgery)], spacing: Duration, mask: &[u8]) -> Outcome {
        let Self { protocol, delivery } = self;
        let format = format_of(protocol);
        let has = |name: &str| protocol.has_option(name);
        let mut options = Vec::new();
        if has("delivery") {
            options.push(format!("delivery = \"{delivery}\""));
        }
        if scheme(&protocol.name()).is_some() {
            options.push("announce_scheme = true".into());
        }
        if has("members_max") {
            // The third receiver has a receiver as its head.
            options.extend(["members_max = 2".into(), "wait_for = 3".into()]);
        }
        let flow = format!("data = \"{OBJECT} B\"\noptions = {{ {} }}\n", options.join(", "));
        let leaf = plain("10 Mbit/s", 100) + "loss = 0.002\n";
        let program = protocol.hop.map(|_| "credit");
        let down = plain(RATE, 20);
        let world = World { flow, down, leaf, program, ..World::new(RECEIVERS, 100) };
        let scenario = world.scenario(protocol);
        let place = |name: &str| {
            let place = scenario.nodes.iter().position(|node| node.name == name);
            NodeId(place.expect("it is there") as u32)
        };
        let receivers = scenario.flows[0].to.len();
        let nodes = [place("s"), place("m1"), place(&format!("m{receivers}")), INVENTED];
        let at = |slot: usize| Time::ZERO + FIRST + spacing * slot as u64;
        let plan = forgeries.iter().map(|(slot, it)| (at(*slot), *it)).collect();
        let nodes = NAMES.into_iter().zip(nodes).collect();
        let attacker = Rc::new(RefCell::new(Attacker {
            nodes,
            plan,
            mask: mask.to_vec(),
            ..Attacker::default()
        }));
        let attacked = |node: NodeId, inner: Boxed| -> Boxed {
            let attacker = attacker.clone();
            Box::new(Attacked { inner, node, format, attacker, next: 0 })
        };
        let mixed = Mixed {
            watched: Watched::without_notes(),
            sender: |inner: Boxed| attacked(place("s"), inner),
            receiver: attacked,
        };
        let mixed = WithRelays { inner: mixed, format, attacker: attacker.clone() };
        let mut arrivals = Arrivals::of(OBJECT);
        let simulation =
            Simulation::new(&scenario, &mixed, &mut arrivals).expect("no file is read");
        let outcome = simulation.run(&mut Unobserved);
        let whole = |it: &(faircast_sim::Delivery, bool)| {
            let stream = delivery == "stream" && it.0.bytes >= OBJECT / 100 * 99;
            it.1 && it.0.bytes == OBJECT || stream && it.0.lost_packets == 0
        };
        let intact = outcome.deliveries[0].iter().all(whole);
        let done = arrivals.done_s(receivers).unwrap_or(f64::INFINITY);
        let stall = arrivals.longest_stall(outcome.at);
        drop(mixed);
        let attacker = attacker.take();
        Outcome { done, stall, intact, named: arrivals.named, taken: attacker.taken, attacker }
    }

    fn least(
        self,
        mut forgeries: Vec<(usize, Forgery)>,
        quiet: f64,
    ) -> (Vec<(usize, Forgery)>, String) {
        for place in (0..forgeries.len()).rev() {
            let removed = forgeries.remove(place);
            if self.fault(&forgeries, quiet).is_none() {
                forgeries.insert(place, removed);
            }
        }
        let fault = self.fault(&forgeries, quiet).unwrap_or_default();
        (forgeries, fault)
    }

    fn fault(self, forgeries: &[(usize, Forgery)], quiet: f64) -> Option<String> {
        self.run(forgeries).fault(quiet, self.limits())
    }

    /// Returns the limits in seconds, by the recovery time: 20 s in docs/your-own-scheme.md.
    fn limits(self) -> (f64, f64) {
        let name = self.protocol.name();
        let scheme = self.protocol.scheme;
        let recovery = scheme.map_or(LOST_MAX, |it| it.guarantees.recovery.as_secs_f64());
        let lost = if name.ends_with("tfmcc") { RISE_MAX } else { recovery };
        let waits = self.protocol.hop.is_some();
        (lost, if waits { recovery.max(SILENCE_MAX) } else { recovery })
    }

    fn forgeries(self, quiet: &Outcome) -> Vec<Forgery> {
        let format = format_of(self.protocol);
        let Some(data) = &quiet.attacker.data else { return Vec::new() };
        let mut all = Vec::new();
        for name in NAMES {
            for (specimen, bytes) in format.specimens(&data.bytes, data.zeros).iter().enumerate() {
                let kind = format.kind(bytes);
                let real = quiet.attacker.heard.iter().find(|((_, it), _)| *it == kind);
                let model = real.filter(|_| format.is_plain(bytes));
                let model = model.map_or(bytes, |real| &real.1.1.bytes);
                let changes = format.changes(model).into_iter();
                all.extend(changes.map(|change| Forgery { name, specimen, change }));
            }
        }
        all
    }
}

/// Acknowledgements per second of a repeating member, duration in seconds, largest slowdown.
const REPEATS: u64 = 20;
const REPEATED_FOR: u64 = 10;
const REPEATED_SHARE: f64 = 2.6;

/// Length of TRAM's acknowledgement before its mask, and offsets in it, as in docs/tram.md.
const BIND: usize = 4;
const ACK: usize = 8;
const ACK_MASK: usize = 60;
const ALLOWED: usize = 32;

#[test]
fn a_member_that_repeats_one_acknowledgement_takes_no_more_than_half() {
    for protocol in protocols().into_iter().filter(Stack::has_heads) {
        let case = Case { protocol, delivery: "stream" };
        let quiet = case.run(&[]).done;
        let forged = |specimen, change| Forgery { name: Name::Invented, specimen, change };
        let ack = forged(ACK, Change::Number(ALLOWED, Value::Add(300)));
        let mut plan = vec![(0, forged(BIND, Change::Nothing))];
        plan.extend((1..REPEATS * REPEATED_FOR).map(|slot| (slot as usize, ack)));
        let mask = vec![u8::MAX; 256];
        let outcome = case.run_spaced(&plan, Duration::from_secs(1) / REPEATS, &mask);
        let Outcome { done, intact, .. } = outcome;
        println!("{}: {done:.1} s for {quiet:.1} s", protocol.name());
        assert!(intact && done <= REPEATED_SHARE * quiet, "{case}: {done} s for {quiet} s");
    }
}

/// Runs of each kind of session without `FAIRCAST_CATALOGUE`, which asks for all runs.
const RUNS: usize = 6;

fn one_of_each(all: &[Forgery]) -> Vec<Forgery> {
    let groups = all.chunk_by(|a, b| (a.name, a.specimen) == (b.name, b.specimen));
    groups.enumerate().map(|(number, group)| group[number % group.len()]).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how much of the catalogue is run, and nothing else")]
fn no_forged_packet_ends_or_stalls_a_session() {
    let all_of_it = std::env::var_os("FAIRCAST_CATALOGUE").is_some();
    let mut faults = BTreeSet::new();
    let mut protocols = protocols();
    protocols.retain(|it| it.is_reliable_multicast());
    for protocol in protocols {
        let tells = protocol.has_option("delivery");
        for delivery in ["stream", "object"].into_iter().filter(|it| tells || *it == "stream") {
            let case = Case { protocol, delivery };
            let quiet = case.run(&[]);
            assert!(quiet.done.is_finite() && quiet.intact, "{case}: {}", quiet.done);
            let mut all = case.forgeries(&quiet);
            // A forged capsule may block a branch for 3 s until a node is absent; these add up.
            let alone = protocol.hop.is_some();
            let per_run = if alone { 1 } else { PER_RUN };
            if alone && !all_of_it {
                all = one_of_each(&all);
            }
            // Neighbouring forgeries are of one kind, so each run takes some of every kind.
            let runs = all.len().div_ceil(per_run);
            let of_run = |run: usize| all.iter().copied().skip(run).step_by(runs).enumerate();
            let step = if alone || all_of_it { 1 } else { (runs / RUNS).max(1) };
            let mut taken = 0;
            for run in (0..runs).step_by(step) {
                let forgeries: Vec<_> = of_run(run).collect();
                let outcome = case.run(&forgeries);
                taken += outcome.taken;
                if outcome.fault(quiet.done, case.limits()).is_none() {
                    continue;
                }
                let before = faults.len();
                for forgery in &forgeries {
                    if let Some(fault) = case.fault(&[*forgery], quiet.done) {
                        faults.insert(format!("{case}: {forgery:?}: {fault}"));
                    }
                }
                if faults.len() == before {
                    let (least, fault) = case.least(forgeries, quiet.done);
                    faults.insert(format!("{case}: together {least:?}: {fault}"));
                }
            }
            println!("{case}: {} forgeries, {:.1} s, {taken} taken", all.len(), quiet.done);
            assert!(taken > 0, "{case}: nothing was forged");
        }
    }
    let text: Vec<String> = faults.into_iter().collect();
    assert!(text.is_empty(), "{} faults\n{}", text.len(), text.join("\n"));
}
