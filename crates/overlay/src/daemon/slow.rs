//! Slow clients, and groups whose senders wait for them at the request of a member.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time};

use super::Daemon;
use crate::cell::Kind;
use crate::client::Client;
use crate::ids::ClientId;

/// Longest time for which a member that takes no event stops the senders of its groups: 10 s.
const STILL_MAX: Duration = Duration::from_secs(10);

/// Client whose queue was half full and has not fallen below a quarter since.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowClient {
    /// Last event that the client took, and the time at which this was noticed.
    taken: u64,
    since: Option<Time>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SlowClients {
    pub(super) clients: BTreeMap<ClientId, SlowClient>,
    /// Groups with a slow member here, as last announced to all daemons.
    pub(super) held: BTreeSet<Bytes>,
    /// True if the announced groups may have changed.
    pub(super) is_news: bool,
    /// Number of times at which senders that waited could continue.
    pub(super) releases: u64,
}

impl SlowClients {
    /// Notes the length of a client's queue, of which `bytes` are the maximum.
    pub(super) fn note_queue(&mut self, id: ClientId, client: &Client, bytes: usize) {
        let (taken, waiting) = client.queue();
        let is_served = client.away_since.is_none() && !client.is_cut;
        let is_slow = self.clients.contains_key(&id);
        if !is_slow && is_served && waiting > bytes / 2 {
            self.clients.insert(id, SlowClient { taken, since: None });
            self.is_news = true;
        } else if is_slow && (!is_served || waiting < bytes / 4) {
            self.forget(id);
        }
    }

    pub(super) fn forget(&mut self, id: ClientId) {
        self.is_news |= self.clients.remove(&id).is_some();
    }
}

impl Daemon {
    /// Cuts off the slow clients that have taken no event for 10 s while senders wait for them.
    pub(super) fn cut_still_clients(&mut self, now: Time) {
        if self.slow.held.is_empty() {
            return;
        }
        let mut still = Vec::new();
        for (id, slow) in &mut self.slow.clients {
            let Some(client) = self.clients.by_id.get(id) else { continue };
            let (taken, _) = client.queue();
            if slow.since.is_none() || taken != slow.taken {
                *slow = SlowClient { taken, since: Some(now) };
            } else if slow.since.is_some_and(|since| now >= since + STILL_MAX)
                && !self.groups.with_holding_member(&client.member).is_empty()
            {
                still.push(*id);
            }
        }
        for id in still {
            self.clients.cut(id);
            self.slow.forget(id);
        }
    }

    /// Sends all daemons the groups that have slow members here, if these have changed.
    pub(super) fn announce_slow(&mut self, now: Time) {
        if !self.is_open() || !core::mem::take(&mut self.slow.is_news) {
            return;
        }
        let slow = self.slow.clients.keys().filter_map(|id| self.clients.by_id.get(id));
        let held = slow.flat_map(|it| self.groups.with_holding_member(&it.member)).collect();
        let before = core::mem::replace(&mut self.slow.held, held);
        let (held, released) = (&self.slow.held - &before, &before - &self.slow.held);
        for (kind, groups) in [(Kind::Hold, held), (Kind::Release, released)] {
            groups.iter().for_each(|group| self.step(now, kind, &Bytes::new(), &[group]));
        }
    }
}
