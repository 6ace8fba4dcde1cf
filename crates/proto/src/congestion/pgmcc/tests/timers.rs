//! Tests of the stall timer, and in ideal rounds: a constant round trip, losses by list.

use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use faircast_base::{Duration, Event, NodeId, SwitchReason};

use super::harness::{Bench, ms, plain, plain_of};
use crate::congestion::pgmcc::{PgmccConfig, Profile, TimeoutMode};
use crate::congestion::{Permit, SenderControl};

fn running(config: PgmccConfig) -> Bench {
    let mut bench = Bench::running(config, 20, 0.0);
    assert_eq!(bench.permit(), Permit::Blocked);
    bench
}

#[test]
fn a_fixed_timeout_is_four_seconds_after_the_last_acknowledgement() {
    let mut bench = running(PgmccConfig::profile(Profile::Paper));
    assert_eq!(bench.due(), ms(4000));
    bench.advance(ms(3999));
    assert_eq!(bench.stalls(), 0);
    bench.advance(ms(1));
    assert_eq!(bench.stalls(), 1);
    let after_4_s = |event: &Event| matches!(event, Event::Timeout { after_ns: 4_000_000_000, .. });
    assert_eq!(bench.count(after_4_s), 1);
    assert_eq!((bench.window(), bench.flight()), (1.0, 0));
    assert_eq!(bench.pump(10), 1, "one packet after a stall");
    assert_eq!(bench.due(), ms(4000), "a fixed timeout does not back off");
}

#[test]
fn the_adaptive_timeout_follows_the_round_trip_and_backs_off() {
    let mut bench = running(plain());
    let first = bench.due();
    assert!(first >= ms(200) && first < ms(3000), "{first}");
    let mut last = first;
    for _ in 0..12 {
        bench.advance(bench.due());
        assert_eq!(bench.pump(10), 1);
        let next = bench.due();
        assert_eq!(next, (last * 2).min(Duration::from_secs(60)));
        last = next;
    }
    assert_eq!(last, Duration::from_secs(60));
    assert_eq!(bench.stalls(), 12);
}

#[test]
fn a_new_path_ends_a_back_off_that_began_on_the_old_one() {
    let mut bench = running(plain());
    let first = bench.due();
    bench.advance(first);
    assert_eq!((bench.stalls(), bench.pump(10)), (1, 1));
    bench.advance(ms(20));
    bench.with(|sender, cx| sender.on_new_path(cx));
    assert_eq!(bench.due(), first.saturating_sub(ms(20)), "counted from the last packet");
    bench.advance(first);
    assert_eq!((bench.stalls(), bench.pump(10), bench.due()), (2, 1, first * 2));
}

#[test]
fn a_nak_of_the_acker_ends_a_back_off_that_began_in_an_interruption() {
    let mut bench = running(plain());
    let first = bench.due();
    bench.advance(first);
    assert_eq!((bench.stalls(), bench.pump(10)), (1, 1));
    assert_eq!(bench.due(), first * 2);
    bench.advance(ms(20));
    let lost = bench.acked;
    bench.nak(2, lost, 0.0, ms(100));
    assert_eq!(bench.due(), (first * 2).saturating_sub(ms(20)));
    bench.nak(1, lost, 0.0, ms(100));
    assert!(bench.due() <= first.saturating_sub(ms(20)), "{} of {first}", bench.due());
}

#[test]
fn an_interruption_does_not_lengthen_the_timeout() {
    for stalls in [0, 1] {
        let mut bench = running(plain());
        let before = bench.due();
        // Packets in flight are acknowledged 20 s late, all at once.
        if stalls == 1 {
            bench.advance(before);
        }
        bench.now += Duration::from_secs(20);
        (bench.acked..bench.next()).for_each(|seq| bench.ack(1, seq, u32::MAX, 0.0));
        bench.pump(10);
        assert_eq!(bench.stalls(), stalls);
        let after = bench.due();
        assert!(after <= before * 2, "{before}, then {after}");
    }
}

#[test]
fn in_reno_mode_only_acknowledgements_without_a_hole_restart_the_timer() {
    let base = plain();
    for (mode, restarts) in [(TimeoutMode::Tcp, true), (TimeoutMode::Reno, false)] {
        let mut bench = running(PgmccConfig { timeout_mode: mode, ..base });
        let before = bench.sender.next_timeout();
        bench.advance(ms(50));
        let missing = bench.acked;
        bench.ack(1, missing + 1, 0xffff_fffd, 0.0);
        assert_eq!(bench.sender.next_timeout() > before, restarts, "{mode:?}");
        bench.advance(ms(10));
        bench.ack(1, missing + 2, 0xffff_ffff, 0.0);
        assert!(bench.sender.next_timeout() > before, "{mode:?}, the repair has come");
    }
}

#[test]
fn a_cut_restarts_a_timer_that_a_hole_holds_only_where_that_is_asked_for() {
    for timeout_mode in [TimeoutMode::Reno, TimeoutMode::Cumulative] {
        for timeout_after_cut in [false, true] {
            let config = PgmccConfig { timeout_mode, timeout_after_cut, ..plain() };
            let mut bench = running(config);
            bench.advance(ms(50));
            let missing = bench.acked;
            bench.ack(1, missing + 1, 0xffff_fffd, 0.0);
            let held = bench.sender.next_timeout();
            bench.advance(ms(50));
            bench.ack(1, missing + 3, 0xffff_fff7, 0.0);
            assert_eq!(bench.loss_cuts(), 1, "{timeout_mode:?}");
            let moved = bench.sender.next_timeout() > held;
            assert_eq!(moved, timeout_after_cut, "{timeout_mode:?}");
        }
    }
}

#[test]
fn holes_from_before_a_receiver_joined_do_not_hold_the_timer() {
    let config = PgmccConfig { timeout_mode: TimeoutMode::Reno, ..plain() };
    let mut bench = running(config);
    bench.with(|s, cx| s.on_leave(cx, NodeId(1)));
    bench.pump(1);
    let joined = bench.next() - 1;
    bench.advance(ms(100));
    bench.ack(2, joined, 0x1, 0.0);
    assert_eq!(bench.pump(5), 0, "what named the old acker is still out");
    bench.advance(ms(200));
    assert_eq!(bench.pump(5), 5, "after two round trips it is not");
    let before = bench.sender.next_timeout();
    bench.advance(ms(50));
    bench.ack(2, joined + 1, 0x3, 0.0);
    assert_ne!(bench.sender.next_timeout(), before, "it was restarted, with a measured value");
    assert_eq!(bench.stalls(), 0);
}

#[test]
fn a_new_acker_starts_with_the_value_that_its_first_report_gives() {
    let mut bench = running(plain());
    assert!(bench.due() < ms(1000));
    bench.nak(2, 1, 0.5, ms(800));
    assert_eq!(bench.representative(), Some(2));
    // src: RFC 6298 s2.2: three times the first sample.
    bench.advance(ms(2399));
    assert_eq!(bench.stalls(), 0);
    bench.advance(ms(1));
    assert_eq!(bench.stalls(), 1);
}

fn replaced(config: PgmccConfig, rtt: Duration) -> Bench {
    let mut bench = running(config);
    (0..100).for_each(|_| bench.round(1, 0.01));
    bench.nak(2, 1, 0.9, rtt);
    assert_eq!(bench.representative(), Some(2));
    bench
}

fn stall(bench: &mut Bench) -> Duration {
    let (start, before) = (bench.now, bench.stalls());
    while bench.stalls() == before {
        bench.advance(bench.due());
    }
    bench.now.since(start)
}

#[test]
fn an_acker_that_is_not_there_costs_one_timeout_of_three_seconds_at_most() {
    for (rtt, due) in [(400, 1200), (800, 2400), (8000, 3000)] {
        let mut bench = replaced(plain(), ms(rtt));
        assert_eq!(stall(&mut bench), ms(due));
        assert_eq!(bench.switches().last(), Some(&(None, SwitchReason::Silent)));
        assert_eq!((bench.pump(10), bench.named()), (1, None));
        let call = bench.next() - 1;
        bench.advance(ms(100));
        bench.ack(1, call, u32::MAX, 0.01);
        assert_eq!(bench.representative(), Some(1), "it answers the call");
    }
    let draft = plain_of(Profile::Draft);
    let mut bench = replaced(draft, ms(800));
    stall(&mut bench);
    assert_eq!(bench.representative(), Some(2), "the draft has no trial");
}

#[test]
fn trials_of_receivers_that_are_not_there_do_not_add_up() {
    let mut bench = replaced(plain(), ms(800));
    for node in 3..9 {
        bench.advance(ms(if node == 3 { 800 } else { 200 }));
        bench.nak(node, 1, 0.99, ms(8000));
        bench.ack(2, 1, u32::MAX, 0.9);
        assert_eq!(bench.representative(), Some(2));
    }
    stall(&mut bench);
    assert_eq!(bench.representative(), None);
}

#[test]
fn an_acker_that_has_acknowledged_is_dropped_after_two_timeouts() {
    let mut bench = replaced(plain(), ms(400));
    bench.advance(ms(400));
    bench.ack_from(1, bench.next() - 2, 0.01);
    bench.pump(10);
    let named = bench.next() - 1;
    bench.advance(ms(400));
    bench.ack(2, named, u32::MAX, 0.9);
    bench.pump(10);
    for left in [Some(2), None] {
        stall(&mut bench);
        assert_eq!(bench.representative(), left);
        bench.pump(10);
    }
}

#[test]
fn a_receiver_further_away_than_three_seconds_is_on_trial_once() {
    let mut bench = replaced(plain(), ms(5000));
    bench.ack_from(1, bench.next() - 2, 0.01);
    assert!(bench.pump(10) > 0);
    let named = bench.next() - 1;
    assert_eq!((stall(&mut bench), bench.representative()), (ms(3000), None));
    bench.pump(1);
    bench.ack(1, bench.next() - 1, u32::MAX, 0.01);
    bench.advance(ms(2000));
    bench.ack(2, named, u32::MAX, 0.9);
    assert_eq!(bench.representative(), Some(1), "that it is too late shows it");
    (0..100).for_each(|_| bench.round(1, 0.01));
    bench.nak(2, 1, 0.9, ms(5000));
    assert_eq!(bench.representative(), Some(2));
    assert_eq!((stall(&mut bench), bench.representative()), (ms(15_000), Some(2)));
}

#[test]
fn a_silent_acker_is_dropped_after_two_stalls_and_kept_out_until_nobody_else_answers() {
    let mut bench = running(plain());
    bench.advance(bench.due());
    bench.pump(10);
    assert_eq!(bench.representative(), Some(1));
    bench.advance(bench.due());
    assert_eq!(bench.switches().last(), Some(&(None, SwitchReason::Silent)));
    assert_eq!(bench.pump(10), 1);
    assert_eq!(bench.named(), None);
    bench.nak(1, 1, 0.9, ms(10));
    assert_eq!(bench.representative(), None, "its stray NAK does not bring it back");
    bench.advance(bench.due());
    bench.nak(1, 1, 0.9, ms(10));
    assert_eq!(bench.representative(), Some(1), "but it may when nobody has answered the call");
    bench.pump(10);
    let last = bench.next() - 1;
    bench.advance(ms(10));
    bench.ack(1, last, u32::MAX, 0.0);
    assert!(bench.flight() == 0 && bench.pump(10) > 0, "and is heard as every acker is");
}

#[test]
fn without_an_acker_one_packet_leaves_per_growing_timeout() {
    for profile in [Profile::Paper, Profile::Draft, Profile::Improved] {
        let mut bench = Bench::new(plain_of(profile));
        let mut gaps = std::vec::Vec::new();
        for _ in 0..8 {
            assert_eq!(bench.pump(10), 1, "{profile:?}");
            assert_eq!(bench.permit(), Permit::Blocked);
            let gap = bench.due();
            gaps.push(gap);
            bench.advance(gap);
        }
        assert!(gaps.windows(2).all(|pair| pair[1] == (pair[0] * 2).min(ms(60_000))), "{gaps:?}");
    }
}

#[test]
fn a_receiver_heard_in_a_vain_search_is_called_at_once_and_not_again_soon() {
    let mut bench = Bench::new(plain());
    for _ in 0..4 {
        assert_eq!(bench.pump(10), 1);
        bench.advance(bench.due());
    }
    assert_eq!(bench.pump(10), 1);
    bench.advance(ms(5000));
    assert_eq!(bench.pump(10), 0);
    bench.with(SenderControl::on_unreached_receiver);
    assert_eq!(bench.pump(10), 1);
    bench.with(SenderControl::on_unreached_receiver);
    assert_eq!(bench.pump(10), 0);
    assert_eq!(bench.due(), ms(3000));
}

#[test]
fn an_idle_sender_has_no_timer_and_its_window_stands_still() {
    let mut bench = Bench::running(plain(), 12, 0.0);
    let grown = bench.window();
    bench.with(SenderControl::on_idle);
    bench.ack_from(1, bench.acked, 0.0);
    assert!(bench.window() - grown < 0.2, "one acknowledgement at most grew it");
    assert_eq!((bench.flight(), bench.sender.next_timeout()), (0, None));
    assert_eq!(bench.permit(), Permit::Now);
}

#[test]
fn a_second_acker_that_is_not_there_costs_two_timeouts_of_three_seconds_at_most() {
    let mut bench = replaced(plain(), ms(8000));
    stall(&mut bench);
    bench.pump(10);
    bench.nak(3, 1, 0.9, ms(8000));
    assert_eq!(bench.representative(), Some(3));
    bench.pump(10);
    for left in [Some(3), None] {
        assert!(stall(&mut bench) <= ms(3000));
        assert_eq!(bench.representative(), left);
        bench.pump(10);
    }
}

fn rounds(config: PgmccConfig, rounds: usize, lost: impl Fn(u32) -> bool) -> (Vec<u32>, Bench) {
    let mut bench = Bench::new(config);
    let mut under_way: VecDeque<u32> = VecDeque::new();
    let mut history = Vec::new();
    let mut bitmap = 0u32;
    let mut highest = None;
    for _ in 0..rounds {
        let arriving = core::mem::take(&mut under_way);
        let before = bench.next();
        if history.is_empty() {
            bench.pump(u32::MAX);
        }
        for seq in arriving.into_iter().filter(|&seq| !lost(seq)) {
            let gap = highest.map_or(32, |highest: u32| seq - highest);
            bitmap = bitmap.checked_shl(gap).unwrap_or(0) | 1;
            highest = Some(seq);
            bench.ack(9, seq, bitmap, 0.0);
            bench.pump(u32::MAX);
        }
        under_way.extend(before..bench.next());
        history.push(bench.next() - before);
        bench.now += ms(100);
    }
    (history, bench)
}

fn reference() -> PgmccConfig {
    PgmccConfig { slow_start_threshold: 4.0, ..plain() }
}

#[test]
fn without_loss_the_window_opens_as_the_draft_says() {
    let want = [
        1, 2, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
        25, 26,
    ];
    for profile in [Profile::Improved, Profile::Draft, Profile::Paper] {
        let config = PgmccConfig { slow_start_threshold: 4.0, ..plain_of(profile) };
        assert_eq!(rounds(config, 27, |_| false).0, want, "{profile:?}");
    }
}

fn from_round_of(history: &[u32], seq: u32) -> Vec<u32> {
    let mut first = 0;
    let at = history.iter().position(|&count| {
        first += count;
        first > seq
    });
    history[at.expect("the packet was sent")..].to_vec()
}

#[test]
fn a_loss_halves_what_is_in_flight_once() {
    for (case, lost) in
        [("one", vec![300]), ("two", vec![300, 305]), ("four in a row", vec![300, 301, 302, 303])]
    {
        let (history, bench) = rounds(reference(), 60, |seq| lost.contains(&seq));
        assert_eq!(
            from_round_of(&history, 300)[..9],
            [24, 12, 12, 13, 14, 15, 16, 17, 18],
            "{case}"
        );
        assert_eq!(history[23], 23, "{case}");
        assert_eq!(bench.loss_cuts(), 1, "{case}");
    }
}

#[test]
fn losses_in_two_windows_halve_twice() {
    let (history, bench) = rounds(reference(), 60, |seq| seq == 300 || seq == 340);
    assert_eq!(from_round_of(&history, 300)[..10], [24, 12, 12, 13, 6, 7, 8, 8, 9, 10]);
    assert_eq!(bench.loss_cuts(), 2);
}

#[test]
fn the_halved_window_is_the_computed_one() {
    let mut bench = Bench::new(reference());
    let (mut bitmap, mut seq) = (0u32, 0);
    bench.pump(u32::MAX);
    while seq <= 303 {
        bitmap <<= 1;
        if seq != 300 {
            bitmap |= 1;
            bench.ack(9, seq, bitmap, 0.0);
            bench.pump(u32::MAX);
        }
        if seq < 303 {
            assert_eq!(bench.loss_cuts(), 0, "three later packets are needed, {seq}");
        }
        seq += 1;
    }
    assert_eq!(bench.loss_cuts(), 1);
    assert!((bench.window() - 12.41).abs() < 0.005, "{}", bench.window());
}

#[test]
fn periodic_loss_of_one_percent_gives_a_steady_sawtooth() {
    let (history, bench) = rounds(reference(), 2000, |seq| seq % 100 == 99);
    let steady = &history[200..];
    assert_eq!(steady.iter().min(), Some(&7));
    assert_eq!(steady.iter().max(), Some(&14));
    assert_eq!(bench.stalls(), 0);
    // Each loss is a separate cut, about 10 round trips apart.
    assert!(bench.loss_cuts() > 180, "{}", bench.loss_cuts());
}

#[test]
fn the_drafts_tokens_leak_away_until_the_session_stalls() {
    let config = PgmccConfig { slow_start_threshold: 4.0, ..PgmccConfig::profile(Profile::Draft) };
    let (history, bench) = rounds(config, 200, |seq| seq % 100 == 0 && seq > 0);
    let sent: u32 = history.iter().sum();
    let active = history.iter().rposition(|&count| count > 0).expect("it sent at first") + 1;
    assert_eq!((bench.loss_cuts(), sent, active), (7, 711, 108));
}

#[test]
fn realigned_tokens_do_not_leak() {
    let config = PgmccConfig { slow_start_threshold: 4.0, ..PgmccConfig::profile(Profile::Paper) };
    let (history, bench) = rounds(config, 2000, |seq| seq % 100 == 99);
    let steady = &history[200..];
    assert_eq!((steady.iter().min(), steady.iter().max()), (Some(&7), Some(&14)));
    assert_eq!(bench.stalls(), 0);
}
