//! Pacing of packets, for rate-based schemes and the operator's bounds.

use faircast_base::{Duration, Time};

use crate::congestion::Permit;

/// Packet pacer with a variable rate, by nominal departure times: late timers keep the rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bits_per_s: f64,
    burst: Duration,
    next: Time,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(1.0, Self::BURST)
    }
}

impl Pace {
    /// Longest delay to catch up with: 4 ms. Timers of real systems wake some milliseconds late.
    pub const BURST: Duration = Duration::from_millis(4);

    /// Creates a pacer of `bits_per_s`, at least 1, that catches up with at most `burst`.
    pub fn new(bits_per_s: f64, burst: Duration) -> Self {
        Self { bits_per_s: bits_per_s.max(1.0), burst, next: Time::ZERO }
    }

    /// Returns the rate in bits per second.
    pub fn bits_per_s(&self) -> f64 {
        self.bits_per_s
    }

    /// Changes the rate and scales the time left: a fast rate does not wait for a slow one's gap.
    pub fn set(&mut self, now: Time, bits_per_s: f64) {
        let bits_per_s = bits_per_s.max(1.0);
        if self.next > now {
            let left = self.next.since(now).as_secs_f64() * self.bits_per_s / bits_per_s;
            self.next = now + span(left);
        }
        self.bits_per_s = bits_per_s;
    }

    /// Returns when a packet may leave.
    pub fn permit(&self, now: Time) -> Permit {
        if self.next <= now { Permit::Now } else { Permit::At(self.next) }
    }

    /// Returns the due time of the next packet, perhaps in the past.
    pub fn ready_at(&self) -> Time {
        self.next
    }

    /// Charges a packet of `bytes`.
    pub fn spend(&mut self, now: Time, bytes: u32) {
        let earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(self.burst);
        self.next = self.next.max(earliest) + self.cost(bytes);
    }

    /// Charges a packet that leaves now, and forgets earlier credit or delay.
    pub fn restart(&mut self, now: Time, bytes: u32) {
        self.next = now + self.cost(bytes);
    }

    /// Returns the transmission time of `bytes` at this rate.
    pub fn cost(&self, bytes: u32) -> Duration {
        span(f64::from(bytes) * 8.0 / self.bits_per_s)
    }
}

/// Longest time between two packets: 3600 s.
const SPAN_MAX_S: f64 = 3600.0;

fn span(seconds: f64) -> Duration {
    Duration::from_nanos((seconds.min(SPAN_MAX_S) * 1e9 + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn packets_are_due_at_even_distances_even_where_they_leave_late() {
        let mut pace = Pace::new(8_000_000.0, MS * 4);
        pace.restart(at(100), 1000);
        for k in 1..20u64 {
            assert_eq!(pace.permit(at(99)), Permit::At(at(100 + k)));
            pace.spend(at(100 + k) + Duration::from_micros(300 * (k % 3)), 1000);
        }
    }

    #[test]
    fn silence_saves_up_no_more_than_a_burst() {
        let mut pace = Pace::new(8_000_000.0, MS * 4);
        pace.restart(at(0), 1000);
        let mut left = 0;
        while pace.permit(at(5000)) == Permit::Now {
            pace.spend(at(5000), 1000);
            left += 1;
        }
        assert_eq!(left, 5);
    }

    #[test]
    fn a_new_rate_counts_for_the_packet_that_waits() {
        let mut pace = Pace::new(1000.0, Duration::ZERO);
        pace.restart(at(0), 1000);
        assert_eq!(pace.permit(at(0)), Permit::At(at(8000)));
        pace.set(at(4000), 100_000.0);
        assert_eq!(pace.permit(at(0)), Permit::At(at(4040)));
        pace.set(at(4000), 0.0);
        assert_eq!(pace.bits_per_s(), 1.0);
        assert_eq!(pace.permit(at(0)), Permit::At(at(4000 + 3_600_000)));
    }
}
