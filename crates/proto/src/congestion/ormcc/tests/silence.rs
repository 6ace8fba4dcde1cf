//! Tests of pauses of the source and silence of receivers.

use faircast_base::{CutReason, Duration, SwitchReason};

use super::harness::{guarded, ms, settled};
use crate::congestion::Permit;

#[test]
fn pauses_are_counted_also_where_a_repair_ends_them() {
    let mut bench = guarded();
    let pauses = bench.send().pauses;
    bench.now += ms(60_000);
    assert_eq!(bench.permit(), Permit::Now);
    assert_eq!(bench.send().pauses, pauses + 1);
    bench.now += Duration::from_micros(100);
    assert_eq!(bench.send().pauses, pauses + 1);
    bench.now += ms(60_000);
    bench.send_repair(0);
    bench.now += Duration::from_micros(100);
    assert_eq!(bench.send().pauses, pauses + 2);
}

#[test]
fn a_source_that_had_nothing_to_send_does_not_take_that_for_silence() {
    for pause in [500, 1500, 6000, 60_000, 3_600_000] {
        let mut bench = guarded();
        let (switches, announce) = (bench.switches(), bench.send());
        bench.now += ms(pause);
        assert_eq!(bench.permit(), Permit::Now);
        bench.send();
        bench.pass(ms(400));
        assert_eq!(bench.switches(), switches, "{pause} ms");
        assert_eq!(bench.cuts(CutReason::NoFeedback), 0, "{pause} ms");
        assert_eq!(bench.send().rate, announce.rate, "{pause} ms");
    }
}

#[test]
fn an_unused_rate_halves_each_second_as_far_as_one_begins_with_and_doubles_back() {
    let few = 40_000.0; // Four packets in 100 ms.
    for (pause, halvings) in [(900, 0), (1500, 1), (2500, 2), (3_600_000, 64)] {
        let mut bench = guarded();
        let before = bench.rate();
        assert!(before > 200_000.0, "{before}");
        bench.send();
        bench.now += ms(pause);
        bench.permit();
        let want = (0..halvings).fold(before, |rate: f64, _| (rate / 2.0).max(few));
        assert!((bench.rate() / want - 1.0).abs() < 1e-9, "{pause} ms: {}", bench.rate());
        for _ in 0..10 {
            bench.pass(ms(100));
            let output = bench.rate();
            bench.alive(1, Some(output));
        }
        assert!(bench.rate() > 0.95 * before, "{pause} ms: {} of {before}", bench.rate());
    }
}

#[test]
fn by_the_paper_an_unused_rate_halves_too_and_grows_as_from_the_start() {
    let mut bench = settled(&[100_000.0; 60]);
    bench.now += ms(60_000);
    bench.permit();
    assert_eq!(bench.rate(), 10_000.0, "a packet in 100 ms");
    bench.pass(ms(1000));
    assert!((100_000.0..112_000.0).contains(&bench.rate()), "{}", bench.rate());
}

#[test]
fn a_dead_representative_is_given_up_also_by_a_source_that_sends_a_packet_now_and_then() {
    for gap in [250, 500, 900, 5000] {
        let mut bench = guarded();
        let mut packets = 0;
        while bench.representative().is_some() {
            bench.now += ms(gap);
            bench.permit();
            bench.send();
            packets += 1;
            assert!(packets < 20, "{gap} ms");
        }
        assert!((8..=10).contains(&packets), "{packets} packets at {gap} ms");
        assert_eq!(bench.switches().last(), Some(&(None, SwitchReason::Silent)));
    }
}

#[test]
fn silence_takes_the_rate_to_its_floor_and_a_report_brings_it_back() {
    let mut bench = guarded();
    let before = bench.rate();
    bench.pass(ms(5000));
    bench.pass(ms(5000));
    assert_eq!(bench.rate(), 500.0);
    assert!(bench.cuts(CutReason::NoFeedback) > 0);
    let lone = bench.pass(ms(20_000));
    assert!((9..=11).contains(&lone), "{lone} packets in 20 s");
    bench.alive(1, None);
    for _ in 0..30 {
        bench.pass(ms(100));
        bench.alive(1, Some(1e6));
    }
    assert!(bench.rate() > before / 3.0, "{} after {before}", bench.rate());
}

#[test]
fn a_representative_that_shows_no_life_is_given_up_and_called_for() {
    let mut bench = guarded();
    let rate = bench.rate();
    bench.pass(ms(2000));
    assert_eq!(bench.switches()[1..], [(None, SwitchReason::Silent)]);
    let announce = bench.send();
    assert_eq!((announce.representative, announce.rate), (None, None));
    assert!(bench.rate() < 2.2 * rate.max(1e6), "it grew for half of that time at most");
    bench.alive(4, Some(1e6));
    assert_eq!(bench.switches().last(), Some(&(Some(4), SwitchReason::First)));
}
