//! The link: queue, serialiser and wire together.

use alloc::collections::VecDeque;

use faircast_base::{DropReason, Duration, LinkCounters, Rng, Time};

use crate::red::Red;
use crate::serialiser::Serialiser;
use crate::{LinkChange, LinkConfig, QueueConfig};

/// What becomes of a packet that is offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It reaches the other end at this moment.
    Arrives(Time),
    /// It does not.
    Dropped(DropReason),
}

/// A packet that was admitted and whose transmission has not ended.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ends: Time,
    bytes: u32,
}

/// One direction of one link.
///
/// Everything that the link will do to a packet is known when it arrives, because the queue is
/// first in, first out and the scenario's changes are known beforehand. So [`offer`](Self::offer)
/// gives the time of arrival at once, and the simulator needs one event per hop. Memory is
/// bounded by the queue limit.
#[derive(Clone, Debug)]
pub struct Link {
    serialiser: Serialiser,
    delay: Duration,
    loss: f64,
    packets_max: u32,
    bytes_max: u64,
    red: Option<Red>,
    /// Changes of delay, loss and rate that still lie ahead, in order of time.
    changes: VecDeque<LinkChange>,
    drop_list: VecDeque<u64>,
    data_packets: u64,
    rate_bits_per_s: u64,
    /// Admitted packets whose transmission has not ended, the first one in transmission.
    system: VecDeque<Slot>,
    system_bytes: u64,
    busy_until: Time,
    /// Sums over all admitted packets, from which the counters of any moment follow.
    busy_total_ns: u64,
    wait_total_ns: u64,
    counters: LinkCounters,
}

impl Link {
    /// An idle link.
    pub fn new(config: &LinkConfig) -> Self {
        let (packets_max, bytes_max, red) = match config.queue {
            QueueConfig::DropTail { packets_max } => (packets_max.max(1), u64::MAX, None),
            QueueConfig::DropTailBytes { bytes_max } => (u32::MAX, bytes_max, None),
            QueueConfig::Red(red) => (u32::MAX, u64::MAX, Some(Red::new(red))),
        };
        Self {
            serialiser: Serialiser::new(config),
            delay: config.delay,
            loss: config.loss,
            packets_max,
            bytes_max,
            red,
            changes: config.changes.iter().copied().collect(),
            drop_list: config.drop_list.iter().copied().collect(),
            data_packets: 0,
            rate_bits_per_s: config.rate.bits_per_s(),
            system: VecDeque::new(),
            system_bytes: 0,
            busy_until: Time::ZERO,
            busy_total_ns: 0,
            wait_total_ns: 0,
            counters: LinkCounters::default(),
        }
    }

    /// Takes a packet of `bytes` bytes at `now`, which never decreases. `data` says that it
    /// carries payload, which only matters to a drop list.
    #[inline]
    pub fn offer(&mut self, now: Time, bytes: u32, data: bool, rng: &mut Rng) -> Outcome {
        self.expire(now);
        self.counters.offered_packets += 1;
        if let Err(reason) = self.admit(now, bytes, rng) {
            self.counters.dropped_packets += 1;
            return Outcome::Dropped(reason);
        }
        let ends = self.transmit(now, bytes);
        if !self.changes.is_empty() {
            self.apply_changes(ends);
        }
        if let Err(reason) = self.cross_wire(data, rng) {
            self.counters.dropped_packets += 1;
            return Outcome::Dropped(reason);
        }
        Outcome::Arrives(ends + self.delay)
    }

    /// The counters as of `now`, which is not before any packet offered so far. The maximum of
    /// the queue starts anew.
    pub fn sample(&mut self, now: Time) -> LinkCounters {
        self.expire(now);
        let mut counters = self.counters;
        counters.busy_ns = self.busy_total_ns - self.busy_until.since(now).as_nanos();
        // Each waiting packet's transmission starts when that of the one before it ends.
        let ahead: u64 = self
            .system
            .iter()
            .take(self.system.len().saturating_sub(1))
            .map(|slot| slot.ends.since(now).as_nanos())
            .sum();
        counters.queue_packet_ns = self.wait_total_ns - ahead;
        counters.queue_packets = self.system.len().saturating_sub(1) as u32;
        self.counters.queue_max_packets = self.system.len() as u32;
        counters
    }

    /// Packets that wait or are in transmission at `now`, and their bytes.
    pub fn backlog(&mut self, now: Time) -> (u32, u64) {
        self.expire(now);
        (self.system.len() as u32, self.system_bytes)
    }

    /// Removes packets whose transmission has ended. One that ends exactly now makes room for one
    /// that arrives now.
    #[inline]
    fn expire(&mut self, now: Time) {
        while let Some(slot) = self.system.front() {
            if slot.ends > now {
                break;
            }
            self.system_bytes -= u64::from(slot.bytes);
            self.counters.sent_packets += 1;
            self.counters.sent_bytes += u64::from(slot.bytes);
            self.system.pop_front();
        }
    }

    #[inline]
    fn admit(&mut self, now: Time, bytes: u32, rng: &mut Rng) -> Result<(), DropReason> {
        let held = self.system.len() as u32;
        if let Some(red) = &mut self.red {
            let idle = (held == 0).then_some(self.busy_until);
            return red.admit(now, held.saturating_sub(1), idle, self.rate_bits_per_s, rng);
        }
        let full = held >= self.packets_max
            || (held > 0 && self.system_bytes + u64::from(bytes) > self.bytes_max);
        if full { Err(DropReason::QueueFull) } else { Ok(()) }
    }

    /// Puts an admitted packet behind all others; returns when its transmission ends.
    #[inline]
    fn transmit(&mut self, now: Time, bytes: u32) -> Time {
        let idle = self.busy_until < now || self.system.is_empty();
        let starts = if idle { now } else { self.busy_until };
        // Remainders are carried over back-to-back packets, also where the queue was just empty.
        let ends = self.serialiser.end(starts, self.busy_until < now, bytes);
        self.busy_total_ns += ends.since(starts).as_nanos();
        self.wait_total_ns += starts.since(now).as_nanos();
        self.busy_until = ends;
        self.system.push_back(Slot { ends, bytes });
        self.system_bytes += u64::from(bytes);
        let held = self.system.len() as u32;
        if held > self.counters.queue_max_packets {
            self.counters.queue_max_packets = held;
        }
        ends
    }

    /// Delay and loss are those of the moment at which the packet leaves the serialiser.
    #[cold]
    fn apply_changes(&mut self, ends: Time) {
        while let Some(change) = self.changes.front() {
            if change.at > ends {
                break;
            }
            self.delay = change.delay.unwrap_or(self.delay);
            self.loss = change.loss.unwrap_or(self.loss);
            self.rate_bits_per_s = change.rate.map_or(self.rate_bits_per_s, |r| r.bits_per_s());
            self.changes.pop_front();
        }
    }

    #[inline]
    fn cross_wire(&mut self, data: bool, rng: &mut Rng) -> Result<(), DropReason> {
        if !self.drop_list.is_empty() && data {
            self.data_packets += 1;
            if self.drop_list.front() == Some(&self.data_packets) {
                self.drop_list.pop_front();
                return Err(DropReason::Listed);
            }
        }
        if self.loss > 0.0 && rng.chance(self.loss) { Err(DropReason::Loss) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedConfig;
    use alloc::vec::Vec;
    use faircast_base::{Bitrate, NodeId, Purpose};

    fn config(bits_per_s: u64, queue: QueueConfig) -> LinkConfig {
        LinkConfig {
            rate: Bitrate::from_bits_per_s(bits_per_s),
            delay: Duration::from_millis(50),
            queue,
            loss: 0.0,
            changes: Vec::new(),
            drop_list: Vec::new(),
        }
    }

    fn rng() -> Rng {
        Rng::new(1, NodeId(0), Purpose::Link(0))
    }

    #[test]
    fn a_packet_pays_its_transmission_and_the_propagation() {
        let mut link = Link::new(&config(500_000, QueueConfig::DropTail { packets_max: 30 }));
        let arrival = link.offer(Time::ZERO, 1400, true, &mut rng());
        assert_eq!(arrival, Outcome::Arrives(Time::from_nanos(22_400_000 + 50_000_000)));
    }

    #[test]
    fn a_limit_counts_the_packet_in_transmission() {
        // src: ns-2.35, the burst test: limit 30 delivers 30 of a burst, limit 2 delivers 2.
        for limit in [30, 2, 1] {
            let mut link = Link::new(&config(1_000, QueueConfig::DropTail { packets_max: limit }));
            let delivered = (0..100)
                .filter(|_| {
                    matches!(link.offer(Time::ZERO, 1000, true, &mut rng()), Outcome::Arrives(_))
                })
                .count();
            assert_eq!(delivered, limit as usize);
        }
    }

    #[test]
    fn a_byte_limit_admits_one_packet_of_any_size() {
        let mut link = Link::new(&config(1_000, QueueConfig::DropTailBytes { bytes_max: 1500 }));
        let mut offer = |bytes| link.offer(Time::ZERO, bytes, true, &mut rng());
        assert!(matches!(offer(9000), Outcome::Arrives(_)));
        assert_eq!(offer(1), Outcome::Dropped(DropReason::QueueFull));
    }

    #[test]
    fn remainders_below_a_nanosecond_add_up() {
        // 1 byte at 3 Gbit/s takes 2 2/3 ns; three back to back take exactly 8.
        let mut link =
            Link::new(&config(3_000_000_000, QueueConfig::DropTail { packets_max: 100 }));
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
            loss: None,
        }];
        let mut link = Link::new(&config);
        // 1000 B at 1 Mbit/s take 8 ms; half is sent when the rate doubles: 4 + 2 = 6 ms.
        let first = link.offer(Time::ZERO, 1000, true, &mut rng());
        assert_eq!(first, Outcome::Arrives(Time::from_nanos(16_000_000)));
        let second = link.offer(Time::ZERO, 1000, true, &mut rng());
        assert_eq!(second, Outcome::Arrives(Time::from_nanos(20_000_000)));
    }

    #[test]
    fn counters_agree_with_what_a_periodic_load_must_give() {
        // Half load: never a wait. The queue average leaves out the packet in transmission.
        let mut link = Link::new(&config(8_000_000, QueueConfig::DropTail { packets_max: 10 }));
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
        let (mut link, mut rng) = (Link::new(&lossy), rng());
        let lost = (0..100_000u64)
            .filter(|i| {
                let now = Time::from_nanos(i * 100_000);
                link.offer(now, 100, true, &mut rng) == Outcome::Dropped(DropReason::Loss)
            })
            .count();
        // Standard deviation 95.
        assert!((9_600..10_400).contains(&lost), "{lost}");

        let mut listed = config(1_000_000_000, QueueConfig::DropTail { packets_max: 1000 });
        listed.drop_list = alloc::vec![2, 3];
        let mut link = Link::new(&listed);
        let mut offer = |data| link.offer(Time::ZERO, 100, data, &mut rng);
        let outcomes = [offer(true), offer(false), offer(true), offer(true), offer(true)];
        let dropped = outcomes.map(|o| o == Outcome::Dropped(DropReason::Listed));
        assert_eq!(dropped, [false, false, true, true, false]);
    }

    #[test]
    fn red_leaves_short_queues_alone_and_keeps_long_ones_near_its_thresholds() {
        let red = RedConfig {
            min: 5.0,
            max: 15.0,
            weight: 0.002,
            max_p: 0.1,
            gentle: true,
            packets_max: 50,
            mean_packet_bytes: 1000,
        };
        let mut link = Link::new(&config(8_000_000, QueueConfig::Red(red)));
        let mut rng = rng();
        // 95 % load, evenly spaced: no queue, no drop.
        for i in 0..10_000 {
            let outcome = link.offer(Time::from_nanos(i * 1_052_632), 1000, true, &mut rng);
            assert!(matches!(outcome, Outcome::Arrives(_)));
        }
        // 110 % load: drops keep the average between the thresholds' ends.
        let start = 20_000_000_000;
        let mut drops = 0;
        for i in 0..100_000 {
            let now = Time::from_nanos(start + i * 909_091);
            drops +=
                u32::from(matches!(link.offer(now, 1000, true, &mut rng), Outcome::Dropped(_)));
        }
        assert!((8_000..11_000).contains(&drops), "{drops}");
        let end = Time::from_nanos(start + 90_909_100_000);
        let mean = link.sample(end).queue_packet_ns as f64 / 90_909_100_000.0;
        assert!((5.0..30.0).contains(&mean), "{mean}");
    }

    proptest::proptest! {
        #[test]
        fn packets_are_conserved_and_never_overtake(
            gaps in proptest::collection::vec((0u64..2_000_000, 1u32..2000), 1..300),
            limit in 1u32..20,
        ) {
            let mut link = Link::new(&config(8_000_000, QueueConfig::DropTail { packets_max: limit }));
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
}
