//! HyStart's delay increase: ends slow start before a loss (src: RFC 9406 s4.2). deviates: RFC 9406
//! compares the first samples of two rounds, because TCP sends each as a burst. Here packets are
//! spread, so the latest samples are compared with the minimum of all. Slow start then ends for
//! good, without a phase that could withdraw a false alarm.

use faircast_base::Duration;

const SAMPLES: usize = 8;

/// Bounds of the significant growth, normally an eighth of the minimum.
const GROWTH_MIN: Duration = Duration::from_millis(4);
const GROWTH_MAX: Duration = Duration::from_millis(16);

#[derive(Debug, Default)]
pub(super) struct HyStart {
    least: Option<Duration>,
    /// Latest samples in a row with significant growth.
    grown: usize,
}

impl HyStart {
    /// Adds a sample. Returns true if the queue grows.
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
