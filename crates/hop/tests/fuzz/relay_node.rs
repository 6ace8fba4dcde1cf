//! Fuzz target of a relay node; the corpus test runs the same.
//!
//! Hosts and relays with the key send frames of the fuzzer's bytes, hosts without it datagrams.
//! Packets are lost, addresses change. Checked: no panic, no endless timer, and bounded memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use faircast_base::{Cx, Duration, NodeId, Purpose, Rng, Time};
use faircast_hop::{
    CongestionControl, ConnectionHandle, Endpoint, EndpointEvent, NodeLimits, RelayKey, RelayNode,
    StreamId,
};
use faircast_proto::options::Options;
use faircast_proto::{Datagram, Destination, Machine, credit};

const ME: NodeId = NodeId(10);
const ABOVE: NodeId = NodeId(2);
const GROUPS: [u64; 4] = [7, 8, 9, u64::MAX];
/// Maximum number of timeouts at one time, and of datagrams in answer to one step.
const TIMEOUTS_MAX: u32 = 2000;
const ROUNDS_MAX: u32 = 2000;

struct Peer {
    endpoint: Endpoint,
    at: NodeId,
    connections: Vec<ConnectionHandle>,
    streams: Vec<(ConnectionHandle, StreamId)>,
}

struct Net {
    now: Time,
    relay: RelayNode,
    peers: Vec<Peer>,
    rng: Rng,
    lost: u32,
}

impl Net {
    fn new() -> Self {
        let key = RelayKey::shared([3; 32]).without_secrecy();
        let endpoint = |node: NodeId, accepts| {
            let (name, control) = (node.0.to_be_bytes(), CongestionControl::default());
            Endpoint::new(&key, &name, u64::from(node.0), accepts, control)
        };
        let limits = NodeLimits { neighbours: 6, at_host: 4, groups: 3 };
        let program = credit::relay(ME, &Options::default(), None);
        let mut relay =
            RelayNode::new(endpoint(ME, true), (ME, "relay"), vec![ABOVE], limits, program);
        relay.set_multicast(b"lan", 2);
        let peer = |at: NodeId| {
            let endpoint = endpoint(at, at == ABOVE);
            Peer { endpoint, at, connections: Vec::new(), streams: Vec::new() }
        };
        let peers = [ABOVE, NodeId(20), NodeId(21), NodeId(22)].map(peer).into();
        let rng = Rng::new(1, ME, Purpose::Relay);
        Self { now: Time::ZERO, relay, peers, rng, lost: 0 }
    }

    fn settle(&mut self) {
        let Self { now, relay, peers, rng, lost } = self;
        let mut cx = Cx::untraced(*now, rng);
        let mut is_lost = || {
            let is_lost = *lost > 0;
            *lost = lost.saturating_sub(1);
            is_lost
        };
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "packets go round and round");
            let (mut is_idle, mut buf) = (true, Vec::new());
            while let Some(sent) = relay.poll_transmit(&mut cx, &mut buf) {
                is_idle = false;
                if let Destination::Node(to) = sent.to
                    && let Some(peer) = peers.iter_mut().find(|peer| peer.at == to)
                    && !is_lost()
                {
                    peer.endpoint.handle_datagram(*now, ME, false, &buf);
                }
                buf.clear();
            }
            for peer in &mut *peers {
                while let Some(event) = peer.endpoint.poll_event() {
                    match event {
                        EndpointEvent::Up { connection, .. } => peer.connections.push(connection),
                        EndpointEvent::Down { connection, .. } => {
                            peer.connections.retain(|it| *it != connection);
                            peer.streams.retain(|(of, _)| *of != connection);
                        }
                        _ => {}
                    }
                }
                while peer.endpoint.poll_transmit(*now, &mut buf).is_some() {
                    is_idle = false;
                    if !is_lost() {
                        let datagram = Datagram::new(peer.at, Destination::Node(ME), &buf);
                        relay.handle_datagram(&mut cx, datagram);
                    }
                    buf.clear();
                }
            }
            if is_idle {
                break;
            }
        }
        while relay.poll_event().is_some() {}
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut at_one = (self.now, 0);
        loop {
            let peers = self.peers.iter().filter_map(|peer| peer.endpoint.next_timeout());
            let next = peers.chain(self.relay.next_timeout()).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            at_one = if at_one.0 == self.now { (self.now, at_one.1 + 1) } else { (self.now, 0) };
            assert!(at_one.1 < TIMEOUTS_MAX, "a timer comes round for ever");
            let mut cx = Cx::untraced(self.now, &mut self.rng);
            if self.relay.next_timeout().is_some_and(|at| at <= self.now) {
                self.relay.handle_timeout(&mut cx);
            }
            for peer in &mut self.peers {
                peer.endpoint.handle_timeout(self.now);
            }
            self.settle();
        }
        self.now = end;
    }
}

fn frame(kind: u8, node: NodeId, bytes: &[u8]) -> Vec<u8> {
    let first = bytes.first().copied().unwrap_or(0);
    let group = GROUPS[usize::from(first) % GROUPS.len()].to_be_bytes();
    let rest = bytes.get(1..).unwrap_or_default();
    let number = rest.first_chunk::<4>().copied().unwrap_or([0, 0, 0, 1]);
    match kind {
        0 => {
            let flags = [first & 1, 1, b'1'];
            [&[0, 1], &node.0.to_be_bytes()[..], &[first; 8], &flags, b"name"].concat()
        }
        1 => [&[1][..], &group].concat(),
        2 => [&[2][..], &group, &number].concat(),
        3 => [&[3][..], &group].concat(),
        4 => [&[4][..], &group, &number, &[first & 1]].concat(),
        5 => vec![6, 0, 0, 0, first],
        6 => vec![7],
        7 => vec![9, 0, first & 1],
        8 => [&[13, 0, 0, 0, first & 7][..], &[0; 7], &[first], &number, rest].concat(),
        9 => [&[first & 31][..], &node.0.to_be_bytes(), &[0, 0, 0, 0, 0], rest].concat(),
        10 => [&[first & 31][..], &node.0.to_be_bytes(), &[1], &ME.0.to_be_bytes(), rest].concat(),
        _ => bytes.to_vec(),
    }
}

pub(crate) fn relay_node(mut data: &[u8]) -> usize {
    let mut net = Net::new();
    let mut attached = 0;
    while let Some((&[step, which, len], rest)) = data.split_first_chunk() {
        let (bytes, rest) = rest.split_at(usize::from(len).min(rest.len()));
        data = rest;
        let count = net.peers.len();
        let now = net.now;
        let peer = &mut net.peers[usize::from(which) % count];
        match step % 8 {
            0 => _ = (peer.at != ABOVE).then(|| peer.endpoint.connect(now, ME)),
            1 => {
                let connection = peer.connections.get(usize::from(which >> 4) % 8).copied();
                let connection = connection.or_else(|| peer.connections.last().copied());
                if let Some(connection) = connection
                    && let Some(stream) = peer.endpoint.open(connection)
                {
                    let first = frame((step >> 3) & 1, peer.at, bytes);
                    peer.endpoint.send(connection, stream, &[], Bytes::from(first));
                    peer.streams.push((connection, stream));
                }
            }
            2..=4 => {
                let place = usize::from(which >> 2) % peer.streams.len().max(1);
                if let Some((connection, stream)) = peer.streams.get(place).copied() {
                    let bytes = frame(step >> 3, peer.at, bytes);
                    peer.endpoint.send(connection, stream, &[], Bytes::from(bytes));
                }
            }
            5 => net.lost = u32::from(len % 32),
            6 => {
                let mut cx = Cx::untraced(now, &mut net.rng);
                let from = NodeId(u32::from(which) + 30);
                let datagram = Datagram::new(from, Destination::Node(ME), bytes);
                net.relay.handle_datagram(&mut cx, datagram);
            }
            _ => {
                match which % 8 {
                    0 => peer.at = NodeId(peer.at.0 ^ 0x100),
                    1 => {
                        if let Some(connection) = peer.connections.pop() {
                            peer.streams.retain(|(of, _)| *of != connection);
                            peer.endpoint.close(now, connection, "fuzz");
                        }
                    }
                    _ => {}
                }
                net.pass(Duration::from_millis(u64::from(len).pow(2)));
            }
        }
        net.settle();
        let status = net.relay.status();
        assert!(status.neighbours.len() <= 6, "{}", status.neighbours.len());
        let mut at_peer = BTreeMap::new();
        for it in &status.neighbours {
            assert!(it.groups <= 3, "{}", it.groups);
            *at_peer.entry(it.at).or_insert(0) += 1;
        }
        attached = attached.max(status.neighbours.len());
    }
    net.pass(Duration::from_secs(40));
    attached
}
