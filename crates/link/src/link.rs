//! Link composed of queue, serialiser and wire.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use faircast_base::{DropReason, Duration, LinkCounters, Rng, Time};

use crate::faults::{FaultyCopy, FaultyWire, Streams};
use crate::red::Red;
use crate::serialiser::Serialiser;
use crate::{LinkChange, LinkConfig, QueueConfig, Timing};

/// Outcome of a packet that is offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Outcome {
    Arrives(Time),
    /// Arrives with faults: delayed, corrupted or duplicated.
    Altered {
        first: FaultyCopy,
        second: Option<FaultyCopy>,
    },
    Dropped(DropReason),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    ends: Time,
    bytes: u32,
}

/// One direction of a link. The queue is first in, first out, and all changes are scheduled:
/// [`offer`](Self::offer) returns the arrival at once. The queue limits memory.
#[derive(Clone, Debug)]
pub struct Link {
    serialiser: Serialiser,
    wire: Wire,
    packets_max: u32,
    bytes_max: u64,
    first: Option<Slot>,
    waiting: VecDeque<Slot>,
    backlog_bytes: u64,
    busy_until: Time,
    /// Counters with the future of all admitted packets, which [`sample`](Self::sample) subtracts.
    counters: LinkCounters,
    /// State that most links lack, boxed so that a packet touches less memory on many links.
    special: Option<Box<Special>>,
}

#[derive(Clone, Copy, Debug)]
struct Wire {
    delay: Duration,
    loss: f64,
}

#[derive(Clone, Debug)]
struct Special {
    red: Option<Red>,
    changes: VecDeque<LinkChange>,
    rate_bits_per_s: u64,
    drop_list: VecDeque<u64>,
    data_packets: u64,
    faults: Option<FaultyWire>,
    timing: Timing,
    /// Latest arrival so far; jitter does not reorder packets.
    latest: Time,
}

impl Link {
    /// Creates an idle link. Faults draw from `streams`, loss and RED from each packet's generator.
    pub fn new(config: &LinkConfig, streams: Streams) -> Self {
        let (packets_max, bytes_max, red) = match config.queue {
            QueueConfig::DropTail { packets_max } => (packets_max.max(1), u64::MAX, None),
            QueueConfig::DropTailBytes { bytes_max } => (u32::MAX, bytes_max, None),
            QueueConfig::Red(red) => (u32::MAX, u64::MAX, Some(Red::new(red))),
        };
        let special = Special {
            red,
            changes: config.changes.iter().copied().collect(),
            rate_bits_per_s: config.rate.bits_per_s(),
            drop_list: config.drop_list.iter().copied().collect(),
            data_packets: 0,
            faults: FaultyWire::new(config, streams),
            timing: config.timing,
            latest: Time::ZERO,
        };
        Self {
            serialiser: Serialiser::new(config),
            wire: Wire { delay: config.delay, loss: config.loss },
            packets_max,
            bytes_max,
            first: None,
            waiting: VecDeque::new(),
            backlog_bytes: 0,
            busy_until: Time::ZERO,
            counters: LinkCounters::default(),
            special: special.is_any().then(|| Box::new(special)),
        }
    }

    /// Offers a packet at `now`, which never decreases. `data`: it has payload, for the drop list.
    #[inline]
    pub fn offer(&mut self, now: Time, bytes: u32, data: bool, rng: &mut Rng) -> Outcome {
        self.expire(now);
        self.counters.offered_packets += 1;
        if let Err(reason) = self.admit(now, bytes, rng) {
            self.counters.dropped_packets += 1;
            return Outcome::Dropped(reason);
        }
        let ends = self.transmit(now, bytes);
        if let Some(special) = &mut self.special {
            special.apply_changes(ends, &mut self.wire);
        }
        if let Err(reason) = self.cross_wire(ends, (bytes, data), rng) {
            self.counters.dropped_packets += 1;
            return Outcome::Dropped(reason);
        }
        let mut at = ends + self.wire.delay;
        if let Some(special) = &mut self.special {
            at = special.jittered(at, rng);
        }
        match self.special.as_mut().and_then(|special| special.faults.as_mut()) {
            None => Outcome::Arrives(at),
            Some(faults) => match faults.cross(at) {
                (FaultyCopy { at, extra: Duration::ZERO, flip: None }, None) => {
                    Outcome::Arrives(at)
                }
                (first, second) => Outcome::Altered { first, second },
            },
        }
    }

    /// Returns the counters at `now`, after all offered packets. Resets the queue's maximum.
    pub fn sample(&mut self, now: Time) -> LinkCounters {
        self.expire(now);
        let mut counters = self.counters;
        counters.busy_ns -= self.busy_until.since(now).as_nanos();
        // The transmission of each waiting packet starts at the end of the previous one.
        let before_last = self.waiting.len().saturating_sub(1);
        let starts = self.first.iter().chain(self.waiting.iter().take(before_last));
        let ahead = starts.take(self.waiting.len()).map(|slot| slot.ends.since(now).as_nanos());
        counters.queue_packet_ns -= ahead.sum::<u64>();
        counters.queue_packets = self.waiting.len() as u32;
        self.counters.queue_max_packets = self.backlog_packets();
        counters
    }

    /// Returns the end of transmission of the last admitted packet.
    pub fn idle_at(&self) -> Time {
        self.busy_until
    }

    /// Returns the number and the bytes of packets waiting or in transmission at `now`.
    pub fn backlog(&mut self, now: Time) -> (u32, u64) {
        self.expire(now);
        (self.backlog_packets(), self.backlog_bytes)
    }

    #[inline]
    fn backlog_packets(&self) -> u32 {
        self.waiting.len() as u32 + u32::from(self.first.is_some())
    }

    /// Removes packets transmitted by `now`. Their room is free for a packet that arrives at `now`.
    #[inline]
    fn expire(&mut self, now: Time) {
        while let Some(slot) = self.first.filter(|slot| slot.ends <= now) {
            self.backlog_bytes -= u64::from(slot.bytes);
            self.counters.sent_packets += 1;
            self.counters.sent_bytes += u64::from(slot.bytes);
            self.first = self.waiting.pop_front();
        }
    }

    #[inline]
    fn admit(&mut self, now: Time, bytes: u32, rng: &mut Rng) -> Result<(), DropReason> {
        let held = self.backlog_packets();
        if let Some(special) = &mut self.special {
            special.admit(now, (held, self.busy_until), &mut self.wire, rng)?;
        }
        let full = held >= self.packets_max
            || (held > 0 && self.backlog_bytes + u64::from(bytes) > self.bytes_max);
        if full { Err(DropReason::QueueFull) } else { Ok(()) }
    }

    #[inline]
    fn transmit(&mut self, now: Time, bytes: u32) -> Time {
        let idle = self.busy_until < now || self.first.is_none();
        let starts = if idle { now } else { self.busy_until };
        // Back-to-back packets carry the remainder, also if the queue was just empty.
        let mut ends = self.serialiser.end(starts, self.busy_until < now, bytes);
        self.counters.busy_ns += ends.since(starts).as_nanos();
        // The packet waits until the previous one has left, perhaps at a later tick.
        let last = self.waiting.back().or(self.first.as_ref());
        self.counters.queue_packet_ns += last.map_or(0, |slot| slot.ends.since(now).as_nanos());
        self.busy_until = ends;
        if let Some(special) = &self.special {
            ends = special.ticked(ends);
        }
        let slot = Slot { ends, bytes };
        match self.first {
            None => self.first = Some(slot),
            Some(_) => self.waiting.push_back(slot),
        }
        self.backlog_bytes += u64::from(bytes);
        let held = self.backlog_packets();
        self.counters.queue_max_packets = self.counters.queue_max_packets.max(held);
        ends
    }

    #[inline]
    fn cross_wire(
        &mut self,
        ends: Time,
        (bytes, data): (u32, bool),
        rng: &mut Rng,
    ) -> Result<(), DropReason> {
        if self.special.as_mut().is_some_and(|special| special.is_listed(data)) {
            return Err(DropReason::Listed);
        }
        // Drawn before the faults, so that faults change no independent loss.
        if self.wire.loss > 0.0 && rng.chance(self.wire.loss) {
            return Err(DropReason::Loss);
        }
        match self.special.as_mut().and_then(|special| special.faults.as_mut()) {
            None => Ok(()),
            Some(faults) => faults.leave(ends, bytes),
        }
    }
}

impl Special {
    fn is_any(&self) -> bool {
        let is_constant = self.changes.is_empty() && self.timing == Timing::default();
        !is_constant || self.red.is_some() || self.faults.is_some() || !self.drop_list.is_empty()
    }

    #[inline]
    fn ticked(&self, ends: Time) -> Time {
        match self.timing.tick.as_nanos() {
            0 => ends,
            tick => Time::from_nanos(ends.as_nanos().div_ceil(tick).saturating_mul(tick)),
        }
    }

    #[inline]
    fn jittered(&mut self, at: Time, rng: &mut Rng) -> Time {
        if self.timing.jitter == Duration::ZERO {
            return at;
        }
        self.latest = self.latest.max(at + self.timing.jitter.mul_f64(rng.unit()));
        self.latest
    }

    #[inline]
    fn admit(
        &mut self,
        now: Time,
        (held, busy_until): (u32, Time),
        wire: &mut Wire,
        rng: &mut Rng,
    ) -> Result<(), DropReason> {
        if self.red.is_some() {
            // RED converts idle time to packets by the current rate.
            self.apply_changes(now, wire);
        }
        if let Some(faults) = &mut self.faults {
            faults.enter(now)?;
        }
        let Some(red) = &mut self.red else { return Ok(()) };
        let idle = (held == 0).then_some(busy_until);
        red.admit(now, held.saturating_sub(1), idle, self.rate_bits_per_s, rng)
    }

    #[inline]
    fn apply_changes(&mut self, ends: Time, wire: &mut Wire) {
        while let Some(change) = self.changes.front().copied().filter(|change| change.at <= ends) {
            self.changes.pop_front();
            wire.delay = change.delay.unwrap_or(wire.delay);
            wire.loss = change.loss.unwrap_or(wire.loss);
            self.rate_bits_per_s = change.rate.map_or(self.rate_bits_per_s, |r| r.bits_per_s());
            if let (Some(faults), Some(change)) = (&mut self.faults, &change.faults) {
                faults.change(change);
            }
        }
    }

    #[inline]
    fn is_listed(&mut self, data: bool) -> bool {
        if self.drop_list.is_empty() || !data {
            return false;
        }
        self.data_packets += 1;
        let is_listed = self.drop_list.front() == Some(&self.data_packets);
        is_listed && self.drop_list.pop_front().is_some()
    }
}

#[cfg(test)]
pub(crate) mod tests;
