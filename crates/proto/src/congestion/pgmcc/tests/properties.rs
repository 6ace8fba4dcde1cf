//! Property tests of pgmcc's sender: a control's contract under any sequence of inputs.

use faircast_base::{NodeId, Seq};
use proptest::prelude::*;

use super::harness::{Bench, LEN, ms};
use crate::congestion::pgmcc::{
    BitmapScope, Model, PgmccConfig, PgmccReport, Profile, TimeoutMode,
};
use crate::congestion::{AckVector, Carrier, Permit, SenderControl};

#[derive(Clone, Debug)]
enum Op {
    Pump(u32),
    Repair,
    Wait(u64),
    Ack { from: u32, behind: u32, bitmap: u32, loss: u16 },
    Nak { from: u32, behind: u32, loss: u16, rtt_ms: u32 },
    Garbage { from: u32, highest: u32, bitmap: u32, echo_ms: u32, loss: u16, nak: bool },
    Leave(u32),
    Idle,
}

fn op() -> impl Strategy<Value = Op> {
    let bitmap = prop_oneof![Just(u32::MAX), any::<u32>(), Just(0xffff_fff7), Just(1)];
    prop_oneof![
        4 => (1u32..50).prop_map(Op::Pump),
        1 => Just(Op::Repair),
        3 => (0u64..3000).prop_map(Op::Wait),
        6 => (1u32..5, 0u32..40, bitmap, any::<u16>())
            .prop_map(|(from, behind, bitmap, loss)| Op::Ack { from, behind, bitmap, loss }),
        3 => (1u32..5, 0u32..100, any::<u16>(), 0u32..2000)
            .prop_map(|(from, behind, loss, rtt_ms)| Op::Nak { from, behind, loss, rtt_ms }),
        2 => (0u32..9, any::<u32>(), any::<u32>(), any::<u32>(), any::<u16>(), any::<bool>())
            .prop_map(|(from, highest, bitmap, echo_ms, loss, nak)| Op::Garbage {
                from, highest, bitmap, echo_ms, loss, nak
            }),
        1 => (1u32..5).prop_map(Op::Leave),
        1 => Just(Op::Idle),
    ]
}

fn config() -> impl Strategy<Value = PgmccConfig> {
    let profile = prop_oneof![Just(Profile::Paper), Just(Profile::Draft), Just(Profile::Improved)];
    let timeout =
        prop_oneof![Just(TimeoutMode::Fixed), Just(TimeoutMode::Tcp), Just(TimeoutMode::Reno)];
    (profile, timeout, proptest::collection::vec(any::<bool>(), 8)).prop_map(
        |(profile, timeout_mode, bits)| PgmccConfig {
            timeout_mode,
            window_max: 100.0,
            designated_loss: bits[0],
            switch_recover: bits[1],
            switch_ageing: bits[2],
            charge_repairs: bits[3],
            bitmap_scope: if bits[4] { BitmapScope::All } else { BitmapScope::Own },
            model: if bits[5] { Model::Simple } else { Model::Full },
            spread: bits[6],
            slow_start_open: bits[7],
            ..PgmccConfig::profile(profile)
        },
    )
}

fn apply(bench: &mut Bench, op: Op) {
    let sent = bench.next();
    match op {
        Op::Pump(most) => {
            bench.pump(most);
        }
        Op::Repair => {
            if bench.with(|s, cx| s.permit(cx, LEN, true)) == Permit::Now {
                bench.send_repair(0);
            }
        }
        Op::Wait(span) => bench.advance(ms(span)),
        Op::Ack { from, behind, bitmap, loss } if sent > 0 => {
            let highest = sent.saturating_sub(1 + behind);
            bench.ack(from, highest, bitmap, f64::from(loss) / 65535.0);
        }
        Op::Nak { from, behind, loss, rtt_ms } if sent > 0 => {
            let first = sent.saturating_sub(1 + behind);
            bench.nak(from, first, f64::from(loss) / 65535.0, ms(u64::from(rtt_ms)));
        }
        Op::Ack { .. } | Op::Nak { .. } => {}
        Op::Garbage { from, highest, bitmap, echo_ms, loss, nak } => {
            let receiver = (from > 0).then_some(NodeId(from));
            let report = PgmccReport { echo_ms, loss, receiver };
            let highest = Seq::new(highest);
            let carrier = match nak {
                true => Carrier::Nak { first: highest },
                false => Carrier::Ack(AckVector { highest, bitmap }),
            };
            bench.with(|s, cx| s.on_report(cx, NodeId(from), carrier, &report));
        }
        Op::Leave(from) => bench.with(|s, cx| s.on_leave(cx, NodeId(from))),
        Op::Idle => bench.with(SenderControl::on_idle),
    }
}

fn check(bench: &mut Bench, config: &PgmccConfig) -> Result<(), TestCaseError> {
    let (window, flight) = (bench.window(), bench.flight());
    prop_assert!(window >= 1.0 && window <= config.window_max, "window {window}");
    prop_assert!(u64::from(flight) <= bench.sent.len() as u64 + 5000);
    let permit = bench.permit();
    match permit {
        Permit::Blocked => {
            let due = bench.sender.next_timeout();
            prop_assert!(due.is_some_and(|at| at >= bench.now), "blocked until {due:?}");
        }
        Permit::Now => {}
        Permit::At(at) => prop_assert!(at > bench.now),
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_sequence_of_events_keeps_the_contract(
        config in config(),
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        let mut bench = Bench::new(config);
        for op in ops {
            apply(&mut bench, op);
            check(&mut bench, &config)?;
        }
        // Without any report the rate falls to its floor.
        bench.advance(ms(600_000));
        for gap in 0..20 {
            let sent = bench.pump(1000);
            prop_assert!(sent <= 1 || gap == 0, "{sent} packets at the floor");
            prop_assert!(bench.due() > ms(0));
            bench.advance(bench.due());
        }
        // With reports from an honest receiver the window opens again.
        let before = bench.next();
        let mut acked = before;
        bench.advance(ms(600_000));
        for _ in 0..200 {
            for _ in 0..5 {
                bench.pump(1000);
                bench.advance(ms(10));
            }
            // Each packet is in some bitmap: the draft's tokens leak for those in none.
            let latest = bench.next() - 1;
            for seq in (acked..latest).step_by(16).chain([latest]) {
                bench.ack(6, seq, u32::MAX, 0.0);
            }
            acked = latest;
        }
        prop_assert!(bench.next() - before > 300, "{} sent", bench.next() - before);
    }
}
