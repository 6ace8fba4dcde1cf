//! The choice of ORMCC's representative, the slowest receiver: averages of rates, and the three
//! reasons to switch.

use super::ALPHA;

/// Least deviation of rates, as a share of their average; open in the paper. Without a floor, equal
/// rates have no deviation, and each is far lower.
const SIGMA_FLOOR: f64 = 0.01;

/// Deviations above the average at which the representative has recovered, and below the average at
/// which a rate changes the representative (src: ormcc s2.1).
const RECOVERED_SIGMAS: f64 = 2.0;
const SLOWER_SIGMAS: f64 = 4.0;

/// The averages (src: ormcc s2.2). Rates are bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Averages {
    /// Of all rates told, and their mean deviation, which the paper calls standard; `None` before
    /// the first.
    all: Option<(f64, f64)>,
    /// Mean of the rates that the representative reports; `None` before the first.
    pub(super) own: Option<f64>,
}

/// Effect of a congestion indication on the choice of the representative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Own,
    /// There is no representative, or one that has never told of congestion.
    First,
    /// The representative is no longer the slowest, and this one is.
    Recovered,
    Slower,
    /// The representative has been silent for the interval I.
    Silent,
    Other,
}

/// From whom an indication comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) chosen: bool,
    pub(super) is_own: bool,
    /// Whether it has been silent for the interval I.
    pub(super) overdue: bool,
}

impl Averages {
    /// The representative is gone, or another.
    pub(super) fn forget_own(&mut self) {
        self.own = None;
    }

    /// Takes a rate into the averages and judges. Each line of the paper's algorithm is named.
    pub(super) fn judge(
        &mut self,
        rate: f64,
        standing: Standing,
        draw: impl FnOnce() -> bool,
    ) -> Choice {
        let (mean, deviation) = match self.all {
            // Open in the paper: half of the first rate is what TCP's estimator begins with.
            None => (rate, rate / 2.0),
            // Lines 1 to 3.
            Some((mean, deviation)) => {
                let error = rate - mean;
                let off = if error < 0.0 { -error } else { error };
                (mean + ALPHA * error, deviation + ALPHA * (off - deviation))
            }
        };
        let first = self.all.replace((mean, deviation)).is_none();
        let deviation = deviation.max(SIGMA_FLOOR * mean);
        // Lines 4 to 7.
        if standing.is_own {
            self.own = Some(self.own.map_or(rate, |own| own + ALPHA * (rate - own)));
            return Choice::Own;
        }
        let choice = match self.own.filter(|_| standing.chosen && !first) {
            // Lines 8 to 12.
            None => Choice::First,
            Some(own) => {
                // Lines 13 to 17.
                let recovered = own > mean + RECOVERED_SIGMAS * deviation;
                // Line 28 has a rate at the very limit too, where the text says below.
                let slower = rate < mean - SLOWER_SIGMAS * deviation;
                if recovered && rate <= mean {
                    Choice::Recovered // Lines 22 to 27.
                } else if slower && (rate < own || draw()) {
                    Choice::Slower // Lines 28 to 35.
                } else if standing.overdue {
                    Choice::Silent // Lines 36 to 42.
                } else {
                    Choice::Other
                }
            }
        };
        if choice != Choice::Other {
            self.own = Some(rate);
        }
        choice
    }
}
