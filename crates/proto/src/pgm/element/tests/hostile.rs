//! Property tests of a network element: any packets in any order.

use std::vec;
use std::vec::Vec;

use faircast_base::{Cx, Duration, GroupId};
use proptest::prelude::*;

use super::bench::*;
use crate::congestion::pgmcc::PgmccAnnounce;
use crate::pgm::element::*;

#[derive(Clone, Debug)]
enum Op {
    Nak { port: u32, seqs: Vec<u32>, report: Option<(u32, u16)> },
    Ncf { port: u32, seqs: Vec<u32> },
    Rdata { port: u32, seq: u32 },
    Odata { seq: u32, sent_ms: u32 },
    Spm { port: u32, sequence: u32 },
    Garbage { port: u32, bytes: Vec<u8>, for_me: bool },
    Damage { port: u32, at: usize, value: u8 },
    Wait(u64),
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
        5 => (0u32..4, seqs.clone(), any::<Option<(u32, u16)>>())
            .prop_map(|(port, seqs, report)| Op::Nak { port, seqs, report }),
        2 => (0u32..4, seqs).prop_map(|(port, seqs)| Op::Ncf { port, seqs }),
        3 => (0u32..4, few.clone()).prop_map(|(port, seq)| Op::Rdata { port, seq }),
        2 => (few, any::<u32>()).prop_map(|(seq, sent_ms)| Op::Odata { seq, sent_ms }),
        1 => (0u32..4, any::<u32>()).prop_map(|(port, sequence)| Op::Spm { port, sequence }),
        1 => (0u32..4, proptest::collection::vec(any::<u8>(), 0..80), any::<bool>())
            .prop_map(|(port, bytes, for_me)| Op::Garbage { port, bytes, for_me }),
        1 => (0u32..4, 0usize..44, any::<u8>())
            .prop_map(|(port, at, value)| Op::Damage { port, at, value }),
        3 => (0u64..3000).prop_map(Op::Wait),
    ]
}

fn apply(bench: &mut Bench, op: Op) {
    let me = Destination::Node(ME);
    match op {
        Op::Nak { port, seqs, report } => {
            let report = report.and_then(|(echo_ms, loss)| self::report(echo_ms, loss));
            bench.packet(port, RECEIVER, me, &nak(&seqs, report), 0);
        }
        Op::Ncf { port, seqs } => {
            bench.source_sends(port, ncf(&seqs), 0);
        }
        Op::Rdata { port, seq } => {
            bench.source_sends(port, data(seq, true, None), 1400);
        }
        Op::Odata { seq, sent_ms } => {
            let announce = PgmccAnnounce { sent_ms, acker: None };
            bench.source_sends(0, data(seq, false, Some(announce)), 1400);
        }
        Op::Spm { port, sequence } => {
            bench.source_sends(port, spm(sequence, SOURCE), 0);
        }
        Op::Garbage { port, bytes, for_me } => {
            let to = if for_me { me } else { Destination::Group(GroupId::SESSION) };
            bench.packet(port, RECEIVER, to, &bytes, 0);
        }
        Op::Damage { port, at, value } => {
            let mut bytes = nak(&[3, 4], report(5, 6));
            let at = at % bytes.len();
            bytes[at] = value;
            (bytes[6], bytes[7]) = (0, 0); // No checksum, so that the damage gets through.
            bench.packet(port, RECEIVER, me, &bytes, 0);
        }
        Op::Wait(span) => bench.now += ms(span),
    }
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
            apply(&mut bench, op);
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
