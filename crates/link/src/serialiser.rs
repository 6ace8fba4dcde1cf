//! Serialiser: computes the transmission time of packets.

use alloc::vec::Vec;

use faircast_base::Time;

use crate::{LinkChange, LinkConfig};

const NS_PER_S_TIMES_8: u64 = 8_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Step {
    from: u64,
    bits_per_s: u64,
}

/// Serialiser with the rates of the run. Carries fractions of a nanosecond while the link is busy.
#[derive(Clone, Debug)]
pub(crate) struct Serialiser {
    bits_per_s: u64,
    /// Later rates in descending order of time.
    steps: Vec<Step>,
    /// Rounding error of the last end of transmission, in units of 1 / rate ns.
    remainder: u64,
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
            cached_bytes: u32::MAX,
            cached_ns: 0,
            cached_remainder: 0,
        }
    }

    /// `idle` is true if the link was idle before `start`. Starts never decrease.
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

    fn end_over_steps(&mut self, start: u64, bytes: u32) -> u64 {
        // In bit-nanoseconds per second: exact. A change of rate drops the remainder, below 1 ns.
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
