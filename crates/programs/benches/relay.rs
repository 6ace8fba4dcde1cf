//! Benchmarks of a relay that forwards 1400-byte packets to two hosts under a native policy and
//! under a program, and of a call: `cargo bench -p faircast-programs --bench relay`.

#[path = "../tests/programs/built.rs"]
#[allow(dead_code, reason = "of all programs one is enough")]
mod built;
#[path = "../tests/programs/state.rs"]
mod state;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faircast_base::{Cx, Duration, GroupId, NodeId, Purpose, Rng, Time};
use faircast_hop::{
    Behind, CongestionControl, ConnectionHandle, Endpoint, EndpointEvent, Host, NodeLimits,
    RelayKey, RelayNode, StreamId,
};
use faircast_programs::{Limits, Signers, WasmHost};
use faircast_proto::credit::{self, CreditReceiver, CreditSource, RunningProgram};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit};
use state::State;

fn main() {
    divan::main();
}

const GROUP: u64 = 7;
const BYTES: usize = 1400;
const RELAY: NodeId = NodeId(1);
const SOURCE: NodeId = NodeId(10);
const RECEIVERS: [NodeId; 2] = [NodeId(11), NodeId(12)];
const BATCH: usize = 64;

struct Endless {
    sends: bool,
    packets: Rc<Cell<u64>>,
}

impl Machine for Endless {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _cx: &mut Cx<'_>, _datagram: Datagram<'_>) {
        self.packets.update(|packets| packets + u64::from(!self.sends));
    }

    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.sends {
            return None;
        }
        self.packets.update(|packets| packets + 1);
        buf.resize(buf.len() + BYTES - credit::CAPSULE_BYTES, 7);
        Some(Transmit {
            payload_len: (BYTES - credit::CAPSULE_BYTES) as u32,
            ..Transmit::control(Destination::Group(GroupId::SESSION))
        })
    }

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}

    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

type End = Behind<Box<dyn Machine<Event = FlowEvent>>>;

struct Net {
    now: Time,
    relay: RelayNode,
    hosts: BTreeMap<NodeId, End>,
    sent: Rc<Cell<u64>>,
    got: Rc<Cell<u64>>,
    rng: Rng,
    out: Vec<(NodeId, Vec<u8>)>,
}

struct Batch {
    datagrams: Vec<(NodeId, Vec<u8>)>,
    packets: u64,
}

impl Net {
    fn new(key: &RelayKey, program: Option<&str>) -> Self {
        let host = WasmHost::new(Limits::default(), Signers::Any).expect("it runs here");
        let policies = credit::relay(RELAY, &Options::default(), Some(Arc::new(host)));
        let endpoint = |node: NodeId, accepts| {
            let (name, control) = (node.0.to_be_bytes(), CongestionControl::default());
            Endpoint::new(key, &name, u64::from(node.0), accepts, control)
        };
        let (named, limits) = ((RELAY, "relay"), NodeLimits::default());
        let relay = RelayNode::new(endpoint(RELAY, true), named, Vec::new(), limits, policies);
        let code = program
            .map(|name| ("program".to_string(), OptionValue::Bytes(built::program(name).into())));
        let usual = [("credit_buffer", 256), ("credit_unit", 32)];
        let usual = usual.map(|(key, value)| (key.to_string(), OptionValue::Integer(value)));
        let options = Options::checked(usual.into_iter().chain(code), credit::OPTIONS)
            .expect("they are right");
        let (sent, got) = (Rc::<Cell<u64>>::default(), Rc::<Cell<u64>>::default());
        let hosts = RECEIVERS.into_iter().chain([SOURCE]).map(|node| {
            let sends = node == SOURCE;
            let packets = if sends { &sent } else { &got };
            let inner = Endless { sends, packets: packets.clone() };
            let end: Box<dyn Machine<Event = FlowEvent>> = match sends {
                true => Box::new(CreditSource::new(inner, 5, node, Time::ZERO, &options)),
                false => Box::new(CreditReceiver::new(inner, 5, node)),
            };
            let member = (GROUP, u32::from(!sends));
            let endpoint = endpoint(node, false);
            let host = Host::new(Time::ZERO, endpoint, (node, "host"), vec![RELAY], member);
            (node, Behind::new(end, host))
        });
        let (rng, hosts) = (Rng::new(1, NodeId(0), Purpose::Relay), hosts.collect());
        let mut net = Self { now: Time::ZERO, relay, hosts, sent, got, rng, out: Vec::new() };
        for _ in 0..3000 {
            let batch = net.batch(Duration::from_millis(1));
            net.relay(&batch);
        }
        net
    }

    fn batch(&mut self, time: Duration) -> Batch {
        self.now += time;
        let Self { now, hosts, sent, rng, out, .. } = self;
        let (now, before) = (*now, sent.get());
        let mut cx = Cx::untraced(now, rng);
        for (to, bytes) in out.drain(..) {
            let datagram = Datagram::new(RELAY, Destination::Node(to), &bytes);
            if let Some(host) = hosts.get_mut(&to) {
                host.handle_datagram(&mut cx, datagram);
            }
        }
        let mut datagrams = Vec::new();
        for (node, host) in hosts {
            if host.next_timeout().is_some_and(|at| at <= now) {
                host.handle_timeout(&mut cx);
            }
            let mut bytes = Vec::new();
            while sent.get() - before < BATCH as u64
                && host.poll_transmit(&mut cx, &mut bytes).is_some()
            {
                datagrams.push((*node, std::mem::take(&mut bytes)));
            }
        }
        Batch { datagrams, packets: sent.get() - before }
    }

    fn relay(&mut self, batch: &Batch) {
        let Self { now, relay, rng, out, .. } = self;
        let mut cx = Cx::untraced(*now, rng);
        if relay.next_timeout().is_some_and(|at| at <= *now) {
            relay.handle_timeout(&mut cx);
        }
        for (from, bytes) in &batch.datagrams {
            let datagram = Datagram::new(*from, Destination::Node(RELAY), bytes);
            relay.handle_datagram(&mut cx, datagram);
            send(relay, &mut cx, out);
        }
        send(relay, &mut cx, out);
    }
}

fn send(relay: &mut RelayNode, cx: &mut Cx<'_>, out: &mut Vec<(NodeId, Vec<u8>)>) {
    let mut bytes = Vec::with_capacity(1500);
    while let Some(transmit) = relay.poll_transmit(cx, &mut bytes) {
        let Destination::Node(to) = transmit.to else { continue };
        out.push((to, std::mem::replace(&mut bytes, Vec::with_capacity(1500))));
    }
}

fn forward(bencher: Bencher<'_, '_>, key: &RelayKey, program: Option<&str>) {
    let net = RefCell::new(Net::new(key, program));
    let count = || (net.borrow().sent.get(), net.borrow().got.get());
    let before = count();
    bencher
        .with_inputs(|| net.borrow_mut().batch(Duration::from_micros(100)))
        .input_counter(|batch| ItemsCount::new(batch.packets))
        .bench_local_refs(|batch| net.borrow_mut().relay(batch));
    let (sent, got) = (count().0 - before.0, count().1 - before.1);
    let served = net.borrow().relay.status().served;
    assert!(sent > 1000 && got > sent * 19 / 10, "both have nearly all: {got} of twice {sent}");
    assert_eq!(
        (served.sessions, served.failed, served.programs),
        (1, 0, usize::from(program.is_some()))
    );
}

#[divan::bench(sample_size = 1, sample_count = 2000)]
fn policy_as_it_is(bencher: Bencher<'_, '_>) {
    forward(bencher, &RelayKey::shared([5; 32]), None);
}

#[divan::bench(sample_size = 1, sample_count = 2000)]
fn policy_as_a_program(bencher: Bencher<'_, '_>) {
    forward(bencher, &RelayKey::shared([5; 32]), Some("worst_path"));
}

/// QUIC connections without a relay: frames from one end to two others.
struct Bare {
    now: Time,
    middle: Endpoint,
    ends: BTreeMap<NodeId, Endpoint>,
    from: (ConnectionHandle, StreamId),
    to: Vec<(ConnectionHandle, StreamId)>,
    out: Vec<(NodeId, Vec<u8>)>,
    got: u64,
}

impl Bare {
    fn new() -> Self {
        let key = RelayKey::shared([5; 32]);
        let endpoint = |node: NodeId, accepts| {
            let (name, control) = (node.0.to_be_bytes(), CongestionControl::default());
            Endpoint::new(&key, &name, u64::from(node.0), accepts, control)
        };
        let (now, mut middle) = (Time::ZERO, endpoint(RELAY, true));
        let ends = RECEIVERS.into_iter().chain([SOURCE]);
        let mut ends: BTreeMap<_, _> = ends.map(|node| (node, endpoint(node, false))).collect();
        let connections: Vec<_> = ends.values_mut().map(|end| end.connect(now, RELAY)).collect();
        let (mut up, mut out) = (BTreeMap::new(), Vec::new());
        while up.len() < 3 {
            for (node, end) in &mut ends {
                for (_, bytes) in polled(end, now) {
                    middle.handle_datagram(now, *node, false, &bytes);
                }
            }
            out.extend(polled(&mut middle, now));
            for (to, bytes) in out.drain(..) {
                ends.get_mut(&to).expect("it is an end").handle_datagram(now, RELAY, false, &bytes);
            }
            while let Some(event) = middle.poll_event() {
                if let EndpointEvent::Up { connection, peer, .. } = event {
                    up.insert(peer, connection);
                }
            }
        }
        let open = |node: &NodeId| (up[node], middle.open(up[node]).expect("it is up"));
        let to = RECEIVERS.iter().map(open).collect();
        let source = ends.get_mut(&SOURCE).expect("it is an end");
        let connection = connections[if SOURCE < RECEIVERS[0] { 0 } else { 2 }];
        let from = (connection, source.open(connection).expect("it is up"));
        Self { now, middle, ends, from, to, out, got: 0 }
    }

    fn batch(&mut self) -> Batch {
        self.now += Duration::from_micros(100);
        let Self { now, ends, from, out, got, .. } = self;
        for (to, bytes) in out.drain(..) {
            let end = ends.get_mut(&to).expect("it is an end");
            end.handle_datagram(*now, RELAY, false, &bytes);
        }
        let (mut datagrams, mut packets) = (Vec::new(), 0);
        for (node, end) in ends {
            while let Some(event) = end.poll_event() {
                *got += u64::from(matches!(event, EndpointEvent::Frame { .. }));
            }
            end.handle_timeout(*now);
            while *node == SOURCE && packets < BATCH as u64 {
                let body = Bytes::from_static(&[7; BYTES]);
                if !end.send(from.0, from.1, &[], body) {
                    break;
                }
                packets += 1;
            }
            datagrams.extend(polled(end, *now).into_iter().map(|(_, bytes)| (*node, bytes)));
        }
        Batch { datagrams, packets }
    }

    fn pass(&mut self, batch: &Batch) {
        let Self { now, middle, to, out, .. } = self;
        middle.handle_timeout(*now);
        for (from, bytes) in &batch.datagrams {
            middle.handle_datagram(*now, *from, false, bytes);
            while let Some(event) = middle.poll_event() {
                let EndpointEvent::Frame { bytes, .. } = event else { continue };
                for (connection, stream) in &*to {
                    middle.send(*connection, *stream, &[], bytes.clone());
                }
            }
            out.extend(polled(middle, *now));
        }
        out.extend(polled(middle, *now));
    }
}

fn polled(endpoint: &mut Endpoint, now: Time) -> Vec<(NodeId, Vec<u8>)> {
    let mut all = Vec::new();
    let mut bytes = Vec::with_capacity(1500);
    while let Some(to) = endpoint.poll_transmit(now, &mut bytes) {
        all.push((to, std::mem::replace(&mut bytes, Vec::with_capacity(1500))));
    }
    all
}

#[divan::bench(sample_size = 1, sample_count = 2000)]
fn endpoints_alone(bencher: Bencher<'_, '_>) {
    let bare = RefCell::new(Bare::new());
    let sent = Cell::new(0);
    for _ in 0..3000 {
        let batch = bare.borrow_mut().batch();
        bare.borrow_mut().pass(&batch);
    }
    bare.borrow_mut().got = 0;
    bencher
        .with_inputs(|| {
            let batch = bare.borrow_mut().batch();
            sent.update(|sent| sent + batch.packets);
            batch
        })
        .input_counter(|batch| ItemsCount::new(batch.packets))
        .bench_local_refs(|batch| bare.borrow_mut().pass(batch));
    let (sent, got) = (sent.get(), bare.borrow().got);
    assert!(sent > 1000 && got > sent, "both have many: {got} of twice {sent}");
}

fn asked(name: &str) -> Box<dyn RunningProgram> {
    let host = WasmHost::new(Limits::default(), Signers::Any).expect("it runs here");
    let program = host.load_now(&built::program(name)).expect("it is sound");
    program.start(50).expect("it starts")
}

#[divan::bench(args = ["worst_path", "quantile", "bounded_lag", "weighted_utility"])]
fn verdict(bencher: Bencher<'_, '_>, name: &str) {
    let mut program = asked(name);
    let branches = vec![(40, 3, 1, 0), (41, 3, 1, 0)];
    let state = State { branches, reported: 7, buffer: 256, unit: 32 };
    bencher.bench_local(|| program.credit(black_box(&state)));
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn load(bencher: Bencher<'_, '_>, large: bool) {
    let host = WasmHost::new(Limits::default(), Signers::Any).expect("it runs here");
    let code = if large { large_program() } else { built::program("worst_path") };
    bencher.bench_local(|| host.load_now(&code).map(|_| ()).expect("it is sound"));
}

fn large_program() -> Vec<u8> {
    let mut body = String::new();
    for number in 0..900 {
        body += &format!(
            "(if (i32.gt_u (local.get 0) (i32.const {})) (then (local.set 0 (i32.add (local.get 0) (local.get 1)))))",
            number % 60
        );
    }
    let text = format!(
        "(module {} (func (export \"faircast_policy_1\") (param i32))
         (func (export \"credit\") (result i32) i32.const 0)
         (func (export \"accepts\") (param i32 i32) (result i32) i32.const 1)
         (func (export \"discards\") (param i32) (result i32) i32.const 0)
         (func (export \"interval_ms\") (result i32) i32.const 0)
         (func (export \"drops\") (result i32) i32.const 0))",
        format!("(func (param i32) (local i32) {body})").repeat(4)
    );
    let code = wat::parse_str(text).expect("it is sound");
    assert!(code.len() < 64 << 10 && code.len() > 50 << 10, "{} bytes", code.len());
    code
}
