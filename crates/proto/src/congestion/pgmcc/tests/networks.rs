//! Tests of rules for real networks: spreading, open slow start, marks, and reports without NAKs.

use faircast_base::{Duration, NodeId, Seq};

use super::harness::{Bench, LEN, Listener, ms, original, plain};
use crate::congestion::pgmcc::{PgmccAnnounce, PgmccConfig, Profile};
use crate::congestion::{AckVector, Arrival, Audience, Permit, ReceiverFeedback, SenderControl};

#[test]
fn packets_wait_for_up_to_twice_their_share_of_the_round_trip() {
    let mut bench = Bench::new(PgmccConfig { spread: true, ..plain() });
    bench.pump(1);
    bench.advance(ms(100));
    bench.ack(1, 0, 1, 0.0);
    let (mut waits, mut sum) = (0, Duration::ZERO);
    for _ in 0..4000 {
        bench.pump(1);
        let share =
            bench.sender.gauges().rtt.expect("it was measured").mul_f64(1.0 / bench.window());
        match bench.permit() {
            Permit::At(at) => {
                let wait = at.since(bench.now);
                assert!(wait <= share * 2, "{wait} of {share}");
                (waits, sum) = (waits + 1, sum + wait);
                bench.advance(wait);
            }
            Permit::Now => {}
            Permit::Blocked => {
                bench.advance(ms(100));
                let latest = bench.next() - 1;
                bench.ack(1, latest, u32::MAX, 0.0);
            }
        }
    }
    assert!(waits > 1000 && sum > ms(1000), "{waits} {sum}");
}

#[test]
fn nothing_is_spread_on_a_short_path_or_where_packets_are_close() {
    for (rtt, rounds) in [(Duration::from_micros(900), 10), (ms(20), 250)] {
        let mut bench =
            Bench::new(PgmccConfig { spread: true, slow_start_threshold: 1000.0, ..plain() });
        bench.pump(1);
        for _ in 0..rounds {
            bench.advance(rtt);
            bench.ack_from(1, bench.next().saturating_sub(25), 0.0);
            while let Permit::At(at) = {
                bench.pump(8);
                bench.permit()
            } {
                let wait = at.since(bench.now);
                assert!(bench.window() < 200.0 && rtt >= ms(1), "{wait} at {}", bench.window());
                bench.advance(wait);
            }
        }
    }
}

#[test]
fn a_timer_that_fires_late_costs_no_throughput() {
    let (slow_start_open, window_max) = (true, 200.0);
    let mut bench =
        Bench::new(PgmccConfig { spread: true, slow_start_open, window_max, ..plain() });
    let (mut acked, mut before) = (0, 0);
    for elapsed in 0..4000 {
        while bench.sent.get(acked as usize).is_some_and(|sent| bench.now >= sent.0 + ms(100)) {
            bench.ack(1, acked, u32::MAX, 0.0);
            acked += 1;
        }
        if elapsed == 3000 {
            before = bench.next();
        }
        bench.pump(u32::MAX);
        bench.advance(ms(1));
    }
    let sent = bench.next() - before;
    assert!(sent > 1700, "{sent} in a second, of 2000");
}

#[test]
fn open_slow_start_lasts_until_the_first_loss() {
    let mut bench = Bench::running(PgmccConfig { slow_start_open: true, ..plain() }, 11, 0.0);
    let window = bench.window();
    assert!(window > 500.0, "{window}");
    bench.advance(ms(100));
    let acked = bench.acked;
    bench.ack(1, acked + 4, 0b1_0111, 0.01);
    let cut = bench.window();
    assert!((cut - window / 2.0).abs() < 4.0, "{cut} of {window}");
}

#[test]
fn after_a_stall_the_window_opens_to_half_of_what_it_was() {
    let mut bench = Bench::running(PgmccConfig { slow_start_open: true, ..plain() }, 11, 0.0);
    let before = bench.window();
    bench.pump(u32::MAX);
    bench.advance(bench.due());
    assert_eq!(bench.window(), 1.0);
    let mut rounds = 0;
    while bench.window() < before / 2.0 {
        bench.pump(u32::MAX);
        bench.advance(ms(100));
        bench.ack_from(1, bench.next() - bench.flight().min(bench.next()), 0.0);
        rounds += 1;
        assert!(rounds < 20, "{} of {before}", bench.window());
    }
    assert!(bench.window() < before / 2.0 + 2.0, "{} of {before}", bench.window());
}

fn data(listener: &mut Listener, seq: u32, marked: bool) {
    let arrival = Arrival { congestion_experienced: marked, ..original(seq, LEN) };
    listener.arrive(&arrival, Some(&PgmccAnnounce { sent_ms: 0, acker: Some(NodeId(1)) }));
}

#[test]
fn who_loses_and_cannot_send_naks_reports_to_the_source_itself() {
    for (profile, wanted) in [(Profile::Improved, 5..=10), (Profile::Draft, 0..=0)] {
        let mut listener = Listener::new(PgmccConfig::profile(profile));
        let mut reports = 0;
        for i in 0..200 {
            data(&mut listener, 5 * i, false);
            listener.with(ReceiverFeedback::on_naks_blocked);
            listener.pass(ms(10));
            for (audience, report) in listener.reports() {
                assert_eq!(audience, Audience::SenderNak);
                assert!(report.loss > 0);
                reports += 1;
            }
        }
        assert!(wanted.contains(&reports), "{reports} in two seconds");
    }
}

#[test]
fn marked_packets_are_reported_as_not_received() {
    let mut listener = Listener::new(PgmccConfig::default());
    let vector = |highest| AckVector { highest: Seq::new(highest), bitmap: u32::MAX };
    for seq in 0..100 {
        data(&mut listener, seq, false);
    }
    assert_eq!(listener.receiver.shape_vector(vector(99)), vector(99));
    for seq in 100..140 {
        data(&mut listener, seq, seq == 102 || seq == 139);
        let bitmap = listener.receiver.shape_vector(vector(seq)).bitmap;
        let want = match seq {
            139 => !1,
            102..=133 => !(1 << (seq - 102)),
            _ => u32::MAX,
        };
        assert_eq!(bitmap, want, "{seq}");
    }
    assert_eq!(listener.receiver.shape_vector(vector(142)).bitmap, !0b1000);
    assert_eq!(listener.receiver.shape_vector(vector(138)).bitmap, u32::MAX);
}
