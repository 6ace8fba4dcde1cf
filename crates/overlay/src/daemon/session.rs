//! Sessions of clients: requests, and delivery of messages and membership steps.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};
use smallvec::SmallVec;

use super::{Daemon, DaemonEvent};
use crate::cell::{Cell, GROUP_BYTES_MAX, GROUPS_MAX, Kind, Service};
use crate::client::{Client, ClientEvent, Joining, Reason, Room, SendError};
use crate::group::Mate;
use crate::ids::{ClientId, Set, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::price::Benefit;
use crate::stream::Ready;

/// Maximum length of a client's name in bytes.
pub const CLIENT_BYTES_MAX: usize = GROUP_BYTES_MAX - 8;
/// Longest time without a connection before a client's session ends: 30 s.
const RESUME_MAX: Duration = Duration::from_secs(30);
/// Maximum number of pending requests of a client to join or leave groups.
const REQUESTS_MAX: usize = 1000;

type Clients = SmallVec<[ClientId; 8]>;

/// Message of a client to groups, as handed to its daemon.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// Service of the message.
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

/// Maximum length of a message in bytes: 16 MB.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

impl Daemon {
    pub(super) fn take_message(&mut self, now: Time, message: Ready) {
        let is_recovery = matches!(message.cell.kind, Kind::Recovered | Kind::Sent | Kind::Have);
        match &mut self.entry {
            Some(_) if is_recovery => self.take_recovery(now, &message),
            Some(_) if message.cell.kind == Kind::Table => self.take_table(now, message),
            Some(entry) if !breaks(Mutant::EarlyNext) => entry.waiting.push(message),
            _ => self.deliver(message),
        }
    }

    pub(super) fn take_messages(&mut self, now: Time, messages: Vec<Ready>) {
        messages.into_iter().for_each(|message| self.take_message(now, message));
    }

    pub(super) fn deliver(&mut self, message: Ready) {
        let Ready { source, sequence, time, cell, parts } = message;
        let Some(daemon) = self.current.graph.members.get(source).map(|it| it.id) else { return };
        let mate = Mate::decode(daemon, &cell.client);
        let position = (time, source as u64, 0);
        match cell.kind {
            Kind::Message | Kind::More => {
                let mut to = Clients::new();
                for group in cell.groups.iter() {
                    let before = to.len();
                    for member in self.groups.members(group) {
                        if let Some((id, client)) = self.own_client(member)
                            && !to[..before].contains(&id)
                            && !client.has_left(group, time)
                        {
                            to.push(id);
                        }
                    }
                }
                if cell.service.is_ordered() {
                    self.give_receipt(&mate, sequence, &cell);
                }
                let own = if breaks(Mutant::NotToSelf) { self.own(&mate) } else { None };
                let event = Arc::new(ClientEvent::Message {
                    from: mate,
                    service: cell.service,
                    groups: cell.groups,
                    parts,
                    view: self.view,
                    sequence,
                });
                self.hold(&event, time, &mut to);
                to.retain(|id| own != Some(*id));
                to.into_iter().for_each(|id| self.tell(id, event.clone()));
            }
            Kind::Join => {
                for group in cell.groups.copies() {
                    self.groups.announce(group, mate.clone(), source, sequence);
                }
            }
            Kind::Joined => {
                let asks = !cell.payload.is_empty();
                let is_slow = self.own(&mate).is_some_and(|id| self.slow.contains_key(&id));
                self.is_slow_new |= asks || is_slow;
                for group in cell.groups.copies() {
                    let at = (source, sequence);
                    if self.groups.join(group.clone(), mate.clone(), asks, at) {
                        self.tell_group(&group, Reason::Join, Some(mate.clone()), position);
                    }
                    self.release(&mate, &group, time);
                }
            }
            Kind::Leave => {
                for group in cell.groups.copies() {
                    self.leave(&group, &mate, (source, sequence), Reason::Leave, position);
                }
            }
            Kind::Gone => {
                for group in self.groups.of(&mate) {
                    self.leave(&group, &mate, (source, sequence), Reason::Disconnect, position);
                }
            }
            Kind::Hold | Kind::Free => {
                for group in cell.groups.iter() {
                    self.groups.hold(group, source, cell.kind == Kind::Hold);
                }
                self.frees += 1;
            }
            Kind::Table | Kind::Recovered | Kind::Sent | Kind::Have | Kind::Kept => {}
        }
    }

    fn give_receipt(&mut self, mate: &Mate, sequence: u64, cell: &Cell) {
        let Some(id) = self.own(mate) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(at) = client.receipts.iter().position(|it| it.0 == sequence) else { return };
        let Some((_, request)) = client.receipts.remove(at) else { return };
        let moves =
            |it: &Mate| self.moving.is_empty() || self.moving.iter().any(|run| run.id == it.daemon);
        let all = cell.groups.iter().flat_map(|it| self.groups.members(it));
        let reached: BTreeSet<&Mate> = all.filter(|it| moves(it)).collect();
        let (members, view) = (reached.len() as u32, self.view);
        self.tell(id, ClientEvent::Receipt { request, members, view });
    }

    /// Holds a message for own clients whose join steps are in transit through the common order.
    /// FIFO messages wait behind held ones of the same sender, and leave `to`.
    fn hold(&mut self, event: &Arc<ClientEvent>, time: u64, to: &mut Clients) {
        let ClientEvent::Message { groups, .. } = &**event else { return };
        for id in &self.joiners {
            let Some(client) = self.clients.get_mut(id) else { continue };
            let is_sent = |it: &Joining| {
                groups.iter().any(|name| name == it.group)
                    && it.joins_at.is_some_and(|at| at < time)
            };
            let place = to.iter().position(|it| it == id);
            let waits = match place {
                Some(_) => client.is_behind(event),
                None => client.joining.iter().any(is_sent),
            };
            if waits {
                place.map(|place| to.remove(place));
                client.held.push(event.clone());
            }
        }
    }

    /// Completes the join step of `time`; a later request of the client to join remains pending.
    fn release(&mut self, mate: &Mate, group: &Bytes, time: u64) {
        let Some(id) = self.own(mate) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.joining.retain(|it| it.group != *group || it.joins_at != Some(time));
        if client.joining.is_empty() {
            self.joiners.remove(&id);
        }
        for event in core::mem::take(&mut client.held) {
            let ClientEvent::Message { groups, .. } = &*event else { continue };
            let Some(client) = self.clients.get_mut(&id) else { return };
            let is_member = groups.iter().any(|it| self.groups.members(it).contains(mate))
                || breaks(Mutant::HeldAfterLeave);
            let is_sent =
                |it: &Joining| groups.iter().any(|name| name == it.group) && it.joins_at.is_some();
            // The client may have left the group of a message that waited behind another one.
            if is_member && !client.is_behind(&event) {
                self.tell(id, event);
            } else if is_member || client.joining.iter().any(is_sent) {
                client.held.push(event);
            }
        }
    }

    fn own(&self, mate: &Mate) -> Option<ClientId> {
        self.own_client(mate).map(|it| it.0)
    }

    fn own_client(&self, mate: &Mate) -> Option<(ClientId, &Client)> {
        if mate.daemon != self.me.id {
            return None;
        }
        let id = *self.names.get(&mate.name)?;
        self.clients.get(&id).filter(|it| it.mate == *mate).map(|client| (id, client))
    }

    pub(super) fn leave(
        &mut self,
        group: &Bytes,
        mate: &Mate,
        (place, sequence): (usize, u64),
        reason: Reason,
        position: (u64, u64, u64),
    ) {
        let own = self.own(mate).and_then(|id| self.clients.get_mut(&id));
        if let Some(client) = own {
            client.leaving.retain(|it| it.0 != *group || it.1 > position.0);
        }
        if self.groups.leave(group, mate, place, sequence) {
            self.is_slow_new |= self.held.contains(group);
            self.tell_group(group, reason, Some(mate.clone()), position);
            if let Some(id) = self.own(mate) {
                let members = self.groups.members(group).into();
                let subject = Some(mate.clone());
                let (group, view) = (group.clone(), self.view);
                self.tell(
                    id,
                    ClientEvent::Group { group, members, reason, subject, position, view },
                );
            }
        }
    }

    pub(super) fn tell_group(
        &mut self,
        group: &Bytes,
        reason: Reason,
        subject: Option<Mate>,
        position: (u64, u64, u64),
    ) {
        let members: Arc<[Mate]> = self.groups.members(group).into();
        let own: Vec<ClientId> = members.iter().filter_map(|it| self.own(it)).collect();
        let (group, view) = (group.clone(), self.view);
        let event = ClientEvent::Group { group, members, reason, subject, position, view };
        let event = Arc::new(event);
        for id in own {
            self.tell(id, event.clone());
        }
    }

    pub(super) fn room(&self) -> Room {
        Room { waiting: self.settings.client_bytes, kept: self.settings.history_bytes }
    }

    pub(super) fn tell_all(&mut self, event: ClientEvent) {
        let event = Arc::new(event);
        let clients: Vec<ClientId> = self.clients.keys().copied().collect();
        clients.into_iter().for_each(|id| self.tell(id, event.clone()));
    }

    /// Sends a client the refusal of a request.
    pub fn refuse_request(&mut self, id: ClientId, request: u64, reason: SendError) {
        self.tell(id, ClientEvent::Refused { request, reason });
    }

    pub(super) fn tell(&mut self, id: ClientId, event: impl Into<Arc<ClientEvent>>) {
        let room = self.room();
        if let Some(client) = self.clients.get_mut(&id) {
            client.push(event.into(), room);
            if !core::mem::replace(&mut client.is_ready, true) {
                self.ready.push_back(id);
            }
            if client.queue().1 > room.waiting / 2 {
                self.note_queue(id);
            }
        }
    }

    /// Connects a client with a name of 1 to 56 bytes. An earlier or unconnected run of the program
    /// loses its session: a clock may have been set back between runs.
    ///
    /// # Errors
    /// [`SendError::Name`]: a name of wrong length, or of a connected run that is not earlier.
    pub fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        name: Bytes,
        incarnation: u64,
    ) -> Result<(), SendError> {
        let other = self.names.get(&name).copied();
        let is_newer = other.and_then(|it| self.clients.get(&it)).is_none_or(|it| {
            let of = it.mate.incarnation;
            of < incarnation || of != incarnation && it.away_since.is_some()
        });
        let fits = (1..=CLIENT_BYTES_MAX).contains(&name.len());
        if !fits || !is_newer || self.clients.contains_key(&id) {
            return Err(SendError::Name);
        }
        if let Some(other) = other {
            self.disconnect(cx, other);
            self.events.push_back(DaemonEvent::End(other));
        }
        self.names.insert(name.clone(), id);
        let mate = Mate { daemon: self.me.id, name, incarnation };
        let client = Client::new(mate, self.new_purse(cx));
        let members = self.current.graph.members.clone();
        let names = self.member_names();
        let together = [self.me].to_vec();
        let view = ClientEvent::View { id: self.view, members, names, together, previous: None };
        self.clients.insert(id, client);
        self.tell(id, view);
        Ok(())
    }

    /// Notes the loss of a client's connection. The session waits for the client to resume.
    pub fn suspend(&mut self, now: Time, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.away_since = Some(now);
            self.forget_slow(id);
        }
    }

    /// Resumes a session from event `next`. [`ClientEvent::Cut`] counts events no longer kept.
    ///
    /// # Errors
    /// [`SendError::Name`]: no such session or number exists.
    pub fn resume(
        &mut self,
        id: ClientId,
        (name, incarnation): (&Bytes, u64),
        next: u64,
    ) -> Result<(), SendError> {
        let old = *self.names.get(name).ok_or(SendError::Name)?;
        let client = self.clients.get_mut(&old).filter(|it| it.mate.incarnation == incarnation);
        let client = client.ok_or(SendError::Name)?;
        if !client.resume(next) {
            return Err(SendError::Name);
        }
        self.forget_slow(old);
        self.forget_short(old);
        if let Some(mut client) = self.clients.remove(&old) {
            client.is_ready = true;
            // The alarm belongs to the earlier connection.
            client.purse.alarm = None;
            self.names.insert(name.clone(), id);
            self.clients.insert(id, client);
            self.ready.push_back(id);
            if self.joiners.remove(&old) {
                self.joiners.insert(id);
            }
        }
        if old != id {
            self.events.push_back(DaemonEvent::End(old));
        }
        Ok(())
    }

    /// Ends the session of a client.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        self.forget_short(id);
        let Some(client) = self.clients.remove(&id) else { return };
        self.names.remove(&client.mate.name);
        self.joiners.remove(&id);
        self.forget_slow(id);
        if !breaks(Mutant::NoGone) {
            self.step(cx.now, Kind::Gone, &client.encoded, &[]);
        }
        self.settle(cx);
    }

    pub(super) fn expire_clients(&mut self, cx: &mut Cx<'_>) {
        let is_over = |it: &Client| it.away_since.is_some_and(|at| cx.now >= at + RESUME_MAX);
        let over = self.clients.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id);
        let over: Vec<ClientId> = over.collect();
        for id in over {
            self.disconnect(cx, id);
            self.events.push_back(DaemonEvent::End(id));
        }
    }

    /// Returns the next client with events that are new since its last return.
    pub fn poll_ready_client(&mut self) -> Option<ClientId> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(client) = self.clients.get_mut(&id) {
                client.is_ready = false;
                return Some(id);
            }
        }
        None
    }

    /// True if a slow client has lost events: the driver must close its connection.
    pub fn is_cut(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_some_and(|it| it.is_cut)
    }

    /// Returns the number of the client's last taken event, and the bytes that wait for the client.
    pub fn client_queue(&self, id: ClientId) -> Option<(u64, usize)> {
        self.clients.get(&id).map(Client::queue)
    }

    /// Returns the next event for a client, with its number in the session.
    pub fn poll_client(&mut self, id: ClientId) -> Option<(u64, Arc<ClientEvent>)> {
        let room = self.room();
        let event = self.clients.get_mut(&id)?.pop(room);
        if !self.slow.is_empty() {
            self.note_queue(id);
        }
        event
    }

    /// Requests to join a group, whose senders wait for slow members while a member `asks`.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn join(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        group: Bytes,
        asks: bool,
    ) -> Result<(), SendError> {
        self.check(&[&group])?;
        self.admit(id)?;
        let client = self.clients.get_mut(&id).ok_or(SendError::Name)?;
        let joining = Joining { group: group.clone(), announced: None, joins_at: None, asks };
        client.joining.push(joining);
        self.joiners.insert(id);
        let mate = client.mate.clone();
        self.announce(&mate, &group);
        self.settle(cx);
        Ok(())
    }

    pub(super) fn announce(&mut self, mate: &Mate, group: &Bytes) {
        if !self.is_open() {
            return;
        }
        self.step(self.progress_at, Kind::Join, &mate.encode(), &[group]);
        let (sequence, _) = self.current.own();
        if let Some(client) = self.own(mate).and_then(|id| self.clients.get_mut(&id)) {
            // A request with a join step in transit is done. Another step would undo a later leave.
            let waits = |it: &&mut Joining| it.group == *group && it.joins_at.is_none();
            for joining in client.joining.iter_mut().filter(waits) {
                joining.announced = Some((self.current.ballot, sequence));
            }
        }
    }

    /// Requests to remove a client from a group.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn part(&mut self, cx: &mut Cx<'_>, id: ClientId, group: Bytes) -> Result<(), SendError> {
        self.check(&[&group])?;
        self.admit(id)?;
        let client = self.clients.get_mut(&id).ok_or(SendError::Name)?;
        // A client with a join step in transit is a member until its next step.
        client.joining.retain(|it| it.group != group || it.joins_at.is_some());
        if client.joining.is_empty() {
            self.joiners.remove(&id);
        }
        let client = client.encoded.clone();
        self.step(cx.now, Kind::Leave, &client, &[&group]);
        self.settle(cx);
        Ok(())
    }

    fn admit(&self, id: ClientId) -> Result<(), SendError> {
        let client = self.clients.get(&id).ok_or(SendError::Name)?;
        let name = client.encoded.clone();
        let steps = self.steps.iter().filter(|it| it.1 == name).count();
        let has_room = self.current.has_room(&name, self.settings.retention_bytes);
        let fits = client.joining.len() + steps < REQUESTS_MAX;
        if has_room && fits { Ok(()) } else { Err(SendError::Retention) }
    }

    pub(super) fn check(&self, groups: &[&[u8]]) -> Result<(), SendError> {
        let named = groups.iter().all(|it| (1..=GROUP_BYTES_MAX).contains(&it.len()));
        if named && (1..=GROUPS_MAX).contains(&groups.len()) {
            Ok(())
        } else {
            Err(SendError::Group)
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.current.is_open && !self.is_changing()
    }

    /// Sends a message of a client to groups. A message to groups without members is dropped.
    ///
    /// # Errors
    /// The message is refused: wrong in itself, too expensive, or not possible at present.
    pub fn send(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        message: &Outgoing<'_>,
    ) -> Result<(), SendError> {
        let Outgoing { service, groups, payload, request, wants_receipt, view, .. } = *message;
        self.check(groups)?;
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(SendError::Length);
        }
        let name = self.clients.get(&id).ok_or(SendError::Name)?.encoded.clone();
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
        if self.is_in_vain(id, message, routes) {
            return Ok(());
        }
        self.buy(cx, id, message, routes)?;
        let mut ready = core::mem::take(&mut self.scratch);
        self.current.send_message(service, &name, groups, payload, routes, &mut ready);
        if wants_receipt && service.is_ordered() {
            let (sequence, _) = self.current.own();
            if let Some(client) = self.clients.get_mut(&id) {
                client.receipts.push_back((sequence, request));
            }
        }
        for message in ready.drain(..) {
            self.take_message(cx.now, message);
        }
        self.scratch = ready;
        self.settle(cx);
        Ok(())
    }

    fn is_in_vain(&mut self, id: ClientId, message: &Outgoing<'_>, routes: Set) -> bool {
        let Outgoing { groups, request, wants_receipt, .. } = *message;
        let Some(client) = self.clients.get_mut(&id) else { return true };
        if routes != Set::default() {
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
            let groups = groups.iter().collect();
            self.tell(id, ClientEvent::NoMembers { request, groups });
        }
        if wants_receipt {
            let (members, view) = (0, self.view);
            self.tell(id, ClientEvent::Receipt { request, members, view });
        }
        true
    }

    pub(super) fn step(&mut self, now: Time, kind: Kind, client: &Bytes, groups: &[&Bytes]) {
        if !self.is_open() {
            let groups = groups.iter().copied().cloned().collect();
            return self.steps.push((kind, client.clone(), groups));
        }
        self.send_step((now, kind), client, groups, &[]);
    }

    fn send_step(
        &mut self,
        (now, kind): (Time, Kind),
        client: &Bytes,
        groups: &[&Bytes],
        asks: &[u8],
    ) {
        let mate = Mate::decode(self.me.id, client);
        let own = self.own(&mate).filter(|_| kind == Kind::Leave);
        if let Some(client) = own.and_then(|id| self.clients.get_mut(&id)) {
            let time = self.current.time + 1;
            client.leaving.extend(groups.iter().map(|it| ((*it).clone(), time)));
        }
        let groups: Vec<&[u8]> = groups.iter().map(|it| &***it).collect();
        let mut ready = Vec::new();
        let what = (kind, Service::Reliable, true);
        self.current.send_to_all(what, client, &groups, &[asks], &mut ready);
        self.take_messages(now, ready);
    }

    pub(super) fn catch_up(&mut self, now: Time) {
        if self.is_open() {
            for (kind, client, groups) in core::mem::take(&mut self.steps) {
                self.step(now, kind, &client, &groups.iter().collect::<Vec<_>>());
            }
        }
    }

    pub(super) fn finish_joins(&mut self, now: Time) {
        if !self.is_open() {
            return;
        }
        let (ballot, (_, stable)) = (self.current.ballot, self.current.own());
        let mut done = Vec::new();
        for id in &self.joiners {
            let Some(client) = self.clients.get_mut(id) else { continue };
            for joining in &mut client.joining {
                if joining.announced.is_some_and(|(at, number)| at == ballot && number <= stable) {
                    joining.announced = None;
                    let asks: &[u8] = if joining.asks { &[1] } else { &[] };
                    done.push((*id, client.encoded.clone(), joining.group.clone(), asks));
                }
            }
        }
        for (id, name, group, asks) in done {
            let joins_at = Some(self.current.time + 1);
            let joining = self.clients.get_mut(&id).into_iter().flat_map(|it| &mut it.joining);
            let same = |it: &&mut Joining| it.group == group && it.joins_at.is_none();
            joining.filter(same).for_each(|it| it.joins_at = joins_at);
            self.send_step((now, Kind::Joined), &name, &[&group], asks);
        }
    }

    pub(super) fn reroute_joins(&mut self) {
        let mut again = Vec::new();
        for client in self.clients.values_mut() {
            for joining in &mut client.joining {
                again.push((client.mate.clone(), joining.group.clone()));
            }
        }
        for (name, group) in again {
            self.announce(&name, &group);
        }
    }
}
