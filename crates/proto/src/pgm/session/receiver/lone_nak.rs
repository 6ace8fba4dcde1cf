//! The NAK that a receiver sends where nothing is asked for: it carries a report.

use faircast_base::{Cx, Duration, Time};

use super::crowd::{Backoff, Crowd};
use crate::pgm::ReceiverConfig;

/// Where nothing is repaired, a loss still calls for a NAK with its report, at most one in an interval:
/// the losses within one round trip are one event.
#[derive(Debug)]
pub(super) struct LoneNak {
    crowd: Crowd,
    interval: Duration,
    /// The packet that it is to name, and the one that it names now.
    planned: Option<u64>,
    due: Option<u64>,
    /// When the last one was heard or became due.
    last: Option<Time>,
}

impl LoneNak {
    pub(super) fn new(config: &ReceiverConfig) -> Self {
        Self {
            crowd: Crowd::new(config),
            interval: config.report_interval,
            planned: None,
            due: None,
            last: None,
        }
    }

    /// Packet `index` is lost. Returns when that is to be reported, where it is.
    pub(super) fn plan(
        &mut self,
        cx: &mut Cx<'_>,
        backoff: &mut Backoff,
        index: u64,
    ) -> Option<Time> {
        let recent = self.last.is_some_and(|at| cx.now.since(at) < self.interval);
        if self.planned.is_some() || recent {
            return None;
        }
        self.planned = Some(index);
        Some(backoff.draw(&self.crowd, cx.rng))
    }

    /// Somebody has reported this loss for us.
    pub(super) fn suppress(&mut self, now: Time) {
        (self.planned, self.last) = (None, Some(now));
    }

    pub(super) fn clear(&mut self) {
        (self.planned, self.due) = (None, None);
    }

    /// Its time has come.
    pub(super) fn run_out(&mut self, now: Time) {
        (self.due, self.last) = (self.planned.take(), Some(now));
    }

    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    pub(super) fn take(&mut self) -> Option<u64> {
        self.due.take()
    }
}
