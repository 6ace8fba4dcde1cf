//! Tests of ORMCC's receiver: measurements and reports.

use std::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::harness::{LEN, Listener, improved, ms, original, paper};
use crate::congestion::ormcc::{Feedback, OrmccConfig};
use crate::congestion::{Arrival, Audience, ReceiverFeedback};

#[test]
fn each_packet_that_reveals_a_loss_brings_an_indication_with_the_output_rate() {
    let mut listener = Listener::new(paper());
    assert!(listener.stream(0..10).is_empty());
    let reports = listener.stream([11, 12, 15, 17]);
    assert_eq!(reports.len(), 3, "11, 15 and 17 are behind gaps");
    for report in reports {
        assert_eq!(report.rate, Some(100_000.0));
        assert!(report.congestion);
        assert_eq!(report.receiver, Some(NodeId(7)));
    }
}

#[test]
fn an_indication_goes_to_the_sender_at_once_with_the_timestamp_of_its_packet() {
    let mut listener = Listener::new(paper());
    listener.stream(0..3);
    listener.pass(ms(10));
    listener.arrive(&original(5, LEN));
    listener.pass(ms(3));
    let reports = listener.reports();
    let [(Audience::SenderNak, report)] = reports[..] else { panic!("{reports:?}") };
    // Sent 20 ms before its arrival, held for 3 ms.
    assert_eq!(report.echo_us, 1_043_000 - 23_000 + 3_000);
    assert_eq!(report.rate, None, "four packets, of which the first ends no gap");
}

#[test]
fn at_most_one_in_a_round_trip_where_the_source_says_so() {
    let config = OrmccConfig { feedback: Feedback::CiPerRtt, ..paper() };
    // Every second packet is lost, at 10 ms each, over round trips of 100 ms.
    let reports = Listener::new(config).stream((0..200).step_by(2));
    assert_eq!(reports.len(), 10);
    let all = Listener::new(paper()).stream((0..200).step_by(2));
    assert_eq!(all.len(), 99);
}

#[test]
fn indications_are_a_millisecond_apart() {
    let mut listener = Listener::new(improved());
    let mut indications = 0;
    for seq in (0..200).step_by(2) {
        listener.pass(Duration::from_micros(500));
        listener.arrive(&original(seq, LEN));
        let reports = listener.reports();
        indications += reports.iter().filter(|(_, report)| report.congestion).count();
    }
    // From the fourth packet on each shows a loss: 97 packets in 48.5 ms.
    assert_eq!(indications, 49);
}

#[test]
fn with_trac_the_representative_and_slower_ones_report() {
    let config = OrmccConfig { feedback: Feedback::Trac, ..paper() };
    for (representative, rate, want) in [
        (None, None, true),
        (Some(9), None, true),
        (Some(9), Some(150_000.0), true),
        (Some(9), Some(80_000.0), false),
        (Some(9), Some(100_000.0), false),
        (Some(7), Some(80_000.0), true),
    ] {
        let mut listener = Listener::new(config);
        listener.announce.representative = representative.map(NodeId);
        listener.announce.rate = rate;
        listener.stream(0..10);
        let heard = listener.stream([12]).len();
        assert_eq!(heard, usize::from(want), "{representative:?} {rate:?}");
    }
}

#[test]
fn with_trac_it_is_the_average_of_rates_at_losses_that_counts() {
    let config = OrmccConfig { feedback: Feedback::Trac, ..paper() };
    let mut listener = Listener::new(config);
    listener.announce.representative = Some(NodeId(9));
    listener.announce.rate = Some(90_000.0);
    listener.stream(0..10);
    assert!(listener.stream([12]).is_empty(), "100 kB/s at the first loss");
    let mut heard = Vec::new();
    for round in 0..5u32 {
        let from = 20 + 20 * round;
        for seq in from..from + 8 {
            listener.pass(ms(10));
            listener.stream([seq]);
        }
        listener.pass(ms(10));
        heard.push(listener.stream([from + 10]).len());
    }
    assert_eq!(heard.first(), Some(&0));
    assert_eq!(heard.last(), Some(&1));
}

#[test]
fn reordering_within_the_tolerance_is_no_congestion() {
    let mut listener = Listener::new(improved());
    listener.announce.alive = false;
    listener.pass(ms(100));
    for (seq, want) in [(0, 0), (2, 0), (3, 0), (1, 0), (4, 0), (6, 0), (7, 0), (8, 1)] {
        listener.pass(ms(1));
        listener.arrive(&original(seq, LEN));
        assert_eq!(listener.reports().len(), want, "{seq}");
    }
    listener.pass(ms(1));
    listener.arrive(&original(10, LEN));
    listener.pass(ms(9));
    assert!(listener.reports().is_empty());
    listener.pass(ms(2));
    assert_eq!(listener.reports().len(), 1);
    listener.pass(ms(1000));
    assert!(listener.reports().is_empty(), "once");
    assert_eq!(listener.bench.receiver.next_timeout(), None);
}

#[test]
fn packets_that_only_overtake_each_other_are_no_congestion_though_a_gap_is_always_open() {
    let mut listener = Listener::new(improved());
    listener.announce.alive = false;
    // 0, 2, 4, 1, 6, 3, 8, 5, ...: with a packet every 2 ms, each late packet is late by 6 ms.
    let late = (1..2000u32).step_by(2).flat_map(|n| [n + 3, n]);
    for seq in [0, 2].into_iter().chain(late) {
        listener.pass(ms(2));
        listener.arrive(&original(seq, LEN));
        assert!(listener.reports().is_empty(), "{seq}");
    }
    listener.arrive(&original(2004, LEN));
    listener.pass(ms(9));
    assert!(listener.reports().is_empty());
    listener.pass(ms(2));
    assert_eq!(listener.reports().len(), 1);
}

#[test]
fn a_mark_of_the_network_is_as_good_as_a_loss() {
    let mut listener = Listener::new(paper());
    listener.stream(0..10);
    listener.pass(ms(10));
    let marked = Arrival { congestion_experienced: true, ..original(10, LEN) };
    listener.arrive(&marked);
    assert_eq!(listener.reports().len(), 1);
}

#[test]
fn repairs_count_for_the_output_rate_and_reveal_nothing() {
    let mut listener = Listener::new(paper());
    listener.stream([0, 1, 2, 5]);
    for seq in [3, 4] {
        listener.pass(ms(5));
        let repair = Arrival { repair: true, ..original(seq, LEN) };
        listener.arrive(&repair);
        assert!(listener.reports().is_empty());
    }
    // 0 at 10 ms; 1, 2 and 5 each 10 ms later; two repairs each 5 ms later.
    let rate = listener.bench.receiver.output_rate().expect("six packets came");
    assert!((rate - 4000.0 / 0.030).abs() < 1.0, "{rate}");
}

#[test]
fn small_packets_are_measured_as_the_sender_counts_them() {
    let mut listener = Listener::new(paper());
    for (len, want) in [(0, 25_600.0), (255, 25_600.0), (300, 30_000.0)] {
        for _ in 0..5 {
            listener.pass(ms(10));
            let seq = listener.bench.now.since(Time::ZERO).as_millis() as u32 / 10;
            listener.arrive(&original(seq, len));
        }
        assert_eq!(listener.bench.receiver.output_rate(), Some(want), "{len} bytes");
    }
}

#[test]
fn a_duplicate_counts_for_nothing() {
    let mut listener = Listener::new(paper());
    listener.stream(0..10);
    let before = listener.bench.receiver.output_rate();
    listener.arrive(&Arrival { duplicate: true, congestion_experienced: true, ..original(9, LEN) });
    assert_eq!(listener.bench.receiver.output_rate(), before);
    assert!(listener.reports().is_empty());
}

#[test]
fn silence_of_the_source_is_not_taken_for_a_slow_network() {
    for (pauses, first, want) in
        [(1, 10, None), (1, 11, None), (1, 14, None), (0, 10, Some(4000.0 / 5.03))]
    {
        let mut listener = Listener::new(paper());
        listener.stream(0..10);
        listener.pass(ms(5000 - 10));
        listener.announce.pauses = pauses;
        let reports = listener.stream([first, first + 1, first + 2, first + 5]);
        let rate = reports.last().expect("a gap").rate.map(f64::from);
        assert_eq!(rate.is_some(), want.is_some(), "{rate:?}");
        if let (Some(rate), Some(want)) = (rate, want) {
            assert!((rate / want - 1.0).abs() < 0.01, "{rate}");
        }
        let reports = listener.stream([20, 21, 22, 23, 24, 26]);
        assert_eq!(reports.last().expect("a gap").rate, Some(100_000.0));
    }
}

#[test]
fn a_repair_after_silence_is_measured_from_there_on_too() {
    let mut listener = Listener::new(paper());
    listener.stream(0..10);
    // Limit: twice the round trip, which exceeds four packet intervals.
    for (silence, want) in [(200, true), (201, false), (60_000, false)] {
        listener.stream(20..40);
        listener.pass(ms(silence));
        listener.arrive(&Arrival { repair: true, ..original(10, LEN) });
        assert_eq!(listener.bench.receiver.output_rate().is_some(), want, "{silence} ms");
    }
}

#[test]
fn the_representative_shows_that_it_is_alive_once_in_a_round_trip() {
    let mut listener = Listener::new(improved());
    let reports = listener.stream(0..100);
    assert!((9..=11).contains(&reports.len()), "{}", reports.len());
    assert!(reports.iter().all(|report| !report.congestion));
    let mut another = Listener::new(improved());
    another.announce.representative = Some(NodeId(9));
    assert!(another.stream(0..100).is_empty());
    assert!(Listener::new(paper()).stream(0..100).is_empty(), "nobody asks for it");
}

#[test]
fn a_call_is_answered_after_a_random_wait_unless_somebody_is_named_meanwhile() {
    let mut listener = Listener::new(improved());
    listener.announce.representative = None;
    listener.arrive(&original(0, LEN));
    assert!(listener.reports().is_empty());
    listener.pass(ms(50));
    let reports = listener.reports();
    assert!(matches!(reports[..], [(Audience::SenderAck, report)] if !report.congestion));
    assert!(listener.stream([1, 2, 3]).is_empty(), "not at every call");
    let mut late = Listener::new(improved());
    late.announce.representative = None;
    late.arrive(&original(0, LEN));
    late.announce.representative = Some(NodeId(9));
    late.arrive(&original(1, LEN));
    late.pass(ms(100));
    assert!(late.reports().is_empty());
}

#[test]
fn naks_carry_a_timestamp_and_no_congestion() {
    let mut listener = Listener::new(paper());
    assert!(listener.bench.on_nak().is_none());
    listener.arrive(&original(0, LEN));
    listener.pass(ms(30));
    let report = listener.bench.on_nak().expect("data came");
    assert_eq!((report.echo_us, report.congestion), (1_010_000, false));
}

#[test]
fn an_indication_is_taken_back_when_all_that_was_lost_has_come() {
    let mut listener = Listener::new(improved());
    listener.pass(ms(100));
    for seq in (0..20).chain([21, 23, 24, 25]) {
        listener.pass(ms(1));
        listener.arrive(&original(seq, LEN));
    }
    let told = listener.reports();
    assert!(told.iter().any(|(_, report)| report.congestion), "{told:?}");
    listener.arrive(&original(20, LEN));
    assert!(listener.reports().iter().all(|(_, report)| !report.withdraws), "22 is missing");
    listener.arrive(&original(22, LEN));
    let told = listener.reports();
    assert!(told.iter().any(|(_, report)| report.withdraws && !report.congestion), "{told:?}");
    for seq in [26, 28, 29, 30, 31, 27] {
        listener.pass(ms(1));
        listener.arrive(&Arrival { reordering: Some(ms(20)), ..original(seq, LEN) });
        assert!(listener.reports().iter().all(|(_, report)| !report.congestion), "{seq}");
    }
    listener.arrive(&Arrival { reordering: Some(ms(20)), ..original(33, LEN) });
    listener.pass(ms(19));
    assert!(listener.reports().iter().all(|(_, report)| !report.congestion));
    listener.pass(ms(2));
    assert!(listener.reports().iter().any(|(_, report)| report.congestion));
}
