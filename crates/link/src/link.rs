//! The link: queue, serialiser and wire together.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use faircast_base::{DropReason, Duration, LinkCounters, Rng, Time};

use crate::faults::{Copy, FaultyWire, Streams};
use crate::red::Red;
use crate::serialiser::Serialiser;
use crate::{LinkChange, LinkConfig, QueueConfig};

/// What becomes of a packet that is offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It reaches the other end at this moment.
    Arrives(Time),
    /// It reaches the other end in another way than most.
    Altered {
        /// The packet.
        first: Copy,
        /// A second one, made of it.
        second: Option<Copy>,
    },
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
    faults: Option<Box<FaultyWire>>,
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
    /// An idle link. Its faults draw from `streams`, each kind from one of its own; loss and RED
    /// draw from what is given with each packet.
    pub fn new(config: &LinkConfig, streams: Streams) -> Self {
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
            faults: FaultyWire::new(config, streams).map(Box::new),
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
        if self.red.is_some() && !self.changes.is_empty() {
            // RED turns idle time into packets by the rate that the link has now.
            self.apply_changes(now);
        }
        if let Some(faults) = &mut self.faults
            && let Err(reason) = faults.enter(now)
        {
            self.counters.dropped_packets += 1;
            return Outcome::Dropped(reason);
        }
        if let Err(reason) = self.admit(now, bytes, rng) {
            self.counters.dropped_packets += 1;
            return Outcome::Dropped(reason);
        }
        let ends = self.transmit(now, bytes);
        if !self.changes.is_empty() {
            self.apply_changes(ends);
        }
        if let Err(reason) = self.cross_wire(ends, data, rng) {
            self.counters.dropped_packets += 1;
            return Outcome::Dropped(reason);
        }
        let at = ends + self.delay;
        match &mut self.faults {
            None => Outcome::Arrives(at),
            Some(faults) => match faults.cross(at) {
                (Copy { at, extra: Duration::ZERO, flip: None }, None) => Outcome::Arrives(at),
                (first, second) => Outcome::Altered { first, second },
            },
        }
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

    /// When the transmission of the last packet that was admitted ends.
    pub fn idle_at(&self) -> Time {
        self.busy_until
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
            if let (Some(faults), Some(change)) = (&mut self.faults, &change.faults) {
                faults.change(change);
            }
            self.changes.pop_front();
        }
    }

    #[inline]
    fn cross_wire(&mut self, ends: Time, data: bool, rng: &mut Rng) -> Result<(), DropReason> {
        if !self.drop_list.is_empty() && data {
            self.data_packets += 1;
            if self.drop_list.front() == Some(&self.data_packets) {
                self.drop_list.pop_front();
                return Err(DropReason::Listed);
            }
        }
        // Drawn before the faults have their say, so that faults move no independent loss.
        if self.loss > 0.0 && rng.chance(self.loss) {
            return Err(DropReason::Loss);
        }
        match &mut self.faults {
            None => Ok(()),
            Some(faults) => faults.leave(ends),
        }
    }
}

#[cfg(test)]
mod tests;
