//! The rules that real networks need: spreading, open slow start, marks, and a voice without a path.

use faircast_base::{Cx, Duration, NodeId, Purpose, Rng, Seq, Time};

use super::harness::{Bench, Log, ms, plain};
use crate::congestion::pgmcc::{PgmccAnnounce, PgmccConfig, PgmccReceiver, SlowStart};
use crate::congestion::{AckVector, Arrival, Audience, Permit, ReceiverFeedback, SenderControl};

/// A sender whose acker is 1, ten round trips of 100 ms old.
fn running(config: PgmccConfig) -> Bench {
    let mut bench = Bench::new(config);
    bench.pump(1);
    bench.round(1, 0.0);
    for _ in 0..10 {
        bench.pump(u32::MAX);
        bench.round(1, 0.0);
    }
    bench
}

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
                // Below the threshold the window opens twice as fast as it is acknowledged.
                assert!(wait <= share * 2, "{wait} of {share}");
                (waits, sum) = (waits + 1, sum + wait);
                bench.advance(wait);
            }
            Permit::Now => {}
            Permit::Blocked => {
                bench.advance(ms(100));
                let latest = bench.next.value() - 1;
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
            let (latest, first) = (bench.next.value() - 1, bench.next.value().saturating_sub(25));
            for seq in first..=latest {
                bench.ack(1, seq, u32::MAX, 0.0);
            }
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
    let (slow_start, window_max) = (SlowStart::Open, 200.0);
    let mut bench = Bench::new(PgmccConfig { spread: true, slow_start, window_max, ..plain() });
    let (mut acked, mut before) = (0, 0);
    for elapsed in 0..4000 {
        while bench.sent.get(acked as usize).is_some_and(|sent| bench.now >= sent.1 + ms(100)) {
            bench.ack(1, acked, u32::MAX, 0.0);
            acked += 1;
        }
        if elapsed == 3000 {
            before = bench.next.value();
        }
        bench.pump(u32::MAX);
        // Timers that are no finer than a millisecond, where packets are half of one apart.
        bench.advance(ms(1));
    }
    let sent = bench.next.value() - before;
    assert!(sent > 1700, "{sent} in a second, of 2000");
}

#[test]
fn open_slow_start_lasts_until_the_first_loss() {
    let mut bench = running(PgmccConfig { slow_start: SlowStart::Open, ..plain() });
    let window = bench.window();
    assert!(window > 500.0, "{window}");
    bench.advance(ms(100));
    let acked = bench.acked();
    bench.ack(1, acked + 4, 0b1_0111, 0.01);
    let cut = bench.window();
    assert!((cut - window / 2.0).abs() < 4.0, "{cut} of {window}");
}

#[test]
fn after_a_stall_the_window_opens_to_half_of_what_it_was() {
    let mut bench = running(PgmccConfig { slow_start: SlowStart::Open, ..plain() });
    let before = bench.window();
    bench.pump(u32::MAX);
    let due = bench.sender.next_timeout().expect("the stall timer");
    bench.advance(due.since(bench.now));
    assert_eq!(bench.window(), 1.0);
    let mut rounds = 0;
    while bench.window() < before / 2.0 {
        bench.pump(u32::MAX);
        bench.advance(ms(100));
        let latest = bench.next.value() - 1;
        let out = (bench.flight() - 1).min(latest);
        for seq in latest - out..=latest {
            bench.ack(1, seq, u32::MAX, 0.0);
        }
        rounds += 1;
        assert!(rounds < 20, "{} of {before}", bench.window());
    }
    assert!(bench.window() < before / 2.0 + 2.0, "{} of {before}", bench.window());
}

struct Far {
    now: Time,
    rng: Rng,
    log: Log,
    receiver: PgmccReceiver,
}

impl Far {
    fn new(config: PgmccConfig) -> Self {
        Self {
            now: Time::ZERO,
            rng: Rng::new(1, NodeId(9), Purpose::Machine(0)),
            log: Log::default(),
            receiver: PgmccReceiver::new(config, NodeId(9)),
        }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut PgmccReceiver, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
        f(&mut self.receiver, &mut cx)
    }

    fn data(&mut self, seq: u32, marked: bool) {
        let arrival = Arrival {
            seq: Seq::new(seq),
            len: 1400,
            repair: false,
            duplicate: false,
            congestion_experienced: marked,
        };
        let announce = PgmccAnnounce { sent_ms: 0, acker: Some(NodeId(1)) };
        self.with(|receiver, cx| receiver.on_data(cx, &arrival, Some(&announce)));
    }
}

#[test]
fn who_loses_and_cannot_send_naks_reports_to_the_source_itself() {
    for (speak_up, wanted) in [(true, 5..=10), (false, 0..=0)] {
        let mut far = Far::new(PgmccConfig { speak_up, ..PgmccConfig::default() });
        let mut reports = 0;
        for i in 0..200 {
            // Four of five are lost.
            far.data(5 * i, false);
            far.with(|receiver, cx| receiver.on_stuck(cx));
            far.now += ms(10);
            far.with(|receiver, cx| receiver.on_timeout(cx));
            while let Some((audience, report)) = far.with(|receiver, cx| receiver.poll_report(cx)) {
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
    let mut far = Far::new(PgmccConfig::default());
    let vector = |highest| AckVector { highest: Seq::new(highest), bitmap: u32::MAX };
    for seq in 0..100 {
        far.data(seq, false);
    }
    assert_eq!(far.receiver.shape_vector(vector(99)), vector(99));
    for seq in 100..140 {
        far.data(seq, seq == 102 || seq == 139);
        let bitmap = far.receiver.shape_vector(vector(seq)).bitmap;
        let want = match seq {
            139 => !1,
            102..=133 => !(1 << (seq - 102)),
            _ => u32::MAX,
        };
        assert_eq!(bitmap, want, "{seq}");
    }
    assert_eq!(far.receiver.shape_vector(vector(142)).bitmap, !0b1000);
    assert_eq!(far.receiver.shape_vector(vector(138)).bitmap, u32::MAX);
}
