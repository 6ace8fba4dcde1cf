//! Tests of the whole link.

use super::*;
use crate::{Faults, RedConfig};
use alloc::vec::Vec;
use faircast_base::{Bitrate, NodeId, Purpose};

pub(crate) fn config(bits_per_s: u64, queue: QueueConfig) -> LinkConfig {
    LinkConfig {
        rate: Bitrate::from_bits_per_s(bits_per_s),
        delay: Duration::from_millis(50),
        queue,
        loss: 0.0,
        changes: Vec::new(),
        drop_list: Vec::new(),
        faults: Faults::default(),
        timing: Timing::default(),
    }
}

const STREAMS: Streams = Streams { seed: 1, node: NodeId(0), link: 0 };

fn new_link(config: &LinkConfig) -> Link {
    Link::new(config, STREAMS)
}

fn rng() -> Rng {
    Rng::new(1, NodeId(0), Purpose::Link(0))
}

#[test]
fn a_packet_pays_its_transmission_and_the_propagation() {
    let mut link = new_link(&config(500_000, QueueConfig::DropTail { packets_max: 30 }));
    let arrival = link.offer(Time::ZERO, 1400, true, &mut rng());
    assert_eq!(arrival, Outcome::Arrives(Time::from_nanos(22_400_000 + 50_000_000)));
}

#[test]
fn a_limit_counts_the_packet_in_transmission() {
    // src: ns-2.35, the burst test: limit 30 delivers 30 of a burst, limit 2 delivers 2.
    for limit in [30, 2, 1] {
        let mut link = new_link(&config(1_000, QueueConfig::DropTail { packets_max: limit }));
        let outcomes = (0..100).map(|_| link.offer(Time::ZERO, 1000, true, &mut rng()));
        let delivered = outcomes.filter(|it| matches!(it, Outcome::Arrives(_))).count();
        assert_eq!(delivered, limit as usize);
    }
}

#[test]
fn a_byte_limit_admits_one_packet_of_any_size() {
    let mut link = new_link(&config(1_000, QueueConfig::DropTailBytes { bytes_max: 1500 }));
    let mut offer = |bytes| link.offer(Time::ZERO, bytes, true, &mut rng());
    assert!(matches!(offer(9000), Outcome::Arrives(_)));
    assert_eq!(offer(1), Outcome::Dropped(DropReason::QueueFull));
}

#[test]
fn remainders_below_a_nanosecond_add_up() {
    // 1 byte at 3 Gbit/s takes 2 2/3 ns; three back to back take exactly 8.
    let mut link = new_link(&config(3_000_000_000, QueueConfig::DropTail { packets_max: 100 }));
    let base = 50_000_000;
    let ends: Vec<_> = (0..6).map(|_| link.offer(Time::ZERO, 1, true, &mut rng())).collect();
    let want = [2, 5, 8, 10, 13, 16].map(|ns| Outcome::Arrives(Time::from_nanos(base + ns)));
    assert_eq!(ends, want);
}

#[test]
fn a_change_of_rate_holds_for_the_packet_in_transmission() {
    let mut config = config(1_000_000, QueueConfig::DropTail { packets_max: 100 });
    config.delay = Duration::ZERO;
    config.changes = alloc::vec![LinkChange {
        at: Time::from_nanos(4_000_000),
        rate: Some(Bitrate::from_bits_per_s(2_000_000)),
        delay: Some(Duration::from_millis(10)),
        ..LinkChange::default()
    }];
    let mut link = Link::new(&config, STREAMS);
    // 1000 B at 1 Mbit/s take 8 ms; half is sent when the rate doubles: 4 + 2 = 6 ms.
    let first = link.offer(Time::ZERO, 1000, true, &mut rng());
    assert_eq!(first, Outcome::Arrives(Time::from_nanos(16_000_000)));
    let second = link.offer(Time::ZERO, 1000, true, &mut rng());
    assert_eq!(second, Outcome::Arrives(Time::from_nanos(20_000_000)));
}

#[test]
fn counters_agree_with_what_a_periodic_load_must_give() {
    let mut link = new_link(&config(8_000_000, QueueConfig::DropTail { packets_max: 10 }));
    for i in 0..100 {
        link.offer(Time::from_nanos(i * 2_000_000), 1000, true, &mut rng());
    }
    let now = Time::from_nanos(200_000_000);
    let counters = link.sample(now);
    assert_eq!((counters.busy_ns, counters.queue_packet_ns), (100_000_000, 0));
    assert_eq!(counters.sent_packets, 100);
    // A burst of four: they wait 0, 1, 2 and 3 ms.
    for _ in 0..4 {
        link.offer(now, 1000, true, &mut rng());
    }
    let half = link.sample(Time::from_nanos(201_500_000));
    // After 1.5 ms: 3 waited for 1 ms, then 2 for 0.5 ms.
    assert_eq!(half.queue_packet_ns, 4_000_000);
    assert_eq!((half.queue_packets, half.queue_max_packets), (2, 4));
    let done = link.sample(Time::from_nanos(210_000_000));
    assert_eq!((done.queue_packet_ns, done.sent_packets), (6_000_000, 104));
}

#[test]
fn the_wire_loses_what_it_should_and_lists_are_exact() {
    let mut lossy = config(1_000_000_000, QueueConfig::DropTail { packets_max: 10 });
    lossy.loss = 0.1;
    let (mut link, mut rng) = (Link::new(&lossy, STREAMS), rng());
    let mut offer = |i| link.offer(Time::from_nanos(i * 100_000), 100, true, &mut rng);
    let lost = (0..100_000u64).filter(|i| offer(*i) == Outcome::Dropped(DropReason::Loss)).count();
    // Standard deviation 95.
    assert!((9_600..10_400).contains(&lost), "{lost}");

    let mut listed = config(1_000_000_000, QueueConfig::DropTail { packets_max: 1000 });
    listed.drop_list = alloc::vec![2, 3];
    let mut link = Link::new(&listed, STREAMS);
    let mut offer = |data| link.offer(Time::ZERO, 100, data, &mut rng);
    let outcomes = [offer(true), offer(false), offer(true), offer(true), offer(true)];
    let dropped = outcomes.map(|o| o == Outcome::Dropped(DropReason::Listed));
    assert_eq!(dropped, [false, false, true, true, false]);
}

const RED: RedConfig = RedConfig {
    min: 5.0,
    max: 15.0,
    weight: 0.002,
    max_p: 0.1,
    gentle: true,
    packets_max: 50,
    mean_packet_bytes: 1000,
};

#[test]
fn red_leaves_short_queues_alone_and_keeps_long_ones_near_its_thresholds() {
    let mut link = new_link(&config(8_000_000, QueueConfig::Red(RED)));
    let mut rng = rng();
    for i in 0..10_000 {
        let outcome = link.offer(Time::from_nanos(i * 1_052_632), 1000, true, &mut rng);
        assert!(matches!(outcome, Outcome::Arrives(_)));
    }
    // 110 % load: drops keep the average between the thresholds.
    let start = 20_000_000_000;
    let mut drops = 0;
    for i in 0..100_000 {
        let now = Time::from_nanos(start + i * 909_091);
        drops += u32::from(matches!(link.offer(now, 1000, true, &mut rng), Outcome::Dropped(_)));
    }
    assert!((8_000..11_000).contains(&drops), "{drops}");
    let end = Time::from_nanos(start + 90_909_100_000);
    let mean = link.sample(end).queue_packet_ns as f64 / 90_909_100_000.0;
    assert!((5.0..30.0).contains(&mean), "{mean}");
}

#[test]
fn red_counts_idle_time_by_the_rate_that_a_change_has_brought() {
    let (min, max, weight, max_p) = (2.0, 6.0, 0.02, 1.0);
    let red = RedConfig { min, max, weight, max_p, gentle: false, packets_max: 100, ..RED };
    let second = |s: u64| Time::from_nanos(s * 1_000_000_000);
    let mut config = config(8_000, QueueConfig::Red(red));
    let burst = |link: &mut Link, at: Time, count: u32| {
        let mut rng = rng();
        let offers = (0..count).map(|_| link.offer(at, 1000, true, &mut rng));
        offers.filter(|outcome| matches!(outcome, Outcome::Arrives(_))).count()
    };
    // A burst at one packet a second raises the average; the link is idle from `idle` on.
    let idle = burst(&mut Link::new(&config, STREAMS), Time::ZERO, 60);
    assert!((20..60).contains(&idle), "RED drops the end of a long burst: {idle}");
    let idle = idle as u64;
    let mut after = |change: bool| {
        let at = second(idle + 1);
        let rate = Some(Bitrate::from_bits_per_s(8_000_000));
        let faster = LinkChange { at, rate, ..LinkChange::default() };
        config.changes = if change { alloc::vec![faster] } else { Vec::new() };
        let mut link = Link::new(&config, STREAMS);
        assert_eq!(burst(&mut link, Time::ZERO, 60), idle as usize);
        burst(&mut link, second(idle + 2), 8)
    };
    // The average keeps its value in the time of two packets, and decays in that of two thousand.
    assert!(after(false) < 8);
    assert_eq!(after(true), 8);
}

/// Reference model: each transmission in exact arithmetic with fractions of a nanosecond.
fn exact_end(start: f64, bytes: u32, steps: &[(f64, f64)]) -> f64 {
    let (mut now, mut left) = (start, f64::from(bytes) * 8.0);
    for (i, (_, rate)) in steps.iter().enumerate() {
        let until = steps.get(i + 1).map_or(f64::INFINITY, |step| step.0);
        if until <= now {
            continue;
        }
        let need = left / rate * 1e9;
        if now + need <= until {
            return now + need;
        }
        left -= (until - now) * rate / 1e9;
        now = until;
    }
    unreachable!("the last rate lasts")
}

proptest::proptest! {
    /// Rates change at any time. The error of each end is at most the rounding at each change.
    #[test]
    fn changing_rates_add_up_exactly(
        changes in proptest::collection::vec((0u64..30_000_000, 1u64..40_000_000), 0..8),
        packets in proptest::collection::vec((0u64..3_000_000, 1u32..3000), 1..40),
    ) {
        let mut config = config(3_000_000, QueueConfig::DropTail { packets_max: 1000 });
        config.delay = Duration::ZERO;
        let (mut at, mut steps) = (0, alloc::vec![(0.0, 3_000_000.0)]);
        for (gap, rate) in &changes {
            at += gap / 4;
            config.changes.push(LinkChange {
                at: Time::from_nanos(at),
                rate: Some(Bitrate::from_bits_per_s(*rate)),
                ..LinkChange::default()
            });
            steps.push((at as f64, *rate as f64));
        }
        let (mut link, mut rng) = (Link::new(&config, STREAMS), rng());
        let (mut now, mut busy) = (0u64, 0.0f64);
        for (gap, bytes) in &packets {
            now += gap;
            let ends = exact_end(busy.max(now as f64), *bytes, &steps);
            let got = link.offer(Time::from_nanos(now), *bytes, true, &mut rng);
            let Outcome::Arrives(got) = got else { panic!("nothing is dropped") };
            let off = got.as_nanos() as f64 - ends;
            // The carried remainder, below 1 ns, is dropped at each change.
            let allowed = 1.5 + changes.len() as f64 + ends * 1e-12;
            proptest::prop_assert!(off.abs() <= allowed, "off by {off} ns");
            busy = ends;
        }
    }
}

proptest::proptest! {
    #[test]
    fn packets_are_conserved_and_never_overtake(
        gaps in proptest::collection::vec((0u64..2_000_000, 1u32..2000), 1..300),
        limit in 1u32..20,
    ) {
        let mut link = new_link(&config(8_000_000, QueueConfig::DropTail { packets_max: limit }));
        let (mut now, mut last, mut arrived) = (0, Time::ZERO, 0);
        let mut rng = rng();
        for (gap, bytes) in &gaps {
            now += gap;
            if let Outcome::Arrives(at) = link.offer(Time::from_nanos(now), *bytes, true, &mut rng) {
                proptest::prop_assert!(at > last && at.as_nanos() > now);
                last = at;
                arrived += 1;
            }
            proptest::prop_assert!(link.backlog(Time::from_nanos(now)).0 <= limit);
        }
        let counters = link.sample(Time::MAX);
        proptest::prop_assert_eq!(counters.offered_packets, gaps.len() as u64);
        proptest::prop_assert_eq!(counters.sent_packets, arrived);
        proptest::prop_assert_eq!(counters.dropped_packets + arrived, gaps.len() as u64);
    }
}

#[test]
fn packets_leave_a_pipe_with_a_clock_tick_in_batches_at_the_rate() {
    // 1000 B at 8 Mbit/s take 1 ms; the clock ticks each 10 ms.
    let mut config = config(8_000_000, QueueConfig::DropTail { packets_max: 12 });
    config.timing.tick = Duration::from_millis(10);
    let mut link = new_link(&config);
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let at = |ms: u64| Outcome::Arrives(Time::from_nanos((ms + 50) * 1_000_000));
    let sent: Vec<_> = (0..14).map(|_| link.offer(ms(1), 1000, true, &mut rng())).collect();
    assert_eq!(sent[..9], [at(10); 9]);
    assert_eq!(sent[9..12], [at(20); 3]);
    assert_eq!(sent[12], Outcome::Dropped(DropReason::QueueFull));
    // Slots are free at the tick and not before: nine of twelve have left at 10 ms.
    assert_eq!(link.offer(ms(9), 1000, true, &mut rng()), Outcome::Dropped(DropReason::QueueFull));
    assert_eq!(link.backlog(ms(10)).0, 3);
    // From 1 ms, nine packets wait until the tick at 10 ms, and two until that at 20 ms.
    let counters = link.sample(ms(100));
    assert_eq!((counters.sent_packets, counters.queue_packets), (12, 0));
    assert_eq!(counters.busy_ns, 12_000_000);
    assert_eq!(counters.queue_packet_ns, 9 * 9_000_000 + 2 * 19_000_000);
}

#[test]
fn jitter_delays_packets_within_its_bound_and_in_order() {
    let mut config = config(8_000_000_000, QueueConfig::DropTail { packets_max: 10 });
    config.timing.jitter = Duration::from_millis(2);
    let (mut link, mut rng) = (new_link(&config), rng());
    let (mut last, mut waits) = (Time::ZERO, Vec::new());
    for i in 0..1000 {
        let now = Time::from_nanos(i * 500_000);
        let Outcome::Arrives(at) = link.offer(now, 1000, true, &mut rng) else { panic!("dropped") };
        assert!(at >= last, "packet {i} overtakes another one");
        last = at;
        waits.push(at.since(now + config.delay).as_nanos());
    }
    let most = waits.iter().max().copied().unwrap_or(0);
    assert!(most <= 2_001_000 && most > 1_900_000, "{most}");
    assert!(waits.iter().min().is_some_and(|least| *least < 500_000));
}
