//! Tests of the receiver half, and of rules for real networks: spreading, open slow start, marks.

use std::vec;
use std::vec::Vec;

use faircast_base::{Duration, NodeId, Seq};

use super::harness::{Bench, LEN, Listener, ms, original, plain};
use crate::congestion::pgmcc::{PgmccAnnounce, PgmccConfig, PgmccReport, Profile};
use crate::congestion::{AckVector, Arrival, Audience, Permit, ReceiverFeedback, SenderControl};

const ME: NodeId = NodeId(4);
const OTHER: NodeId = NodeId(5);

fn data(listener: &mut Listener, seq: u32, sent_ms: u32, acker: Option<NodeId>) {
    listener.arrive(&original(seq, LEN), Some(&PgmccAnnounce { sent_ms, acker }));
}

fn repair(listener: &mut Listener, seq: u32, sent_ms: u32, acker: Option<NodeId>) {
    let arrival = Arrival { repair: true, ..original(seq, LEN) };
    listener.arrive(&arrival, Some(&PgmccAnnounce { sent_ms, acker }));
}

#[test]
fn each_packet_that_names_it_is_acknowledged_at_once() {
    let mut listener = Listener::new(PgmccConfig { ack_every: 1, ..PgmccConfig::default() });
    data(&mut listener, 0, 1000, Some(ME));
    let report = PgmccReport { echo_ms: 1000, loss: 0, receiver: Some(ME) };
    assert_eq!(listener.reports(), vec![(Audience::SenderAck, report)]);
    data(&mut listener, 1, 1010, Some(OTHER));
    assert_eq!(listener.reports(), vec![]);
    let duplicate = Arrival { duplicate: true, ..original(0, LEN) };
    listener.arrive(&duplicate, Some(&PgmccAnnounce { sent_ms: 1000, acker: Some(ME) }));
    assert_eq!(listener.reports(), vec![]);
}

#[test]
fn packets_of_one_moment_are_acknowledged_together_where_that_is_wanted() {
    for (packets, at_once, at_the_end) in [(1, 0, 1), (7, 0, 1), (8, 1, 0), (20, 2, 1)] {
        let mut listener = Listener::new(PgmccConfig { ack_every: 8, ..PgmccConfig::default() });
        let mut acks = 0;
        for seq in 0..packets {
            data(&mut listener, seq, 1000, Some(ME));
            acks += listener.reports().len();
        }
        assert_eq!(acks, at_once, "{packets}");
        let held = listener.receiver.next_timeout() == Some(listener.now);
        assert_eq!(held, at_the_end > 0, "a timer for the same moment ends it");
        listener.pass(Duration::ZERO);
        assert_eq!(listener.reports().len(), at_the_end, "{packets}");
        assert_eq!(listener.receiver.next_timeout(), None);
    }
}

#[test]
fn a_report_counts_the_time_for_which_the_timestamp_was_held() {
    let mut listener =
        Listener::new(PgmccConfig { loss_intervals: false, ..PgmccConfig::default() });
    assert_eq!(listener.on_nak(), None, "no timestamp yet");
    data(&mut listener, 0, u32::MAX - 9, Some(OTHER));
    data(&mut listener, 2, u32::MAX - 4, Some(OTHER));
    listener.pass(ms(30));
    let report = listener.on_nak().expect("there is a timestamp");
    assert_eq!(report.echo_ms, 25, "30 ms after 2^32 - 5, modulo 2^32");
    assert_eq!(report.loss, 496, "the NAK's own loss, and the packet after it, are in it");
}

#[test]
fn no_round_trip_comes_from_a_repair_or_an_older_packet() {
    let mut listener = Listener::new(PgmccConfig::default());
    data(&mut listener, 0, 1000, Some(OTHER));
    data(&mut listener, 2, 1020, Some(OTHER));
    listener.pass(ms(500));
    repair(&mut listener, 1, 1010, Some(ME));
    data(&mut listener, 3, 1530, Some(OTHER));
    data(&mut listener, 1, 1010, Some(OTHER));
    listener.pass(Duration::ZERO);
    let reports = listener.reports();
    assert_eq!(reports.len(), 1, "a foreign source may ask for the repair's acknowledgement");
    assert_eq!(reports[0].1.echo_ms, 1530);
}

#[test]
fn repairs_do_not_undo_losses() {
    let mut listener = Listener::new(PgmccConfig::default());
    for seq in [0, 1, 2, 4, 5, 6] {
        data(&mut listener, seq, seq, Some(OTHER));
    }
    let lossy = listener.receiver.meter.estimate.loss();
    assert!(lossy > 0.007);
    repair(&mut listener, 3, 3, Some(OTHER));
    assert_eq!(listener.receiver.meter.estimate.loss(), lossy);
}

#[test]
fn a_call_for_an_election_is_answered_once_after_a_random_wait() {
    let mut listener = Listener::new(PgmccConfig::default());
    data(&mut listener, 0, 0, None);
    assert_eq!(listener.reports(), vec![]);
    let at = listener.receiver.next_timeout().expect("the answer is planned");
    assert!(at > listener.now && at <= listener.now + ms(50));
    listener.pass(ms(50));
    let reports = listener.reports();
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].0, reports[0].1.echo_ms), (Audience::SenderAck, 50));
    assert_eq!(listener.receiver.next_timeout(), None);
}

#[test]
fn the_answer_is_suppressed_when_somebody_is_named_meanwhile() {
    let mut listener = Listener::new(PgmccConfig::default());
    data(&mut listener, 0, 0, None);
    data(&mut listener, 1, 10, Some(OTHER));
    assert_eq!(listener.receiver.next_timeout(), None);
    listener.pass(ms(100));
    assert_eq!(listener.reports(), vec![]);
}

#[test]
fn losses_at_the_tail_enter_the_filter_after_a_while() {
    let mut listener = Listener::new(PgmccConfig::default());
    data(&mut listener, 0, 0, Some(OTHER));
    listener.with(|r, cx| r.on_missing(cx, Seq::new(1), Seq::new(2)));
    assert_eq!(listener.receiver.meter.estimate.loss(), 0.0);
    listener.pass(ms(100));
    assert!(listener.receiver.meter.estimate.loss() > 0.008);
    assert_eq!(listener.receiver.next_timeout(), None);
}

#[test]
fn a_receiver_that_loses_far_more_than_those_it_hears_speaks_up() {
    let heard = |loss: f64| PgmccReport {
        echo_ms: 0,
        loss: (loss * 65535.0) as u16,
        receiver: Some(OTHER),
    };
    for (other_loss, speaks) in [(0.05, true), (0.2, false)] {
        let mut listener = Listener::new(PgmccConfig::default());
        for seq in (0..2000).filter(|seq| seq % 5 != 0) {
            data(&mut listener, seq, 0, Some(OTHER));
            listener.now += ms(5);
        }
        listener.now += ms(5000);
        let mut reports = 0;
        for _ in 0..100 {
            listener.with(|r, cx| r.on_overheard(cx, OTHER, &heard(other_loss)));
            listener.pass(ms(50));
            reports += listener.reports().len();
        }
        assert_eq!(reports > 0, speaks);
        assert!(reports <= 6, "{reports}");
    }
}

#[test]
fn an_acker_that_lost_the_last_packets_reports_to_the_source_itself() {
    let cases = [(ME, 1000, vec![Audience::SenderNak]), (ME, 800, vec![]), (OTHER, 1000, vec![])];
    for (acker, silence_ms, wanted) in cases {
        let mut listener = Listener::new(PgmccConfig::default());
        data(&mut listener, 0, 0, Some(acker));
        listener.pass(ms(1));
        listener.reports();
        listener.pass(ms(silence_ms));
        listener.with(|r, cx| r.on_missing(cx, Seq::new(1), Seq::new(2)));
        let heard = PgmccReport { echo_ms: 0, loss: 65535, receiver: Some(OTHER) };
        for _ in 0..4 {
            listener.pass(ms(50));
            listener.with(|r, cx| r.on_overheard(cx, OTHER, &heard));
        }
        let audiences: Vec<_> = listener.reports().into_iter().map(|(to, _)| to).collect();
        assert_eq!(audiences, wanted);
    }
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

fn mark(listener: &mut Listener, seq: u32, marked: bool) {
    let arrival = Arrival { congestion_experienced: marked, ..original(seq, LEN) };
    listener.arrive(&arrival, Some(&PgmccAnnounce { sent_ms: 0, acker: Some(NodeId(1)) }));
}

#[test]
fn who_loses_and_cannot_send_naks_reports_to_the_source_itself() {
    for (profile, wanted) in [(Profile::Improved, 5..=10), (Profile::Draft, 0..=0)] {
        let mut listener = Listener::new(PgmccConfig::profile(profile));
        let mut reports = 0;
        for i in 0..200 {
            mark(&mut listener, 5 * i, false);
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
        mark(&mut listener, seq, false);
    }
    assert_eq!(listener.receiver.shape_vector(vector(99)), vector(99));
    for seq in 100..140 {
        mark(&mut listener, seq, seq == 102 || seq == 139);
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
