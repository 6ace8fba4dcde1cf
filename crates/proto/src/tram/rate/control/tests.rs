//! Tests of the source's rate.

use faircast_base::{Duration, NodeId, Purpose, Rng};

use super::*;
use crate::world::at;

const P: u32 = 1400;

fn kbit(kbit: u64) -> faircast_base::Bitrate {
    faircast_base::Bitrate::from_bits_per_s(kbit * 1000)
}

fn control(change: impl FnOnce(&mut TramSettings)) -> RateControl {
    let mut settings = TramSettings {
        ack_window: 64,
        window_multiple: 5,
        rate_max: kbit(12_000),
        ..TramSettings::default()
    };
    change(&mut settings);
    RateControl::new(&settings)
}

fn send(control: &mut RateControl, mut now: Time, window: Window, packets: u32) -> Time {
    for _ in 0..packets {
        match control.permit_at(now, window, false) {
            Permit::At(at) => now = at,
            permit => assert_eq!(permit, Permit::Now),
        }
        assert_eq!(control.permit_at(now, window, false), Permit::Now);
        control.on_new_sent(now, window, P);
    }
    now
}

/// Control whose slow start ended after `packets` packets.
fn started(change: impl FnOnce(&mut TramSettings), packets: u32) -> (RateControl, Time) {
    let mut control = control(change);
    let now = send(&mut control, at(0), 128, packets);
    control.end_slow_start(now);
    (control, now)
}

#[test]
fn slow_start_adds_more_and_more_with_each_packet() {
    let mut control = control(|settings| settings.rate_initial = kbit(0));
    let mut now = at(0);
    let mut rates = std::vec::Vec::new();
    for _ in 0..4 {
        rates.push(control.rate);
        now = send(&mut control, now, 128, 1);
    }
    assert_eq!(rates, [1000.0, 3500.0, 7000.0, 11_500.0]);
    control.end_slow_start(now);
    assert!(!control.slow_start.is_active);
}

#[test]
fn slow_start_goes_no_further_than_twice_what_is_acknowledged() {
    let mut control = control(|_| ());
    let mut now = send(&mut control, at(0), 128, 64);
    let unacknowledged = control.rate;
    now = send(&mut control, now, 128, 64);
    let slow = control.rate < unacknowledged + 2.0 * control.increment;
    assert!(slow, "nobody has acknowledged anything");
    let begun = now;
    control.on_acknowledged(now, 64 * P);
    now = begun + Duration::from_secs(1);
    control.on_acknowledged(now, 64 * P);
    send(&mut control, now, 128, 64);
    assert!(control.slow_start.is_active);
    assert!(control.rate <= 4.0 * 64.0 * f64::from(P), "{}", control.rate);
}

#[test]
fn a_window_that_closes_ends_slow_start_when_members_acknowledge_no_more_than_before() {
    let mut control = control(|_| ());
    let mut now = at(0);
    let mut window = |control: &mut RateControl, ms: u64| {
        send(control, now, 128, 1);
        now += Duration::from_millis(ms);
        control.on_acknowledged(now, 64 * P);
        control.on_closed(now);
        now
    };
    for ms in [400, 400, 200, 100] {
        window(&mut control, ms);
        assert!(control.slow_start.is_active, "{ms} ms");
    }
    for (ms, goes_on) in [(300, true), (100, true), (100, false)] {
        window(&mut control, ms);
        assert_eq!(control.slow_start.is_active, goes_on, "{ms} ms");
    }
    let achieved = 64.0 * f64::from(P) / 0.1;
    assert!((control.rate / achieved - 1.0).abs() < 0.01, "{} {achieved}", control.rate);
}

#[test]
fn slow_start_ends_at_the_greatest_rate() {
    let mut control = control(|_| ());
    send(&mut control, at(0), 128, 60);
    assert!(!control.slow_start.is_active);
    assert_eq!(control.rate, 1_500_000.0);
}

#[test]
fn the_rate_follows_what_was_achieved_and_more_where_the_window_opens() {
    let steady = |rule| {
        let mut control = control(|settings| settings.rate_rule = rule);
        let mut now = send(&mut control, at(0), 200, 20);
        control.end_slow_start(now);
        control.rate = 100_000.0;
        // Ten seconds, so that only these packets are in the average.
        now = send(&mut control, now, 200, 64);
        control.windows.packets = 0.0;
        (control, now)
    };
    for (window, factor) in [(201, 1.15), (200, 1.0), (256, 1.15)] {
        let (mut control, now) = steady(RateRule::Average);
        (control.windows.previous, control.windows.packets, control.windows.sum) =
            (200.0, 63.0, 63.0 * window as f64);
        let average = control.average(now);
        control.increment = 0.15 * average;
        assert!(control.on_new_sent(now, window, P));
        let want = (average + f64::from(P)) * factor;
        assert!((control.rate / want - 1.0).abs() < 0.05, "{} {want}", control.rate);
    }
    let (mut control, now) = steady(RateRule::Current);
    (control.windows.packets, control.windows.sum, control.increment) = (63.0, 63.0 * 256.0, 7.0);
    let before = control.rate;
    control.on_new_sent(now, 256, P);
    assert_eq!(control.rate, before + 7.0);
}

#[test]
fn it_slows_down_before_the_window_closes_and_sends_one_a_second_when_it_has() {
    let mut control = control(|_| ());
    control.rate = 65_000.0;
    control.pacer.packet_bytes = P;
    for (window, rate) in
        [(64, 65_000.0), (200, 65_000.0), (32, 33_000.0), (0, 1400.0), (-1, 1400.0)]
    {
        assert_eq!(control.scheduled(window, false), rate, "{window}");
        assert_eq!(control.scheduled(window, true), 65_000.0, "repairs go with the open rate");
    }
    let closed = send(&mut control, at(0), -1, 3);
    assert_eq!(closed, at(2000));
    let Permit::At(next) = control.permit_at(closed, 64, false) else { panic!() };
    assert!(next.since(closed) < Duration::from_millis(30));
}

#[test]
fn a_closed_window_lets_a_packet_a_second_through_whatever_their_lengths() {
    let mut control = control(|_| ());
    let mut now = at(0);
    for len in [1400, 100, 100, 1400, 1400, 10, 1400] {
        assert_eq!(control.permit_at(now, -1, false), Permit::Now, "{len}");
        control.on_new_sent(now, -1, len);
        now += Duration::from_secs(1);
        assert_eq!(control.permit_at(now - Duration::from_millis(1), -1, false), Permit::At(now));
    }
    // The window opens while a short packet waits for a long one.
    control.on_new_sent(now, -1, 1400);
    let Permit::At(next) = control.permit_at(now, 63, false) else { panic!() };
    assert!(next.since(now) <= Duration::from_secs(1));
}

#[test]
fn what_is_below_the_least_rate_is_found_after_the_averaging_time() {
    let mut control = control(|_| ());
    let now = send(&mut control, at(0), 200, 100);
    assert_eq!(control.below_min_since(now), None);
    let later = now + Duration::from_secs(6);
    assert_eq!(control.below_min_since(later), Some(later));
    assert_eq!(control.below_min_since(later + Duration::from_secs(1)), Some(later));
    for second in 1..10 {
        control.on_repair_sent(later + Duration::from_secs(second), 200, 100 * P);
    }
    assert_eq!(control.below_min_since(later + Duration::from_secs(10)), Some(later));
}

#[test]
fn the_rate_rises_at_once_from_where_slow_start_has_brought_it_back() {
    let (mut control, mut now) = started(|_| (), 640);
    let proven = control.recovery.proven_rate;
    now = send(&mut control, now, 0, 300);
    assert!(control.rate < proven / 4.0);
    control.closed_at = Some(now);
    control.on_open(now);
    assert!(control.slow_start.is_active, "half of {proven} is tried, not {}", control.rate);
    while control.slow_start.is_active {
        now = send(&mut control, now, 128, 1);
    }
    let reached_at = now;
    while control.rate < 0.8 * proven {
        now = send(&mut control, now, 320, 1);
        assert!(!control.slow_start.is_active && control.rate >= proven / 2.0, "{}", control.rate);
    }
    let took = now.since(reached_at).as_secs_f64();
    assert!(took < 5.0, "{took} s, and with what was sent before in the average 6 s");
    control.on_new_sent(now, -1, P);
    control.on_open(now);
    assert!(control.rate < proven);
}

#[test]
fn after_a_second_without_a_window_slow_start_goes_further_than_after_congestion() {
    for (closed_ms, share) in [(900, 0.5), (1000, 0.7), (1500, 0.7), (3000, 0.7)] {
        let (mut control, mut now) = started(|_| (), 640);
        let proven = control.recovery.proven_rate;
        now = send(&mut control, now, 0, 300);
        control.closed_at = Some(now);
        control.on_open(now + Duration::from_millis(closed_ms));
        assert!(control.slow_start.is_active);
        assert_eq!(control.slow_start.ceiling, share * proven, "closed for {closed_ms} ms");
    }
}

#[test]
fn losses_from_before_a_restart_do_not_end_it() {
    for (later, ends) in [(0, false), (63, false), (64, true)] {
        let (mut control, mut now) = started(|_| (), 600);
        now = send(&mut control, now, 0, 300);
        (control.recovery.highest_sent, control.closed_at) = (900, Some(now));
        control.on_open(now);
        assert!(control.slow_start.is_active, "W_a is 64");
        let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
        let (highest, congested) = (900 + later, true);
        let progress =
            Progress { bytes: 0, congested, highest, allowed: 128, flight: 1, repeated: 0 };
        control.on_progress(&mut Cx::untraced(now, &mut rng), progress);
        assert_eq!(control.slow_start.is_active, !ends, "{later} packets later");
    }
}

#[test]
fn a_rate_that_a_closed_window_has_left_at_a_packet_a_second_comes_back() {
    for restart in [true, false] {
        let (mut control, mut now) = started(|settings| settings.restart = restart, 600);
        let proven = control.recovery.proven_rate;
        now = send(&mut control, now, -1, 100);
        control.on_open(now);
        control.on_congestion(now, u64::MAX);
        assert!(control.rate <= f64::from(2 * P), "{}", control.rate);
        let opened = now;
        while control.rate < proven / 8.0 && now.since(opened) < Duration::from_secs(30) {
            now = send(&mut control, now, 128, 1);
        }
        let took = now.since(opened).as_secs_f64();
        assert_eq!(took < 8.0, restart, "{took} s");
    }
}

#[test]
fn repairs_keep_half_of_what_the_path_took_until_it_is_congested() {
    for restart in [true, false] {
        let (mut control, mut now) = started(|settings| settings.restart = restart, 640);
        control.on_acknowledged(now, 600 * P);
        let took = control.recovery.acknowledged_peak;
        now = send(&mut control, now, 0, 300);
        assert!(control.rate < took / 4.0);
        let want = if restart { took / 2.0 } else { control.rate };
        assert_eq!(control.scheduled(-1, true), want, "restart = {restart}");
        control.on_congestion(now, u64::MAX);
        control.on_congestion(now, u64::MAX);
        let want = (want / 4.0).max(control.rate);
        assert!(!restart || control.scheduled(-1, true) <= want, "{want}");
    }
}

#[test]
fn a_pause_says_nothing_of_how_fast_members_acknowledge() {
    for pauses in [false, true] {
        let mut control = control(|settings| {
            (settings.slow_start_acknowledged, settings.rate_max) = (true, kbit(1_000_000));
        });
        let window = 64 * P;
        let mut now = at(0);
        for _ in 0..4 {
            now = send(&mut control, now, 128, 64);
            control.on_acknowledged(now, window);
        }
        let measured = control.slow_start.probe.as_ref().unwrap().latest_rate;
        assert!(measured.is_some());
        control.closed_at = pauses.then_some(now);
        now += Duration::from_secs(60);
        control.on_open(now);
        control.on_acknowledged(now, window);
        let after = control.slow_start.probe.as_ref().unwrap().latest_rate;
        assert_eq!(after == measured, pauses, "{after:?}");
    }
}

#[test]
fn the_rate_rises_faster_while_windows_are_larger_than_any_of_the_paper() {
    let grown = |allowed: u64, lossless_multiple: u32| {
        let settings = |settings: &mut TramSettings| {
            settings.rate_max = kbit(1_000_000);
            settings.lossless_multiple = lossless_multiple;
            settings.cache_packets = 4096;
        };
        let (mut control, mut now) = started(settings, 640);
        let before = control.rate;
        control.allowed_packets = allowed;
        for _ in 0..10 {
            now = send(&mut control, now, 256, 64);
            assert!(control.rate <= LOSSLESS_GROWTH * control.average(now) + 1.0);
        }
        control.rate / before
    };
    // M is 5, W_a is 64, and the largest window is 960 packets.
    let [paper, beyond, never] = [(640, 15), (641, 15), (2000, 0)].map(|(a, b)| grown(a, b));
    assert!(beyond > 1.2 * paper, "{beyond} instead of {paper}");
    assert_eq!(never, paper);
}
