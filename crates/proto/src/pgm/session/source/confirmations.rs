//! The confirmations that a source owes to those who sent NAKs, and how far away those are.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Duration, Seq, Time};

/// Most confirmations that wait. Receivers ask again for what does not fit.
pub(super) const CONFIRMATIONS_MAX: usize = 256;

/// Most confirmations that are remembered in order not to repeat them at once.
const RECENT_MAX: usize = 64;

/// A confirmation to send: exactly what a NAK asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confirmation {
    pub(super) first: Seq,
    pub(super) list: Vec<Seq>,
}

/// Confirmations that wait, and those that were sent a moment ago.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    queue: VecDeque<Confirmation>,
    recent: VecDeque<(Time, Confirmation)>,
}

impl Confirmations {
    /// Queues a confirmation, unless the same was queued less than `interval` ago. Returns false
    /// where there is no room.
    pub(super) fn ask(&mut self, now: Time, interval: Duration, what: Confirmation) -> bool {
        if self.queue.contains(&what) {
            return true;
        }
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) >= interval) {
            self.recent.pop_front();
        }
        if self.recent.iter().any(|(_, recent)| *recent == what) {
            return true;
        }
        if self.queue.len() >= CONFIRMATIONS_MAX {
            return false;
        }
        if interval > Duration::ZERO {
            if self.recent.len() >= RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((now, what.clone()));
        }
        self.queue.push_back(what);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Confirmation> {
        self.queue.pop_front()
    }
}

/// The longest round trip of those who asked lately.
#[derive(Debug, Default)]
pub(super) struct Farthest(Option<(Duration, Time)>);

impl Farthest {
    /// One who asks has this round trip.
    pub(super) fn note(&mut self, now: Time, rtt: Duration) {
        let farther = self.get(now).is_none_or(|longest| rtt >= longest);
        if farther {
            self.0 = Some((rtt, now));
        }
    }

    /// The longest one noted in the last [`FARTHEST_KEPT`].
    pub(super) fn get(&self, now: Time) -> Option<Duration> {
        self.0.filter(|(_, at)| now.since(*at) < FARTHEST_KEPT).map(|(rtt, _)| rtt)
    }
}

/// Paths change in minutes; and who asks without a report is the exception.
const FARTHEST_KEPT: Duration = Duration::from_secs(60);
