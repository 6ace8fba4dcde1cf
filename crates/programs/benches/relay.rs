//! Benchmarks of a relay that forwards packets of a session of 1400 bytes to two hosts, under a policy as it is and as a program,
//! beside a bare loop that copies as many bytes, and of one question to a program.
//! `cargo bench -p faircast-programs --bench relay`.

#[path = "../tests/programs/built.rs"]
#[allow(dead_code, reason = "of all programs one is enough")]
mod built;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faircast_base::{Cx, Duration, GroupId, NodeId, Purpose, Rng, Time};
use faircast_programs::{Limits, Signers, WasmHost};
use faircast_proto::credit::{self, CreditReceiver, CreditSource, RunningProgram};
use faircast_proto::hop::{
    Attach, FrameKind, Guard, HopNode, HopPacket, HopSettings, Sends, node_of,
};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit};
use faircast_relay_sdk::View;

fn main() {
    divan::main();
}

const GROUP: u64 = 7;
const BYTES: usize = 1400;
const RELAY: u8 = 1;
const SOURCE: u8 = 10;
/// Packets of the source at once.
const BATCH: usize = 64;

fn at(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7000))
}

/// Frames that a relay has sent, in buffers that are used again.
#[derive(Default)]
struct Sent {
    frames: Vec<(SocketAddr, Vec<u8>)>,
    count: usize,
}

impl Sends for Sent {
    fn send_to_network(&mut self, _: usize, _: impl FnOnce(&mut Vec<u8>)) {}

    fn has_room(&self) -> bool {
        true
    }

    fn send(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        if self.count == self.frames.len() {
            self.frames.push((to, Vec::with_capacity(2048)));
        }
        let (address, frame) = &mut self.frames[self.count];
        *address = to;
        frame.clear();
        write(frame);
        self.count += 1;
    }
}

/// Sends as much as it may, or takes everything.
struct Endless {
    sends: bool,
    got: u64,
}

impl Machine for Endless {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        self.got += datagram.bytes.len() as u64;
    }

    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.sends {
            return None;
        }
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

enum End {
    Source(Box<CreditSource<Endless>>),
    Receiver(CreditReceiver<Endless>),
}

struct Host {
    guard: Guard,
    attach: Attach,
    end: End,
}

impl Host {
    fn with<T>(&mut self, f: impl FnOnce(&mut dyn Machine<Event = FlowEvent>) -> T) -> T {
        match &mut self.end {
            End::Source(source) => f(&mut **source),
            End::Receiver(receiver) => f(receiver),
        }
    }
}

/// A source and two receivers at a relay.
struct Net {
    now: Time,
    relay: HopNode,
    hosts: BTreeMap<SocketAddr, Host>,
    rng: Rng,
    out: Sent,
}

/// Frames for the relay, and how many packets of the source are in them.
struct Batch {
    frames: Vec<(SocketAddr, Vec<u8>)>,
    packets: usize,
}

impl Net {
    fn new(key: Option<[u8; 32]>, program: Option<&str>) -> Self {
        let host = WasmHost::new(Limits::default(), Signers::Any).expect("it runs here");
        let relays =
            credit::relay(node_of(RELAY.into()), &Options::default(), Some(Arc::new(host)));
        let guard = Guard::new(node_of(RELAY.into()), key);
        let relay = HopNode::new(guard, [9; 32], None, HopSettings::default(), relays);
        let code = program
            .map(|name| ("program".to_string(), OptionValue::Bytes(built::program(name).into())));
        let usual = [("credit_buffer", 256), ("credit_unit", 32)];
        let usual = usual.map(|(key, value)| (key.to_string(), OptionValue::Integer(value)));
        let options = Options::checked(usual.into_iter().chain(code), credit::OPTIONS)
            .expect("they are right");
        let hosts = [SOURCE, 11, 12].map(|host| {
            let node = node_of(host.into());
            let mut attach = Attach::new(vec![at(RELAY)], false);
            attach.set(Time::ZERO, GROUP, Some(u32::from(host != SOURCE)));
            let inner = Endless { sends: host == SOURCE, got: 0 };
            let end = match host {
                SOURCE => {
                    End::Source(Box::new(CreditSource::new(inner, 5, node, Time::ZERO, &options)))
                }
                _ => End::Receiver(CreditReceiver::new(inner, 5, node)),
            };
            (at(host), Host { guard: Guard::new(node, key), attach, end })
        });
        let rng = Rng::new(1, NodeId(0), Purpose::Relay);
        let hosts = BTreeMap::from(hosts);
        let mut net = Self { now: Time::ZERO, relay, hosts, rng, out: Sent::default() };
        for _ in 0..3000 {
            let batch = net.batch(Duration::from_millis(1));
            net.relay(&batch);
        }
        net
    }

    /// Hosts take what the relay has sent, and say what they have to say.
    fn batch(&mut self, time: Duration) -> Batch {
        self.now += time;
        let Self { now, hosts, rng, out, .. } = self;
        let now = *now;
        let mut cx = Cx::untraced(now, rng);
        for (to, frame) in &out.frames[..out.count] {
            let Some(host) = hosts.get_mut(to) else { continue };
            let guard = host.guard.clone();
            let Ok(frame) = guard.read(frame) else { continue };
            if frame.kind != FrameKind::Data {
                host.attach.handle(now, &frame);
                continue;
            }
            if let Some(link) = host.attach.link() {
                link.on_frame(now, &frame);
            }
            while let Some(parcel) = host.attach.link().and_then(|link| link.take()) {
                let datagram = Datagram::new(parcel.origin, parcel.to, &parcel.body);
                host.with(|end| end.handle_datagram(&mut cx, datagram));
            }
        }
        out.count = 0;
        let mut batch = Batch { frames: Vec::new(), packets: 0 };
        for (address, host) in hosts {
            host.attach.handle_timeout(now);
            let mut frame = Vec::new();
            while host.attach.poll(now, &mut host.guard, &mut frame) {
                batch.frames.push((*address, std::mem::take(&mut frame)));
            }
            host.with(|end| end.handle_timeout(&mut cx));
            for _ in 0..BATCH {
                if host.attach.link().is_none_or(|link| !link.has_room()) {
                    break;
                }
                let mut body = Vec::new();
                let Some(sent) = host.with(|end| end.poll_transmit(&mut cx, &mut body)) else {
                    break;
                };
                let (hops, origin, to) = (9, host.guard.node(), sent.to);
                let Some(link) = host.attach.link() else { break };
                let parcel = HopPacket { hops, group: GROUP, origin, to, body: body.into() };
                let Some(seq) = link.send(now, parcel) else { break };
                link.write(seq, &mut host.guard, &mut frame);
                batch.frames.push((*address, std::mem::take(&mut frame)));
                batch.packets += usize::from(sent.payload_len > 0);
            }
        }
        batch
    }

    /// What is measured: the relay takes all that.
    fn relay(&mut self, batch: &Batch) {
        let mut cx = Cx::untraced(self.now, &mut self.rng);
        for (from, frame) in &batch.frames {
            self.relay.handle_datagram(&mut cx, *from, frame, &mut self.out);
        }
        if self.relay.next_timeout() <= self.now {
            self.relay.handle_timeout(&mut cx, &mut self.out);
        }
    }

    fn got(&self) -> u64 {
        let got = |host: &Host| match &host.end {
            End::Source(_) => 0,
            End::Receiver(receiver) => receiver.inner().got,
        };
        self.hosts.values().map(got).sum()
    }
}

fn forward(bencher: Bencher<'_, '_>, key: Option<[u8; 32]>, program: Option<&str>) {
    let net = RefCell::new(Net::new(key, program));
    let before = net.borrow().got();
    let sent = RefCell::new(0);
    bencher
        .with_inputs(|| {
            let batch = net.borrow_mut().batch(Duration::from_micros(100));
            *sent.borrow_mut() += batch.packets as u64;
            batch
        })
        .input_counter(|batch| ItemsCount::new(batch.packets))
        .bench_local_refs(|batch| net.borrow_mut().relay(batch));
    let payload = (BYTES - credit::CAPSULE_BYTES) as u64;
    let (got, sent) = (net.borrow().got() - before, *sent.borrow() * payload);
    let served = net.borrow().relay.status().served;
    assert!(
        sent > 1_000_000 && got > sent * 19 / 10,
        "both have nearly all: {got} of twice {sent}"
    );
    assert_eq!(
        (served.sessions, served.failed, served.programs),
        (1, 0, usize::from(program.is_some()))
    );
}

#[divan::bench(sample_size = 1, sample_count = 2000)]
fn policy_as_it_is(bencher: Bencher<'_, '_>) {
    forward(bencher, None, None);
}

#[divan::bench(sample_size = 1, sample_count = 2000)]
fn policy_as_a_program(bencher: Bencher<'_, '_>) {
    forward(bencher, None, Some("worst_path"));
}

#[divan::bench(sample_size = 1, sample_count = 1000)]
fn with_a_key(bencher: Bencher<'_, '_>) {
    forward(bencher, Some([5; 32]), None);
}

#[divan::bench]
fn bare_copies(bencher: Bencher<'_, '_>) {
    let packet = vec![7u8; BYTES + 40];
    let mut out = [Vec::new(), Vec::new()];
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        for copy in &mut out {
            copy.clear();
            copy.extend_from_slice(black_box(&packet));
        }
        black_box(&out);
    });
}

/// Two branches of which packets move.
struct Two;

impl View for Two {
    fn branches(&self) -> u32 {
        2
    }
    fn forwarded(&self, branch: u32) -> i64 {
        black_box(40 + i64::from(branch))
    }
    fn reported(&self) -> i64 {
        black_box(7)
    }
    fn queued(&self, _branch: u32) -> u32 {
        3
    }
    fn buffer(&self) -> u32 {
        256
    }
    fn weight(&self, _branch: u32) -> u32 {
        1
    }
    fn waited_ms(&self, _branch: u32) -> u32 {
        0
    }
    fn unit(&self) -> u32 {
        32
    }
}

fn asked(name: &str) -> Box<dyn RunningProgram> {
    let host = WasmHost::new(Limits::default(), Signers::Any).expect("it runs here");
    let program = host.load_now(&built::program(name)).expect("it is sound");
    program.start(50).expect("it starts")
}

#[divan::bench(args = ["worst_path", "quantile", "bounded_lag", "weighted_utility"])]
fn verdict(bencher: Bencher<'_, '_>, name: &str) {
    let mut program = asked(name);
    bencher.bench_local(|| program.credit(&Two));
}

/// A program that is read, checked and compiled: of the usual size, and nearly as large as one may be.
#[divan::bench(args = [false, true], sample_count = 10)]
fn load(bencher: Bencher<'_, '_>, large: bool) {
    let host = WasmHost::new(Limits::default(), Signers::Any).expect("it runs here");
    let code = if large { large_program() } else { built::program("worst_path") };
    bencher.bench_local(|| host.load_now(&code).map(|_| ()).expect("it is sound"));
}

/// Four functions of many branches, near the bounds of programs.
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
