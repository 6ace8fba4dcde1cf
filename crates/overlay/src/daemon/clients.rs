//! Clients of a daemon by session and by name, with their joins in progress, and the slow ones, for
//! which senders wait at the request of a member.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time};
use smallvec::SmallVec;

use super::Daemon;
use crate::cell::Kind;
use crate::client::{Client, ClientEvent, Joining, Room};
use crate::group::{Groups, MemberId};
use crate::ids::{ClientId, DaemonId, ViewId};
use crate::mutant::{Mutant, breaks};

pub(super) type Receivers = SmallVec<[ClientId; 8]>;

#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    daemon: DaemonId,
    pub(super) room: Room,
    pub(super) by_id: BTreeMap<ClientId, Client>,
    pub(super) by_name: BTreeMap<Bytes, ClientId>,
    pub(super) ready: VecDeque<ClientId>,
    joiners: BTreeSet<ClientId>,
}

impl Clients {
    pub(super) fn new(daemon: DaemonId, room: Room) -> Self {
        Self { daemon, room, ..Self::default() }
    }

    pub(super) fn session_of(&self, member: &MemberId) -> Option<(ClientId, &Client)> {
        if member.daemon != self.daemon {
            return None;
        }
        let id = *self.by_name.get(&member.name)?;
        self.by_id.get(&id).filter(|it| it.member == *member).map(|client| (id, client))
    }

    pub(super) fn of_member(&mut self, member: &MemberId) -> Option<&mut Client> {
        let id = self.session_of(member)?.0;
        self.by_id.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: ClientId, client: Client) {
        self.by_name.insert(client.member.name.clone(), id);
        self.by_id.insert(id, client);
    }

    pub(super) fn remove(&mut self, id: ClientId) -> Option<Client> {
        let client = self.by_id.remove(&id)?;
        self.by_name.remove(&client.member.name);
        self.joiners.remove(&id);
        Some(client)
    }

    pub(super) fn rename(&mut self, old: ClientId, id: ClientId) {
        let Some(mut client) = self.by_id.remove(&old) else { return };
        client.is_ready = true;
        // The alarm belongs to the earlier connection.
        client.purse.alarm = None;
        self.insert(id, client);
        self.ready.push_back(id);
        if self.joiners.remove(&old) {
            self.joiners.insert(id);
        }
    }

    /// Queues an event. True if the client's queue is now more than half full.
    pub(super) fn push(&mut self, id: ClientId, event: Arc<ClientEvent>) -> bool {
        let Some(client) = self.by_id.get_mut(&id) else { return false };
        client.push(event, self.room);
        note_ready(&mut self.ready, id, client);
        client.queue().1 > self.room.waiting / 2
    }

    pub(super) fn cut(&mut self, id: ClientId) {
        let Some(client) = self.by_id.get_mut(&id) else { return };
        client.is_cut = true;
        note_ready(&mut self.ready, id, client);
    }

    pub(super) fn begin_join(&mut self, id: ClientId, group: Bytes, holds_senders: bool) {
        let Some(client) = self.by_id.get_mut(&id) else { return };
        client.joining.push(Joining { group, announced: None, joins_at: None, holds_senders });
        self.joiners.insert(id);
    }

    /// Cancels joins whose place in the order is not requested yet.
    pub(super) fn cancel_joins(&mut self, id: ClientId, group: &Bytes) {
        let Some(client) = self.by_id.get_mut(&id) else { return };
        // A client with a join step in transit is a member until its next step.
        client.joining.retain(|it| it.group != *group || it.joins_at.is_some());
        if client.joining.is_empty() {
            self.joiners.remove(&id);
        }
    }

    pub(super) fn note_announced(&mut self, member: &MemberId, group: &Bytes, cell: (ViewId, u64)) {
        let Some(client) = self.of_member(member) else { return };
        // A request with a join step in transit is done. Another step would undo a later leave.
        let waits = |it: &&mut Joining| it.group == *group && it.joins_at.is_none();
        client.joining.iter_mut().filter(waits).for_each(|it| it.announced = Some(cell));
    }

    /// Takes the joins that all daemons know, given the number of the last stable own cell.
    pub(super) fn take_announced(
        &mut self,
        config: ViewId,
        stable: u64,
    ) -> Vec<(ClientId, Joining)> {
        let mut due = Vec::new();
        for id in &self.joiners {
            for it in self.by_id.get_mut(id).into_iter().flat_map(|it| &mut it.joining) {
                if it.announced.is_some_and(|(at, number)| at == config && number <= stable) {
                    it.announced = None;
                    due.push((*id, it.clone()));
                }
            }
        }
        due
    }

    pub(super) fn joins(&self) -> Vec<(MemberId, Bytes)> {
        let of = |it: &Client, joining: &Joining| (it.member.clone(), joining.group.clone());
        self.by_id
            .values()
            .flat_map(|it| it.joining.iter().map(|joining| of(it, joining)))
            .collect()
    }

    /// Defers a message for own clients whose join steps are in transit through the agreed order.
    /// FIFO messages wait behind deferred ones of the same sender, and leave `to`.
    pub(super) fn defer(&mut self, event: &Arc<ClientEvent>, time: u64, to: &mut Receivers) {
        let ClientEvent::Message { groups, .. } = &**event else { return };
        for id in &self.joiners {
            let Some(client) = self.by_id.get_mut(id) else { continue };
            let joins_before = |it: &Joining| {
                groups.iter().any(|name| name == it.group)
                    && it.joins_at.is_some_and(|at| at < time)
            };
            let position = to.iter().position(|it| it == id);
            let waits = match position {
                Some(_) => client.is_behind(event),
                None => client.joining.iter().any(joins_before),
            };
            if waits {
                position.map(|position| to.remove(position));
                client.deferred.push(event.clone());
            }
        }
    }

    /// Completes the join step of `time`; a later request of the client to join remains pending.
    /// Returns the session, and its deferred messages that are now due.
    pub(super) fn complete_join(
        &mut self,
        groups: &Groups,
        (member, group): (&MemberId, &Bytes),
        time: u64,
    ) -> Option<(ClientId, Vec<Arc<ClientEvent>>)> {
        let id = self.session_of(member)?.0;
        let client = self.by_id.get_mut(&id)?;
        client.joining.retain(|it| it.group != *group || it.joins_at != Some(time));
        if client.joining.is_empty() {
            self.joiners.remove(&id);
        }
        let mut due = Vec::new();
        for event in core::mem::take(&mut client.deferred) {
            let ClientEvent::Message { groups: names, .. } = &*event else { continue };
            // The client may have left the group of a message that waited behind another one.
            let is_member = names.iter().any(|it| groups.members(it).contains(member))
                || breaks(Mutant::DeferredAfterLeave);
            let joins =
                |it: &Joining| names.iter().any(|name| name == it.group) && it.joins_at.is_some();
            if is_member && !client.is_behind(&event) {
                due.push(event);
            } else if is_member || client.joining.iter().any(joins) {
                client.deferred.push(event);
            }
        }
        Some((id, due))
    }
}

fn note_ready(ready: &mut VecDeque<ClientId>, id: ClientId, client: &mut Client) {
    if !core::mem::replace(&mut client.is_ready, true) {
        ready.push_back(id);
    }
}

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
    pub(super) is_news: bool,
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
