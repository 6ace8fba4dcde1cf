//! Tests of credits: sent packets have room, no loss stops a session, and policies set the pace.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, GroupId, NodeId, Purpose, Rng};
use proptest::prelude::*;

use super::branch::Branch;
use super::node::FlowNode;
use super::settings::{AnyPolicy, CreditSettings, PolicyId};
use super::upstream::Upstream;
use super::wire::{
    self, CAPSULE_BYTES, CREDIT_BYTES, Capsule, Credit, PULL_BYTES, Packet, Part, Pull,
};
use super::{CreditReceiver, OPTIONS, tag_of};
use crate::options::{OptionValue, Options};
use crate::pgm::ReceiverConfig;
use crate::relay::PortId;
use crate::world::{GROUP, at, options, relayed};
use crate::{Datagram, Destination, Interactive, Machine, StreamInput, catalog};

fn header(raw: &[(&str, &str)]) -> Capsule {
    CreditSettings::from_options(&options(raw, OPTIONS)).capsule(7, NodeId(1), None)
}

fn credit(tag: u64, count: u32) -> Credit {
    Credit { session: 7, tag, branch: 0, buffer: 5, count, weight: 1 }
}

#[test]
fn packets_come_back_as_they_went_and_damage_is_found() {
    assert_ne!(tag_of(NodeId(1), 7), tag_of(NodeId(2), 7));
    assert_ne!(tag_of(NodeId(1), 7), tag_of(NodeId(1), 8));
    let capsule = Capsule { count: u32::MAX, branch: 3, ..header(&[("policy", "quantile")]) };
    let probe = Capsule { probe: true, ..capsule };
    let pull = Pull { session: 7, policy: PolicyId::of(b"program"), offset: 3 };
    let all = [
        Packet::Capsule(capsule),
        Packet::Capsule(probe),
        Packet::Credit(credit(9, 4)),
        Packet::Pull(pull),
    ];
    for packet in all {
        let mut bytes = packet.encoded();
        assert!(wire::is_ours(&bytes));
        assert_eq!(wire::decode(&bytes), Ok(packet));
        let len = match packet {
            Packet::Credit(_) => CREDIT_BYTES,
            Packet::Pull(_) => PULL_BYTES,
            _ => CAPSULE_BYTES,
        };
        assert_eq!(bytes.len(), len);
        assert_eq!(wire::decode(&bytes[..len - 1]), Err(BadInput::Malformed));
        bytes[len - 1] ^= 1;
        assert_eq!(wire::decode(&bytes), Err(BadInput::Checksum));
    }
    // (length of the program, offset and length of the part, validity)
    for (total, offset, len, sound) in [
        (7, 0, 7, true),
        (7, 4, 3, true),
        (7, 4, 4, false),
        (7, 9, 1, false),
        (7, 0, 0, false),
        (9000, 0, 1025, false),
    ] {
        let bytes = &[5; 2000][..len];
        let part = Part { session: 7, policy: PolicyId::of(b"program"), total, offset, bytes };
        let want = if sound { Ok(Packet::Part(part)) } else { Err(BadInput::Malformed) };
        let encoded = Packet::Part(part).encoded();
        assert_eq!(wire::decode(&encoded), want, "{len} bytes at {offset} of {total}");
        assert_eq!(wire::own_bytes(&encoded), encoded.len());
    }
    let absurd = Capsule { unit: 9, buffer: 5, ..capsule };
    assert_eq!(wire::decode(&Packet::Capsule(absurd).encoded()), Err(BadInput::Malformed));
    let none = Credit { weight: 0, ..credit(9, 4) };
    assert_eq!(wire::decode(&Packet::Credit(none).encoded()), Err(BadInput::Malformed));
}

#[test]
fn a_branch_sends_what_all_below_have_room_for() {
    let mut branch = Branch::new(at(0), 5);
    assert!((0..5).all(|_| branch.may_send() && branch.send() > 0));
    assert!(!branch.may_send(), "until somebody sends credits");
    assert_eq!(branch.on_credit(at(1), &credit(1, 6)), Err(BadInput::Absurd), "it sent five");
    // One node below has forwarded two packets, the other three.
    branch.on_credit(at(1), &credit(1, 2)).unwrap();
    branch.on_credit(at(1), &credit(2, 3)).unwrap();
    assert!((0..2).all(|_| branch.may_send() && branch.send() > 0) && !branch.may_send());
    assert_eq!(branch.on_credit(at(2), &credit(1, 1)), Ok(false));
    assert_eq!(branch.on_credit(at(2), &credit(1, 4)), Ok(true));
    assert!(branch.may_send() && branch.send() == 8 && !branch.may_send(), "the other has 8");
    branch.wait(at(2));
    branch.on_credit(at(2500), &credit(1, 8)).unwrap();
    branch.on_timeout(at(3500));
    assert!(branch.may_send() && !branch.is_silent());
    branch.on_timeout(at(6000));
    assert!(branch.is_silent() && !branch.may_send());
    assert_eq!(branch.on_credit(at(6001), &credit(1, 8)), Ok(true), "it is there again");
    assert!(!branch.is_silent() && branch.may_send());
}

#[test]
fn a_branch_that_never_gives_credits_sets_the_pace_for_three_seconds() {
    let mut branch = Branch::new(at(0), 5);
    (0..60).for_each(|tenths| _ = branch.on_timeout(at(tenths * 100)));
    for tenths in 60..90 {
        assert!(!branch.is_silent() && branch.may_send(), "{tenths}");
        branch.send();
        branch.on_timeout(at(tenths * 100));
    }
    assert!(branch.is_silent() && !branch.may_send());
    branch.on_credit(at(9100), &credit(1, 30)).unwrap();
    assert!(!branch.is_silent() && branch.may_send());
}

#[test]
fn a_credit_is_said_again_and_more_and_more_rarely() {
    let capsule = Capsule { count: 1, ..header(&[]) };
    let mut upstream = Upstream::new(at(0), 9, &capsule, PortId(0));
    let mut said = Vec::new();
    for ms in 0..4000 {
        upstream.on_timeout(at(ms), true);
        let mut bytes = Vec::new();
        if upstream.poll(&mut bytes) {
            said.push(ms);
            let want = Credit { count: 0, ..credit(9, 0) };
            assert_eq!(wire::decode(&bytes), Ok(Packet::Credit(want)));
        }
    }
    assert_eq!(said, [0, 100, 300, 700, 1500, 2500, 3500]);
    upstream.on_capsule(at(4000), &Capsule { count: 6, ..capsule }, PortId(0));
    assert_eq!((upstream.received, upstream.since_reported(6)), (6, 6));
}

#[test]
fn counts_that_nobody_has_sent_are_taken_back_once_the_node_above_goes_on_or_asks() {
    let capsule = Capsule { count: 10, ..header(&[]) };
    let reached = |counts: &[(u64, u32)]| {
        let mut upstream = Upstream::new(at(0), 9, &capsule, PortId(0));
        upstream.on_capsule(at(1), &Capsule { count: 100_000, ..capsule }, PortId(0));
        for (ms, count) in counts {
            upstream.on_capsule(at(*ms), &Capsule { count: *count, ..capsule }, PortId(0));
        }
        upstream.received
    };
    let run: Vec<(u64, u32)> = (0..12).map(|i| (2 + u64::from(i), 11 + i)).collect();
    assert_eq!(reached(&run[..11]), 100_000);
    assert_eq!(reached(&run), 22);
    assert_eq!(reached(&[(100, 15), (300, 15), (700, 15)]), 100_000);
    assert_eq!(reached(&[(100, 15), (300, 15), (700, 15), (1500, 15)]), 15);
    let late = run.iter().flat_map(|&(ms, count)| [(ms, count), (ms, 100_000 + count)]);
    assert_eq!(reached(&late.collect::<Vec<_>>()), 100_022);
}

struct Relay {
    node: FlowNode<u32>,
    source: Branch,
    below: Vec<Option<Upstream>>,
    every: Vec<u64>,
    arrived: Vec<u64>,
    weights: Vec<u32>,
    credited: bool,
    header: Capsule,
}

impl Relay {
    fn new(every: &[u64], raw: &[(&str, &str)], parameter: u32) -> Self {
        let header = Capsule { parameter, ..header(raw) };
        let policy = AnyPolicy::of(&header).unwrap();
        let first = Capsule { count: 1, ..header };
        let upstream = Upstream::new(at(0), tag_of(NodeId(2), 7), &first, PortId(99));
        let mut node =
            FlowNode::new(at(0), upstream, policy, Capsule { node: NodeId(2), ..header });
        let ports: Vec<PortId> = (0..every.len() as u32).map(PortId).collect();
        node.set_ports(at(0), &ports, |_| false);
        let mut source = Branch::new(at(0), header.buffer);
        source.send();
        node.on_data(at(0), 0, 500, 0);
        let below = every.iter().map(|_| None).collect();
        let (arrived, weights) = (vec![0; every.len()], vec![1; every.len()]);
        let every = every.to_vec();
        Self { node, source, below, every, arrived, weights, credited: false, header }
    }

    fn step(&mut self, ms: u64, mut loses: impl FnMut() -> bool) {
        let now = at(ms);
        let probes = self.source.on_timeout(now);
        if probes && !loses() {
            let probe = Capsule { probe: true, count: self.source.count, ..self.header };
            self.node.upstream.on_capsule(now, &probe, PortId(99));
            self.node.on_probe(now);
        }
        if self.source.may_send() {
            let count = self.source.send();
            if !loses() {
                let capsule = Capsule { count, ..self.header };
                self.node.upstream.on_capsule(now, &capsule, PortId(99));
                let waits = self.node.on_data(now, count, 500, 0);
                let worst = matches!(AnyPolicy::of(&self.header), Some(AnyPolicy::WorstPath(_)));
                // Before its first credit, the source does not know how much it may send.
                let all_wait = waits as usize == self.every.len();
                assert!(!worst || !self.credited || all_wait, "all had room");
            }
        } else {
            self.source.wait(now);
        }
        let (_, mut came) = self.node.on_timeout(now);
        for (port, every) in self.every.iter().enumerate() {
            let port = PortId(port as u32);
            if ms.is_multiple_of(*every) && self.node.next_bytes(now, port).is_some() {
                came.extend(self.node.send(port).map(|(_, capsule)| (port, capsule)));
            }
        }
        for (port, capsule) in came.into_iter().filter(|_| !loses()) {
            let tag = tag_of(NodeId(10 + port.0), 7);
            let place = &mut self.below[port.0 as usize];
            match place {
                Some(upstream) => _ = upstream.on_capsule(now, &capsule, PortId(0)),
                None => *place = Some(Upstream::new(now, tag, &capsule, PortId(0))),
            }
            let upstream = place.as_mut().unwrap();
            self.arrived[port.0 as usize] += u64::from(!capsule.probe);
            if upstream.since_reported(upstream.received) >= i64::from(capsule.unit) {
                let weight = self.weights[port.0 as usize];
                upstream.grant(now, capsule.buffer, upstream.received, weight);
            }
        }
        for upstream in self.below.iter_mut().flatten() {
            upstream.on_timeout(now, true);
            let mut bytes = Vec::new();
            if upstream.poll(&mut bytes)
                && !loses()
                && let Ok(Packet::Credit(credit)) = wire::decode(&bytes)
            {
                self.node.on_credit(now, &credit).unwrap();
            }
        }
        let mut bytes = Vec::new();
        if self.node.poll_credit(now, &mut bytes)
            && !loses()
            && let Ok(Packet::Credit(credit)) = wire::decode(&bytes)
        {
            self.source.on_credit(now, &credit).unwrap();
            self.credited = true;
        }
    }
}

#[test]
fn each_policy_has_its_branch_set_the_pace_and_gives_others_what_they_can_take() {
    let every = [2, 4, 10];
    for (policy, parameter, weights, want) in [
        ("worst-path", 0, [1, 1, 1], [1000, 1000, 1000]),
        ("best-path", 0, [1, 1, 1], [5000, 2500, 1000]),
        ("quantile", 50, [1, 1, 1], [2500, 2500, 1000]),
        ("quantile", 1, [1, 1, 1], [1000, 1000, 1000]),
        ("bounded-lag", 2, [1, 1, 1], [5000, 2500, 1000]),
        ("bounded-lag", 4096, [1, 1, 1], [1000, 1000, 1000]),
        ("deadline", 20, [1, 1, 1], [2500, 2000, 1000]),
        ("layered-drop", 0, [1, 1, 1], [1000, 1000, 1000]),
        ("weighted-utility", 0, [1, 1, 1], [2500, 2500, 1000]),
        ("weighted-utility", 0, [1, 1, 100], [1000, 1000, 1000]),
    ] {
        let mut relay = Relay::new(&every, &[("policy", policy)], parameter);
        relay.weights = weights.to_vec();
        (1..=10_000).for_each(|ms| relay.step(ms, || false));
        let near = |(got, want): (&u64, &u64)| got.abs_diff(*want) <= want / 5 + 20;
        let all_near = relay.arrived.iter().zip(&want).all(near);
        assert!(all_near, "{policy}, {parameter}, {weights:?}: {:?}", relay.arrived);
    }
}

#[test]
fn a_flood_of_sessions_without_a_program_is_forgotten_and_others_are_served() {
    let few = [("sessions_max".into(), OptionValue::Integer(10))];
    let options = Options::default().under(&few, super::RELAY_OPTIONS);
    let mut relay = super::relay(NodeId(1), &options, None);
    let mut rng = Rng::new(1, NodeId(1), Purpose::Relay);
    let mut handle = |relay: &mut Box<dyn crate::relay::Relay + Send>, now, capsule: Capsule| {
        let mut cx = Cx::untraced(now, &mut rng);
        if relay.next_timeout().is_some_and(|at| at <= now) {
            relay.handle_timeout(&mut cx);
        }
        let mut bytes = Packet::Capsule(capsule).encoded();
        bytes.extend_from_slice(b"payload");
        let datagram = Datagram::new(NodeId(9), Destination::Group(GroupId::SESSION), &bytes);
        let packet = relayed(capsule.session, &[PortId(1)], datagram);
        relay.handle_packet(&mut cx, &packet, &mut Vec::new());
        let mut buf = Vec::new();
        while relay.poll_transmit(&mut cx, &mut buf).is_some() {
            buf.clear();
        }
    };
    for session in 0..100 {
        let policy = PolicyId::of(&[session as u8]);
        handle(&mut relay, at(session), Capsule { session, policy, count: 1, ..header(&[]) });
    }
    assert_eq!(relay.served().plain, 10);
    let known = |session, count| Capsule { session, count, ..header(&[]) };
    handle(&mut relay, at(200), known(1000, 1));
    assert_eq!(relay.served().sessions, 0, "there is no room");
    handle(&mut relay, at(34_000), known(1000, 2));
    let served = relay.served();
    assert_eq!((served.plain, served.sessions), (0, 1), "they were forgotten");
}

#[test]
fn while_an_application_takes_nothing_no_more_comes_than_may_wait() {
    let mut rng = Rng::new(1, NodeId(2), Purpose::Relay);
    let (node, options) = (NodeId(2), Options::default());
    let config = ReceiverConfig::from_options(GROUP, &options);
    let scheme = catalog::scheme("pgmcc").unwrap();
    // To the inner machine, the capsules are malformed packets.
    let mut receiver = CreditReceiver::new(scheme.stream_receiver(node, config, &options), 7, node);
    let mut branch = Branch::new(at(0), 5);
    let mut sent = 0;
    // (end in ms, true while the application stops deliveries, most and least packets)
    for (until, held, most, least) in
        [(100, false, 100, 90), (1000, true, 5, 3), (1100, false, 100, 90)]
    {
        let before = sent;
        let hold = StreamInput::Hold(held);
        receiver.handle_input(&mut Cx::untraced(at(until - 100), &mut rng), hold);
        for ms in until - 100..until {
            let now = at(ms);
            let mut cx = Cx::untraced(now, &mut rng);
            if branch.may_send() {
                sent += 1;
                let capsule = Capsule { count: branch.send(), ..header(&[]) };
                let bytes = Packet::Capsule(capsule).encoded();
                let to = Destination::Group(GroupId::SESSION);
                receiver.handle_datagram(&mut cx, Datagram::new(NodeId(1), to, &bytes));
            }
            receiver.handle_timeout(&mut cx);
            let mut bytes = Vec::new();
            if receiver.poll_transmit(&mut cx, &mut bytes).is_some()
                && let Ok(Packet::Credit(credit)) = wire::decode(&bytes)
            {
                branch.on_credit(now, &credit).unwrap();
            }
        }
        let came = sent - before;
        assert!((least..=most).contains(&came), "{came} until {until} ms");
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_for_a_while_a_session_goes_on(
        lost in prop::collection::vec(any::<bool>(), 1..400),
        every in prop::collection::vec(1..20u64, 1..5),
    ) {
        let mut relay = Relay::new(&every, &[], 0);
        let mut lost = lost.into_iter();
        (1..2000).for_each(|ms| relay.step(ms, || lost.next().unwrap_or(false)));
        let before = relay.arrived.clone();
        (2000..9000).for_each(|ms| relay.step(ms, || false));
        for (now, before) in relay.arrived.iter().zip(before) {
            prop_assert!(*now > before + 100, "{now} after {before}");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = wire::decode(&bytes);
        if bytes.len() >= CAPSULE_BYTES {
            bytes[..3].copy_from_slice(b"fr\x01");
            let _ = wire::decode(&bytes);
        }
    }
}
