//! Benchmarks of a relay that forwards packets of 1400 bytes to two hosts, with all that their links need, beside a bare loop
//! that copies as many bytes. `cargo bench -p faircast-proto --bench relay`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faircast_base::{Cx, Duration, GroupId, NodeId, NullTrace, Purpose, Rng, Time};
use faircast_proto::Destination;
use faircast_proto::credit;
use faircast_proto::hop::{
    Attach, FrameKind, Guard, HopNode, HopPacket, HopSettings, Sends, node_of,
};
use faircast_proto::options::Options;

fn main() {
    divan::main();
}

const GROUP: u64 = 7;
const BYTES: usize = 1400;
const RELAY: u8 = 1;

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
    fn has_room(&self) -> bool {
        true
    }

    fn send(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        if self.count == self.frames.len() {
            self.frames.push((to, Vec::new()));
        }
        let (address, frame) = &mut self.frames[self.count];
        *address = to;
        frame.clear();
        write(frame);
        self.count += 1;
    }
}

struct Host {
    guard: Guard,
    attach: Attach,
}

struct Net {
    now: Time,
    relay: HopNode,
    hosts: BTreeMap<SocketAddr, Host>,
    rng: Rng,
    out: Sent,
    got: u64,
    buf: Vec<u8>,
}

impl Net {
    fn new(key: Option<[u8; 32]>) -> Self {
        let node = node_of(RELAY.into());
        let program = credit::relay(node, &Options::default(), None);
        let guard = Guard::new(node, key);
        let relay = HopNode::new(guard, [9; 32], None, HopSettings::default(), program);
        let hosts = [(10, 0), (11, 1), (12, 1)].map(|(host, receivers)| {
            let mut attach = Attach::new(vec![at(RELAY)], false);
            attach.set(Time::ZERO, GROUP, Some(receivers));
            (at(host), Host { guard: Guard::new(node_of(host.into()), key), attach })
        });
        let rng = Rng::new(1, node, Purpose::Relay);
        let (now, out) = (Time::ZERO, Sent::default());
        let hosts = BTreeMap::from(hosts);
        let mut net = Self { now, relay, hosts, rng, out, got: 0, buf: Vec::new() };
        (0..200).for_each(|_| net.pass(Duration::from_millis(10)));
        net
    }

    /// Time passes, and what hosts have to say is said.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        let mut frames = Vec::new();
        for (address, Host { guard, attach }) in &mut self.hosts {
            attach.handle_timeout(self.now);
            let mut frame = Vec::new();
            while attach.poll(self.now, guard, &mut frame) {
                frames.push((*address, std::mem::take(&mut frame)));
            }
        }
        for (from, frame) in frames {
            self.hand_over(from, &frame);
        }
    }

    fn hand_over(&mut self, from: SocketAddr, frame: &[u8]) {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut NullTrace };
        self.relay.handle_datagram(&mut cx, from, frame, &mut self.out);
        for (to, frame) in &self.out.frames[..self.out.count] {
            let Some(Host { guard, attach }) = self.hosts.get_mut(to) else { continue };
            let Ok(frame) = guard.read(frame) else { continue };
            if frame.kind != FrameKind::Data {
                attach.handle(self.now, &frame);
            } else if let Some(link) = attach.link() {
                link.on_frame(self.now, &frame);
                while let Some(parcel) = link.take() {
                    self.got += black_box(parcel.body.len()) as u64;
                }
            }
        }
        self.out.count = 0;
    }

    fn send(&mut self) {
        let mut frame = std::mem::take(&mut self.buf);
        frame.clear();
        let Host { guard, attach } = self.hosts.get_mut(&at(10)).expect("it is one of them");
        let link = attach.link().expect("it is attached");
        let to = Destination::Group(GroupId::SESSION);
        let origin: NodeId = guard.node();
        let parcel = HopPacket { hops: 9, group: GROUP, origin, to, body: vec![7; BYTES] };
        if let Some(seq) = link.send(self.now, parcel) {
            link.write(seq, guard, &mut frame);
            self.hand_over(at(10), &frame);
        }
        self.buf = frame;
        self.pass(Duration::from_micros(2));
    }
}

fn forward(bencher: Bencher<'_, '_>, key: Option<[u8; 32]>) {
    let mut net = Net::new(key);
    let (mut sent, before) = (0u64, net.got);
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        net.send();
        sent += 1;
    });
    assert!(net.got - before > sent * BYTES as u64 * 19 / 10, "both have nearly all");
}

#[divan::bench]
fn to_two_hosts(bencher: Bencher<'_, '_>) {
    forward(bencher, None);
}

#[divan::bench]
fn to_two_hosts_with_a_key(bencher: Bencher<'_, '_>) {
    forward(bencher, Some([5; 32]));
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
