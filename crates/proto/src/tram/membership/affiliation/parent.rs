//! Parent of a receiver: the head that repairs its losses, and the silence of that head.

use faircast_base::{Duration, NodeId, Time};

use crate::tram::settings::TramSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) node: NodeId,
    /// Time to live of the parent's packets, or the class of the round trip.
    pub(crate) distance: u8,
    pub(crate) level: u8,
    /// Time from the bind request to its answer.
    pub(crate) round_trip: Duration,
    pub(super) last_packet_at: Time,
    /// Hello intervals without a packet from the head.
    pub(super) missed_hellos: u32,
}

/// Silence after which a parent is asked for a hello, and the questions before it counts as lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SilenceLimits {
    pub(super) interval: Duration,
    missed_max: u32,
}

impl SilenceLimits {
    pub(super) fn new(settings: &TramSettings) -> Self {
        let interval = settings.hello_interval * 2;
        Self { interval, missed_max: settings.hellos_missed_max }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    NotYet(Time),
    Request,
    Lost,
}

impl Parent {
    pub(super) fn on_packet(&mut self, now: Time, level: Option<u8>) {
        (self.last_packet_at, self.missed_hellos) = (now, 0);
        // A head that lost its own head has no level; its members keep theirs.
        self.level = level.filter(|level| *level > 0).unwrap_or(self.level);
    }

    pub(super) fn on_interval(&mut self, now: Time, limits: SilenceLimits) -> Silence {
        let due = self.last_packet_at + limits.interval;
        if due > now {
            return Silence::NotYet(due);
        }
        if self.missed_hellos >= limits.missed_max {
            return Silence::Lost;
        }
        self.missed_hellos += 1;
        Silence::Request
    }
}
