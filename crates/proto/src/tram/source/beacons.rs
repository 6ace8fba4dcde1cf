//! Packets of a source without data: beacons, settings, and names of restarted receivers.

use alloc::vec::Vec;

use faircast_base::{Duration, Time};

/// Silence after which a beacon says that there is no more data for now: 3 s.
const FILLER_AFTER: Duration = Duration::from_secs(3);

/// Most names of restarted receivers that wait to be sent; chosen. Receivers repeat their reports.
const RESTARTED_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Beacons {
    pub(super) due: bool,
    /// Announcement of settings, sent repeatedly; `None` if receivers know them.
    pub(super) settings: Option<Vec<u8>>,
    pub(super) settings_due: bool,
    /// Longest time between two status packets of a receiver; zero for none.
    pub(super) status_interval: Duration,
    /// Next packet when the latest pause began.
    paused_at: u64,
    /// Numbers of the names of restarted receivers.
    restarted: Vec<u64>,
}

impl Beacons {
    /// Notes a pause before the packet `next`. Returns true if the pause is new.
    pub(super) fn on_pause(&mut self, next: u64) -> bool {
        core::mem::replace(&mut self.paused_at, next) != next
    }

    pub(super) fn is_paused(&self, next: u64) -> bool {
        self.paused_at == next
    }

    /// Handles the beacon timer while data is sent (`is_sending`) before `next`.
    pub(super) fn on_timer(&mut self, now: Time, is_sending: bool, next: u64, sent_at: Time) {
        self.due = !is_sending || self.is_paused(next) || now.since(sent_at) >= FILLER_AFTER;
        self.settings_due = true;
    }

    pub(super) fn note_restarted(&mut self, name: u64) {
        if self.restarted.len() < RESTARTED_MAX && !self.restarted.contains(&name) {
            self.restarted.push(name);
        }
    }

    pub(super) fn next_restarted(&mut self) -> Option<u64> {
        self.restarted.pop()
    }
}
