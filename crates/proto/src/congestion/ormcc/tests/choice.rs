//! Tests of each line of the choice algorithm.

use crate::congestion::ormcc::cr::{Averages, Choice, Standing};

const OTHER: Standing = Standing { has_cr: true, is_cr: false, is_overdue: false };
const CR: Standing = Standing { has_cr: true, is_cr: true, is_overdue: false };
const NOBODY: Standing = Standing { has_cr: false, is_cr: false, is_overdue: false };

struct Judge {
    averages: Averages,
}

impl Judge {
    fn after(rate: f64, more: &[f64]) -> Self {
        let mut judge = Self { averages: Averages::default() };
        assert_eq!(judge.hear(rate, NOBODY), Choice::First);
        for &rate in more {
            assert_eq!(judge.hear(rate, CR), Choice::Cr);
        }
        judge
    }

    fn hear(&mut self, rate: f64, standing: Standing) -> Choice {
        self.averages.judge(rate, standing, || false)
    }

    fn hear_lucky(&mut self, rate: f64) -> Choice {
        self.averages.judge(rate, OTHER, || true)
    }
}

const STEADY: [f64; 60] = [1000.0; 60];

#[test]
fn the_first_indication_chooses() {
    assert_eq!(Judge::after(500.0, &[]).averages.cr(), Some(500.0));
}

#[test]
fn averages_move_by_an_eighth_and_the_deviation_begins_at_half() {
    let mut judge = Judge::after(1000.0, &[]);
    assert_eq!(judge.hear(200.0, CR), Choice::Cr);
    // Mean 900, deviation 500 + (800 - 500) / 8 = 537.5; the representative's average is 900 too.
    assert_eq!(judge.averages.cr(), Some(900.0));
    // Next: mean 787.5, deviation 582.8. Four deviations below is out of reach.
    assert_eq!(judge.hear(1.0, OTHER), Choice::Other);
}

#[test]
fn one_that_is_far_slower_takes_over_at_once() {
    let mut judge = Judge::after(1000.0, &STEADY);
    // Mean 1000 - 100/8, deviation 100/8: the limit is 937.5.
    assert_eq!(judge.hear(900.0, OTHER), Choice::Slower);
    assert_eq!(judge.averages.cr(), Some(900.0), "its average begins at its rate");
    assert_eq!(Judge::after(1000.0, &STEADY).hear(965.0, OTHER), Choice::Other);
}

#[test]
fn one_far_below_the_average_but_above_the_representative_needs_luck() {
    let setup = || {
        let mut judge = Judge::after(1000.0, &STEADY);
        judge.averages.forget_cr();
        assert_eq!(judge.hear(100.0, OTHER), Choice::First);
        for _ in 0..100 {
            assert_eq!(judge.hear(1000.0, OTHER), Choice::Other);
        }
        judge
    };
    assert_eq!(setup().hear(500.0, OTHER), Choice::Other);
    assert_eq!(setup().hear_lucky(500.0), Choice::Slower);
    assert_eq!(setup().hear(50.0, OTHER), Choice::Slower, "and one below it does not");
}

#[test]
fn one_below_the_average_replaces_a_representative_that_has_recovered() {
    let setup = || {
        let mut judge = Judge::after(1000.0, &STEADY);
        let mut now = 1000.0;
        let mut others = 0;
        while others < 40 {
            now -= 5.0;
            let choice = judge.hear(now, OTHER);
            if choice == Choice::Recovered {
                return (others, judge.averages.cr());
            }
            assert_eq!(choice, Choice::Other);
            others += 1;
        }
        panic!("the representative, at 1000, stays though all others are at {now}");
    };
    let (others, own) = setup();
    assert!((3..30).contains(&others), "{others}");
    assert_eq!(own, Some(1000.0 - 5.0 * f64::from(others + 1)));
}

#[test]
fn one_above_the_average_replaces_nobody() {
    let mut judge = Judge::after(1000.0, &STEADY);
    for rate in [1010.0, 1100.0, 5000.0, 1e9] {
        assert_eq!(judge.hear(rate, OTHER), Choice::Other, "{rate}");
    }
}

#[test]
fn a_representative_that_is_silent_for_too_long_is_replaced_by_a_receiver_that_reports() {
    let mut judge = Judge::after(1000.0, &STEADY);
    let overdue = Standing { is_overdue: true, ..OTHER };
    assert_eq!(judge.hear(1500.0, overdue), Choice::Silent);
    assert_eq!(judge.averages.cr(), Some(1500.0));
    let own = Standing { is_overdue: true, ..CR };
    assert_eq!(judge.hear(1500.0, own), Choice::Cr, "its own word ends the silence");
}

#[test]
fn one_that_has_never_told_of_congestion_gives_way() {
    let mut judge = Judge::after(1000.0, &STEADY);
    judge.averages.forget_cr();
    assert_eq!(judge.hear(2000.0, OTHER), Choice::First);
    judge.averages.forget_cr();
    assert_eq!(judge.hear(2000.0, NOBODY), Choice::First);
}
