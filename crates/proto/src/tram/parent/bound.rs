//! Head of a receiver, and its silence.

use faircast_base::{Duration, NodeId, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) struct Bound {
    pub(in crate::tram) node: NodeId,
    pub(in crate::tram) distance: u8,
    pub(in crate::tram) level: u8,
    pub(in crate::tram) round_trip: Duration,
    pub(super) heard_at: Time,
    /// Hello intervals without a packet from the head.
    pub(super) missed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    No(Time),
    Asks,
    Lost,
}

impl Bound {
    pub(super) fn on_heard(&mut self, now: Time, level: Option<u8>) {
        (self.heard_at, self.missed) = (now, 0);
        // A head that lost its own head has no level; its members keep theirs.
        self.level = level.filter(|level| *level > 0).unwrap_or(self.level);
    }

    /// Checks the silence: after `silence`, the head is asked in each of `missed_max` intervals.
    pub(super) fn on_interval(&mut self, now: Time, silence: Duration, missed_max: u32) -> Silence {
        let due = self.heard_at + silence;
        if due > now {
            return Silence::No(due);
        }
        if self.missed >= missed_max {
            return Silence::Lost;
        }
        self.missed += 1;
        Silence::Asks
    }
}
