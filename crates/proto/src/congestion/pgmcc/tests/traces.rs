//! Tests in ideal rounds: a constant round trip, one acknowledgement per packet, losses by list.

use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use super::harness::{Bench, ms, plain, plain_of};
use crate::congestion::pgmcc::{PgmccConfig, Profile};

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
