//! Congestion representative (CR), the slowest receiver, and its choice by averages of rates.

use faircast_base::{NodeId, SwitchReason};

use super::ALPHA;
use crate::congestion::common::average::{MeanDeviation, MovingAverage};

/// Minimum deviation as a share of the average, for equal rates; open in the paper.
const SIGMA_FLOOR: f64 = 0.01;

/// Distance from the average in deviations: recovered above, taken over below (src: ormcc s2.1).
const RECOVERED_SIGMAS: f64 = 2.0;
const SLOWER_SIGMAS: f64 = 4.0;

/// CR of the sender, and averages of rates in bytes per second (src: ormcc s2.2).
#[derive(Debug, Default)]
pub(super) struct Representative {
    pub(super) id: Option<NodeId>,
    /// Average of all receivers' rates (mu_avg, sigma_avg); `None` at first.
    all: Option<MeanDeviation>,
    pub(super) average: MovingAverage,
    /// Packets sent, in all and up to the CR's latest congestion indication.
    pub(super) sent: u64,
    sent_at_indication: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Cr,
    Switch(SwitchReason),
    Other,
}

impl Representative {
    /// Starts the interval I, within which the CR must indicate congestion.
    pub(super) fn restart_interval(&mut self) {
        self.sent_at_indication = self.sent;
    }

    /// True if more than `interval` packets (I) left since the CR's last indication.
    pub(super) fn is_overdue(&self, interval: f64) -> bool {
        (self.sent - self.sent_at_indication) as f64 > interval
    }

    /// Judges a receiver that indicated congestion at output rate `rate`, by the paper's lines.
    pub(super) fn judge(
        &mut self,
        from: NodeId,
        rate: f64,
        interval: f64,
        takes_over_anyway: impl FnOnce() -> bool,
    ) -> Choice {
        match &mut self.all {
            // Open in the paper: the deviation begins as TCP's.
            None => self.all = Some(MeanDeviation::first(rate)),
            Some(all) => all.add(rate, ALPHA, ALPHA),
        }
        let MeanDeviation { mean, deviation } = self.all.unwrap_or_default();
        let deviation = deviation.max(SIGMA_FLOOR * mean);
        if self.id == Some(from) {
            self.average.add(rate, ALPHA);
            return Choice::Cr;
        }
        let reason = match (self.id, self.average.get()) {
            (None, _) => SwitchReason::First,
            (Some(_), None) => SwitchReason::Slower,
            (Some(_), Some(cr)) => {
                let recovered = cr > mean + RECOVERED_SIGMAS * deviation;
                // Line 28 includes equality, but the text says below.
                let slower = rate < mean - SLOWER_SIGMAS * deviation;
                if recovered && rate <= mean {
                    SwitchReason::Recovered // Lines 22 to 27.
                } else if slower && (rate < cr || takes_over_anyway()) {
                    SwitchReason::Slower // Lines 28 to 35.
                } else if self.is_overdue(interval) {
                    SwitchReason::Silent // Lines 36 to 42.
                } else {
                    return Choice::Other;
                }
            }
        };
        self.average = MovingAverage::of(rate);
        Choice::Switch(reason)
    }
}
