//! Property tests of ORMCC's sender: a control's contract under any sequence of inputs.

use std::vec::Vec;

use faircast_base::NodeId;
use proptest::prelude::*;

use super::harness::{Bench, LEN, Listener, ReceiverBench, improved, ms, original, paper};
use crate::congestion::ormcc::{Feedback, OrmccConfig, OrmccReport};
use crate::congestion::{Arrival, Permit, ReceiverFeedback, SenderControl, Wire};

#[derive(Clone, Debug)]
enum Op {
    Run(u64),
    Wait(u64),
    Repair,
    Report { from: u32, rate: Option<f32>, rtt_ms: u64, congestion: bool },
    Garbage(Vec<u8>),
    Leave(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let rate =
        prop_oneof![Just(None), (1e-3f32..1e13).prop_map(Some), (1e3f32..1e6).prop_map(Some)];
    prop_oneof![
        4 => (0u64..300).prop_map(Op::Run),
        1 => (0u64..100_000).prop_map(Op::Wait),
        1 => Just(Op::Repair),
        6 => (0u32..5, rate, 0u64..2000, any::<bool>())
            .prop_map(|(from, rate, rtt_ms, congestion)| Op::Report { from, rate, rtt_ms, congestion }),
        2 => proptest::collection::vec(any::<u8>(), 16).prop_map(Op::Garbage),
        1 => (0u32..5).prop_map(Op::Leave),
    ]
}

fn config() -> impl Strategy<Value = OrmccConfig> {
    let mode = prop_oneof![Just(Feedback::Ci), Just(Feedback::CiPerRtt), Just(Feedback::Trac)];
    (any::<bool>(), mode).prop_map(|(is_paper, feedback)| {
        let base = if is_paper { paper() } else { improved() };
        OrmccConfig { feedback, ..base }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_sender_keeps_its_rate_within_bounds(
        config in config(), ops in proptest::collection::vec(op(), 1..80),
    ) {
        let mut bench = Bench::new(config);
        bench.permit();
        for op in ops {
            match op {
                Op::Run(span) => {
                    let end = bench.now + ms(span);
                    for _ in 0..1000 {
                        match bench.permit() {
                            Permit::Now => { bench.send(); }
                            Permit::At(at) if at < end => {
                                prop_assert!(at > bench.now);
                                bench.now = at;
                            }
                            Permit::At(_) => break,
                            Permit::Blocked => prop_assert!(false, "a rate never blocks"),
                        }
                    }
                    bench.now = end.max(bench.now);
                }
                Op::Wait(span) => bench.now += ms(span),
                Op::Repair => {
                    prop_assert!(bench.send_repair(0).is_none());
                }
                Op::Report { from, rate, rtt_ms, congestion } => {
                    let report = bench.report(from, rate.map(f64::from), ms(rtt_ms));
                    bench.take(&OrmccReport { congestion, ..report });
                }
                Op::Garbage(bytes) => {
                    if let Some(report) = OrmccReport::decode(&bytes) {
                        bench.take(&report);
                    }
                }
                Op::Leave(node) => bench.with(|s, cx| s.on_leave(cx, NodeId(node))),
            }
            let rate = bench.rate();
            prop_assert!(rate >= 499.9 && rate.is_finite(), "{}", rate);
            prop_assert!(bench.permit() != Permit::Blocked);
        }
    }

    #[test]
    fn a_receiver_takes_any_sequence_and_its_reports_are_valid(
        config in config(),
        steps in proptest::collection::vec((any::<u32>(), 0u64..200, any::<[bool; 5]>()), 1..300),
    ) {
        let mut listener = Listener::new(config);
        let mut seq = 0u32;
        for (number, wait, [far, repair, duplicate, marked, paused]) in steps {
            listener.pass(ms(wait));
            seq = if far && number % 7 == 0 { number } else { seq.wrapping_add(number % 4) };
            if paused && number % 5 == 0 {
                listener.announce.pauses = listener.announce.pauses.wrapping_add(1);
            }
            listener.announce.representative = (number % 3 > 0).then_some(NodeId(5 + number % 3));
            let congestion_experienced = marked;
            let arrival = original(seq, LEN);
            listener.arrive(&Arrival { repair, duplicate, congestion_experienced, ..arrival });
            for (_, report) in listener.reports() {
                let mut bytes = Vec::new();
                report.encode(&mut bytes);
                prop_assert_eq!(OrmccReport::decode(&bytes), Some(report));
            }
            let ReceiverBench { now, receiver, .. } = &listener.bench;
            prop_assert!(receiver.next_timeout().is_none_or(|at| at >= *now));
        }
    }
}
