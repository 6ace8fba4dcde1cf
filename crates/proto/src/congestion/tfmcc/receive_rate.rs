//! Receive rate.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Time};

use crate::keep_last;

/// Marks kept, which span at least two round trips (src: RFC 4654 s4.3.4: two to four).
const MARKS: usize = 5;

/// Received bytes over time. Marks are at least half a round trip and one packet apart.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiveRate {
    /// Times with the bytes that had arrived by then.
    marks: VecDeque<(Time, u64)>,
    total: u64,
    /// Arrival of the latest packet.
    pub(super) last: Time,
}

impl ReceiveRate {
    pub(super) fn arrived(&mut self, now: Time, bytes: u32, rtt: Duration) {
        self.total += u64::from(bytes);
        self.last = now;
        if self.marks.back().is_none_or(|(at, _)| now.since(*at) >= rtt / 2) {
            keep_last(&mut self.marks, MARKS, (now, self.total));
        }
    }

    pub(super) fn bits_per_s(&self) -> Option<f64> {
        let (at, total) = *self.marks.front()?;
        let seconds = self.last.since(at).as_secs_f64();
        (seconds > 0.0).then(|| (self.total - total) as f64 * 8.0 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_round_trips() {
        let mut rate = ReceiveRate::default();
        let rtt = Duration::from_millis(40);
        assert_eq!(rate.bits_per_s(), None);
        let mut now = Time::ZERO;
        for (packets, gap_ms, want) in [(50, 10, 800_000.0), (200, 1, 8_000_000.0)] {
            for _ in 0..packets {
                now += Duration::from_millis(gap_ms);
                rate.arrived(now, 1000, rtt);
            }
            let got = rate.bits_per_s().unwrap();
            assert!((got / want - 1.0).abs() < 1e-9, "{got} for {want}");
        }
    }

    #[test]
    fn packets_rarer_than_round_trips_are_measured_over_some_of_them() {
        let mut rate = ReceiveRate::default();
        for k in 0..8u64 {
            rate.arrived(
                Time::ZERO + Duration::from_millis(500 * k),
                1000,
                Duration::from_millis(1),
            );
        }
        assert_eq!(rate.bits_per_s(), Some(16_000.0));
        assert!(rate.marks.len() <= MARKS);
    }
}
