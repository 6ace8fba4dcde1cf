//! Endpoints in a network that delays, moves, records and replays packets.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use faircast_base::{Cx, Duration, NodeId, Purpose, Rng, Time};
use faircast_proto::options::Options;
use faircast_proto::{Datagram, Destination, Machine as _, Transmit};

use crate::dial::Dialer;
use crate::{
    CongestionControl, ConnectionHandle, Down, Endpoint, EndpointEvent, Host, NodeLimits, RelayKey,
    RelayNode, StreamId,
};

const DELAY: Duration = Duration::from_millis(10);
const CLIENT: NodeId = NodeId(1);
const SERVER: NodeId = NodeId(2);
const MOVED: NodeId = NodeId(3);

fn key(byte: u8) -> RelayKey {
    RelayKey::shared([byte; 32])
}

fn endpoint(key: &RelayKey, node: NodeId, seed: u64) -> Endpoint {
    let accepts = node != CLIENT;
    Endpoint::new(key, &node.0.to_be_bytes(), seed, accepts, CongestionControl::NewReno)
}

/// Returns the event of a connection that the client has opened.
fn up(connection: ConnectionHandle) -> EndpointEvent {
    EndpointEvent::Up { connection, peer: SERVER, is_own: true }
}

type OnTheWay = (Time, NodeId, NodeId, Vec<u8>);

struct World {
    now: Time,
    client: Endpoint,
    server: Endpoint,
    client_at: NodeId,
    server_at: NodeId,
    wire: VecDeque<OnTheWay>,
    recorded: Vec<OnTheWay>,
    said: [Vec<EndpointEvent>; 2],
    reads: bool,
}

impl World {
    fn new(client: &RelayKey, server: &RelayKey) -> Self {
        let (client, server) = (endpoint(client, CLIENT, 1), endpoint(server, SERVER, 2));
        fresh! {
            Self { client, server, client_at: CLIENT, server_at: SERVER, reads: true, }
            now, wire, recorded, said
        }
    }

    fn connected() -> (Self, [ConnectionHandle; 2]) {
        let mut world = Self::new(&key(1), &key(1));
        let link = world.client.connect(world.now, SERVER);
        world.run(1);
        let [client, server] = &world.said;
        let [EndpointEvent::Up { connection: theirs, peer: CLIENT, is_own: false }] = server[..]
        else {
            panic!("{server:?}")
        };
        assert_eq!(client[..], [up(link)]);
        world.said = Default::default();
        (world, [link, theirs])
    }

    fn collect(&mut self) {
        let mut packet = Vec::new();
        while let Some(to) = self.client.poll_transmit(self.now, &mut packet) {
            self.post(self.client_at, to, std::mem::take(&mut packet));
        }
        while let Some(to) = self.server.poll_transmit(self.now, &mut packet) {
            self.post(self.server_at, to, std::mem::take(&mut packet));
        }
        if self.reads {
            self.said[0].extend(std::iter::from_fn(|| self.client.poll_event()));
            self.said[1].extend(std::iter::from_fn(|| self.server.poll_event()));
        }
    }

    fn post(&mut self, from: NodeId, to: NodeId, packet: Vec<u8>) {
        let sent = (self.now + DELAY, from, to, packet);
        self.recorded.push(sent.clone());
        self.wire.push_back(sent);
    }

    fn run(&mut self, seconds: u64) {
        self.run_until(self.now + Duration::from_secs(seconds));
    }

    fn run_until(&mut self, end: Time) {
        loop {
            self.collect();
            self.collect();
            let arrives = self.wire.front().map(|(at, ..)| *at);
            let timers = [self.client.next_timeout(), self.server.next_timeout()];
            let next = arrives.into_iter().chain(timers.into_iter().flatten()).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            while let Some((_, from, to, packet)) = self.wire.pop_front_if(|it| it.0 <= self.now) {
                if to == self.client_at {
                    self.client.handle_datagram(self.now, from, false, &packet);
                } else if to == self.server_at {
                    self.server.handle_datagram(self.now, from, false, &packet);
                }
            }
        }
        self.now = end;
    }

    fn send(&mut self, link: ConnectionHandle, stream: StreamId, byte: u8) {
        assert!(self.client.send(link, stream, &[byte], Bytes::from(vec![byte; 1000])));
    }

    fn got(&self) -> Vec<u8> {
        let frame = |event: &EndpointEvent| match event {
            EndpointEvent::Frame { bytes, .. } => Some(bytes[0]),
            _ => None,
        };
        self.said[1].iter().filter_map(frame).collect()
    }

    fn down(&self, side: usize) -> Vec<Down> {
        let reason = |event: &EndpointEvent| match event {
            EndpointEvent::Down { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        self.said[side].iter().filter_map(reason).collect()
    }
}

#[test]
fn frames_of_all_lengths_come_in_order_on_each_stream() {
    let (mut world, [link, theirs]) = World::connected();
    let streams: Vec<StreamId> = (0..3).map(|_| world.client.open(link).unwrap()).collect();
    let lengths = [0, 1, 2, 999, 1200, 1452, 5000, 65_535, 3, 40_000];
    let frame = |length: usize| -> Vec<u8> { (0..length).map(|at| (at % 251) as u8).collect() };
    let mut sent = 0;
    while sent < lengths.len() {
        let bytes = frame(lengths[sent]);
        let (head, body) = bytes.split_at(bytes.len().min(7));
        let body = Bytes::copy_from_slice(body);
        if streams.iter().all(|stream| world.client.send(link, *stream, head, body.clone())) {
            sent += 1;
        } else {
            world.run(1);
            assert!(streams.iter().all(|stream| world.client.has_room(link, *stream)));
        }
        world.run(1);
    }
    streams.iter().for_each(|stream| world.client.finish(link, *stream));
    world.run(1);
    for stream in streams {
        let of_stream = |event: &EndpointEvent| match event {
            EndpointEvent::Frame { connection: link, stream: of, bytes } if *of == stream => {
                assert_eq!(*link, theirs);
                Some(bytes.to_vec())
            }
            _ => None,
        };
        let got: Vec<Vec<u8>> = world.said[1].iter().filter_map(of_stream).collect();
        assert!(got == lengths.map(frame), "{:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
        assert!(world.said[1].contains(&EndpointEvent::StreamEnd { connection: theirs, stream }));
        assert!(world.said[0].contains(&EndpointEvent::Finished { connection: link, stream }));
    }
}

#[test]
fn a_frame_above_the_greatest_length_is_refused() {
    let (mut world, [link, _]) = World::connected();
    let stream = world.client.open(link).unwrap();
    assert!(!world.client.send(link, stream, &[0], Bytes::from(vec![0; 65_535])));
    world.send(link, stream, 7);
    world.run(1);
    assert_eq!(world.got(), [7]);
}

#[test]
fn nodes_without_the_same_key_do_not_connect() {
    let open = RelayKey::none();
    for (ours, theirs) in [(key(1), key(2)), (open.clone(), key(1)), (key(1), open)] {
        let mut world = World::new(&ours, &theirs);
        world.client.connect(world.now, SERVER);
        world.run(5);
        assert_eq!(world.down(0), [Down::Unauthenticated]);
        assert_eq!(world.down(1), [Down::Unauthenticated]);
        assert_eq!((world.said[0].len(), world.said[1].len()), (1, 1));
    }
}

#[test]
fn a_node_that_starts_again_is_noticed_with_the_next_packet() {
    let (mut world, [link, _]) = World::connected();
    let stream = world.client.open(link).unwrap();
    world.server = endpoint(&key(1), SERVER, 9);
    world.send(link, stream, 1);
    world.run(1);
    assert_eq!(world.down(0), [Down::Restarted]);
}

#[test]
fn packets_of_an_earlier_run_change_nothing() {
    let (mut world, [link, _]) = World::connected();
    let stream = world.client.open(link).unwrap();
    (0..20).for_each(|byte| world.send(link, stream, byte));
    world.run(1);
    assert_eq!(world.got().len(), 20);
    let recorded = std::mem::take(&mut world.recorded);
    for restarts in [false, true] {
        if restarts {
            world.server = endpoint(&key(1), SERVER, 9);
        }
        for from in [CLIENT, MOVED] {
            world.said = Default::default();
            for (_, _, to, packet) in &recorded {
                if *to == SERVER {
                    world.server.handle_datagram(world.now, from, false, packet);
                    world.collect();
                }
            }
            assert_eq!(world.got(), []);
            let is_up = |event: &&EndpointEvent| matches!(event, EndpointEvent::Up { .. });
            assert_eq!(world.said[1].iter().find(is_up), None);
        }
    }
}

#[test]
fn a_connection_follows_the_node_that_opened_it_to_another_address() {
    let (mut world, [link, theirs]) = World::connected();
    let stream = world.client.open(link).unwrap();
    world.send(link, stream, 1);
    world.run(1);
    world.client_at = MOVED;
    world.send(link, stream, 2);
    world.run(1);
    assert_eq!(world.got(), [1, 2]);
    assert_eq!(world.server.peer(theirs), Some(MOVED));
    assert_eq!((world.down(0), world.down(1)), (vec![], vec![]));
}

/// Returns the connected node, and true if the dialer searches.
fn dial(world: &mut World, dialer: &mut Dialer, tenths: u64) -> (Option<NodeId>, bool) {
    for _ in 0..tenths {
        let end = world.now + Duration::from_millis(100);
        dialer.handle_timeout(world.now, &mut world.client);
        world.run_until(end);
        for event in std::mem::take(&mut world.said[0]) {
            match event {
                EndpointEvent::Up { connection: link, .. } => {
                    dialer.on_up(world.now, &mut world.client, link);
                }
                EndpointEvent::Down { connection: link, .. } => {
                    _ = dialer.on_down(world.now, &mut world.client, link)
                }
                _ => {}
            }
        }
    }
    let peer = dialer.connection.and_then(|link| world.client.peer(link));
    (peer, dialer.is_searching())
}

#[test]
fn a_dialer_finds_a_node_that_has_moved_or_was_stopped() {
    let mut world = World::new(&key(1), &key(1));
    let mut dialer = Dialer::new(vec![SERVER, MOVED], world.now);
    let mut run = |world: &mut World, tenths| dial(world, &mut dialer, tenths);
    assert_eq!(run(&mut world, 5), (Some(SERVER), false));
    // The server moves: 1.5 s of silence, 2 s for an attempt at its old address.
    world.server_at = MOVED;
    assert_eq!(run(&mut world, 30), (Some(SERVER), true), "names are looked up");
    assert_eq!(run(&mut world, 20), (Some(MOVED), false));
    world.server_at = NodeId(99);
    run(&mut world, 70);
    world.server = endpoint(&key(1), SERVER, 9);
    world.server_at = MOVED;
    assert_eq!(run(&mut world, 45), (Some(MOVED), false));
}

#[test]
fn a_dialer_tries_a_node_that_knows_the_connection_no_more_at_once() {
    let mut world = World::new(&key(1), &key(1));
    let mut dialer = Dialer::new(vec![SERVER, MOVED], world.now);
    assert_eq!(dial(&mut world, &mut dialer, 5), (Some(SERVER), false));
    // The server returns without state, and resets the connection at the next packet.
    world.server_at = NodeId(99);
    dial(&mut world, &mut dialer, 32);
    let before = dialer.connection;
    world.server = endpoint(&key(1), SERVER, 9);
    world.server_at = SERVER;
    let stream = world.client.open(before.unwrap()).unwrap();
    world.send(before.unwrap(), stream, 1);
    assert_eq!(dial(&mut world, &mut dialer, 2), (Some(SERVER), false));
    assert_ne!(dialer.connection, before);
}

#[test]
fn an_attempt_beside_a_silent_connection_repeats_its_first_packet_by_the_known_round_trip() {
    // First packets within 900 ms; with an unknown round trip the second leaves after 1 s.
    let firsts = |world: &mut World, to: NodeId| {
        let before = world.recorded.len();
        world.server_at = NodeId(99);
        world.client.connect(world.now, to);
        let end = world.now + Duration::from_millis(900);
        world.run_until(end);
        let sent = &world.recorded[before..];
        let is_first = |it: &&OnTheWay| (it.1, it.2) == (CLIENT, to) && it.3.len() >= 1200;
        sent.iter().filter(is_first).count()
    };
    let (mut world, _) = World::connected();
    assert_eq!(firsts(&mut world, NodeId(98)), 1);
    let (mut world, _) = World::connected();
    let repeated = firsts(&mut world, SERVER);
    assert!((4..=10).contains(&repeated), "{repeated} packets");
}

#[test]
fn a_flood_of_first_packets_keeps_no_state_and_is_answered_with_fewer_bytes() {
    let mut world = World::new(&key(1), &key(1));
    let mut taken = 0;
    let mut answered = 0;
    for seed in 0..3000 {
        let mut attacker = endpoint(&RelayKey::none(), CLIENT, seed);
        attacker.connect(world.now, SERVER);
        let mut packet = Vec::new();
        attacker.poll_transmit(world.now, &mut packet).unwrap();
        taken += packet.len();
        world.server.handle_datagram(world.now, NodeId(1000 + seed as u32), false, &packet);
        let mut answer = Vec::new();
        while world.server.poll_transmit(world.now, &mut answer).is_some() {
            answered += std::mem::take(&mut answer).len();
        }
    }
    assert!(answered < taken, "{answered} bytes for {taken}");
    assert!(world.server.connections() <= 16, "{} connections", world.server.connections());
    let link = world.client.connect(world.now, SERVER);
    world.run(2);
    assert!(world.said[0].contains(&up(link)));
}

#[test]
fn frames_that_nobody_reads_stop_their_sender() {
    let (mut world, [link, _]) = World::connected();
    let stream = world.client.open(link).unwrap();
    world.reads = false;
    let mut sent = 0;
    for _ in 0..200 {
        while world.client.send(link, stream, &[], Bytes::from(vec![0; 50_000])) {
            sent += 50_000;
        }
        world.run(1);
    }
    // Receive window of the stream, and buffer of the sender.
    assert!((1_000_000..2_000_000).contains(&sent), "{sent} bytes");
    world.reads = true;
    world.run(1);
    assert!(world.client.has_room(link, stream));
}

enum Part {
    Relay(Box<RelayNode>),
    Host(Box<Host>),
}

#[test]
fn a_group_too_many_is_refused_alone_and_its_hosts_hear_that() {
    let (top, child) = (NodeId(5), NodeId(6));
    let key = key(1);
    let relay = |node, parents: &[NodeId], groups| {
        let limits = NodeLimits { groups, ..NodeLimits::default() };
        let program = faircast_proto::credit::relay(node, &Options::default(), None);
        let endpoint = endpoint(&key, node, 1);
        let relay = RelayNode::new(endpoint, (node, ""), parents.to_vec(), limits, program);
        Part::Relay(Box::new(relay))
    };
    let host = |node: u32, group| {
        let (node, member) = (NodeId(node), (group, 1));
        let endpoint = endpoint(&key, node, 1);
        let host = Host::new(Time::ZERO, endpoint, (node, ""), vec![child], member);
        Part::Host(Box::new(host))
    };
    let mut parts = BTreeMap::from([
        (top, relay(top, &[], 2)),
        (child, relay(child, &[top], 9)),
        (NodeId(11), host(11, 1)),
        (NodeId(12), host(12, 2)),
    ]);
    let mut refused = Vec::new();
    let mut rng = Rng::new(1, top, Purpose::Relay);
    for ms in 0..3000 {
        let now = Time::ZERO + Duration::from_millis(ms);
        let mut cx = Cx::untraced(now, &mut rng);
        if ms == 1000 {
            parts.insert(NodeId(13), host(13, 3));
        }
        let mut sent = Vec::new();
        for (node, part) in &mut parts {
            let mut buf = Vec::new();
            loop {
                let to = match part {
                    Part::Relay(relay) => match relay.poll_transmit(&mut cx, &mut buf) {
                        Some(Transmit { to: Destination::Node(to), .. }) => Some(to),
                        _ => None,
                    },
                    Part::Host(host) => host.poll_transmit(now, &mut buf),
                };
                let Some(to) = to else { break };
                sent.push((*node, to, std::mem::take(&mut buf)));
            }
            match part {
                Part::Relay(relay) => relay.handle_timeout(&mut cx),
                Part::Host(host) => host.handle_timeout(now),
            }
        }
        for (from, to, bytes) in sent {
            match parts.get_mut(&to) {
                Some(Part::Relay(relay)) => {
                    let datagram = Datagram::new(from, Destination::Node(to), &bytes);
                    relay.handle_datagram(&mut cx, datagram);
                }
                Some(Part::Host(host)) => _ = host.handle_datagram(now, from, false, &bytes),
                None => {}
            }
        }
        let of = |part: &Part| match part {
            Part::Relay(_) => None,
            Part::Host(host) => Some(host.state().1),
        };
        refused = parts.values().filter_map(of).collect();
    }
    assert_eq!(refused, [false, false, true]);
    let Some(Part::Relay(top)) = parts.get(&top) else { panic!("no relay") };
    let status = top.status();
    let below: Vec<_> = status.neighbours.iter().map(|it| (it.groups, it.receivers)).collect();
    assert_eq!((below, status.refused.full), (vec![(2, 2)], 1));
}
