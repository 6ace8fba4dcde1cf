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
    /// The packet that it names, and when it is due.
    planned: Option<(Time, u64)>,
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

    /// Packet `index` is lost.
    pub(super) fn plan(&mut self, cx: &mut Cx<'_>, backoff: &mut Backoff, index: u64) {
        let recent = self.last.is_some_and(|at| cx.now.since(at) < self.interval);
        if self.planned.is_none() && !recent {
            self.planned = Some((backoff.draw(&self.crowd, cx.rng), index));
        }
    }

    /// Somebody has reported this loss for us.
    pub(super) fn suppress(&mut self, now: Time) {
        (self.planned, self.last) = (None, Some(now));
    }

    pub(super) fn clear(&mut self) {
        (self.planned, self.due) = (None, None);
    }

    /// Time has passed. Without `can_ask` it has no way to go, and waits for up to `backoff` more.
    /// Returns whether it waits for that.
    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>, backoff: Duration, can_ask: bool) -> bool {
        if let Some((at, index)) = self.planned
            && at <= cx.now
        {
            if can_ask {
                (self.planned, self.due, self.last) = (None, Some(index), Some(cx.now));
            } else {
                self.planned = Some((cx.now + cx.rng.up_to(backoff), index));
            }
        }
        self.planned.is_some() && !can_ask
    }

    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    pub(super) fn take(&mut self) -> Option<u64> {
        self.due.take()
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.planned.map(|(at, _)| at)
    }
}
