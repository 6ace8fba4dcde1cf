//! Slow clients, and groups whose senders wait for them at the request of a member.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time};

use super::clients::Clients;
use crate::cell::Kind;
use crate::client::Client;
use crate::group::Groups;
use crate::ids::ClientId;

/// Longest time for which a member that takes no event stops the senders of its groups: 10 s.
const STILL_MAX: Duration = Duration::from_secs(10);

/// Client whose queue was half full and has not fallen below a quarter since.
#[derive(Clone, Copy, Debug)]
struct SlowClient {
    /// Last event that the client took, and the time at which this was noticed.
    taken: u64,
    since: Option<Time>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SlowClients {
    clients: BTreeMap<ClientId, SlowClient>,
    /// Groups with a slow member here, as last announced to all daemons.
    held: BTreeSet<Bytes>,
    /// True if the announced groups may have changed.
    is_news: bool,
    /// Number of times at which senders that waited could continue.
    pub(super) releases: u64,
}

impl SlowClients {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub(super) fn contains(&self, id: ClientId) -> bool {
        self.clients.contains_key(&id)
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &Bytes> {
        self.held.iter()
    }

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

    /// Notes a membership change that may change the groups to announce.
    pub(super) fn note_change(&mut self, may_change: bool) {
        self.is_news |= may_change;
    }

    pub(super) fn note_leave(&mut self, group: &Bytes) {
        self.is_news |= self.held.contains(group);
    }

    /// Begins a view, in which no daemon knows the slow members of others yet.
    pub(super) fn begin_view(&mut self) {
        (self.held, self.is_news) = (BTreeSet::new(), true);
        self.releases += 1;
    }

    /// Returns the clients that have taken no event for 10 s while senders wait.
    pub(super) fn still(&mut self, now: Time, clients: &Clients) -> Vec<ClientId> {
        let mut still = Vec::new();
        if self.held.is_empty() {
            return still;
        }
        for (id, slow) in &mut self.clients {
            let Some(client) = clients.get(*id) else { continue };
            let (taken, _) = client.queue();
            if slow.since.is_none() || taken != slow.taken {
                *slow = SlowClient { taken, since: Some(now) };
            } else if slow.since.is_some_and(|since| now >= since + STILL_MAX) {
                still.push(*id);
            }
        }
        still
    }

    /// Returns the groups to announce as held, and as released, since the last announcement.
    pub(super) fn take_news(
        &mut self,
        clients: &Clients,
        groups: &Groups,
    ) -> Option<[(Kind, BTreeSet<Bytes>); 2]> {
        if !core::mem::take(&mut self.is_news) {
            return None;
        }
        let slow = self.clients.keys().filter_map(|id| clients.get(*id));
        let wanted = slow.flat_map(|client| groups.with_holding_member(&client.member)).collect();
        let before = core::mem::replace(&mut self.held, wanted);
        Some([(Kind::Hold, &self.held - &before), (Kind::Release, &before - &self.held)])
    }
}
