//! Throughput model for the comparison of receivers.

use crate::congestion::common::equation::timeout_factor;

/// Model equation, without constants: only the order of receivers matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// T ~ 1 / (RTT sqrt p) (src: seada-helmy s2.2).
    Simple,
    /// With TCP's timeouts: T ~ 1 / (RTT sqrt p (1 + 9 p (1 + 32 p^2))) (src: pgmcc-draft s2.4).
    Full,
}

impl Model {
    /// Returns the square of the slowness: `rtt` in seconds or packets, `loss` in 0..=1.
    pub(crate) fn slowness_squared(self, rtt: f64, loss: f64) -> f64 {
        let simple = rtt * rtt * loss;
        match self {
            Self::Simple => simple,
            Self::Full => {
                let timeouts = timeout_factor(loss);
                simple * timeouts * timeouts
            }
        }
    }
}

/// True if a candidate replaces the acker: T_i < C T_a, or C^2 M_i^2 > M_a^2. Between two without
/// loss the acker stays (src: pgmcc-draft s2.3).
pub(super) fn is_slower(candidate_squared: f64, acker_squared: f64, bias: f64) -> bool {
    bias * bias * candidate_squared > acker_squared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_model_corrects_as_the_equation_says() {
        for (loss, factor) in
            [(0.01, 1.09), (0.02, 1.18), (0.05, 1.49), (0.08, 1.87), (0.1, 2.19), (0.2, 5.1)]
        {
            let squared =
                Model::Full.slowness_squared(1.0, loss) / Model::Simple.slowness_squared(1.0, loss);
            assert!((faircast_base::math::sqrt(squared) / factor - 1.0).abs() < 0.005, "{loss}");
        }
    }

    #[test]
    fn the_full_model_tells_apart_what_the_simple_one_takes_for_equal() {
        // Receivers of the paper's figures 10 and 11, ratios of the fact sheet.
        for (low, high, ratio) in [(0.004, 0.016, 1.105), (0.02, 0.08, 1.58)] {
            let m = |model: Model, rtt, loss| {
                faircast_base::math::sqrt(model.slowness_squared(rtt, loss))
            };
            let simple = m(Model::Simple, 0.2, high) / m(Model::Simple, 0.4, low);
            assert!((simple - 1.0).abs() < 1e-9);
            let full = m(Model::Full, 0.2, high) / m(Model::Full, 0.4, low);
            assert!((full / ratio - 1.0).abs() < 0.005, "{full}");
        }
    }

    proptest::proptest! {
        #[test]
        fn order_is_never_inverted_and_nothing_overflows(
            a in (1u64..64_000_000_000, 0u16..=u16::MAX),
            grow_rtt in 0u64..64_000_000_000, grow_loss in 0u16..=u16::MAX,
        ) {
            let (rtt, loss) = (a.0 as f64 / 1e9, f64::from(a.1) / 65535.0);
            let worse_rtt = (a.0 + grow_rtt) as f64 / 1e9;
            let worse_loss = f64::from(a.1.saturating_add(grow_loss)) / 65535.0;
            for model in [Model::Simple, Model::Full] {
                let (less, more) = (
                    model.slowness_squared(rtt, loss),
                    model.slowness_squared(worse_rtt, worse_loss),
                );
                proptest::prop_assert!(less.is_finite() && more.is_finite());
                proptest::prop_assert!(more >= less);
                proptest::prop_assert!(!is_slower(less, more, 1.0));
            }
        }
    }
}
