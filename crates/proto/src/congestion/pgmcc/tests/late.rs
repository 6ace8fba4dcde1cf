//! Tests of late acknowledgements: reverted cuts, and waiting times.

use faircast_base::SwitchReason;

use super::harness::{Bench, ms, plain, plain_of};
use crate::congestion::pgmcc::Profile;

fn overtaken(bench: &mut Bench) -> (u32, f64) {
    bench.advance(ms(100));
    let (late, window) = (bench.acked, bench.window());
    for ahead in 1..=4 {
        bench.ack(1, late + ahead, !(1 << ahead), 0.0);
        bench.advance(ms(1));
    }
    bench.acked = late + 5;
    (late, window)
}

#[test]
fn a_cut_for_a_packet_that_comes_late_is_taken_back_and_later_ones_are_waited_for() {
    let mut bench = Bench::running(plain(), 20, 0.0);
    let (late, window) = overtaken(&mut bench);
    assert!(bench.window() < window && bench.loss_cuts() == 1, "three later packets tell");
    bench.ack(1, late + 4, u32::MAX, 0.0);
    assert!(bench.window() >= window, "{} of {window}", bench.window());
    bench.round(1, 0.0);
    bench.round(1, 0.0);
    overtaken(&mut bench);
    let last = bench.acked - 1;
    assert_eq!(bench.loss_cuts(), 1);
    bench.ack(1, last, !(1 << 4), 0.0);
    assert_eq!(bench.loss_cuts(), 1, "after 5 ms");
    bench.advance(ms(3));
    bench.ack(1, last, !(1 << 4), 0.0);
    assert_eq!(bench.loss_cuts(), 2, "it is lost");
}

#[test]
fn a_packet_that_was_repaired_says_nothing_of_the_path() {
    let mut bench = Bench::running(plain(), 20, 0.0);
    let (late, window) = overtaken(&mut bench);
    bench.send_repair(late);
    bench.ack(1, late + 4, u32::MAX, 0.0);
    assert!(bench.window() < window);
}

#[test]
fn one_of_two_is_no_reason_to_take_a_cut_back() {
    let mut bench = Bench::running(plain(), 20, 0.0);
    bench.advance(ms(100));
    let (first, window) = (bench.acked, bench.window());
    bench.ack(1, first + 5, !(0b11 << 4), 0.0);
    assert_eq!(bench.loss_cuts(), 1);
    bench.ack(1, first + 5, !(0b1 << 4), 0.0);
    assert!(bench.window() < window);
    bench.ack(1, first + 5, u32::MAX, 0.0);
    assert!(bench.window() >= window);
}

#[test]
fn published_profiles_take_nothing_back() {
    for profile in [Profile::Paper, Profile::Draft] {
        let mut bench = Bench::running(plain_of(profile), 20, 0.0);
        let (late, window) = overtaken(&mut bench);
        bench.ack(1, late + 4, u32::MAX, 0.0);
        assert!(bench.window() < window, "{profile:?}");
    }
}

#[test]
fn another_acker_that_has_what_the_last_one_lost_shows_no_late_packet() {
    let mut bench = Bench::running(plain(), 20, 0.0);
    let (late, window) = overtaken(&mut bench);
    let left = |at| bench.now.since(at) >= ms(400);
    let lost = bench.sent.iter().rposition(|sent| left(sent.0)).expect("twenty round trips");
    bench.nak(2, lost as u32, 0.08, ms(400));
    assert_eq!(bench.switches().last(), Some(&(Some(2), SwitchReason::Slower)));
    bench.ack(2, late + 4, u32::MAX, 0.08);
    assert!(bench.window() < window, "{} of {window}", bench.window());
}
