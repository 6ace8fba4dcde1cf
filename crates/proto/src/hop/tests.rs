//! Tests of relays and hosts on a network in memory: who gets what, and who gets nothing.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use faircast_base::{Cx, Duration, GroupId, NodeId, Purpose, Rng, Time};
use proptest::prelude::*;

use super::frame::AckPace;
use super::frame::{Accept, COOKIE_BYTES, Join, LanOffer};
use super::window::Ack;
use super::*;
use crate::Destination;
use crate::options::Options;
use crate::tests::formats::Snapshot;

mod lan;

const GROUP: u64 = 7;

fn at(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7000))
}

fn node(host: u8) -> NodeId {
    node_of(u64::from(host))
}

/// Frames on their way.
#[derive(Default)]
struct Wire(VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>);

struct From<'a>(SocketAddr, &'a mut Wire);

impl Sends for From<'_> {
    fn has_room(&self) -> bool {
        true
    }

    fn send(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        write(&mut frame);
        self.1.0.push_back((self.0, to, frame));
    }

    fn send_to_network(&mut self, network: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.send(multicast(network), write);
    }
}

/// Stands for the multicast address on a network.
fn multicast(network: usize) -> SocketAddr {
    SocketAddr::from(([239, 1, 1, 1], 7001 + network as u16))
}

/// A host that is attached to a relay, and what it has got: from whom.
struct Host {
    guard: Guard,
    attach: Attach,
    got: Vec<(NodeId, Vec<u8>)>,
    /// The network on which it hears multicast.
    hears: Option<usize>,
    /// One of so many frames that come by multicast is lost; 0 for none.
    loses: u64,
    /// Longer frames do not come by multicast.
    longest: usize,
}

impl Host {
    fn hear(&mut self, now: Time, frame: &[u8], by_multicast: bool) {
        let Ok(frame) = self.guard.read(frame) else { return };
        if by_multicast {
            self.attach.handle_multicast(now, &frame);
        } else if frame.kind == FrameKind::Data {
            self.attach.handle_data(now, &frame);
        } else {
            self.attach.handle(now, &frame);
        }
        let all = core::iter::from_fn(|| self.attach.take());
        self.got.extend(all.map(|parcel| (parcel.origin, parcel.body.to_vec())));
    }
}

/// Relays and hosts by their numbers.
#[derive(Default)]
struct Net {
    now: Time,
    starts: u64,
    relays: BTreeMap<u8, HopNode>,
    hosts: BTreeMap<u8, Host>,
    wire: Wire,
    /// One of so many frames that leave by multicast reaches nobody; 0 for none.
    loses: u64,
    lost: usize,
    /// A host that nothing reaches, though what it says is heard.
    cut_off: Option<u8>,
    /// Frames that have reached each address.
    reached: BTreeMap<SocketAddr, usize>,
    /// What hosts have said of themselves.
    joins: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl Net {
    /// A relay, which is another node each time that it is started.
    fn relay(&mut self, host: u8, parents: &[u8], key: Option<[u8; 32]>) {
        self.starts += 1;
        let node = node_of(u64::from(host) + 1000 * self.starts);
        let parents: Vec<_> = parents.iter().map(|parent| at(*parent)).collect();
        let parent = (!parents.is_empty()).then(|| Attach::new(parents, true));
        let program = crate::credit::relay(node, &Options::default(), None);
        let (guard, settings) = (Guard::new(node, key), HopSettings::default());
        self.relays.insert(host, HopNode::new(guard, [host; 32], parent, settings, program));
    }

    fn host(&mut self, host: u8, relays: &[u8], receivers: u32, key: Option<[u8; 32]>) {
        let mut attach = Attach::new(relays.iter().map(|relay| at(*relay)).collect(), false);
        attach.set(self.now, GROUP, Some(receivers));
        let guard = Guard::new(node(host), key);
        let (got, hears, loses, longest) = (Vec::new(), None, 0, usize::MAX);
        self.hosts.insert(host, Host { guard, attach, got, hears, loses, longest });
    }

    fn send(&mut self, host: u8, to: Destination, body: &[u8]) {
        let Host { guard, attach, .. } = self.hosts.get_mut(&host).unwrap();
        let (relay, origin) = (attach.relay(), node(host));
        let parcel = HopPacket { hops: 64, group: GROUP, origin, to, body: body.into() };
        // Who is not attached has no link.
        let mut none = HopLink::new(1);
        let link = attach.link().unwrap_or(&mut none);
        let seq = link.send(self.now, parcel).unwrap();
        From(at(host), &mut self.wire).send(relay, |buf| link.write(seq, guard, buf));
    }

    fn run(&mut self, for_ms: u64) {
        let until = self.now + Duration::from_millis(for_ms);
        let mut rng = Rng::new(self.now.as_nanos(), NodeId(0), Purpose::Relay);
        while self.now < until {
            while let Some((from, to, frame)) = self.wire.0.pop_front() {
                let SocketAddr::V4(v4) = to else { continue };
                let [_, _, _, host] = v4.ip().octets();
                if self.cut_off == Some(host) {
                    continue;
                }
                *self.reached.entry(to).or_default() += 1;
                if v4.ip().is_multicast() {
                    if self.loses > 0 && rng.below(self.loses) == 0 {
                        self.lost += 1;
                        continue;
                    }
                    for host in self.hosts.values_mut() {
                        let hears =
                            host.hears.map(multicast) == Some(to) && frame.len() <= host.longest;
                        let loses = host.loses > 0 && rng.below(host.loses) == 0;
                        if hears && host.attach.multicast().is_some() && !loses {
                            host.hear(self.now, &frame, true);
                        }
                    }
                    continue;
                }
                let mut cx = Cx::untraced(self.now, &mut rng);
                if let Some(relay) = self.relays.get_mut(&host) {
                    relay.handle_datagram(&mut cx, from, &frame, &mut From(to, &mut self.wire));
                } else if let Some(host) = self.hosts.get_mut(&host) {
                    host.hear(self.now, &frame, false);
                }
            }
            for (number, relay) in &mut self.relays {
                let mut cx = Cx::untraced(self.now, &mut rng);
                relay.handle_timeout(&mut cx, &mut From(at(*number), &mut self.wire));
            }
            for (number, Host { guard, attach, .. }) in &mut self.hosts {
                attach.handle_timeout(self.now);
                let mut frame = Vec::new();
                while attach.poll(self.now, guard, &mut frame) {
                    let frame = core::mem::take(&mut frame);
                    self.joins.push((at(*number), attach.relay(), frame.clone()));
                    self.wire.0.push_back((at(*number), attach.relay(), frame));
                }
            }
            self.now += Duration::from_millis(10);
        }
    }

    fn got(&self, host: u8) -> Vec<&[u8]> {
        self.hosts[&host].got.iter().map(|(_, body)| &body[..]).collect()
    }

    fn state(&self, host: u8) -> Attachment {
        self.hosts[&host].attach.state()
    }
}

const TO_GROUP: Destination = Destination::Group(GroupId::SESSION);

#[test]
fn packets_of_a_group_go_to_its_receivers_once_and_answers_find_back() {
    let mut net = Net::default();
    net.relay(1, &[], None);
    net.relay(2, &[1], None);
    net.relay(3, &[1], None);
    // A source below the second, receivers at each.
    for (host, relay, receivers) in [(10, 2, 0), (11, 1, 1), (12, 2, 1), (13, 3, 1), (14, 3, 1)] {
        net.host(host, &[relay], receivers, None);
    }
    net.run(3000);
    net.send(10, TO_GROUP, b"to all");
    net.run(100);
    for host in 11..15 {
        assert_eq!(net.got(host), [b"to all"], "{host}");
    }
    assert!(net.got(10).is_empty());
    net.send(14, Destination::Node(node(10)), b"to the source");
    net.run(100);
    assert_eq!(net.hosts[&10].got, [(node(14), b"to the source".to_vec())]);
    net.send(10, Destination::Node(node(14)), b"to one");
    net.run(100);
    assert_eq!((net.got(14).len(), net.got(13).len()), (2, 1));
    // Who is silent is no neighbour any more.
    net.hosts.remove(&11);
    net.run(12_000);
    assert_eq!(net.relays[&1].status().neighbours.len(), 2);
}

#[test]
fn whoever_says_to_be_somewhere_else_gets_that_host_nothing() {
    let mut net = Net::default();
    net.relay(1, &[], None);
    net.host(12, &[1], 1, None);
    net.host(10, &[1], 0, None);
    net.run(1000);
    let mut liar = Guard::new(node(66), None);
    for number in 0..100u8 {
        let mut join = Vec::new();
        let body = Join {
            cookie: [number; 16],
            relay: number % 2 == 0,
            begins: true,
            hears: 1,
            receivers: 1,
        };
        liar.write(&Frame::control(FrameKind::Join, GROUP, &[]), &mut join, |buf| body.encode(buf));
        let bytes = join.len();
        net.wire.0.push_back((at(200), at(1), join));
        net.run(10);
        let answers = net.wire.0.iter().filter(|(_, to, _)| *to == at(200));
        assert!(answers.map(|(_, _, frame)| frame.len()).sum::<usize>() <= bytes);
    }
    net.send(10, TO_GROUP, b"data");
    net.run(100);
    assert_eq!(net.got(12), [b"data"]);
    assert_eq!(net.reached[&at(200)], 100, "a challenge for each, and no data");
    assert_eq!(net.relays[&1].status().neighbours.len(), 2);
}

#[test]
fn who_has_no_key_is_served_nothing_and_passes_nothing_on() {
    let mut net = Net::default();
    let key = Some([5; 32]);
    net.relay(1, &[], key);
    net.host(10, &[1], 0, key);
    net.host(12, &[1], 1, key);
    net.host(66, &[1], 1, None);
    net.host(67, &[1], 1, Some([6; 32]));
    net.run(2000);
    assert_eq!(net.state(12), Attachment::Attached);
    for unknown in [66, 67] {
        net.send(unknown, TO_GROUP, b"forged");
    }
    net.send(10, TO_GROUP, b"data");
    net.run(100);
    assert_eq!(net.got(12), [b"data"]);
    for unknown in [66, 67] {
        assert_eq!(net.reached.get(&at(unknown)), None, "not even an answer");
    }
    assert!(net.relays[&1].status().refused.forged > 0);
}

#[test]
fn what_was_sent_before_is_not_passed_on_again_where_there_is_a_key() {
    let mut net = Net::default();
    let key = Some([5; 32]);
    net.relay(1, &[], key);
    net.host(10, &[1], 0, key);
    net.host(12, &[1], 1, key);
    net.run(1000);
    net.send(10, TO_GROUP, b"data");
    let recorded = net.wire.0.back().cloned().unwrap();
    net.run(100);
    (0..50).for_each(|_| net.wire.0.push_back(recorded.clone()));
    net.run(100);
    assert_eq!(net.got(12), [b"data"]);
    assert_eq!(net.relays[&1].status().refused.repeated, 50);
    // Nor what somebody said to be attached.
    let joins: Vec<_> = net.joins.clone();
    let before = net.relays[&1].status().refused.repeated;
    net.wire.0.extend(joins.iter().filter(|(from, ..)| *from == at(12)).cloned());
    net.run(10);
    assert!(net.relays[&1].status().refused.repeated > before);
}

#[test]
fn relays_above_each_other_are_refused() {
    let mut net = Net::default();
    net.relay(1, &[2], None);
    net.relay(2, &[3], None);
    net.relay(3, &[1], None);
    for (host, relay) in [(10, 1), (11, 2), (12, 3)] {
        net.host(host, &[relay], 1, None);
    }
    net.run(20_000);
    let refused: u64 = net.relays.values().map(|relay| relay.status().refused.loops).sum();
    assert!(refused > 0);
    let states: Vec<_> =
        net.relays.values().map(|relay| relay.status().parent.unwrap().1).collect();
    assert!(states.contains(&Attachment::Loop), "{states:?}");
    let before = net.reached.values().sum::<usize>();
    net.send(10, TO_GROUP, b"data");
    net.run(100);
    assert!(net.reached.values().sum::<usize>() - before < 100, "nothing goes round");
}

#[test]
fn another_relay_takes_the_place_of_one_that_is_silent() {
    let mut net = Net::default();
    net.relay(1, &[], None);
    net.relay(2, &[1], None);
    net.relay(3, &[1], None);
    net.host(10, &[1], 0, None);
    net.host(11, &[2, 3], 1, None);
    net.run(2000);
    net.relays.remove(&2);
    net.run(12_000);
    assert_eq!(net.state(11), Attachment::Attached);
    net.send(10, TO_GROUP, b"data");
    net.run(100);
    assert_eq!(net.got(11), [b"data"]);
    // Where there is no other it is asked again and again, and comes back.
    net.relays.remove(&3);
    net.run(20_000);
    assert_eq!(net.state(11), Attachment::Asking);
    net.relay(3, &[1], None);
    net.run(16_000);
    assert_eq!(net.state(11), Attachment::Attached);
}

#[test]
fn a_relay_that_is_started_again_is_found_again_with_new_links() {
    let mut net = Net::default();
    net.relay(1, &[], None);
    net.host(10, &[1], 0, None);
    net.host(11, &[1], 1, None);
    net.run(2000);
    for round in 0..3u8 {
        (0..20).for_each(|_| net.send(10, TO_GROUP, &[round]));
        net.run(100);
        assert_eq!(net.got(11).len(), 20 * (usize::from(round) + 1), "in round {round}");
        net.relay(1, &[], None);
        net.run(4000);
    }
}

#[test]
fn whoever_has_heard_nothing_for_a_while_has_a_new_link_and_hears_all_again() {
    let mut net = Net::default();
    net.relay(1, &[], None);
    net.host(10, &[1], 0, None);
    net.host(11, &[1], 1, None);
    net.run(2000);
    // More than a window: both ends have to begin anew.
    for _ in 0..2100 {
        net.send(10, TO_GROUP, b"before");
        net.run(10);
    }
    assert_eq!(net.got(11).len(), 2100);
    net.cut_off = Some(11);
    net.run(8000);
    net.cut_off = None;
    net.run(2000);
    for _ in 0..20 {
        net.send(10, TO_GROUP, b"after");
        net.run(10);
    }
    net.run(1000);
    assert_eq!(net.got(11).len(), 2120);
}

#[test]
fn one_forged_frame_from_far_ahead_ends_no_link() {
    let now = |seq: u32| Time::ZERO + Duration::from_millis(20) * u64::from(seq);
    let mut link = HopLink::new(1);
    let frame = |seq| Frame { link: (1, seq), ..Frame::control(FrameKind::Data, GROUP, b"data") };
    link.on_frame(now(0), &frame(1000));
    // For ten seconds, far longer than a gap is waited for.
    for seq in 0..500 {
        link.on_frame(now(seq), &frame(seq));
        link.handle_timeout(now(seq));
        assert!(link.take().is_some(), "{seq}");
        assert!(link.take().is_none(), "{seq}");
    }
}

#[test]
fn there_is_room_for_so_many_of_one_host_and_no_more() {
    let mut net = Net::default();
    net.relay(1, &[], None);
    let settings = HopSettings { neighbours_max: 100, at_host_max: 3, groups_max: 2 };
    let program = crate::credit::relay(node(1), &Options::default(), None);
    let guard = Guard::new(node(1), None);
    net.relays.insert(1, HopNode::new(guard, [1; 32], None, settings, program));
    net.host(12, &[1], 1, None);
    net.run(500);
    // Many programs at one host, which answer challenges.
    for port in 1..20u16 {
        let from = SocketAddr::from(([10, 0, 0, 77], port));
        let mut guard = Guard::new(node_of(1000 + u64::from(port)), None);
        let mut attach = Attach::new([at(1)].into(), false);
        attach.set(net.now, GROUP, Some(1));
        for _ in 0..2 {
            let mut frame = Vec::new();
            attach.poll(net.now, &mut guard, &mut frame);
            let mut rng = Rng::new(1, NodeId(0), Purpose::Relay);
            let mut cx = Cx::untraced(net.now, &mut rng);
            let relay = net.relays.get_mut(&1).unwrap();
            relay.handle_datagram(&mut cx, from, &frame, &mut From(at(1), &mut net.wire));
            for (_, _, frame) in net.wire.0.drain(..) {
                attach.handle(net.now, &guard.read(&frame).unwrap());
            }
        }
    }
    let status = net.relays[&1].status();
    assert_eq!(status.neighbours.len(), 1 + 3);
    assert!(status.refused.full > 0);
    assert_eq!(net.state(12), Attachment::Attached);
}

#[test]
fn each_body_of_a_frame_is_the_golden_one() {
    let mut snapshot = Snapshot::new("hop-body");
    let mut add = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        snapshot.add(&bytes);
    };
    for relay in [false, true] {
        let (hears, receivers) = (u16::from(relay), 300);
        let join = Join { cookie: [7; COOKIE_BYTES], relay, begins: !relay, hears, receivers };
        add(&|out| join.encode(out));
    }
    let v6 = "[ff15::7]:7001".parse().unwrap();
    for lan in [
        None,
        Some(LanOffer { at: v6, link: None }),
        Some(LanOffer { at: multicast(0), link: Some((4, 90, AckPace::of(30))) }),
    ] {
        let accept = Accept { link: 3, elsewhere: 5, path: [node(1), node(2)].into(), lan };
        add(&|out| accept.encode(out));
    }
    for used in [0, 1, 3] {
        let mut ack = Ack { next: 77, ..Ack::decode(&[0; 4]).unwrap() };
        ack.mask[..used].fill(1 << 63 | 5);
        add(&|out| ack.encode(out));
    }
    snapshot.check();
}

proptest! {
    #[test]
    fn whatever_comes_a_relay_bears_it(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..40),
        as_frames in any::<bool>(),
    ) {
        let mut net = Net::default();
        net.relay(1, &[2], None);
        net.host(12, &[1], 1, None);
        net.run(1000);
        for mut frame in frames {
            if as_frames && frame.len() > 4 {
                frame[..3].copy_from_slice(&[b'f', b'h', 1]);
                frame[3] = (frame[3] % 8 + 1) | (frame[3] & 0x80);
            }
            let from = [at(2), at(12), at(99)][frame.len() % 3];
            net.wire.0.push_back((from, at(1), frame));
            net.run(20);
        }
        prop_assert!(net.relays[&1].status().neighbours.len() <= 2);
    }

    #[test]
    fn what_is_written_is_read(
        (hops, group, to, body) in (any::<u8>(), any::<u64>(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..50)),
        keyed in any::<bool>(),
        elsewhere in any::<u32>(),
        lan in proptest::option::of((any::<bool>(), proptest::option::of((1u16.., any::<u32>(), 0usize..2000)))),
    ) {
        let key = keyed.then_some([3; 32]);
        let frame = Frame {
            hops,
            origin: node(1),
            to: Destination::Node(NodeId(to)),
            ..Frame::control(FrameKind::Data, group, &body)
        };
        let mut bytes = Vec::new();
        let mut guard = Guard::new(node(2), key);
        guard.write(&frame, &mut bytes, |_| {});
        prop_assert_eq!(bytes.len(), guard.overhead() + body.len());
        let read = Guard::new(node(3), key).read(&bytes).unwrap();
        prop_assert_eq!(read, Frame { sender: node(2), counter: 1, ..frame });
        prop_assert!(guard.read(&bytes).is_err(), "its own");
        let lan = lan.map(|(v6, link)| {
            let at = if v6 { "[ff15::7]:7001".parse().unwrap() } else { multicast(0) };
            LanOffer { at, link: link.map(|(id, first, hosts)| (id, first, AckPace::of(hosts))) }
        });
        let accept = Accept { link: 3, elsewhere, path: [node(1), node(2)].into(), lan };
        let mut bytes = Vec::new();
        accept.encode(&mut bytes);
        prop_assert_eq!(Accept::decode(&bytes), Some(accept));
    }
}
