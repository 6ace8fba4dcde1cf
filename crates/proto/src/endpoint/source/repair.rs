//! What a source owes to its receivers: confirmations and repairs.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::{Duration, Seq, Time};

/// Most repairs that wait. Receivers ask again for what does not fit.
pub(super) const REPAIRS_MAX: usize = 1 << 16;

/// Most confirmations that wait. Receivers ask again for what does not fit.
pub(super) const CONFIRMATIONS_MAX: usize = 256;

/// Most confirmations that are remembered in order not to repeat them at once.
const RECENT_MAX: usize = 64;

/// Packets to repair, each once, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    order: VecDeque<(Time, u64)>,
    waiting: BTreeSet<u64>,
    /// Packets repaired a moment ago: in the order of their repair, and the set of them.
    sent_order: VecDeque<(Time, u64)>,
    sent: BTreeSet<u64>,
}

impl Repairs {
    /// Queues packet `index`, to be sent at `ready` or later; moments never decrease from call to
    /// call. A packet that was sent less than a moment ago is on its way already. Returns false
    /// where there is no room.
    pub(super) fn ask(&mut self, index: u64, ready: Time) -> bool {
        if self.waiting.contains(&index) || self.sent.contains(&index) {
            return true;
        }
        if self.waiting.len() >= REPAIRS_MAX {
            return false;
        }
        self.waiting.insert(index);
        self.order.push_back((ready, index));
        true
    }

    /// The packet to repair next, and when it is due.
    pub(super) fn first(&self) -> Option<(Time, u64)> {
        self.order.front().copied()
    }

    /// Takes the packet that waits longest.
    pub(super) fn pop(&mut self) -> Option<u64> {
        let (_, index) = self.order.pop_front()?;
        self.waiting.remove(&index);
        Some(index)
    }

    /// A repair of `index` leaves.
    pub(super) fn on_sent(&mut self, index: u64, now: Time) {
        if self.sent_order.len() < REPAIRS_MAX && self.sent.insert(index) {
            self.sent_order.push_back((now, index));
        }
    }

    /// Forgets repairs that left `interval` ago or earlier.
    pub(super) fn forget_sent(&mut self, now: Time, interval: Duration) {
        while let Some(&(at, index)) = self.sent_order.front()
            && now.since(at) >= interval
        {
            self.sent_order.pop_front();
            self.sent.remove(&index);
        }
    }

    /// Whether `index` waits.
    pub(super) fn has(&self, index: u64) -> bool {
        self.waiting.contains(&index)
    }

    /// Drops what is older than `trail` from the front, where old packets are.
    pub(super) fn advance(&mut self, trail: u64) {
        while self.order.front().is_some_and(|&(_, index)| index < trail) {
            self.pop();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

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

    pub(super) fn pop(&mut self) -> Option<Confirmation> {
        self.queue.pop_front()
    }
}
