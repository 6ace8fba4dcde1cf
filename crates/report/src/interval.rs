//! Confidence intervals of medians, without assumptions on the distribution of the values.

/// Confidence interval of a median.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the median is inside: above 0.9; from six values on at least 0.95.
    pub confidence: f64,
}

/// Returns the confidence interval of the median of sampled `values`. `None` below five values,
/// whose range contains the median too rarely. The number of samples below the median is binomial:
/// the k-th least and the k-th greatest of n samples enclose it with probability 1 - 2 P(B(n, 1/2)
/// < k). The function takes the greatest k with at least 0.95.
pub fn median_interval(values: impl Iterator<Item = f64>) -> Option<Interval> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n < VALUES_MIN || sorted.iter().any(|value| value.is_nan()) {
        return None;
    }
    let (k, confidence) = match n {
        n if n > COUNTED_MAX => {
            // Normal approximation for large n: 1.96 deviations of sqrt(n) / 2 around n / 2.
            let n = n as f64;
            ((n / 2.0 - 0.98 * n.sqrt()).floor() as usize, CONFIDENCE)
        }
        n => counted(n),
    };
    Some(Interval { low: sorted[k - 1], high: sorted[n - k], confidence })
}

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
/// Largest n for the exact sum; 2^-1074 is the smallest number of `f64`.
const COUNTED_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_binomial_tables() {
        // (n, rank from each end, confidence), computed by hand: 1 - 2 sum C(n, i) / 2^n.
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
