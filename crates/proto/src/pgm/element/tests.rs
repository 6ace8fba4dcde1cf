//! Tests of a network element, by scripts of events and by any packets in any order.

mod bench;

use std::vec;
use std::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Event, GroupId, NodeId, Seq, Time, TimeoutKind};
use proptest::prelude::*;

use self::bench::*;
use super::*;
use crate::congestion::Wire;
use crate::congestion::pgmcc::{PgmccAnnounce, PgmccReport};
use crate::congestion::tfmcc::TfmccReport;
use crate::pgm::wire::Data;

#[test]
fn an_spm_goes_on_with_the_element_as_the_path() {
    let mut bench = Bench::empty(ElementConfig::default());
    assert_eq!(bench.source_sends(0, spm(5, SOURCE), 0), Handling::Alter);
    assert_eq!(bench.path(), Some(ME));
    assert_eq!(bench.source_sends(0, spm(5, SOURCE), 0), Handling::Drop);
    assert_eq!(bench.source_sends(2, spm(4, NodeId(66)), 0), Handling::Drop);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.log.refused(BadInput::Duplicate), 2);
    bench.source_sends(2, spm(6, NodeId(66)), 0);
    bench.sent();
    bench.packet(1, RECEIVER, Destination::Node(ME), &nak(&[7], None), 0);
    let Egress::Send(up) = bench.drain()[1].0 else { panic!("it is passed on") };
    assert_eq!((up.port, up.to), (Some(PortId(2)), Destination::Node(NodeId(66))));
}

#[test]
fn a_nak_is_confirmed_at_once_passed_on_and_repeated_until_it_is_confirmed() {
    let mut bench = Bench::new(ElementConfig::default());
    assert_eq!(bench.nak(1, &[7], None), [confirm(1, &[7]), ask(&[7])]);
    assert_eq!(bench.advance(ms(49)), []);
    assert_eq!(bench.advance(ms(1)), [ask(&[7])]);
    assert_eq!(bench.advance(ms(99)), []);
    assert_eq!(bench.advance(ms(1)), [ask(&[7])], "it backs off");
    assert_eq!(bench.ncf(0, &[7]), []);
    assert_eq!(bench.advance(ms(5000)), []);
}

#[test]
fn a_nak_that_nobody_confirms_is_given_up_after_a_second() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.nak(1, &[7], None);
    assert_eq!(bench.advance(ms(2000)).len(), 4, "after 50, 150, 350 and 750 ms");
    assert_eq!(bench.timeouts(TimeoutKind::NakConfirmation), 1);
    assert_eq!(bench.element.next_timeout(), None);
    assert_eq!(bench.nak(2, &[7], None), [confirm(2, &[7]), ask(&[7])], "all begins anew");
}

#[test]
fn naks_for_the_same_packet_are_confirmed_but_eliminated() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.nak(1, &[7], None);
    assert_eq!(bench.nak(2, &[7], None), [confirm(2, &[7])], "pending");
    bench.ncf(0, &[7]);
    assert_eq!(bench.nak(3, &[7], None), [confirm(3, &[7])], "outstanding");
    assert_eq!(bench.nak(3, &[8], None), [confirm(3, &[8]), ask(&[8])], "another packet");
    bench.ncf(0, &[8]);
    bench.advance(ms(999));
    assert_eq!(bench.nak(2, &[7], None), [confirm(2, &[7])]);
    bench.advance(ms(1));
    assert_eq!(bench.nak(2, &[7], None), [confirm(2, &[7]), ask(&[7])], "after 1 s one passes");
    assert_eq!(bench.nak(1, &[7], None), [confirm(1, &[7])], "and only one");
    assert_eq!(bench.log.count(|event| matches!(event, Event::NakSuppressed { .. })), 4);
    assert_eq!(bench.log.count(|event| matches!(event, Event::NakForwarded { .. })), 3);
}

#[test]
fn a_repair_goes_only_where_it_was_asked_for_and_only_once() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.nak(3, &[7], None);
    bench.nak(1, &[7], None);
    bench.nak(1, &[7], None);
    bench.ncf(0, &[7]);
    assert_eq!(bench.rdata(7), [Output::Repair(3, 7), Output::Repair(1, 7)]);
    assert_eq!(bench.rdata(7), []);
    assert_eq!(bench.advance(ms(50)), []);
    assert_eq!(bench.element.next_timeout(), None, "the state is gone");
    assert_eq!(bench.rdata(7), []);
    assert_eq!(bench.log.refused(BadInput::OutOfWindow), 1);
    bench.nak(2, &[9], None);
    assert_eq!(bench.rdata(9), [Output::Repair(2, 9)]);
}

#[test]
fn state_dies_when_no_repair_comes() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.nak(1, &[7], None);
    bench.ncf(0, &[7]);
    bench.advance(ms(9999));
    assert_eq!(bench.timeouts(TimeoutKind::NakRepair), 0);
    bench.advance(ms(1));
    assert_eq!(bench.timeouts(TimeoutKind::NakRepair), 1);
    assert_eq!(bench.rdata(7), []);
}

#[test]
fn an_unasked_confirmation_foretells_a_repair() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.ncf(0, &[7]);
    assert_eq!(bench.nak(2, &[7], None), [confirm(2, &[7])], "somebody else has asked already");
    assert_eq!(bench.rdata(7), [Output::Repair(2, 7)]);
    bench.ncf(3, &[8]);
    assert_eq!(bench.log.refused(BadInput::Foreign), 1);
    assert_eq!(bench.nak(2, &[8], None), [confirm(2, &[8]), ask(&[8])]);
    bench.ncf(0, &[9]);
    assert_eq!(bench.rdata(9), []);
}

#[test]
fn a_list_passes_whole_where_any_of_it_does() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.nak(1, &[7, 9], None);
    assert_eq!(bench.nak(2, &[7, 9], None), [confirm(2, &[7, 9])]);
    let sent = bench.nak(2, &[7, 8, 9], None);
    assert_eq!(sent, [confirm(2, &[7, 8, 9]), ask(&[7, 8, 9])]);
    bench.ncf(0, &[7, 8]);
    assert_eq!(bench.advance(ms(50)), [ask(&[9])], "only the unconfirmed is repeated");
    assert_eq!(bench.rdata(8), [Output::Repair(2, 8)]);
    assert_eq!(bench.rdata(9), [Output::Repair(1, 9), Output::Repair(2, 9)]);
}

#[test]
fn lists_are_repeated_as_lists_across_the_wrap_too() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.nak(1, &[u32::MAX, 0, 1], None);
    let mut sent = bench.advance(ms(50));
    sent.sort_by_key(|sent| std::format!("{sent:?}"));
    assert_eq!(sent, [ask(&[0, 1]), ask(&[u32::MAX])]);
    let many: Vec<u32> = (100..163).collect();
    bench.nak(1, &many, None);
    bench.nak(1, &[163], None);
    let asked: Vec<u32> = bench
        .advance(ms(110))
        .into_iter()
        .flat_map(|sent| match sent {
            Output::Ask(seqs) => seqs,
            other => panic!("{other:?}"),
        })
        .filter(|seq| (100..200).contains(seq))
        .collect();
    assert_eq!(asked, (100..164).collect::<Vec<_>>());
}

#[test]
fn a_repeated_nak_carries_its_report_less_the_time_it_was_held() {
    let mut bench = Bench::new(ElementConfig::default());
    bench.nak(1, &[7], report(1000, 655));
    bench.now += ms(50);
    let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.log);
    bench.element.handle_timeout(&mut cx);
    let (_, bytes) = &bench.drain()[0];
    let packet = Packet::decode(bytes, 0).expect("a good packet");
    let option = packet.options.find(PgmccReport::OPTION).expect("it has the report");
    assert_eq!(PgmccReport::decode(option.value), report(1050, 655));
}

#[test]
fn data_passes_by_and_touches_no_state() {
    let mut bench = Bench::new(ElementConfig::default());
    assert_eq!(bench.element.interest(), Interest::Alerted);
    bench.nak(1, &[7], None);
    assert_eq!(bench.source_sends(0, data(7, false, None), 1400), Handling::Forward);
    assert_eq!(bench.rdata(7), [Output::Repair(1, 7)]);
}

#[test]
fn what_other_schemes_put_on_packets_passes_as_it_is_under_every_policy() {
    // Options of neither RFC 3208 nor the element's own scheme.
    const UNKNOWN: [u8; 3] = [0x16, 0x24, 0x7e];
    let with_unknown = |header: Header, body: Body| {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, &header, &body);
        for kind in UNKNOWN {
            encoder.raw_option(kind, 0, &[kind, 1, 2, 3, 4]);
        }
        encoder.finish();
        bytes
    };
    let has_all = |bytes: &[u8]| {
        let packet = Packet::decode(bytes, 0).expect("it is a packet");
        UNKNOWN.iter().all(|&kind| {
            packet.options.find(kind).is_some_and(|option| option.value == [kind, 1, 2, 3, 4])
        })
    };
    let (up, down) = (Header::upstream(TSI, DATA_PORT), Header::downstream(TSI, DATA_PORT));
    for suppression in POLICIES {
        let config = ElementConfig { suppression };
        let mut bench = Bench::new(config);
        let nak = with_unknown(up, Body::Nak(nak_body(5)));
        let to_me = Destination::Node(ME);
        assert_eq!(bench.packet(1, RECEIVER, to_me, &nak, 0), Handling::Drop);
        let sent = bench.drain();
        assert_eq!(sent.len(), 2, "a confirmation, and the NAK");
        assert_eq!(sent[1].1, nak, "{suppression:?}: the first goes on, byte for byte");
        // Its report is unknown to every policy, so it counts as one NAK of many.
        bench.packet(2, RECEIVER, to_me, &nak, 0);
        if suppression == Suppression::Random {
            continue;
        }
        let want = if suppression == Suppression::None { 2 } else { 1 };
        assert_eq!(bench.sent().len(), want, "{suppression:?}");

        let null = with_unknown(up, Body::Nnak(nak_body(5)));
        bench.packet(1, RECEIVER, to_me, &null, 0);
        let sent = bench.drain();
        assert!(sent.len() == 1 && sent[0].1 == null);

        let (trail, lead) = (Seq::new(0), Seq::new(99));
        let spm = Spm { sequence: Seq::new(1), trail, lead, path: SOURCE.into() };
        let spm = with_unknown(down, Body::Spm(spm));
        assert_eq!(bench.source_sends(0, spm, 0), Handling::Alter);
        assert!(has_all(&bench.last.0));

        let data = Data { sequence: Seq::new(5), trail: Seq::new(0) };
        let handling = bench.source_sends(0, with_unknown(down, Body::Odata(data)), 0);
        assert_eq!((handling, bench.sent().len()), (Handling::Forward, 0), "a router's work");
        bench.source_sends(0, with_unknown(down, Body::Rdata(data)), 0);
        assert_eq!(bench.sent(), [Output::Repair(1, 5), Output::Repair(2, 5)], "as it is");
        assert_eq!(bench.log.count(|event| matches!(event, Event::BadInput { .. })), 0);
    }
}

#[test]
fn null_naks_pass_without_state() {
    let mut bench = Bench::new(ElementConfig::default());
    let header = Header::upstream(TSI, DATA_PORT);
    let bytes = encode(header, &Body::Nnak(nak_body(4)), &[], report(0, 1));
    assert_eq!(bench.packet(1, RECEIVER, Destination::Node(ME), &bytes, 0), Handling::Drop);
    assert_eq!(bench.sent(), [Output::Null(4)]);
    assert_eq!(bench.element.next_timeout(), None);
}

#[test]
fn sessions_that_are_not_known_are_forwarded_as_by_any_router() {
    let mut bench = Bench::empty(ElementConfig::default());
    assert_eq!(bench.source_sends(0, data(7, true, None), 1400), Handling::Forward);
    assert_eq!(bench.nak(1, &[7], None), []);
    assert_eq!(bench.log.refused(BadInput::Foreign), 1);
    let garbage = [1, 2, 3];
    assert_eq!(
        bench.packet(1, SOURCE, Destination::Group(GroupId::SESSION), &garbage, 0),
        Handling::Forward
    );
    assert_eq!(bench.packet(1, SOURCE, Destination::Node(ME), &garbage, 0), Handling::Drop);
}

/// Returns true if the NAK of a far receiver passes, 100 ms after the NAK of a near one for the
/// same packet and with the same loss.
fn far_nak_passes(suppression: Suppression) -> bool {
    let mut bench = Bench::new(ElementConfig { suppression });
    let all = bench.element.interest() == Interest::Everything;
    assert_eq!(all, suppression == Suppression::Throughput);
    bench.now = Time::ZERO + ms(500);
    let announce = PgmccAnnounce { sent_ms: 90_000, acker: None };
    assert_eq!(bench.source_sends(0, data(6, false, Some(announce)), 1400), Handling::Forward);
    bench.now += ms(20);
    assert_eq!(bench.nak(1, &[7], report(90_000, 600)).len(), 2);
    bench.ncf(0, &[7]);
    bench.now += ms(100);
    bench.nak(2, &[7], report(90_000, 600)).contains(&ask(&[7]))
}

#[test]
fn the_slowest_receivers_nak_passes_only_under_policies_that_see_it() {
    for (suppression, passes) in [
        (Suppression::None, true),
        (Suppression::Rfc3208, false),
        (Suppression::Loss, false),
        (Suppression::Throughput, true),
    ] {
        assert_eq!(far_nak_passes(suppression), passes, "{suppression:?}");
    }
}

#[test]
fn higher_loss_passes_under_the_loss_policy() {
    for (reported, passes) in [(601, true), (599, false)] {
        let mut bench = Bench::new(ElementConfig { suppression: Suppression::Loss });
        bench.nak(1, &[7], report(0, 600));
        let sent = bench.nak(2, &[7], report(0, reported));
        assert_eq!(sent.contains(&ask(&[7])), passes, "{reported}");
    }
}

#[test]
fn tables_have_limits_and_say_so() {
    let mut bench = Bench::new(ElementConfig::default());
    for seq in 0..10_000 {
        bench.nak(1, &[seq], None);
    }
    let refused = bench.log.refused(BadInput::TableFull);
    assert_eq!(refused, 10_000 - 8192);
    assert_eq!(bench.nak(1, &[20_000], None), [], "neither confirmed nor passed on");
    assert_eq!(bench.nak(2, &[5], None), [confirm(2, &[5])], "what is known is still served");

    let mut bench = Bench::empty(ElementConfig::default());
    let spm_of = |port: u16| {
        let tsi = Tsi { port, ..TSI };
        let body = Body::Spm(Spm {
            sequence: Seq::new(0),
            trail: Seq::new(0),
            lead: Seq::new(0),
            path: SOURCE.into(),
        });
        encode(Header::downstream(tsi, DATA_PORT), &body, &[], None)
    };
    for port in 0..64 {
        assert_eq!(bench.source_sends(0, spm_of(port), 0), Handling::Alter);
    }
    assert_eq!(bench.source_sends(0, spm_of(64), 0), Handling::Forward);
    bench.now += Duration::from_secs(300);
    assert_eq!(bench.source_sends(0, spm_of(65), 0), Handling::Alter, "a silent one makes room");
}

fn nak_of(bits_per_s: f32) -> Vec<u8> {
    let (receiver, have_rtt, have_loss) = (Some(NodeId(30)), true, true);
    let report = TfmccReport { receiver, have_rtt, have_loss, bits_per_s, ..Default::default() };
    packet(&Body::Nak(nak_body(7)), |encoder| {
        encoder.scheme_option(&report);
    })
}

#[test]
fn by_throughput_the_nak_of_a_slower_receiver_passes_that_loses_under_tfmcc() {
    for (suppression, slower_passes) in
        [(Suppression::Rfc3208, false), (Suppression::Loss, true), (Suppression::Throughput, true)]
    {
        let mut bench = Bench::new(ElementConfig { suppression });
        bench.packet(1, RECEIVER, Destination::Node(ME), &nak_of(1e6), 0);
        assert_eq!(bench.sent(), [confirm(1, &[7]), ask(&[7])]);
        bench.ncf(0, &[7]);
        for (port, rate, passes) in
            [(2, 1e6, false), (2, 2e6, false), (3, 5e5, slower_passes), (3, 6e5, false)]
        {
            bench.packet(port, RECEIVER, Destination::Node(ME), &nak_of(rate), 0);
            let asked = bench.sent().contains(&ask(&[7]));
            assert_eq!(asked, passes, "{suppression:?}, {rate} bit/s");
            bench.ncf(0, &[7]);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Receiver { port: u32, to: Destination, bytes: Vec<u8> },
    Source { port: u32, bytes: Vec<u8>, zeros: u32 },
    Wait(u64),
}

fn receiver(port: u32, bytes: Vec<u8>) -> Op {
    Op::Receiver { port, to: Destination::Node(ME), bytes }
}

fn source(port: u32, bytes: Vec<u8>, zeros: u32) -> Op {
    Op::Source { port, bytes, zeros }
}

fn op() -> impl Strategy<Value = Op> {
    let few = 0u32..20;
    let seqs = prop_oneof![
        proptest::collection::btree_set(few.clone(), 1..10),
        proptest::collection::btree_set(any::<u32>(), 1..3),
    ]
    .prop_map(|set| set.into_iter().collect::<Vec<u32>>());
    let seqs = seqs.prop_map(|mut seqs| {
        // Lists ascend in serial order, as sorted numbers do only within half the space.
        seqs.retain(|seq| *seq < 1 << 31);
        if seqs.is_empty() { vec![u32::MAX] } else { seqs }
    });
    prop_oneof![
        5 => (0u32..4, seqs.clone(), any::<Option<(u32, u16)>>()).prop_map(|(port, seqs, told)| {
            receiver(port, nak(&seqs, told.and_then(|(echo_ms, loss)| report(echo_ms, loss))))
        }),
        2 => (0u32..4, seqs).prop_map(|(port, seqs)| source(port, ncf(&seqs), 0)),
        3 => (0u32..4, few.clone()).prop_map(|(port, seq)| source(port, data(seq, true, None), 1400)),
        2 => (few, any::<u32>()).prop_map(|(seq, sent_ms)| {
            source(0, data(seq, false, Some(PgmccAnnounce { sent_ms, acker: None })), 1400)
        }),
        1 => (0u32..4, any::<u32>()).prop_map(|(port, seq)| source(port, spm(seq, SOURCE), 0)),
        1 => (0u32..4, proptest::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(port, bytes)| receiver(port, bytes)),
        1 => (0u32..4, proptest::collection::vec(any::<u8>(), 0..80)).prop_map(|(port, bytes)| {
            Op::Receiver { port, to: Destination::Group(GroupId::SESSION), bytes }
        }),
        1 => (0u32..4, 0usize..44, any::<u8>()).prop_map(|(port, at, value)| {
            let mut bytes = nak(&[3, 4], report(5, 6));
            let at = at % bytes.len();
            bytes[at] = value;
            (bytes[6], bytes[7]) = (0, 0); // No checksum, so that the damage gets through.
            receiver(port, bytes)
        }),
        3 => (0u64..3000).prop_map(Op::Wait),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_packets_breaks_an_element(
        policy in 0usize..5,
        ops in proptest::collection::vec(op(), 1..200),
    ) {
        let config = ElementConfig { suppression: POLICIES[policy] };
        let mut bench = Bench::new(config);
        for op in ops {
            match op {
                Op::Receiver { port, to, bytes } => bench.packet(port, RECEIVER, to, &bytes, 0),
                Op::Source { port, bytes, zeros } => bench.source_sends(port, bytes, zeros),
                Op::Wait(span) => {
                    bench.now += ms(span);
                    Handling::Drop
                }
            };
            for (egress, bytes) in bench.drain() {
                if let Egress::Send(sent) = egress {
                    prop_assert!(Packet::decode(&bytes, sent.zeros).is_ok());
                    prop_assert!(sent.port.is_some());
                }
            }
        }
        // All state ends: no timer is left after four repetitions with a round trip of 64 s.
        let end = bench.now + Duration::from_secs(800);
        while let Some(at) = bench.element.next_timeout() {
            prop_assert!(at <= end);
            bench.now = at.max(bench.now);
            let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.log);
            bench.element.handle_timeout(&mut cx);
            bench.drain();
        }
    }
}
