//! What the fuzz target `pgm_endpoints` does with its bytes; the corpus test does the same.
//!
//! A pgmcc source and a pgmcc receiver talk to each other while packets made of the fuzzer's bytes
//! come between, with the session's ids and a checksum put in so that they are not all refused at
//! the door.

use faircast_base::{Cx, Duration, NodeId, NullTrace, Purpose, Rng, Time};
use faircast_proto::content::Zeros;
use faircast_proto::endpoint::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use faircast_proto::schemes::pgmcc::{PgmccConfig, PgmccReceiver, PgmccSender};
use faircast_proto::wire::pgm::{Gsi, HEADER_LEN, Nla, Tsi, checksum};
use faircast_proto::{Datagram, Destination, Machine};

const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };

/// More packets in one drain, or timeouts in one moment, than any honest machine needs.
const MANY: u32 = 100_000;

struct Host {
    node: NodeId,
    machine: Box<dyn Machine>,
    rng: Rng,
}

struct Pair {
    now: Time,
    hosts: [Host; 2],
    /// What each has sent to the other and has not arrived.
    flying: [Vec<(Destination, Vec<u8>, u32)>; 2],
}

/// Runs the steps that `data` spells: an operation, an argument, perhaps the bytes of a packet.
pub(crate) fn run(mut data: &[u8]) {
    let mut pair = Pair::new();
    pair.pass(Duration::from_millis(1));
    while let Some((&[operation, argument], rest)) = data.split_first_chunk() {
        data = rest;
        match operation % 6 {
            0 => pair.pass(Duration::from_micros(u64::from(argument) * 400)),
            1 => pair.exchange(),
            2 => pair.hosts[usize::from(argument & 1)].close(pair.now),
            operation => {
                let (bytes, rest) = data.split_at(usize::from(argument).min(data.len()));
                data = rest;
                let to = usize::from(operation & 1);
                let destination = match operation {
                    5 => Destination::Node(NodeId(1)),
                    _ => Destination::Group,
                };
                pair.deliver(to, destination, &dress(bytes), 0);
            }
        }
    }
    // Whatever came, both rest some time after the source is closed.
    pair.hosts[0].close(pair.now);
    for _ in 0..2000 {
        pair.pass(Duration::from_secs(1));
    }
    assert!(pair.hosts.iter().all(|host| host.machine.next_timeout().is_none()));
}

/// Puts ports, session and checksum into `bytes`, where they are long enough for a header.
fn dress(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if out.len() >= HEADER_LEN {
        let upstream = matches!(out[4] & 0x0f, 2 | 8 | 9 | 11..=13);
        let (first, second) = if upstream { (7500u16, 5000u16) } else { (5000, 7500) };
        out[0..2].copy_from_slice(&first.to_be_bytes());
        out[2..4].copy_from_slice(&second.to_be_bytes());
        out[8..14].copy_from_slice(&TSI.gsi.0);
        out[6..8].fill(0);
        let sum = checksum(&out);
        out[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    out
}

impl Pair {
    fn new() -> Self {
        let mut config = SourceConfig::new(NodeId(1), GROUP, TSI);
        (config.payload, config.window_packets) = (100, 64);
        let pgmcc = PgmccConfig::default();
        let content = Box::new(Zeros { len: None });
        let source = PgmSource::new(config, content, PgmccSender::new(pgmcc));
        let mut config = ReceiverConfig::new(GROUP);
        config.window_packets = 128;
        let receiver = PgmReceiver::new(config, PgmccReceiver::new(pgmcc, NodeId(2)));
        let rng = |node| Rng::new(1, NodeId(node), Purpose::Machine(0));
        let hosts = [
            Host { node: NodeId(1), machine: Box::new(source), rng: rng(1) },
            Host { node: NodeId(2), machine: Box::new(receiver), rng: rng(2) },
        ];
        Self { now: Time::ZERO, hosts, flying: [Vec::new(), Vec::new()] }
    }

    /// Lets time pass, each timeout at its moment.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for i in 0..2 {
            let (mut now, mut calls) = (self.now, 0);
            while let Some(at) = self.hosts[i].machine.next_timeout().filter(|at| *at <= end) {
                calls = if at > now { 0 } else { calls + 1 };
                assert!(calls < MANY, "time stands still for {i}");
                now = now.max(at);
                self.hosts[i].with(now, |machine, cx| machine.handle_timeout(cx));
                self.drain(i, now);
            }
        }
        self.now = end;
    }

    fn drain(&mut self, i: usize, now: Time) {
        let mut sent = 0;
        let mut buf = Vec::new();
        while let Some(transmit) =
            self.hosts[i].with(now, |machine, cx| machine.poll_transmit(cx, &mut buf))
        {
            sent += 1;
            assert!(sent < MANY, "a drain does not end");
            let bytes = core::mem::take(&mut buf);
            // A network that holds no more loses the rest.
            if self.flying[1 - i].len() < 100 {
                self.flying[1 - i].push((transmit.to, bytes, transmit.zeros));
            }
        }
        while self.hosts[i].machine.poll_event().is_some() {}
    }

    fn deliver(&mut self, to: usize, destination: Destination, bytes: &[u8], zeros: u32) {
        let from = self.hosts[1 - to].node;
        let datagram =
            Datagram { from, to: destination, bytes, zeros, congestion_experienced: false };
        let now = self.now;
        self.hosts[to].with(now, |machine, cx| machine.handle_datagram(cx, datagram));
        self.drain(to, now);
    }

    /// Everything on its way arrives.
    fn exchange(&mut self) {
        for to in 0..2 {
            for (destination, bytes, zeros) in core::mem::take(&mut self.flying[to]) {
                self.deliver(to, destination, &bytes, zeros);
            }
        }
    }
}

impl Host {
    fn with<T>(&mut self, now: Time, act: impl FnOnce(&mut dyn Machine, &mut Cx<'_>) -> T) -> T {
        let mut trace = NullTrace;
        let mut cx = Cx { now, rng: &mut self.rng, trace: &mut trace };
        act(&mut *self.machine, &mut cx)
    }

    fn close(&mut self, now: Time) {
        self.with(now, |machine, cx| machine.handle_close(cx));
    }
}
