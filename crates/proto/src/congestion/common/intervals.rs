//! Weighted mean of loss intervals.

/// Weights of loss intervals, newest first (src: RFC 4654 s5.4 and RFC 5348 s5.4).
pub const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Returns the weighted mean of the first eight `intervals`, newest first, at least one.
pub fn weighted_mean(intervals: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (weight, interval) in WEIGHTS.iter().zip(intervals) {
        sum += weight * interval;
        weights += weight;
    }
    sum / weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_newest_intervals_weigh_alike_and_older_ones_less() {
        assert_eq!(weighted_mean([10.0; 9].into_iter()), 10.0);
        assert_eq!(weighted_mean([30.0, 10.0].into_iter()), 20.0);
        let bump =
            |at: usize| weighted_mean((0..8).map(|i| if i == at { 70.0 } else { 10.0 })) - 10.0;
        for (at, more) in [(0, 10.0), (3, 10.0), (4, 8.0), (5, 6.0), (6, 4.0), (7, 2.0)] {
            assert!((bump(at) - more).abs() < 1e-9, "{at}");
        }
    }
}
