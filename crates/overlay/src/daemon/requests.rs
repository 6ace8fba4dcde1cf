//! Sessions of clients: connection, resumption, end, events for the driver to pass on; and their
//! requests: joins and leaves as steps in the agreed order, and messages.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};

use super::{Daemon, DaemonEvent};
use crate::cell::{GROUP_BYTES_MAX, Kind, Service};
use crate::client::{Client, ClientEvent, SendError};
use crate::group::MemberId;
use crate::ids::{ClientId, DaemonSet, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::price::Benefit;
use crate::session::protocol::check_groups;

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
        if !fits || !is_newer || self.clients.by_id.contains_key(&id) {
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

    /// Resumes a session from event `next`. [`ClientEvent::Cut`] counts events no longer kept.
    /// Fails by [`SendError::Name`] if no such session or number exists.
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
        self.market.forget(&mut self.clients, old);
        self.clients.rename(old, id);
        if old != id {
            self.events.push_back(DaemonEvent::End(old));
        }
        Ok(())
    }

    /// Ends the session of a client.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        self.market.forget(&mut self.clients, id);
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

/// Maximum number of pending requests of a client to join or leave groups.
const REQUESTS_MAX: usize = 1000;
/// Maximum length of a message in bytes: 16 MB.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Message of a client to groups, as handed to its daemon.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Outgoing<'a> {
    pub service: Service,
    /// Names of 1 to 100 groups.
    pub groups: &'a [&'a [u8]],
    /// Payload of at most [`MESSAGE_BYTES_MAX`].
    pub payload: &'a [u8],
    /// Number of the client's request, for the events about the message.
    pub request: u64,
    /// True if the client wants a [`ClientEvent::Receipt`]: causal, agreed and safe messages only.
    pub wants_receipt: bool,
    /// View to which the message is restricted (virtual synchrony); `None` for any view.
    pub view: Option<ViewId>,
    /// Benefit of the message; `None` for the daemon's default.
    pub benefit: Option<Benefit>,
}

impl<'a> Outgoing<'a> {
    /// Creates a message without a receipt, for any view.
    pub fn new(service: Service, groups: &'a [&'a [u8]], payload: &'a [u8]) -> Self {
        Self { service, groups, payload, ..Self::default() }
    }
}

impl Daemon {
    /// Requests to join a group, whose senders wait for slow members while a member asks for it by
    /// `holds_senders`. Fails as [`send`](Self::send) does.
    pub fn join(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        group: Bytes,
        holds_senders: bool,
    ) -> Result<(), SendError> {
        self.admit(id, &group)?;
        let member = self.clients.by_id.get(&id).ok_or(SendError::Name)?.member.clone();
        self.clients.begin_join(id, group.clone(), holds_senders);
        self.announce_join(cx.now, &member, &group);
        self.settle(cx);
        Ok(())
    }

    /// Requests to remove a client from a group. Fails as [`send`](Self::send) does.
    pub fn part(&mut self, cx: &mut Cx<'_>, id: ClientId, group: Bytes) -> Result<(), SendError> {
        self.admit(id, &group)?;
        let client = self.clients.by_id.get(&id).ok_or(SendError::Name)?.encoded.clone();
        self.clients.cancel_joins(id, &group);
        self.step(cx.now, Kind::Leave, &client, &[&group]);
        self.settle(cx);
        Ok(())
    }

    fn admit(&self, id: ClientId, group: &Bytes) -> Result<(), SendError> {
        check_groups(&[group])?;
        let client = self.clients.by_id.get(&id).ok_or(SendError::Name)?;
        let name = &client.encoded;
        let steps = self.waiting_steps.iter().filter(|it| it.1 == *name).count();
        let has_room = self.current.has_room(name, self.settings.retention_bytes);
        let fits = client.joining.len() + steps < REQUESTS_MAX;
        (has_room && fits).then_some(()).ok_or(SendError::Retention)
    }

    pub(super) fn is_open(&self) -> bool {
        self.current.is_begun && !self.change.is_in_progress()
    }

    /// Sends a message of a client to groups; one to groups without members is dropped. Fails if
    /// the message is wrong in itself, too expensive, or not possible at present.
    pub fn send(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        message: &Outgoing<'_>,
    ) -> Result<(), SendError> {
        let Outgoing { service, groups, payload, request, wants_receipt, view, .. } = *message;
        check_groups(groups)?;
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(SendError::Length);
        }
        let name = self.clients.by_id.get(&id).ok_or(SendError::Name)?.encoded.clone();
        if view.is_some_and(|view| view != self.view) {
            return Err(SendError::View);
        }
        if !self.is_open() {
            return Err(SendError::Changing);
        }
        if !self.current.has_room(&name, self.settings.retention_bytes) {
            return Err(SendError::Retention);
        }
        if self.groups.is_held(groups) {
            return Err(SendError::Held);
        }
        let routes = self.groups.route(groups);
        if self.drops(id, message, routes) {
            return Ok(());
        }
        self.buy(cx, id, message, routes)?;
        let complete = self.current.send_message(service, &name, groups, payload, routes);
        if wants_receipt && service.is_ordered() {
            let (sequence, _) = self.current.own();
            if let Some(client) = self.clients.by_id.get_mut(&id) {
                client.receipts.push_back((sequence, request));
            }
        }
        self.take_messages(cx.now, complete);
        self.settle(cx);
        Ok(())
    }

    /// True if a message has no receivers. The client learns of new groups without members.
    fn drops(&mut self, id: ClientId, message: &Outgoing<'_>, routes: DaemonSet) -> bool {
        let Outgoing { groups, request, wants_receipt, .. } = *message;
        let Some(client) = self.clients.by_id.get_mut(&id) else { return true };
        if routes != DaemonSet::default() {
            if !client.empty.is_empty() {
                groups.iter().for_each(|group| _ = client.empty.remove(*group));
            }
            return false;
        }
        let known = client.empty.len();
        client.empty.extend(groups.iter().map(|group| Bytes::copy_from_slice(group)));
        let is_new = client.empty.len() > known;
        if client.empty.len() > REQUESTS_MAX {
            client.empty.clear();
        }
        if is_new {
            self.notify(id, ClientEvent::NoMembers { request, groups: groups.iter().collect() });
        }
        if wants_receipt {
            self.notify(id, ClientEvent::Receipt { request, members: 0, view: self.view });
        }
        true
    }

    /// Sends a membership step, or keeps it until the view is open.
    pub(super) fn step(&mut self, now: Time, kind: Kind, client: &Bytes, groups: &[&Bytes]) {
        if !self.is_open() {
            let groups = groups.iter().copied().cloned().collect();
            return self.waiting_steps.push((kind, client.clone(), groups));
        }
        self.send_step((now, kind), client, groups, &[]);
    }

    fn send_step(
        &mut self,
        (now, kind): (Time, Kind),
        client: &Bytes,
        groups: &[&Bytes],
        payload: &[u8],
    ) {
        if kind == Kind::Leave {
            let time = self.current.time + 1;
            let member = MemberId::decode(self.me.id, client);
            if let Some(client) = self.clients.of_member(&member) {
                client.leaving.extend(groups.iter().map(|it| ((*it).clone(), time)));
            }
        }
        let groups: Vec<&[u8]> = groups.iter().map(|it| &***it).collect();
        let complete = self.current.send_step(kind, DaemonSet::ALL, (client, &groups), &[payload]);
        self.take_messages(now, complete);
    }

    pub(super) fn send_waiting_steps(&mut self, now: Time) {
        if self.is_open() {
            for (kind, client, groups) in core::mem::take(&mut self.waiting_steps) {
                self.step(now, kind, &client, &groups.iter().collect::<Vec<_>>());
            }
        }
    }

    /// Announces a join to all daemons, which route the group's messages here from then on.
    fn announce_join(&mut self, now: Time, member: &MemberId, group: &Bytes) {
        if self.is_open() {
            self.step(now, Kind::Join, &member.encode(), &[group]);
            let cell = (self.current.config, self.current.own().0);
            self.clients.note_announced(member, group, cell);
        }
    }

    pub(super) fn announce_joins(&mut self, now: Time) {
        for (member, group) in self.clients.joins() {
            self.announce_join(now, &member, &group);
        }
    }

    /// Sends the steps of joins that all daemons know.
    pub(super) fn finish_joins(&mut self, now: Time) {
        if !self.is_open() {
            return;
        }
        for (id, due) in self.clients.take_announced(self.current.config, self.current.own().1) {
            let Some(client) = self.clients.by_id.get_mut(&id) else { continue };
            for joining in &mut client.joining {
                if joining.group == due.group {
                    joining.joins_at.get_or_insert(self.current.time + 1);
                }
            }
            let (client, payload): (_, &[u8]) =
                (client.encoded.clone(), if due.holds_senders { &[1] } else { &[] });
            self.send_step((now, Kind::Joined), &client, &[&due.group], payload);
        }
    }
}
