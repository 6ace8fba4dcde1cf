//! Tests of growth and cuts of the rate, and of each line of the choice algorithm.

use faircast_base::{NodeId, SwitchReason, Time};

use super::harness::{improved, ms, paper};
use crate::congestion::ormcc::OrmccConfig;
use crate::congestion::ormcc::cr::{Choice, Representative};
use crate::congestion::ormcc::rate::Rate;

const S: f64 = 1000.0;
const RTT: f64 = 0.1;
const NO_LIMIT: f64 = f64::INFINITY;

fn grown(rate: &mut Rate, round_trips: f64, most: f64) {
    let mut time = 0.0;
    while time < round_trips * RTT {
        rate.grow(S, RTT, most);
        time += S / rate.bytes_per_s();
    }
}

fn near(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 0.02, "{got}, not {want}");
}

#[test]
fn it_begins_at_a_packet_per_initial_round_trip_and_grows_by_one_in_each() {
    let mut rate = Rate::new(&paper(), S);
    assert_eq!(rate.bytes_per_s(), 5000.0); // 40 kbit/s
    rate.raise(100_000.0); // ten packets per round trip
    grown(&mut rate, 10.0, NO_LIMIT);
    near(rate.bytes_per_s(), 200_000.0);
    grown(&mut rate, 30.0, NO_LIMIT);
    near(rate.bytes_per_s(), 500_000.0);
}

#[test]
fn a_cut_goes_to_three_quarters_of_the_output_once_in_a_round_trip() {
    let at = |time| Time::ZERO + ms(time);
    let config = paper();
    let mut rate = Rate::new(&config, S);
    rate.raise(100_000.0);
    assert!(rate.cut(&config, at(0), 80_000.0, RTT, S));
    assert_eq!(rate.bytes_per_s(), 60_000.0);
    assert!(!rate.cut(&config, at(99), 40_000.0, RTT, S), "not again in this round trip");
    assert!(rate.cut(&config, at(100), 40_000.0, RTT, S));
    assert_eq!(rate.bytes_per_s(), 30_000.0);
    assert!(!rate.cut(&config, at(300), 40_000.0, RTT, S), "it is there already");
    assert!(!rate.cut(&config, at(300), 90_000.0, RTT, S), "and never goes up");
    assert_eq!(rate.bytes_per_s(), 30_000.0);
}

#[test]
fn one_cut_leaves_a_quarter_with_the_guard() {
    for (config, want) in [(improved(), [25_000.0, 6250.0]), (paper(), [750.0, 750.0])] {
        let mut rate = Rate::new(&config, S);
        rate.raise(100_000.0);
        for (second, want) in (1..).zip(want) {
            let at = Time::ZERO + ms(1000 * second);
            rate.cut(&config, at, 1000.0, RTT, S);
            near(rate.bytes_per_s(), want);
        }
    }
}

#[test]
fn the_interval_follows_from_the_throughput_between_cuts() {
    let at = |time| Time::ZERO + ms(time);
    let config = paper();
    let mut rate = Rate::new(&config, S);
    assert_eq!(rate.interval, f64::INFINITY);
    rate.raise(95_000.0);
    rate.cut(&config, at(0), 80_000.0, RTT, S);
    // Between 95000 and 5000 lies 50000. The average moves from 5000 to 27500, the deviation from 0
    // to 22500: (27500 + 67500) * 0.1 / 1000 = 9.5.
    assert_eq!(rate.interval, 100.0);
    rate.raise(100_000.0);
    rate.cut(&config, at(1000), 80_000.0, RTT, S);
    // Mean of 100000 and 60000 is 80000; 27500 -> 53750, and 22500 -> 37500.
    let packets = (53_750.0 + 3.0 * 37_500.0) * RTT / S;
    assert!((rate.interval - packets * packets).abs() < 1e-9);
    let first = OrmccConfig { throughput_first: true, ..config };
    let mut rate = Rate::new(&first, S);
    rate.raise(95_000.0);
    rate.cut(&first, at(0), 80_000.0, RTT, S);
    assert_eq!(rate.interval, 100.0, "50000 * 0.1 / 1000 = 5 packets");
}

#[test]
fn it_doubles_until_the_first_cut_where_that_is_asked_for() {
    let config = improved();
    let mut rate = Rate::new(&config, S);
    rate.raise(1e6);
    grown(&mut rate, 4.0, NO_LIMIT);
    near(rate.bytes_per_s(), 16e6);
    let held = rate.bytes_per_s();
    grown(&mut rate, 4.0, held);
    near(rate.bytes_per_s(), held);
    assert!(rate.doubling.is_some(), "a lead that is reached may move on");
    rate.cut(&config, Time::ZERO, held, RTT, S);
    assert!(rate.doubling.is_none());
    near(rate.bytes_per_s(), 0.75 * held);
}

#[test]
fn doubling_after_silence_ends_where_it_is_told_to() {
    let config = improved();
    let mut rate = Rate::new(&config, S);
    rate.raise(800_000.0);
    for _ in 0..40 {
        rate.halve();
    }
    assert_eq!(rate.bytes_per_s(), 500.0, "one packet in two seconds");
    assert!(rate.is_least());
    rate.restart(400_000.0);
    grown(&mut rate, 60.0, NO_LIMIT);
    assert!(rate.doubling.is_none());
    assert!((400_000.0..1_000_000.0).contains(&rate.bytes_per_s()), "{}", rate.bytes_per_s());
}

#[test]
fn no_packet_more_than_doubles_it_and_no_cut_stops_it() {
    let config = paper();
    let mut rate = Rate::new(&config, S);
    for _ in 0..200 {
        let before = rate.bytes_per_s();
        rate.grow(S, 1e-6, NO_LIMIT);
        assert!(rate.bytes_per_s() <= 2.0 * before && rate.bytes_per_s().is_finite());
    }
    rate.cut(&config, Time::ZERO, 1e-3, RTT, S);
    assert_eq!(rate.bytes_per_s(), 500.0);
}

const CR: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

/// Intervals I that are over, and that never end.
const OVER: f64 = -1.0;
const ENDLESS: f64 = f64::INFINITY;

const FIRST: Choice = Choice::Switch(SwitchReason::First);
const SLOWER: Choice = Choice::Switch(SwitchReason::Slower);
const RECOVERED: Choice = Choice::Switch(SwitchReason::Recovered);
const SILENT: Choice = Choice::Switch(SwitchReason::Silent);

impl Representative {
    fn after(rate: f64, more: &[f64]) -> Self {
        let mut cr = Self::default();
        assert_eq!(cr.hear(rate, CR), FIRST);
        cr.id = Some(CR);
        for &rate in more {
            assert_eq!(cr.hear(rate, CR), Choice::Cr);
        }
        cr
    }

    fn hear(&mut self, rate: f64, from: NodeId) -> Choice {
        self.judge(from, rate, ENDLESS, || false)
    }
}

const STEADY: [f64; 60] = [1000.0; 60];

#[test]
fn the_first_indication_chooses() {
    assert_eq!(Representative::after(500.0, &[]).average.get(), Some(500.0));
}

#[test]
fn averages_move_by_an_eighth_and_the_deviation_begins_at_half() {
    let mut cr = Representative::after(1000.0, &[]);
    assert_eq!(cr.hear(200.0, CR), Choice::Cr);
    // Mean 900, deviation 500 + (800 - 500) / 8 = 537.5; the representative's average is 900 too.
    assert_eq!(cr.average.get(), Some(900.0));
    // Next: mean 787.5, deviation 582.8. Four deviations below is out of reach.
    assert_eq!(cr.hear(1.0, OTHER), Choice::Other);
}

#[test]
fn one_that_is_far_slower_takes_over_at_once() {
    let mut cr = Representative::after(1000.0, &STEADY);
    // Mean 1000 - 100/8, deviation 100/8: the limit is 937.5.
    assert_eq!(cr.hear(900.0, OTHER), SLOWER);
    assert_eq!(cr.average.get(), Some(900.0), "its average begins at its rate");
    assert_eq!(Representative::after(1000.0, &STEADY).hear(965.0, OTHER), Choice::Other);
}

#[test]
fn one_far_below_the_average_but_above_the_representative_needs_luck() {
    for (rate, lucky, want) in
        [(500.0, false, Choice::Other), (500.0, true, SLOWER), (50.0, false, SLOWER)]
    {
        let mut cr = Representative::after(1000.0, &STEADY);
        cr.average = Default::default();
        assert_eq!(cr.hear(100.0, OTHER), SLOWER);
        for _ in 0..100 {
            assert_eq!(cr.hear(1000.0, OTHER), Choice::Other);
        }
        assert_eq!(cr.judge(OTHER, rate, ENDLESS, || lucky), want, "{rate}");
    }
}

#[test]
fn one_below_the_average_replaces_a_representative_that_has_recovered() {
    let mut cr = Representative::after(1000.0, &STEADY);
    let (mut rate, mut others) = (995.0, 0);
    while cr.hear(rate, OTHER) != RECOVERED {
        (rate, others) = (rate - 5.0, others + 1);
        assert!(others < 30, "the representative, at 1000, stays though all others are at {rate}");
    }
    assert!(others >= 3, "{others}");
    assert_eq!(cr.average.get(), Some(rate));
}

#[test]
fn one_above_the_average_replaces_nobody() {
    let mut cr = Representative::after(1000.0, &STEADY);
    for rate in [1010.0, 1100.0, 5000.0, 1e9] {
        assert_eq!(cr.hear(rate, OTHER), Choice::Other, "{rate}");
    }
}

#[test]
fn a_representative_that_is_silent_for_too_long_is_replaced_by_a_receiver_that_reports() {
    let mut cr = Representative::after(1000.0, &STEADY);
    assert_eq!(cr.judge(OTHER, 1500.0, OVER, || false), SILENT);
    assert_eq!(cr.average.get(), Some(1500.0));
    let own = cr.judge(CR, 1500.0, OVER, || false);
    assert_eq!(own, Choice::Cr, "its own word ends the silence");
}

#[test]
fn one_that_has_never_told_of_congestion_gives_way() {
    for (id, want) in [(Some(CR), SLOWER), (None, FIRST)] {
        let mut cr = Representative::after(1000.0, &STEADY);
        (cr.id, cr.average) = (id, Default::default());
        assert_eq!(cr.hear(2000.0, OTHER), want);
    }
}
