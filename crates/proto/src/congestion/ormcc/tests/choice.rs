//! Tests of each line of the choice algorithm.

use faircast_base::{NodeId, SwitchReason};

use crate::congestion::ormcc::cr::{Choice, Representative};

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
