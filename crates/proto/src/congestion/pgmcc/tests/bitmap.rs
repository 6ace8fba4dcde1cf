//! Tests of bitmaps at the sender, with vectors of a live OpenPGM receiver.

use super::harness::{Bench, ms, plain, plain_of};
use crate::congestion::pgmcc::{PgmccConfig, Profile};

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
