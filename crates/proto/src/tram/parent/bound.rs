//! The head that a receiver has, and how long that is silent.

use faircast_base::{Duration, NodeId, Time};

/// The head that repairs for this receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) struct Bound {
    pub(in crate::tram) node: NodeId,
    pub(in crate::tram) distance: u8,
    pub(in crate::tram) level: u8,
    /// The round trip to it, as long as it took to be taken.
    pub(in crate::tram) round_trip: Duration,
    /// When anything came from it.
    pub(super) heard_at: Time,
    /// Intervals of hellos in which nothing came.
    pub(super) missed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// There is none: it is looked at again then.
    No(Time),
    /// It is asked for a sign of life.
    Asks,
    Lost,
}

impl Bound {
    /// Anything came from it, perhaps at another level than before.
    pub(super) fn on_heard(&mut self, now: Time, level: Option<u8>) {
        (self.heard_at, self.missed) = (now, 0);
        // A head that has none itself for a while has no level: what is below it stays below.
        self.level = level.filter(|level| *level > 0).unwrap_or(self.level);
    }

    /// Another interval is over; `silence` is allowed, and then so many intervals in which it is asked.
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
