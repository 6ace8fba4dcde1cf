//! TCP throughput equation (RFC 4654 s2.1), and the mean of loss intervals for its loss.

use faircast_base::math::sqrt;

/// Returns the factor by which timeouts slow TCP at a loss event rate in 0..=1: 1 without loss. The
/// timeout is four round trips, so the equation's second term is 12 sqrt(3p/8) p (1 + 32p^2), its
/// first sqrt(2p/3), and their quotient's constant 9 (src: padhye-1998, RFC 4654 s2.1).
pub fn timeout_factor(loss: f64) -> f64 {
    1.0 + 9.0 * loss * (1.0 + 32.0 * loss * loss)
}

/// Returns TCP's throughput in bits per second for packets of `packet_bytes`, a round trip of
/// `rtt_s` seconds and a loss event rate in 0..=1. Infinite without loss (src: RFC 4654 s2.1).
pub fn throughput_bits_per_s(packet_bytes: f64, rtt_s: f64, loss: f64) -> f64 {
    8.0 * packet_bytes / (rtt_s * sqrt(2.0 * loss / 3.0) * timeout_factor(loss))
}

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
    fn throughput_is_that_of_the_equation() {
        for (loss, bits_per_s) in
            [(0.001, 3_070_749.0), (0.01, 898_658.0), (0.05, 294_871.0), (0.1, 141_608.0)]
        {
            let got = throughput_bits_per_s(1000.0, 0.1, loss);
            assert!((got - bits_per_s).abs() < 0.5, "{loss}: {got}");
        }
        assert_eq!(throughput_bits_per_s(1000.0, 0.1, 0.0), f64::INFINITY);
    }

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
