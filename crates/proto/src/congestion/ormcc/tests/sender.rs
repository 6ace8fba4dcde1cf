//! Tests of the sender: choice, rate, round trip, pauses of the source and silence of receivers.

use faircast_base::{CutReason, Duration, NodeId, Seq, SwitchReason};

use super::harness::{Bench, LEN, guarded, improved, ms, paper, settled};
use crate::congestion::ormcc::{Feedback, OrmccConfig, OrmccReport};
use crate::congestion::{Carrier, Permit, SenderControl};

#[test]
fn the_first_indication_chooses_and_cuts() {
    let mut bench = settled(&[]);
    let before = bench.rate();
    assert!(
        (85_000.0..95_000.0).contains(&before),
        "a half and less than 10 packets per round trip: {before}"
    );
    bench.indicate(3, 60_000.0);
    assert_eq!(bench.rate(), 45_000.0);
    assert_eq!(bench.switches(), [(Some(3), SwitchReason::First)]);
    assert_eq!(bench.send().representative, Some(NodeId(3)));
}

#[test]
fn only_the_representative_cuts_the_rate() {
    let mut bench = settled(&[100_000.0; 20]);
    let before = bench.rate();
    bench.pass(ms(150));
    bench.indicate(2, 98_000.0);
    assert!(bench.rate() > before);
    assert_eq!(bench.representative(), Some(1));
    bench.indicate(1, 50_000.0);
    assert_eq!(bench.rate(), 37_500.0);
}

#[test]
fn each_reason_to_switch_is_told() {
    let mut bench = settled(&[100_000.0; 60]);
    bench.indicate(2, 50_000.0);
    assert_eq!(bench.switches()[1..], [(Some(2), SwitchReason::Slower)]);
    let mut bench = settled(&[100_000.0; 60]);
    let mut rate = 100_000.0;
    while bench.representative() == Some(1) {
        rate -= 500.0;
        bench.indicate(2, rate);
        assert!(rate > 80_000.0);
    }
    assert_eq!(bench.switches()[1..], [(Some(2), SwitchReason::Recovered)]);
    let mut bench = settled(&[100_000.0; 60]);
    bench.indicate(2, 110_000.0);
    assert_eq!(bench.representative(), Some(1));
    bench.pass(ms(60_000));
    bench.indicate(2, 110_000.0);
    assert_eq!(bench.switches()[1..], [(Some(2), SwitchReason::Silent)]);
    assert_eq!(bench.rate(), 82_500.0);
}

#[test]
fn a_switch_cuts_only_once_in_a_round_trip_too() {
    let mut bench = settled(&[100_000.0; 60]);
    bench.pass(ms(150));
    bench.indicate(2, 50_000.0);
    assert_eq!(bench.rate(), 37_500.0);
    bench.indicate(3, 10_000.0);
    assert_eq!((bench.representative(), bench.rate()), (Some(3), 37_500.0));
}

#[test]
fn round_trips_come_from_echoes() {
    let mut bench = Bench::new(paper());
    bench.pass(ms(500));
    assert_eq!(bench.send().rtt_us, 0, "there is none");
    bench.indicate(1, 1e9);
    // 7/8 of 200 ms and 1/8 of 100 ms.
    assert_eq!(bench.send().rtt_us, 187_500);
    bench.alive(1, None);
    assert_eq!(bench.send().rtt_us, 187_500, "signs of life are not in the paper");
    bench.indicate(2, 1e9);
    assert_eq!(bench.send().rtt_us, 176_563, "all receivers' do count");
    let mut bench = Bench::new(improved());
    bench.pass(ms(500));
    bench.indicate(1, 1e9);
    assert_eq!(bench.send().rtt_us, 100_000);
    bench.take(&bench.report(2, Some(1e9), ms(300)));
    assert_eq!(bench.send().rtt_us, 100_000, "another's does not");
}

#[test]
fn packets_leave_at_the_rate() {
    let mut bench = settled(&[100_000.0; 60]);
    bench.pass(ms(150));
    bench.indicate(2, 10_000.0);
    assert_eq!(bench.rate(), 7500.0);
    let count = bench.pass(ms(200));
    // 7.5 packets a second, growing by ten a second each second.
    assert!((1..=3).contains(&count), "{count}");
    assert!(matches!(bench.permit(), Permit::At(at) if at > bench.now));
}

#[test]
fn an_absurd_report_is_counted_and_changes_nothing() {
    let mut bench = settled(&[100_000.0; 60]);
    let (rate, switches) = (bench.rate(), bench.switches().len());
    let echo = bench.report(2, Some(1.0), ms(100));
    let future = OrmccReport { echo_us: echo.echo_us.wrapping_add(200_000), ..echo };
    let old = OrmccReport { echo_us: echo.echo_us.wrapping_sub(65_000_000), ..echo };
    bench.take(&future);
    bench.take(&old);
    assert_eq!(bench.refused(), 2);
    assert_eq!((bench.rate(), bench.switches().len()), (rate, switches));
    assert_eq!(bench.sender.round_trip(bench.now, &future), None);
    assert_eq!(bench.sender.round_trip(bench.now, &echo), Some(ms(100)));
}

#[test]
fn an_echo_that_clocks_have_brought_ahead_is_a_sign_of_life_and_no_round_trip() {
    // Held for 10 s by a clock that is faster by 30 ppm.
    for ahead_us in [0, 200, 1000] {
        let mut bench = Bench::new(improved());
        bench.send();
        let alive = OrmccReport { congestion: false, ..bench.report(1, None, ms(0)) };
        let near = OrmccReport { echo_us: alive.echo_us.wrapping_add(ahead_us), ..alive };
        assert_eq!(bench.sender.round_trip(bench.now, &near), None);
        bench.take(&near);
        assert_eq!((bench.representative(), bench.refused()), (Some(1), 0));
        assert_eq!((bench.rate(), bench.send().rtt_us), (20_000.0, 0), "nothing is known of it");
        bench.alive(1, None);
        assert_eq!((bench.rate(), bench.send().rtt_us), (40_000.0, 100_000));
        bench.take(&near);
        assert_eq!(bench.send().rtt_us, 100_000);
    }
    let mut bench = Bench::new(improved());
    bench.send();
    let alive = bench.report(1, None, Duration::from_micros(1));
    bench.take(&OrmccReport { congestion: false, ..alive });
    assert_eq!(bench.send().rtt_us, 100);
}

#[test]
fn an_indication_without_a_rate_chooses_nobody_and_ends_the_doubling() {
    let mut bench = settled(&[]);
    bench.take(&bench.report(1, None, ms(100)));
    assert_eq!(bench.representative(), None);
    let mut bench = Bench::new(improved());
    bench.send();
    bench.pass(ms(50));
    bench.alive(1, None);
    bench.pass(ms(300));
    let before = bench.rate();
    bench.take(&bench.report(1, None, ms(100)));
    assert!((bench.rate() / before - 0.75).abs() < 1e-9);
    bench.pass(ms(100));
    assert!(bench.rate() < 1.1 * before, "linear from here on");
}

#[test]
fn nobody_is_held_back_by_a_representative_that_has_told_nothing_for_long() {
    let config = OrmccConfig { feedback: Feedback::Trac, ..paper() };
    let mut bench = Bench::at_100_ms(config);
    bench.pass(ms(1000));
    assert_eq!(bench.send().rate, None);
    bench.indicate(1, 60_000.0);
    assert_eq!(bench.send().rate, Some(60_000.0));
    bench.pass(ms(30_000));
    assert_eq!(bench.send().rate, None);
}

#[test]
fn without_the_guard_the_rate_grows_whatever_happens() {
    let mut bench = Bench::new(paper());
    bench.pass(ms(10_000));
    let rate = bench.rate();
    assert!((240_000.0..260_000.0).contains(&rate), "1 + 50 packets per 200 ms: {rate}");
    assert!(!bench.send().alive);
}

#[test]
fn with_the_guard_it_grows_once_somebody_is_heard() {
    let mut bench = Bench::new(improved());
    bench.pass(ms(3000));
    assert_eq!(bench.rate(), 20_000.0, "four packets in 200 ms");
    bench.alive(1, None);
    assert_eq!(bench.switches(), [(Some(1), SwitchReason::First)]);
    assert_eq!(bench.rate(), 40_000.0, "four packets in 100 ms");
    bench.pass(ms(400));
    assert_eq!(bench.rate(), 40_000.0, "until it is told what comes out");
    bench.alive(1, Some(40_000.0));
    bench.pass(ms(400));
    assert!((79_000.0..=80_000.0).contains(&bench.rate()), "it doubles: {}", bench.rate());
}

#[test]
fn doubling_keeps_to_twice_what_came_out() {
    let mut bench = Bench::new(improved());
    bench.send();
    bench.alive(1, None);
    bench.pass(ms(100));
    bench.alive(1, Some(40_000.0));
    bench.pass(ms(1000));
    assert!((79_000.0..=80_000.0).contains(&bench.rate()), "{}", bench.rate());
    bench.alive(1, Some(70_000.0));
    bench.pass(ms(400));
    assert!((135_000.0..=140_000.0).contains(&bench.rate()), "{}", bench.rate());
    bench.alive(1, Some(1e9));
    bench.pass(ms(1000));
    assert!((270_000.0..=280_000.0).contains(&bench.rate()), "{}", bench.rate());
}

#[test]
fn doubling_ends_when_the_round_trip_grows() {
    let mut bench = Bench::new(improved());
    bench.send();
    for _ in 0..5 {
        bench.pass(ms(100));
        bench.alive(1, Some(100_000.0));
    }
    for _ in 0..3 {
        bench.pass(ms(20));
        let late = bench.report(1, Some(110_000.0), ms(120));
        bench.take(&OrmccReport { congestion: false, ..late });
    }
    assert_eq!(bench.rate(), 110_000.0, "what came out");
    bench.pass(ms(100));
    assert!((115_000.0..125_000.0).contains(&bench.rate()), "{}", bench.rate());
}

#[test]
fn a_small_first_packet_sets_neither_the_first_rate_nor_the_floor() {
    for (config, per_second) in [(improved(), 20_000.0), (paper(), 5000.0)] {
        let mut bench = Bench::new(config);
        bench.len = 300;
        bench.send();
        assert!((bench.rate() / per_second - 0.3).abs() < 1e-9, "{}", bench.rate());
        bench.len = LEN;
        bench.permit();
        assert!((bench.rate() / per_second - 1.0).abs() < 1e-9, "{}", bench.rate());
    }
    let mut bench = Bench::new(improved());
    bench.len = 100;
    bench.send();
    bench.alive(1, None);
    bench.len = LEN;
    bench.now += ms(2000);
    bench.permit();
    assert_eq!(bench.rate(), 40_000.0, "four packets in 100 ms");
    bench.pass(ms(30_000));
    assert_eq!(bench.rate(), 500.0, "one packet in 2 s");
    let mut bench = Bench::new(improved());
    bench.len = 500;
    bench.send();
    bench.pass(ms(200));
    bench.alive(1, Some(10_000.0));
    let before = bench.rate();
    bench.len = LEN;
    bench.permit();
    assert_eq!(bench.rate(), before);
}

#[test]
fn small_packets_leave_at_a_rate_too() {
    for (len, most) in [(0, 0.256), (1, 0.256), (256, 0.256), (500, 0.5), (1000, 1.0)] {
        let mut bench = guarded();
        bench.with(|sender, cx| sender.on_leave(cx, NodeId(1)));
        bench.len = len;
        let rate = bench.rate() / 1000.0;
        let count = f64::from(bench.pass(ms(1000)));
        assert!((count * most / rate - 1.0).abs() < 0.03, "{len} bytes: {count} at {rate}");
    }
    let mut bench = Bench::new(improved());
    bench.len = 0;
    bench.send();
    for _ in 0..20 {
        bench.alive(1, None);
        let count = bench.pass(ms(100));
        assert!(count <= 5, "four packets in 100 ms: {count}");
    }
}

#[test]
fn a_rate_that_is_not_used_does_not_grow() {
    let mut bench = guarded();
    let rate = bench.rate();
    for _ in 0..1000 {
        bench.now += ms(10);
        bench.alive(1, Some(100_000.0));
        bench.permit();
        bench.send();
    }
    assert!(bench.rate() <= rate, "{} after {rate}", bench.rate());
}

#[test]
fn who_claims_a_high_rate_is_taken_for_as_fast_as_the_sender_was() {
    // After low claims, the representative claims this rate, while two others report little output.
    let after = |config: OrmccConfig, claim: Option<f64>| {
        let mut bench = Bench::new(config);
        bench.send();
        let mut most = 0.0f64;
        for k in 0..400 {
            bench.pass(ms(50));
            let told = claim.unwrap_or(bench.rate());
            bench.indicate(1, if k < 3 { 100.0 } else { told });
            if k >= 3 {
                bench.indicate(2, 10_000.0);
                bench.indicate(3, 10_000.0);
            }
            most = most.max(bench.rate());
        }
        (bench.cuts(CutReason::Report), most)
    };
    let bounded = OrmccConfig { output_bound: true, ..paper() };
    for config in [improved(), bounded] {
        for claim in [Some(1e5), Some(1e9), Some(1e13), None] {
            let (cuts, most) = after(config, claim);
            // Growth of a packet per 100 ms, a cut every two or three: about twelve packets.
            assert!(cuts >= 25 && most < 150_000.0, "{claim:?}: {cuts} cuts, {most} B/s");
        }
    }
    let (cuts, most) = after(paper(), Some(1e9));
    assert!(cuts <= 3 && most > 1e6, "the paper takes their word: {cuts} cuts, {most} B/s");
}

#[test]
fn while_repairs_alone_leave_the_rate_goes_where_a_loss_would_bring_it_and_stays() {
    for base in [improved(), paper()] {
        let mut bench = Bench::at_100_ms(base);
        bench.pass(ms(1000));
        bench.indicate(1, 60_000.0);
        bench.pass(ms(1000));
        let told = bench.rate();
        bench.alive(1, Some(told));
        for _ in 0..20 {
            bench.pass(ms(20));
            bench.pass_repairs(ms(20));
        }
        let before = bench.rate();
        assert!(before >= told, "{before} after {told}");
        bench.alive(1, Some(told));
        bench.pass_repairs(ms(50));
        assert!(bench.rate() >= before);
        for _ in 0..20 {
            bench.pass_repairs(ms(200));
            bench.alive(1, Some(0.75 * told));
            assert!((bench.rate() / told - 0.75).abs() < 0.01, "{} of {told}", bench.rate());
        }
        bench.pass(ms(500));
        assert!(bench.rate() > 0.76 * told, "it grows again: {}", bench.rate());
    }
}

#[test]
fn who_asks_again_for_a_packet_that_was_repaired_tells_of_congestion() {
    let mut bench = settled(&[100_000.0; 60]);
    bench.pass(ms(300));
    bench.send_repair(7);
    for (wait, cuts) in [(80, 0), (60, 1)] {
        let before = bench.cuts(CutReason::Report);
        bench.pass(ms(wait));
        let asks = OrmccReport { congestion: false, ..bench.report(1, Some(50_000.0), ms(100)) };
        for first in [Seq::new(7), Seq::new(8)] {
            bench.take_on(Carrier::Nak { first }, &asks);
        }
        assert_eq!(bench.cuts(CutReason::Report) - before, cuts, "after {wait} ms more");
    }
    assert_eq!(bench.rate(), 37_500.0);
}

#[test]
fn a_representative_that_leaves_is_replaced_by_the_next_receiver_that_reports() {
    let mut bench = settled(&[100_000.0; 60]);
    bench.with(|sender, cx| sender.on_leave(cx, NodeId(5)));
    assert_eq!(bench.representative(), Some(1));
    bench.with(|sender, cx| sender.on_leave(cx, NodeId(1)));
    assert_eq!(bench.send().representative, None);
    bench.indicate(2, 200_000.0);
    let want = [(None, SwitchReason::Left), (Some(2), SwitchReason::First)];
    assert_eq!(bench.switches()[1..], want);
}

#[test]
fn a_cut_is_taken_back_once_and_not_for_a_receiver_that_asks_after_each() {
    let mut bench = Bench::new(improved());
    bench.pump(1);
    bench.alive(1, None);
    let mut taken_back = 0;
    for _ in 0..12 {
        bench.advance(ms(2000));
        bench.pump(1);
        let before = bench.rate();
        bench.indicate(1, before / 2.0);
        let cut = bench.rate();
        assert!(cut < before, "{cut} of {before}");
        let report = OrmccReport {
            congestion: false,
            withdraws: true,
            ..bench.report(1, Some(before / 2.0), ms(100))
        };
        bench.take(&report);
        let restored = bench.rate() >= before;
        taken_back += u32::from(restored);
        bench.take(&report);
        assert!(bench.rate() <= before, "once");
    }
    assert_eq!(taken_back, 4);
}

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
