//! Groups whose senders wait for slow members, at the request of a member.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time};

use super::Daemon;
use crate::cell::Kind;
use crate::ids::ClientId;

/// Longest time for which a member that takes no event stops the senders of its groups: 10 s.
const STILL_MAX: Duration = Duration::from_secs(10);

/// Client whose queue was half full and has not fallen below a quarter since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slow {
    taken: u64,
    since: Option<Time>,
}

impl Daemon {
    /// Returns how often senders that waited for slow members could continue.
    pub fn frees(&self) -> u64 {
        self.frees
    }

    /// Returns the groups whose senders wait for a slow member at this daemon.
    pub fn held_groups(&self) -> impl Iterator<Item = &Bytes> {
        self.held.iter()
    }

    pub(super) fn note_queue(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id) else { return };
        let (taken, waiting) = client.queue();
        let is_served = client.away_since.is_none() && !client.is_cut;
        let is_slow = self.slow.contains_key(&id);
        if !is_slow && is_served && waiting > self.settings.client_bytes / 2 {
            self.slow.insert(id, Slow { taken, since: None });
            self.is_slow_new = true;
        } else if is_slow && (!is_served || waiting < self.settings.client_bytes / 4) {
            self.forget_slow(id);
        }
    }

    pub(super) fn forget_slow(&mut self, id: ClientId) {
        self.is_slow_new |= self.slow.remove(&id).is_some();
    }

    pub(super) fn judge_slow(&mut self, now: Time) {
        if self.held.is_empty() {
            return;
        }
        let mut still = Vec::new();
        for (id, slow) in &mut self.slow {
            let Some(client) = self.clients.get(id) else { continue };
            let (taken, _) = client.queue();
            if slow.since.is_none() || taken != slow.taken {
                *slow = Slow { taken, since: Some(now) };
            } else if slow.since.is_some_and(|since| now >= since + STILL_MAX) {
                still.push(*id);
            }
        }
        for id in still {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            if self.groups.asking(&client.mate).is_empty() {
                continue;
            }
            client.is_cut = true;
            if !core::mem::replace(&mut client.is_ready, true) {
                self.ready.push_back(id);
            }
            self.forget_slow(id);
        }
    }

    /// Sends all daemons the groups that have slow members here.
    pub(super) fn settle_slow(&mut self, now: Time) {
        if !self.is_slow_new || !self.is_open() {
            return;
        }
        self.is_slow_new = false;
        let slow = self.slow.keys().filter_map(|id| self.clients.get(id));
        let wanted = slow.flat_map(|client| self.groups.asking(&client.mate)).collect();
        let before = core::mem::replace(&mut self.held, wanted);
        let steps = [(Kind::Hold, &self.held - &before), (Kind::Free, &before - &self.held)];
        for (kind, groups) in steps {
            for group in groups {
                self.step(now, kind, &Bytes::new(), &[&group]);
            }
        }
    }
}
