//! Sessions of clients: connection, resumption, end, and events for the driver to pass on.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};

use super::{Daemon, DaemonEvent};
use crate::cell::{GROUP_BYTES_MAX, Kind};
use crate::client::{Client, ClientEvent, SendError};
use crate::group::MemberId;
use crate::ids::ClientId;
use crate::mutant::{Mutant, breaks};

/// Longest time without a connection before a client's session ends: 30 s.
const RESUME_MAX: Duration = Duration::from_secs(30);
/// Maximum length of a client's name in bytes.
pub const CLIENT_BYTES_MAX: usize = GROUP_BYTES_MAX - 8;

impl Daemon {
    /// Connects a client with a name of 1 to 56 bytes. An earlier or unconnected run of the program
    /// loses its session: a clock may have been set back between runs. Fails by [`SendError::Name`]
    /// on a name of wrong length, or of a connected run that is not earlier.
    pub fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        name: Bytes,
        incarnation: u64,
    ) -> Result<(), SendError> {
        let other = self.clients.by_name.get(&name).copied();
        let is_newer = other.and_then(|it| self.clients.by_id.get(&it)).is_none_or(|it| {
            let of = it.member.incarnation;
            of < incarnation || of != incarnation && it.away_since.is_some()
        });
        let fits = (1..=CLIENT_BYTES_MAX).contains(&name.len());
        if !fits || !is_newer || self.clients.by_id.get(&id).is_some() {
            return Err(SendError::Name);
        }
        if let Some(other) = other {
            self.disconnect(cx, other);
            self.events.push_back(DaemonEvent::End(other));
        }
        let member = MemberId { daemon: self.me.id, name, incarnation };
        let client = Client::new(member, self.new_purse(cx));
        self.clients.insert(id, client);
        let view = ClientEvent::View {
            id: self.view,
            members: self.current.graph.members.clone(),
            names: self.member_names(),
            together: [self.me].to_vec(),
            previous: None,
        };
        self.notify(id, view);
        Ok(())
    }

    /// Notes the loss of a client's connection. The session waits for the client to resume.
    pub fn suspend(&mut self, now: Time, id: ClientId) {
        if let Some(client) = self.clients.by_id.get_mut(&id) {
            client.away_since = Some(now);
            self.slow.forget(id);
        }
    }

    /// Resumes a session from event `next`. [`ClientEvent::Cut`] counts events no longer kept. Fails
    /// by [`SendError::Name`] if no such session or number exists.
    pub fn resume(
        &mut self,
        id: ClientId,
        (name, incarnation): (&Bytes, u64),
        next: u64,
    ) -> Result<(), SendError> {
        let old = *self.clients.by_name.get(name).ok_or(SendError::Name)?;
        let client =
            self.clients.by_id.get_mut(&old).filter(|it| it.member.incarnation == incarnation);
        if !client.ok_or(SendError::Name)?.resume(next) {
            return Err(SendError::Name);
        }
        self.slow.forget(old);
        self.forget_waiting(old);
        self.clients.rename(old, id);
        if old != id {
            self.events.push_back(DaemonEvent::End(old));
        }
        Ok(())
    }

    /// Ends the session of a client.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        self.forget_waiting(id);
        let Some(client) = self.clients.remove(id) else { return };
        self.slow.forget(id);
        if !breaks(Mutant::NoDisconnect) {
            self.step(cx.now, Kind::Disconnect, &client.encoded, &[]);
        }
        self.settle(cx);
    }

    pub(super) fn expire_clients(&mut self, cx: &mut Cx<'_>) {
        let is_over = |it: &Client| it.away_since.is_some_and(|at| cx.now >= at + RESUME_MAX);
        let over = self.clients.by_id.iter().filter(|(_, it)| is_over(it));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.disconnect(cx, id);
            self.events.push_back(DaemonEvent::End(id));
        }
    }

    /// Returns the next client with events that are new since its last return.
    pub fn poll_ready_client(&mut self) -> Option<ClientId> {
        loop {
            let id = self.clients.ready.pop_front()?;
            if let Some(client) = self.clients.by_id.get_mut(&id) {
                client.is_ready = false;
                return Some(id);
            }
        }
    }

    /// True if a slow client has lost events: the driver must close its connection.
    pub fn is_cut(&self, id: ClientId) -> bool {
        self.clients.by_id.get(&id).is_some_and(|it| it.is_cut)
    }

    /// Returns the number of the client's last taken event, and the bytes that wait for the client.
    pub fn client_queue(&self, id: ClientId) -> Option<(u64, usize)> {
        self.clients.by_id.get(&id).map(Client::queue)
    }

    /// Returns the next event for a client, with its number in the session.
    pub fn poll_client(&mut self, id: ClientId) -> Option<(u64, Arc<ClientEvent>)> {
        let event = self.clients.by_id.get_mut(&id)?.pop(self.clients.room);
        if !self.slow.clients.is_empty() {
            self.note_queue(id);
        }
        event
    }

    /// Sends a client the refusal of a request.
    pub fn refuse_request(&mut self, id: ClientId, request: u64, reason: SendError) {
        self.notify(id, ClientEvent::Refused { request, reason });
    }

    /// Returns how often senders that waited for slow members could continue.
    pub fn releases(&self) -> u64 {
        self.slow.releases
    }

    /// Returns the groups whose senders wait for a slow member at this daemon.
    pub fn held_groups(&self) -> impl Iterator<Item = &Bytes> {
        self.slow.held.iter()
    }
}
