//! Tests of rate bounds.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Cx, Duration, NodeId, NullTrace, Purpose, Rng, Seq, Time};

use super::control::Window;
use crate::congestion::{Bounds, Permit, bounded_control, boxed_control};

/// Returns the rate over 10 s, in bit/s, with a window of packets of 1000 bytes and no ACKs.
fn rate(window: u32, bounds: &Bounds) -> u64 {
    let mut control = bounded_control(Window::new(window), *bounds);
    let (mut rng, mut trace) = (Rng::new(1, NodeId(0), Purpose::Fault), NullTrace);
    let (mut now, mut sent) = (Time::ZERO, 0);
    let end = now + Duration::from_secs(10);
    while now < end {
        let mut cx = Cx::new(now, &mut rng, &mut trace);
        match control.permit(&mut cx, 1000, false) {
            Permit::Now => {
                control.on_sent(&mut cx, Seq::new(sent), 1000, &mut Vec::new());
                sent += 1;
            }
            Permit::At(at) => {
                assert!(at > now);
                now = at;
            }
            Permit::Blocked => break,
        }
    }
    u64::from(sent) * 8000 / 10
}

#[test]
fn rates_stay_within_their_bounds() {
    let bounds = |floor, cap: Option<u64>| Bounds {
        floor: (floor > 0).then(|| Bitrate::from_bits_per_s(floor)),
        cap: cap.map(Bitrate::from_bits_per_s),
    };
    for (case, window, bounds, want) in [
        ("unbounded", 100, bounds(0, None), 80_000),
        ("a ceiling", 1_000_000, bounds(0, Some(1_000_000)), 1_000_000),
        ("a floor", 0, bounds(200_000, None), 200_000),
        ("both", 0, bounds(300_000, Some(100_000)), 100_000),
        ("a window above the floor", 1000, bounds(100_000, None), 900_000),
    ] {
        let got = rate(window, &bounds);
        assert!(got.abs_diff(want) <= want / 50, "{case}: {got}, not {want}");
    }
}

#[test]
fn a_control_knows_that_it_is_the_ceiling_and_not_itself_that_holds_the_sender_back() {
    let bounds = Bounds { cap: Some(Bitrate::from_bits_per_s(80_000)), floor: None };
    for (window, want) in [(1000, true), (0, false)] {
        let mut control = bounded_control(Window::new(window), bounds);
        let (mut rng, mut trace) = (Rng::new(1, NodeId(0), Purpose::Fault), NullTrace);
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut trace);
        let mut seq = Seq::new(0);
        while control.permit(&mut cx, 1000, false) == Permit::Now {
            control.on_sent(&mut cx, seq, 1000, &mut Vec::new());
            seq = seq.next();
        }
        let window_control: &Window = control.inner().downcast_ref().unwrap();
        assert_eq!(window_control.idle > 0, want, "a window of {window}");
    }
}

#[test]
fn packets_without_data_count_against_the_ceiling() {
    let cap = Some(Bitrate::from_bits_per_s(1_000_000));
    let mut control = bounded_control(Window::new(1_000_000), Bounds { cap, floor: None });
    let (mut rng, mut trace) = (Rng::new(1, NodeId(0), Purpose::Fault), NullTrace);
    let (mut now, mut sent, mut bytes) = (Time::ZERO, 0, 0u64);
    let end = now + Duration::from_secs(10);
    while now < end {
        let mut cx = Cx::new(now, &mut rng, &mut trace);
        if sent % 2 == 0 && control.permit_overhead(now) == Permit::Now {
            control.on_overhead(now, 500);
            (sent, bytes) = (sent + 1, bytes + 500);
        } else if control.permit(&mut cx, 1000, false) == Permit::Now {
            control.on_sent(&mut cx, Seq::new(sent), 1000, &mut Vec::new());
            (sent, bytes) = (sent + 1, bytes + 1000);
        } else {
            now += Duration::from_micros(100);
        }
    }
    assert!(bytes.abs_diff(1_250_000) < 25_000, "{bytes}");
}

#[test]
fn the_floor_holds_whatever_the_control_says() {
    let at = |ms| Time::ZERO + Duration::from_millis(ms);
    let bounds = Bounds { cap: None, floor: Some(Bitrate::from_bits_per_s(8_000_000)) };
    for (pace_ms, own) in [(8000, Permit::At(at(8000))), (0, Permit::Blocked)] {
        let window = || {
            let mut window = Window::new(0);
            window.pace = Duration::from_millis(pace_ms);
            window
        };
        for (mut control, first) in
            [(boxed_control(window()), own), (bounded_control(window(), bounds), Permit::At(at(1)))]
        {
            let (mut rng, mut trace) = (Rng::new(1, NodeId(0), Purpose::Fault), NullTrace);
            let mut cx = Cx::new(at(0), &mut rng, &mut trace);
            control.on_sent(&mut cx, Seq::new(0), 1000, &mut Vec::new());
            assert_eq!(control.permit(&mut cx, 1000, false), first);
            cx.now = at(1);
            let then = if first == own { own } else { Permit::Now };
            assert_eq!(control.permit(&mut cx, 1000, false), then);
        }
    }
}
