//! Tests of bitmaps at the sender, with vectors of a live OpenPGM receiver: losses, late packets,
//! and repairs in the window.

use faircast_base::{Event, SwitchReason};

use super::harness::{Bench, LEN, ms, plain, plain_of};
use crate::congestion::pgmcc::{PgmccConfig, Profile};
use crate::congestion::{Permit, SenderControl};

fn with_history(config: PgmccConfig, upto: u32, sent: u32) -> Bench {
    let mut bench = Bench::new(PgmccConfig { slow_start_threshold: 1000.0, ..config });
    bench.pump(1);
    let mut seq = 0;
    while seq < upto {
        bench.now += ms(10);
        bench.ack(9, seq, u32::MAX, 0.0);
        bench.pump(sent - bench.next());
        seq += 1;
    }
    assert_eq!(bench.next(), sent);
    bench
}

#[test]
fn a_hole_is_a_loss_once_three_later_packets_are_there() {
    for profile in [Profile::Paper, Profile::Draft, Profile::Improved] {
        let mut bench = with_history(plain_of(profile), 13, 22);
        for (highest, bitmap, cuts) in [
            (13, 0xffff_ffff, 0),
            (14, 0xffff_ffff, 0),
            (15, 0xffff_ffff, 0),
            (17, 0xffff_fffd, 0),
            (18, 0xffff_fffb, 0),
            (19, 0xffff_fff7, 1),
            (20, 0xffff_ffef, 1),
            (21, 0xffff_ffdf, 1),
        ] {
            bench.ack(9, highest, bitmap, 0.0);
            assert_eq!(bench.loss_cuts(), cuts, "{profile:?} at {highest}");
        }
        assert_eq!(bench.flight(), 0);
        bench.send_repair(16);
        let before = (bench.window(), bench.flight());
        bench.ack(9, 21, 0xffff_ffff, 0.0);
        assert_eq!((bench.window(), bench.flight()), before, "{profile:?}");
    }
}

#[test]
fn a_late_packet_before_the_threshold_cancels_the_loss() {
    let mut bench = with_history(plain(), 13, 22);
    bench.ack(9, 17, 0xffff_fffd, 0.0);
    bench.ack(9, 18, 0xffff_fffb, 0.0);
    bench.ack(9, 19, 0xffff_ffff, 0.0);
    bench.ack(9, 20, 0xffff_ffff, 0.0);
    assert_eq!((bench.loss_cuts(), bench.flight()), (0, 1));
}

#[test]
fn a_jump_of_five_waits_for_the_threshold() {
    let mut bench = with_history(plain(), 26, 36);
    bench.ack(9, 31, 0xffff_ffc1, 0.0);
    assert_eq!((bench.loss_cuts(), bench.flight()), (0, 9));
    bench.ack(9, 33, 0xffff_ff07, 0.0);
    assert_eq!((bench.loss_cuts(), bench.flight()), (1, 2));
}

#[test]
fn what_lies_beyond_the_bitmap_is_unknown_and_not_lost() {
    let mut bench = with_history(plain(), 80, 125);
    bench.now += ms(50);
    bench.ack(9, 120, 0x0000_0001, 0.0);
    // 80 to 88 leave flight without a verdict, 89 to 119 wait for two more, 121 to 124 are out.
    assert_eq!((bench.loss_cuts(), bench.flight()), (0, 35));
    bench.ack(9, 122, 0x0000_0007, 0.0);
    assert_eq!((bench.loss_cuts(), bench.flight()), (1, 2));
}

#[test]
fn one_bitmap_makes_up_for_lost_acknowledgements() {
    let mut bench = with_history(plain(), 13, 22);
    let before = bench.window();
    bench.ack(9, 21, 0xffff_ffff, 0.0);
    assert_eq!(bench.flight(), 0);
    assert_eq!(bench.window(), before + 9.0, "below the threshold each packet counts");
}

fn running(config: PgmccConfig) -> Bench {
    let mut bench = Bench::running(config, 20, 0.0);
    bench.advance(ms(100));
    bench.ack_from(1, bench.acked, 0.0);
    assert_eq!(bench.flight(), 0);
    bench
}

fn repair(bench: &mut Bench) -> bool {
    let free = bench.with(|s, cx| s.permit(cx, LEN, true)) == Permit::Now;
    if free {
        assert_eq!(bench.send_repair(1), None, "nobody is to acknowledge a repair");
    }
    free
}

#[test]
fn a_repair_takes_the_room_of_one_packet_for_one_round_trip() {
    let mut bench = running(plain());
    let room = bench.window() as u32;
    assert!(repair(&mut bench));
    assert!(repair(&mut bench));
    assert_eq!(bench.pump(u32::MAX), room - 2);
    assert_eq!(bench.permit(), Permit::Blocked);
    assert!(bench.due() <= ms(101), "{}", bench.due());
    bench.advance(ms(101));
    assert_eq!(bench.pump(u32::MAX), 2);
}

#[test]
fn no_round_trip_is_longer_than_the_time_since_the_packet_that_a_report_names() {
    let mut bench = running(plain());
    let first = bench.next();
    bench.pump(8);
    bench.advance(ms(50));
    // Honest echoes, and a forged packet's timestamp, for which repairs would take room too long.
    for (echoed, want) in [(40, 40), (51, 51), (1500, 50)] {
        bench.nak(2, first, 0.5, ms(echoed));
        let taken = ms(want).as_nanos();
        let is_it =
            |event: &Event| matches!(event, Event::RttSample { rtt_ns, .. } if *rtt_ns == taken);
        assert_eq!(bench.count(is_it), 1, "{echoed} ms");
    }
}

#[test]
fn repairs_alone_cannot_stall_the_session() {
    let mut bench = running(plain());
    while repair(&mut bench) {}
    assert_eq!(bench.permit(), Permit::Blocked);
    bench.advance(ms(101));
    assert_eq!(bench.permit(), Permit::Now);
    bench.advance(ms(10_000));
    assert_eq!(bench.stalls(), 0);
}

#[test]
fn uncharged_repairs_are_free() {
    let mut bench = running(PgmccConfig { charge_repairs: false, ..plain() });
    for _ in 0..100 {
        assert!(repair(&mut bench));
    }
    assert_eq!(bench.flight(), 0);
}

#[test]
fn repairs_name_the_acker_only_where_they_are_to_be_acknowledged() {
    for (profile, named) in [(Profile::Improved, false), (Profile::Paper, true)] {
        let mut bench = running(plain_of(profile));
        let announce = bench.send_repair(1);
        assert_eq!(announce.is_some_and(|announce| announce.acker.is_some()), named);
    }
}

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
