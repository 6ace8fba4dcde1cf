//! Choice of ORMCC's representative, the slowest receiver, by averages of rates.

use super::ALPHA;

/// Minimum deviation as a share of the average, for equal rates; open in the paper.
const SIGMA_FLOOR: f64 = 0.01;

/// Distance from the average in deviations: recovered above, taken over below (src: ormcc s2.1).
const RECOVERED_SIGMAS: f64 = 2.0;
const SLOWER_SIGMAS: f64 = 4.0;

/// Averages of rates in bytes per second (src: ormcc s2.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Averages {
    /// Mean and mean deviation (the paper's standard deviation) of all rates; `None` at first.
    all: Option<(f64, f64)>,
    pub(super) own: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Report of the representative itself.
    Own,
    /// No representative yet.
    First,
    /// Representative that is no longer the slowest gives way to a slower receiver.
    Recovered,
    Slower,
    Silent,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) has_representative: bool,
    pub(super) is_own: bool,
    pub(super) overdue: bool,
}

impl Averages {
    pub(super) fn forget_own(&mut self) {
        self.own = None;
    }

    /// Adds a rate to the averages and judges its sender. Comments below name the lines of the
    /// paper's algorithm.
    pub(super) fn judge(
        &mut self,
        rate: f64,
        standing: Standing,
        takes_over_anyway: impl FnOnce() -> bool,
    ) -> Choice {
        let (mean, deviation) = match self.all {
            // Open in the paper: TCP's estimator begins with half of the first value.
            None => (rate, rate / 2.0),
            Some((mean, deviation)) => {
                let error = rate - mean;
                let distance = if error < 0.0 { -error } else { error };
                (mean + ALPHA * error, deviation + ALPHA * (distance - deviation))
            }
        };
        self.all = Some((mean, deviation));
        let deviation = deviation.max(SIGMA_FLOOR * mean);
        if standing.is_own {
            self.own = Some(self.own.map_or(rate, |own| own + ALPHA * (rate - own)));
            return Choice::Own;
        }
        let choice = match self.own.filter(|_| standing.has_representative) {
            None => Choice::First,
            Some(own) => {
                let recovered = own > mean + RECOVERED_SIGMAS * deviation;
                // Line 28 includes equality, but the text says below.
                let slower = rate < mean - SLOWER_SIGMAS * deviation;
                if recovered && rate <= mean {
                    Choice::Recovered // Lines 22 to 27.
                } else if slower && (rate < own || takes_over_anyway()) {
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
