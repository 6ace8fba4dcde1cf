//! Confidence intervals of medians, which assume nothing of how values are distributed.

/// Between which values the median of what was sampled lies, and how surely.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The probability that such an interval holds the median: above 0.9, and 0.95 or more from six
    /// values on.
    pub confidence: f64,
}

/// The interval of the median of what `values` are samples of; `None` of fewer than five values, of
/// which even the least and the greatest hold it too seldom to be worth a name.
///
/// A sample is below the median with probability 1/2, so how many of n are is binomial, and the k-th
/// least and the k-th greatest enclose the median unless fewer than k are below it, or above it: with
/// probability 1 - 2 P(B(n, 1/2) < k). The greatest k that leaves 0.95 is taken.
pub fn median_interval(values: impl Iterator<Item = f64>) -> Option<Interval> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n < VALUES_MIN || sorted.iter().any(|value| value.is_nan()) {
        return None;
    }
    let (k, confidence) = match n {
        n if n > COUNTED_MAX => {
            // So many are as good as normal: 1.96 deviations, each sqrt(n) / 2, around n / 2.
            let n = n as f64;
            ((n / 2.0 - 0.98 * n.sqrt()).floor() as usize, CONFIDENCE)
        }
        n => counted(n),
    };
    Some(Interval { low: sorted[k - 1], high: sorted[n - k], confidence })
}

/// The rank from each end, and how surely the median lies between the two.
fn counted(n: usize) -> (usize, f64) {
    let mut exactly = 0.5f64.powi(i32::try_from(n).expect("at most COUNTED_MAX"));
    let mut below = exactly;
    let mut best = (1, 1.0 - 2.0 * below);
    for i in 1..n / 2 {
        exactly *= (n - i + 1) as f64 / i as f64;
        below += exactly;
        if 1.0 - 2.0 * below < CONFIDENCE {
            break;
        }
        best = (i + 1, 1.0 - 2.0 * below);
    }
    best
}

const CONFIDENCE: f64 = 0.95;
const VALUES_MIN: usize = 5;
/// Most values for which the sum is made; 2^-1074 is the least number that there is.
const COUNTED_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_binomial_tables() {
        // (n, the rank from each end, its confidence), worked by hand: 1 - 2 sum C(n, i) / 2^n.
        for (n, rank, confidence) in [
            (5, 1, 1.0 - 2.0 / 32.0),
            (6, 1, 1.0 - 2.0 / 64.0),
            (9, 2, 1.0 - 2.0 * 10.0 / 512.0),
            (10, 2, 1.0 - 2.0 * 11.0 / 1024.0),
            (20, 6, 1.0 - 2.0 * 21_700.0 / 1_048_576.0),
        ] {
            let got = median_interval((1..=n).rev().map(f64::from)).unwrap();
            assert_eq!((got.low, got.high), (f64::from(rank), f64::from(n + 1 - rank)), "{n}");
            assert!((got.confidence - confidence).abs() < 1e-12, "{n}: {got:?}");
        }
        assert_eq!(median_interval((1..5).map(f64::from)), None);
        assert_eq!(median_interval([f64::NAN; 7].into_iter()), None);
    }
}
