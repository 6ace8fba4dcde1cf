//! HyStart's delay increase: the end of slow start before a loss (src: RFC 9406 s4.2).
//!
//! deviates: RFC 9406 compares the first samples of a round with those of the round before, because
//! TCP sends each round as a burst that queues by itself. Here packets are spread over the round, so
//! a queue grows from its first packet to its last and shows at once, a round earlier: the latest
//! samples are compared with the least of all. And slow start ends for good, without a phase in
//! which a false alarm could be taken back; what follows is the growth that the draft has.

use faircast_base::Duration;

/// Samples that must all have grown.
const SAMPLES: usize = 8;

/// How much they must have grown: an eighth, within these bounds.
const GROWTH_MIN: Duration = Duration::from_millis(4);
const GROWTH_MAX: Duration = Duration::from_millis(16);

#[derive(Debug, Default)]
pub(super) struct HyStart {
    least: Option<Duration>,
    /// Samples in a row that have grown.
    grown: usize,
}

impl HyStart {
    /// A packet was acknowledged after `rtt`. Whether the round trip has grown.
    pub(super) fn sample(&mut self, rtt: Duration) -> bool {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let growth = (least / 8).max(GROWTH_MIN).min(GROWTH_MAX);
        self.grown = if rtt >= least + growth { self.grown + 1 } else { 0 };
        self.grown >= SAMPLES
    }

    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_by_an_eighth_within_the_bounds_ends_slow_start_after_eight_samples() {
        for (before, after, ends) in [
            (50, 56, false),
            (50, 57, true),
            (1, 4, false),
            (1, 5, true),
            (400, 415, false),
            (400, 416, true),
            (50, 30, false),
        ] {
            let mut hystart = HyStart::default();
            assert!(!hystart.sample(Duration::from_millis(before)));
            let at = (1..100).find(|_| hystart.sample(Duration::from_millis(after)));
            assert_eq!(at, ends.then_some(8), "from {before} ms to {after} ms");
        }
    }

    #[test]
    fn late_packets_among_others_do_not() {
        let mut hystart = HyStart::default();
        for i in 0..200 {
            let rtt = Duration::from_millis(if i % 5 == 0 { 20 } else { 90 });
            assert!(!hystart.sample(rtt));
        }
    }
}
