//! The serialiser: how long the transmission of a packet takes.

use alloc::vec::Vec;

use faircast_base::Time;

use crate::{LinkChange, LinkConfig};

const NS_PER_S_TIMES_8: u64 = 8_000_000_000;

/// A rate from a moment on.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: u64,
    bits_per_s: u64,
}

/// Computes the ends of transmissions, packet by packet, from the rates that the scenario gives
/// for the whole run. Within a busy period the remainders below a nanosecond add up, so that a
/// link that is never idle carries its exact rate.
#[derive(Clone, Debug)]
pub(crate) struct Serialiser {
    /// The rate at the end of the last transmission.
    bits_per_s: u64,
    /// The rates that follow it, the last one first.
    steps: Vec<Step>,
    /// What the last transmission lacked of a whole nanosecond, in units of 1 / rate ns.
    remainder: u64,
    /// The last packet size with its whole nanoseconds and remainder, to spare the division.
    cached_bytes: u32,
    cached_ns: u64,
    cached_remainder: u64,
}

impl Serialiser {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let step = |change: &LinkChange| {
            let bits_per_s = change.rate?.bits_per_s().max(1);
            Some(Step { from: change.at.as_nanos(), bits_per_s })
        };
        let steps = config.changes.iter().rev().filter_map(step).collect();
        Self {
            bits_per_s: config.rate.bits_per_s().max(1),
            steps,
            remainder: 0,
            // No packet has this size, so the first look-up misses.
            cached_bytes: u32::MAX,
            cached_ns: 0,
            cached_remainder: 0,
        }
    }

    /// When a transmission of `bytes` ends that starts at `start`. `idle` says that the link was
    /// idle before. Starts never decrease.
    #[inline]
    pub(crate) fn end(&mut self, start: Time, idle: bool, bytes: u32) -> Time {
        let start = start.as_nanos();
        if idle {
            self.remainder = 0;
        }
        if !self.steps.is_empty() {
            return Time::from_nanos(self.end_over_steps(start, bytes));
        }
        let rate = self.bits_per_s;
        if self.cached_bytes != bytes {
            let total = u64::from(bytes) * NS_PER_S_TIMES_8;
            self.cached_bytes = bytes;
            self.cached_ns = total / rate;
            self.cached_remainder = total % rate;
        }
        let mut ns = self.cached_ns;
        self.remainder += self.cached_remainder;
        if self.remainder >= rate {
            self.remainder -= rate;
            ns += 1;
        }
        Time::from_nanos(start.saturating_add(ns))
    }

    /// The same where a change of rate lies ahead: the packet is sent piece by piece.
    fn end_over_steps(&mut self, start: u64, bytes: u32) -> u64 {
        // In units of bit-nanoseconds per second, so that nothing is lost to rounding. The carried
        // remainder is dropped at a change of rate: it is below one nanosecond.
        let mut left = u128::from(bytes) * u128::from(NS_PER_S_TIMES_8);
        let mut now = start;
        loop {
            while let Some(step) = self.steps.pop_if(|step| step.from <= now) {
                self.bits_per_s = step.bits_per_s;
                self.remainder = 0;
            }
            let rate = u128::from(self.bits_per_s);
            left += u128::from(self.remainder);
            self.remainder = 0;
            let next = self.steps.last().map_or(u64::MAX, |step| step.from);
            let room = u128::from(next - now) * rate;
            if left <= room || next == u64::MAX {
                self.cached_bytes = u32::MAX;
                self.remainder = u64::try_from(left % rate).expect("a remainder is below its rate");
                return now.saturating_add(u64::try_from(left / rate).unwrap_or(u64::MAX));
            }
            left -= room;
            now = next;
        }
    }
}
