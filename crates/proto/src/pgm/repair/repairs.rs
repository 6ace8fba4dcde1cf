//! The repairs that a source owes to its receivers.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use faircast_base::{Duration, Time};

/// Most repairs that wait. Receivers ask again for what does not fit.
pub(super) const REPAIRS_MAX: usize = 1 << 16;

/// How long a repair that has left is remembered: the longest round trip that a report can tell of.
const REMEMBERED: Duration = Duration::from_secs(64);

/// Packets to repair, each once, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    order: VecDeque<(Time, u64)>,
    waiting: BTreeSet<u64>,
    /// When each packet was last repaired, at most [`REPAIRS_MAX`] of them, and the same in order.
    sent: BTreeMap<u64, Time>,
    sent_order: VecDeque<(Time, u64)>,
}

impl Repairs {
    /// Queues packet `index`, to be sent at `ready` or later; moments never decrease from call to
    /// call. Where it was repaired less than `crossing` before `now`, the NAK crossed the repair on
    /// its way and nothing is to be done. Returns false where there is no room.
    pub(super) fn ask(&mut self, index: u64, ready: Time, now: Time, crossing: Duration) -> bool {
        let under_way = |at: &Time| now.since(*at) < crossing;
        if self.waiting.contains(&index) || self.sent.get(&index).is_some_and(under_way) {
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

    /// A repair of `index` leaves. The oldest are forgotten.
    pub(super) fn on_sent(&mut self, index: u64, now: Time) {
        while let Some(&(at, oldest)) = self.sent_order.front()
            && (now.since(at) >= REMEMBERED || self.sent_order.len() >= REPAIRS_MAX)
        {
            self.sent_order.pop_front();
            if self.sent.get(&oldest) == Some(&at) {
                self.sent.remove(&oldest);
            }
        }
        self.sent.insert(index, now);
        self.sent_order.push_back((now, index));
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
