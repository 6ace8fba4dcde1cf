//! Congestion representative (CR), the slowest receiver, and its choice by averages of rates.

use faircast_base::NodeId;

use super::ALPHA;
use crate::congestion::common::average::{MeanDeviation, MovingAverage};

/// Minimum deviation as a share of the average, for equal rates; open in the paper.
const SIGMA_FLOOR: f64 = 0.01;

/// Distance from the average in deviations: recovered above, taken over below (src: ormcc s2.1).
const RECOVERED_SIGMAS: f64 = 2.0;
const SLOWER_SIGMAS: f64 = 4.0;

/// Congestion representative (CR) of the sender.
#[derive(Debug, Default)]
pub(super) struct Representative {
    pub(super) id: Option<NodeId>,
    pub(super) averages: Averages,
    /// Packets sent, in all and up to the CR's latest congestion indication.
    sent: u64,
    sent_at_indication: u64,
}

impl Representative {
    pub(super) fn is(&self, node: NodeId) -> bool {
        self.id == Some(node)
    }

    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// Starts the interval I, within which the CR must indicate congestion.
    pub(super) fn restart_interval(&mut self) {
        self.sent_at_indication = self.sent;
    }

    /// True if more than `interval` packets (I) left since the CR's last indication.
    pub(super) fn is_overdue(&self, interval: f64) -> bool {
        (self.sent - self.sent_at_indication) as f64 > interval
    }

    pub(super) fn appoint(&mut self, id: NodeId) {
        self.id = Some(id);
        self.restart_interval();
    }

    pub(super) fn dismiss(&mut self) {
        self.id = None;
        self.averages.forget_cr();
    }

    /// Judges a receiver that indicated congestion at output rate `rate`.
    pub(super) fn judge(
        &mut self,
        from: NodeId,
        rate: f64,
        interval: f64,
        takes_over_anyway: impl FnOnce() -> bool,
    ) -> Choice {
        let standing = Standing {
            has_cr: self.id.is_some(),
            is_cr: self.is(from),
            is_overdue: self.is_overdue(interval),
        };
        self.averages.judge(rate, standing, takes_over_anyway)
    }
}

/// Averages of rates in bytes per second (src: ormcc s2.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Averages {
    /// Average of all receivers' rates (mu_avg, sigma_avg); `None` at first.
    all: Option<MeanDeviation>,
    /// Average of the CR's rates (mu_cr).
    cr: MovingAverage,
}

/// Verdict on a receiver that indicates congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Receiver is the CR.
    Cr,
    /// Receiver becomes the CR: there is none.
    First,
    /// Receiver becomes the CR: the CR is no longer the slowest.
    Recovered,
    /// Receiver becomes the CR: far slower than the average.
    Slower,
    /// Receiver becomes the CR: the CR has been silent for interval I.
    Silent,
    /// CR stays.
    Other,
}

/// Position of a receiver that indicates congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) has_cr: bool,
    pub(super) is_cr: bool,
    /// True if the CR has been silent for interval I.
    pub(super) is_overdue: bool,
}

impl Averages {
    pub(super) fn cr(&self) -> Option<f64> {
        self.cr.get()
    }

    pub(super) fn forget_cr(&mut self) {
        self.cr = MovingAverage::default();
    }

    /// Adds a rate to the averages and judges its sender. Comments below name the lines of the
    /// paper's algorithm.
    pub(super) fn judge(
        &mut self,
        rate: f64,
        standing: Standing,
        takes_over_anyway: impl FnOnce() -> bool,
    ) -> Choice {
        match &mut self.all {
            // Open in the paper: the deviation begins as TCP's.
            None => self.all = Some(MeanDeviation::first(rate)),
            Some(all) => all.add(rate, ALPHA, ALPHA),
        }
        let MeanDeviation { mean, deviation } = self.all.unwrap_or_default();
        let deviation = deviation.max(SIGMA_FLOOR * mean);
        if standing.is_cr {
            self.cr.add(rate, ALPHA);
            return Choice::Cr;
        }
        let choice = match self.cr().filter(|_| standing.has_cr) {
            None => Choice::First,
            Some(cr) => {
                let recovered = cr > mean + RECOVERED_SIGMAS * deviation;
                // Line 28 includes equality, but the text says below.
                let slower = rate < mean - SLOWER_SIGMAS * deviation;
                if recovered && rate <= mean {
                    Choice::Recovered // Lines 22 to 27.
                } else if slower && (rate < cr || takes_over_anyway()) {
                    Choice::Slower // Lines 28 to 35.
                } else if standing.is_overdue {
                    Choice::Silent // Lines 36 to 42.
                } else {
                    Choice::Other
                }
            }
        };
        if choice != Choice::Other {
            self.cr = MovingAverage::of(rate);
        }
        choice
    }
}
