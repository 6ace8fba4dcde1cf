//! Delay increase during doubling: the queue grows before the first loss (src: RFC 9406 s4.2).

/// Consecutive delayed round trips that end doubling.
const DELAYED_MAX: u32 = 3;

/// Permitted increase: a share of the least round trip, within bounds in seconds (src: RFC 9406
/// s4.2).
const INCREASE_SHARE: f64 = 1.0 / 8.0;
const INCREASE_MIN_S: f64 = 0.004;
const INCREASE_MAX_S: f64 = 0.016;

/// Detector of a growing queue, by the round trips of the representative in seconds.
#[derive(Debug, Default)]
pub(super) struct DelayIncrease {
    least_s: Option<f64>,
    /// Latest samples in a row above the permitted increase.
    delayed: u32,
}

impl DelayIncrease {
    /// Adds a sample. Returns true if the queue grows.
    pub(super) fn sample(&mut self, rtt_s: f64) -> bool {
        let least_s = self.least_s.map_or(rtt_s, |least_s| least_s.min(rtt_s));
        self.least_s = Some(least_s);
        let permitted_s = (least_s * INCREASE_SHARE).clamp(INCREASE_MIN_S, INCREASE_MAX_S);
        self.delayed = if rtt_s > least_s + permitted_s { self.delayed + 1 } else { 0 };
        self.delayed >= DELAYED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_samples_in_a_row_above_the_permitted_increase_show_a_queue() {
        for (least_ms, then_ms, want) in [
            (50, &[57, 57, 57][..], true),
            (50, &[57, 57, 56, 57, 57], false),
            (50, &[56, 56, 56], false),
            (10, &[15, 15, 15], true),
            (10, &[14, 14, 14], false),
            (400, &[417, 417, 417], true),
            (400, &[416, 416, 416], false),
            (50, &[30, 30, 30], false),
        ] {
            let mut delay = DelayIncrease::default();
            assert!(!delay.sample(f64::from(least_ms) / 1e3));
            let grows = then_ms.iter().map(|ms| delay.sample(f64::from(*ms) / 1e3));
            assert_eq!(grows.last(), Some(want), "{then_ms:?} after {least_ms} ms");
        }
    }
}
