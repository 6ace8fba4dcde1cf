//! Tests of forged and damaged packets.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{BadInput, Duration, Event, GroupId, NodeId};
use proptest::prelude::*;

use super::control::{GROUP, SOURCE, World, at, losing, seq, source_config};
use crate::congestion::AckVector;
use crate::pgm::ReceiverConfig;
use crate::pgm::negotiation::SchemeAnnouncement;
use crate::pgm::wire::tests::bodies;
use crate::pgm::wire::{Body, Data, Nak, Nla, OptionType, PacketType, Spm, checksum};
use crate::world::forge;
use crate::{Datagram, Destination, FlowEvent, Machine};

const OUTSIDER: NodeId = NodeId(66);
const RECEIVER: NodeId = NodeId(10);

fn nak_body(first: u32) -> Nak {
    Nak { first: seq(first), source: Nla::from_node(SOURCE), group: GROUP }
}

fn foreign(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[8..14].fill(9);
    bytes[6..8].fill(0);
    let sum = checksum(&bytes);
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn list(seqs: impl IntoIterator<Item = u32>) -> Vec<u8> {
    seqs.into_iter().flat_map(u32::to_be_bytes).collect()
}

fn endless(receivers: usize) -> World {
    let configs = vec![ReceiverConfig::new(GROUP); receivers];
    let mut config = source_config();
    config.transmit_window = 50;
    World::new(config, super::control::endless(), configs, 1)
}

#[test]
fn who_is_said_to_speak_another_scheme_is_repaired_like_anybody() {
    let mut world = endless(1);
    world.run_until(at(300));
    let asked = world.sent_of(PacketType::Odata) as u32 - 5;
    let announced = SchemeAnnouncement { scheme: "another".into(), settings: Vec::new() };
    let value = announced.encode().unwrap();
    let said = forge(&Body::Spmr, &[(OptionType::SCHEME, &value)], &[]);
    world.unicast(RECEIVER, SOURCE, &said);
    assert_eq!(world.source.log.refused(BadInput::OtherScheme), 1);
    world.unicast(RECEIVER, SOURCE, &forge(&Body::Nak(nak_body(asked)), &[], &[]));
    world.run_until(at(400));
    assert_eq!(world.repaired(), [asked]);
}

#[test]
fn the_source_refuses_each_kind_of_nonsense_for_its_reason() {
    let other_group = Nak { group: Nla::V4([239, 0, 0, 9]), ..nak_body(90) };
    let other_source = Nak { source: Nla::from_node(OUTSIDER), ..nak_body(90) };
    let ack = |highest| Body::Ack(AckVector { highest: seq(highest), bitmap: 1 });
    let beyond = list([91, 1_000_000]);
    let mut wrong_port = forge(&Body::Nak(nak_body(90)), &[], &[]);
    wrong_port[0] ^= 1;
    wrong_port[6..8].fill(0);
    for (case, bytes, reason) in [
        ("no packet at all", vec![1, 2, 3], BadInput::Truncated),
        (
            "a foreign session",
            foreign(forge(&Body::Nak(nak_body(90)), &[], &[])),
            BadInput::Foreign,
        ),
        ("another port", wrong_port, BadInput::Foreign),
        ("another group", forge(&Body::Nak(other_group), &[], &[]), BadInput::Foreign),
        ("another source", forge(&Body::Nak(other_source), &[], &[]), BadInput::Foreign),
        ("not yet sent", forge(&Body::Nak(nak_body(1_000_000)), &[], &[]), BadInput::Absurd),
        (
            "a list with what was not yet sent",
            forge(&Body::Nak(nak_body(90)), &[(OptionType::NAK_LIST, &beyond)], &[]),
            BadInput::Absurd,
        ),
        ("long gone", forge(&Body::Nak(nak_body(0)), &[], &[]), BadInput::OutOfWindow),
        ("before all", forge(&Body::Nak(nak_body(u32::MAX)), &[], &[]), BadInput::OutOfWindow),
        ("an ACK of the future", forge(&ack(1_000_000), &[], &[]), BadInput::Absurd),
        (
            "half a report",
            forge(&ack(90), &[(OptionType::PGMCC_FEEDBACK, &[1])], &[]),
            BadInput::Malformed,
        ),
    ] {
        let mut world = endless(1);
        world.run_until(at(300));
        assert!(world.sent_of(PacketType::Odata) > 100, "packets 0 to 50 have left the window");
        let before = world.sent.len();
        world.unicast(OUTSIDER, SOURCE, &bytes);
        assert_eq!(world.source.log.refused(reason), 1, "{case}");
        assert!(world.repaired().is_empty(), "{case}");
        let answers = world.sent[before..].iter().map(|sent| sent.packet().kind());
        let answers: Vec<_> = answers.collect();
        // The answer to a NAK for an old packet is the beginning of the window.
        let want = if reason == BadInput::OutOfWindow && case == "long gone" {
            vec![PacketType::Spm]
        } else {
            vec![]
        };
        assert_eq!(answers, want, "{case}");
    }
}

#[test]
fn own_packets_that_loop_back_are_ignored() {
    let mut world = endless(1);
    world.run_until(at(300));
    let looped: Vec<_> = world.sent.iter().rev().take(50).map(|s| s.bytes.clone()).collect();
    let (before, log) = (world.sent.len(), world.source.log.events.len());
    for bytes in looped {
        // Only packets of the source itself: ACKs look like those of a receiver.
        if bytes[4] != PacketType::Ack as u8 {
            let zeros = if bytes[4] & 0x0c == 4 { 100 } else { 0 };
            let to = Destination::Group(GroupId::SESSION);
            world.inject(SOURCE, Datagram { zeros, ..Datagram::new(SOURCE, to, &bytes) });
        }
    }
    assert_eq!((world.sent.len(), world.source.log.events.len()), (before, log));
}

#[test]
fn a_flood_of_naks_repairs_each_packet_once_in_an_interval() {
    let mut world = endless(1);
    world.run_until(at(300));
    let sent = world.sent_of(PacketType::Odata) as u32;
    for round in 0..200 {
        for back in 1..=50 {
            let nak = forge(&Body::Nak(nak_body(sent - back)), &[], &[]);
            world.unicast(OUTSIDER, SOURCE, &nak);
        }
        if round == 100 {
            assert_eq!(world.repaired().len(), 50);
        }
    }
    let mut repaired = world.repaired();
    assert_eq!(repaired.len(), 50);
    repaired.sort_unstable();
    repaired.dedup();
    assert_eq!(repaired.len(), 50);
    // 10 ms between equal confirmations: one each.
    assert_eq!(world.sent_of(PacketType::Ncf), 50);
    world.run_until(at(600));
    assert!(world.sent_of(PacketType::Odata) as u32 > sent + 100);
}

#[test]
fn a_receiver_refuses_each_kind_of_nonsense_for_its_reason() {
    let data = |sequence, trail| Body::Odata(Data { sequence: seq(sequence), trail: seq(trail) });
    let spm = |sequence, trail, lead| {
        let path = Nla::from_node(SOURCE);
        Body::Spm(Spm { sequence: seq(sequence), trail: seq(trail), lead: seq(lead), path })
    };
    for (case, bytes, reason) in [
        ("no packet at all", vec![], BadInput::Truncated),
        ("a foreign session", foreign(forge(&data(1, 1), &[], b"x")), BadInput::Foreign),
        ("a trail beyond its lead", forge(&data(900, 901), &[], b"x"), BadInput::Absurd),
        ("far ahead", forge(&data(1_000_000, 1), &[], b"x"), BadInput::OutOfWindow),
        ("again", forge(&data(3, 1), &[], b"x"), BadInput::Duplicate),
        (
            "a malformed announcement",
            forge(&data(120, 1), &[(OptionType::PGMCC_DATA, &[1])], b"x"),
            BadInput::Malformed,
        ),
        ("an old SPM", forge(&spm(0, 0, 10), &[], &[]), BadInput::Duplicate),
        ("an SPM against itself", forge(&spm(99, 20, 10), &[], &[]), BadInput::Absurd),
        (
            "an end before what is here",
            forge(&spm(99, 0, 5), &[(OptionType::FIN, &[])], &[]),
            BadInput::Absurd,
        ),
    ] {
        let mut world = endless(1);
        world.run_until(at(100));
        world.multicast(OUTSIDER, RECEIVER, &bytes);
        let host = &world.receivers[0];
        assert_eq!(host.log.refused(reason), 1, "{case}: {:?}", host.log.events.last());
        assert!(!host.said(&FlowEvent::Gone), "{case}");
        assert!(host.machine.missing_packets() <= 8192, "{case}");
    }
}

fn forged_spm(sequence: u32, trail: u32, lead: u32, options: &[(u8, &[u8])]) -> Vec<u8> {
    let path = Nla::from_node(SOURCE);
    let spm = Spm { sequence: seq(sequence), trail: seq(trail), lead: seq(lead), path };
    forge(&Body::Spm(spm), options, &[])
}

#[test]
fn a_lead_beyond_all_reason_is_not_believed_of_one_spm_and_is_of_several() {
    let mut world = endless(1);
    world.run_until(at(100));
    world.multicast(OUTSIDER, RECEIVER, &forged_spm(99, 0, 1 << 30, &[]));
    world.run_until(at(125));
    assert_eq!(world.receivers[0].machine.missing_packets(), 0);
    for sequence in 100..112 {
        world.multicast(OUTSIDER, RECEIVER, &forged_spm(sequence, 0, 1 << 30, &[]));
    }
    world.run_until(at(150));
    let missing = world.receivers[0].machine.missing_packets();
    assert!(missing > 8000 && missing <= 8192, "{missing}");
    let before = world.receivers[0].payload.len();
    world.run_until(at(400));
    assert!(world.receivers[0].payload.len() > before + 10_000);
}

#[test]
fn a_trail_gives_up_nothing_until_the_source_has_said_so_for_a_while() {
    let mut world = endless(1).with_network(losing(|hop| {
        hop.kind == PacketType::Odata && hop.nth == 40 || hop.kind == PacketType::Rdata
    }));
    world.run_until(at(90));
    let host = &world.receivers[0];
    let next = host.log.count(|e| matches!(e, Event::Delivered { .. })) as u32;
    assert!(next > 30 && host.machine.missing_packets() == 1);
    let lead = next + 10;
    world.multicast(OUTSIDER, RECEIVER, &forged_spm(99, lead, lead + 5, &[]));
    assert_eq!((world.receivers[0].lost(), world.receivers[0].machine.missing_packets()), (0, 1));
    world.run_until(at(2000));
    assert_eq!(world.receivers[0].lost(), 1);
}

fn arrive_between(world: &mut World, from_ms: u64, to_ms: u64) -> usize {
    world.run_until(at(from_ms));
    let before = world.receivers[0].payload.len();
    world.run_until(at(to_ms));
    world.receivers[0].payload.len() - before
}

#[test]
fn after_one_forged_packet_a_session_is_soon_what_it_was() {
    let unforged = arrive_between(&mut endless(1), 4000, 5000);
    assert!(unforged > 50_000);
    let data = |ahead: u32, next: u32| {
        let sequence = seq(next + ahead);
        forge(&Body::Odata(Data { sequence, trail: seq(next) }), &[], b"x")
    };
    type Forged = fn(u32, &dyn Fn(u32, u32) -> Vec<u8>) -> Vec<u8>;
    let cases: [(&str, Forged); 10] = [
        ("data somewhat ahead", |next, data| data(50, next)),
        ("data far ahead", |next, data| data(100_000, next)),
        ("a lead far ahead", |next, _| forged_spm(9, 0, next + 100_000, &[])),
        ("a trail far ahead", |next, _| forged_spm(9, next + 90_000, next + 100_000, &[])),
        ("an SPM from the future", |next, _| forged_spm(100_000_000, 0, next, &[])),
        ("another last hop", |next, _| {
            let path = Nla::from_node(OUTSIDER);
            let spm = Spm { sequence: seq(9), trail: seq(0), lead: seq(next), path };
            forge(&Body::Spm(spm), &[], &[])
        }),
        ("an end", |next, _| forged_spm(9, 0, next - 1, &[(OptionType::FIN, &[])])),
        ("an end ahead", |next, _| forged_spm(9, 0, next + 20, &[(OptionType::FIN, &[])])),
        ("a reset", |next, _| forged_spm(9, 0, next, &[(OptionType::RST, &[])])),
        ("a confirmation", |next, _| forge(&Body::Ncf(nak_body(next + 5000)), &[], &[])),
    ];
    for (case, forged) in cases {
        let configs = vec![ReceiverConfig::new(GROUP)];
        let mut world = World::new(source_config(), super::control::endless(), configs, 1)
            .with_network(losing(|hop| hop.kind == PacketType::Odata && hop.nth % 50 == 7));
        world.run_until(at(1000));
        let next = world.sent_of(PacketType::Odata) as u32;
        let before = world.receivers[0].payload.len();
        world.multicast(OUTSIDER, RECEIVER, &forged(next, &data));
        let arrived = arrive_between(&mut world, 4000, 5000);
        assert!(arrived > unforged * 3 / 4, "{case}: {arrived} bytes of {unforged}");
        let host = &world.receivers[0];
        assert_eq!(host.lost(), 0, "{case}");
        let missing = world.sent_of(PacketType::Odata) * 100 - host.payload.len();
        assert!(host.payload.len() > before && missing < 10_000, "{case}: {missing} bytes");
    }
}

#[test]
fn noise_and_foreign_sessions_do_not_disturb_a_transfer() {
    let mut world = World::simple(2, 20_000)
        .with_network(losing(|hop| hop.kind == PacketType::Odata && hop.nth % 11 == 7));
    world.run_until(at(15));
    for step in 0..200u32 {
        world.run_for(Duration::from_millis(2));
        let noise: Vec<u8> = (0..step as usize).map(|i| (i as u32 * step) as u8).collect();
        let data = Data { sequence: seq(step), trail: seq(step) };
        let foreign_data =
            foreign(forge(&Body::Odata(data), &[(OptionType::FIN, &[])], b"foreign"));
        for to in [SOURCE, RECEIVER, NodeId(11)] {
            world.multicast(OUTSIDER, to, &noise);
            world.multicast(OUTSIDER, to, &foreign_data);
        }
    }
    world.deliver_by(at(20_000), 20_000);
    let refused = world.receivers[0].log.refused(BadInput::Foreign);
    assert!(refused > 10, "{refused}");
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let number = || prop_oneof![0u32..400, (u32::MAX - 50)..=u32::MAX, any::<u32>()];
    let nla = prop_oneof![Just(Nla::from_node(SOURCE)), Just(GROUP), Just(Nla::V6([7; 16]))];
    let group = prop_oneof![4 => Just(GROUP), 1 => Just(Nla::NULL)];
    let body = bodies(number(), nla, group);
    let list = prop::collection::btree_set(0u32..400, 0..20);
    let named = prop_oneof![Just(0u32), Just(10), Just(11)];
    (body, list, named, any::<[bool; 6]>(), number(), 0usize..200).prop_map(
        |(body, list, named, [fin, syn, join, leave, rst, bad], from, len)| {
            let list = self::list(list);
            let value = if bad { vec![1] } else { named.to_be_bytes().to_vec() };
            let report = if body.kind().is_upstream() { 0x13 } else { 0x12 };
            let from = from.to_be_bytes();
            let all: [(bool, u8, &[u8]); 7] = [
                (!list.is_empty(), OptionType::NAK_LIST, &list),
                (true, report, &value),
                (fin, OptionType::FIN, &[]),
                (syn, OptionType::SYN, &[]),
                (join, OptionType::JOIN, &from),
                (leave, OptionType::ACKER_LEAVING, &[]),
                (rst && fin && syn, OptionType::RST, &[]),
            ];
            let present = all.into_iter().filter(|(present, ..)| *present);
            let options: Vec<_> = present.map(|(_, kind, value)| (kind, value)).collect();
            forge(&body, &options, &vec![7; len])
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Forged { to: u32, group: bool, bytes: Vec<u8> },
    Wait(u64),
    Close(u32),
    Spurious,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u32..3, any::<bool>(), any_packet())
            .prop_map(|(to, group, bytes)| Step::Forged { to, group, bytes }),
        1 => (0u32..3, any::<Vec<u8>>()).prop_map(|(to, bytes)| Step::Forged { to, group: true, bytes }),
        4 => (0u64..300_000).prop_map(Step::Wait),
        1 => (0u32..30).prop_map(Step::Close),
        1 => Just(Step::Spurious),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_sequence_of_forged_packets_breaks_an_endpoint(
        steps in prop::collection::vec(step(), 1..60),
        unrepaired: bool,
        finite: bool,
        seed: u64,
    ) {
        let mut source = source_config();
        source.transmit_window = 64;
        let mut receiver = ReceiverConfig::new(GROUP);
        receiver.receive_window = 128;
        (source.settings.reliable, receiver.settings.reliable) = (!unrepaired, !unrepaired);
        let content: Box<dyn crate::content::Content> = if finite {
            super::control::in_memory(20_000)
        } else {
            super::control::endless()
        };
        let mut world = World::new(source, content, vec![receiver; 2], seed);
        world.run_until(at(50));
        for step in steps {
            match step {
                Step::Forged { to, group, bytes } => {
                    let to = [SOURCE, RECEIVER, NodeId(11)][to as usize];
                    if group {
                        world.multicast(OUTSIDER, to, &bytes);
                    } else {
                        world.unicast(OUTSIDER, to, &bytes);
                    }
                }
                Step::Wait(us) => world.run_for(Duration::from_micros(us)),
                Step::Close(0) => world.close_source(),
                Step::Close(i @ 1..=2) => world.close_receiver(i as usize - 1),
                Step::Close(_) => {}
                Step::Spurious => world.time_out_all(),
            }
            for host in &world.receivers {
                prop_assert!(host.machine.missing_packets() <= 128);
            }
        }
        world.run_for(Duration::from_secs(3));
        world.close_source();
        world.run_for(Duration::from_secs(600));
        prop_assert_eq!(world.source.machine.next_timeout(), None);
        for host in &world.receivers {
            prop_assert_eq!(host.machine.next_timeout(), None);
        }
    }
}
