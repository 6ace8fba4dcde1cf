//! Sessions of clients: requests, and delivery of messages and of steps of membership.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};

use super::{Daemon, DaemonEvent};
use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX, Kind, PAYLOAD_BYTES_MAX, Service};
use crate::client::{Client, ClientEvent, Joining, Reason, Room, SendError};
use crate::group::Mate;
use crate::ids::{ClientId, Set};
use crate::stream::Ready;

/// Most bytes of a client's name.
pub const CLIENT_BYTES_MAX: usize = GROUP_BYTES_MAX - 8;
/// Longest absence of a client before its session ends.
const RESUME_MAX: Duration = Duration::from_secs(30);
/// Most bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

impl Daemon {
    pub(super) fn take_message(&mut self, now: Time, message: Ready) {
        let is_recovery = matches!(message.cell.kind, Kind::Recovered | Kind::Sent | Kind::Have);
        match &mut self.entry {
            Some(_) if is_recovery => self.take_recovery(now, &message),
            Some(_) if message.cell.kind == Kind::Table => self.take_table(now, message),
            Some(entry) => entry.waiting.push(message),
            None => self.deliver(message),
        }
    }

    pub(super) fn take_messages(&mut self, now: Time, messages: Vec<Ready>) {
        messages.into_iter().for_each(|message| self.take_message(now, message));
    }

    /// Delivers a message or a step of membership to the clients of this daemon.
    pub(super) fn deliver(&mut self, message: Ready) {
        let Ready { source, sequence, time, cell, parts } = message;
        let Some(daemon) = self.current.graph.members.get(source).map(|it| it.id) else { return };
        let mate = Mate::decode(daemon, &cell.client);
        let position = (time, source as u64, 0);
        match cell.kind {
            Kind::Message | Kind::More => {
                let mut to: Vec<ClientId> = Vec::new();
                for group in cell.groups() {
                    for member in self.groups.members(&group) {
                        if let Some(id) = self.own(member)
                            && !to.contains(&id)
                        {
                            to.push(id);
                        }
                    }
                }
                let event = ClientEvent::Message {
                    from: mate,
                    service: cell.service,
                    groups: cell.groups().collect(),
                    parts,
                    view: self.view,
                    sequence,
                };
                for id in &to {
                    match self.held_before(*id, &event) {
                        Some(joining) => joining.held.push(event.clone()),
                        None => self.tell(*id, event.clone()),
                    }
                }
                self.hold(&event, time, &to);
            }
            Kind::Join => {
                for group in cell.groups() {
                    self.groups.announce(group, mate.clone(), source, sequence);
                }
            }
            Kind::Joined => {
                for group in cell.groups() {
                    if self.groups.join(group.clone(), mate.clone(), source, sequence) {
                        self.tell_group(&group, Reason::Join, Some(mate.clone()), position);
                    }
                    self.release(&mate, &group, time);
                }
            }
            Kind::Leave => {
                for group in cell.groups() {
                    self.leave(&group, &mate, (source, sequence), Reason::Leave, position);
                }
            }
            Kind::Gone => {
                for group in self.groups.of(&mate) {
                    self.leave(&group, &mate, (source, sequence), Reason::Disconnect, position);
                }
            }
            Kind::Table | Kind::Recovered | Kind::Sent | Kind::Have => {}
        }
    }

    /// Keeps a message for clients of this daemon that the sender already knows as members: their
    /// step is still on its way through the common order, which the message does not wait for.
    fn hold(&mut self, event: &ClientEvent, time: u64, told: &[ClientId]) {
        let ClientEvent::Message { groups, .. } = event else { return };
        for (_, client) in self.clients.iter_mut().filter(|(id, _)| !told.contains(id)) {
            let is_member = |it: &&mut Joining| {
                groups.contains(&it.group) && it.joins_at.is_some_and(|at| at < time)
            };
            if let Some(joining) = client.joining.iter_mut().find(is_member) {
                joining.held.push(event.clone());
            }
        }
    }

    /// Where an earlier message of the same sender waits for a client of this daemon: a FIFO
    /// message to another group waits behind it.
    fn held_before(&mut self, id: ClientId, event: &ClientEvent) -> Option<&mut Joining> {
        let ClientEvent::Message { from: sender, service: Service::Fifo, .. } = event else {
            return None;
        };
        let is_of =
            |it: &ClientEvent| matches!(it, ClientEvent::Message { from, .. } if from == sender);
        let mut joining = self.clients.get_mut(&id)?.joining.iter_mut();
        joining.find(|it| it.held.iter().any(is_of))
    }

    /// A client has joined by the step of this time. A client of this daemon gets what was kept for
    /// it; a later request to join the group stands.
    fn release(&mut self, mate: &Mate, group: &Bytes, time: u64) {
        let Some(id) = self.own(mate) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        let (joined, rest) = core::mem::take(&mut client.joining)
            .into_iter()
            .partition(|it: &Joining| it.group == *group && it.joins_at == Some(time));
        client.joining = rest;
        let joined: Vec<Joining> = joined;
        for event in joined.into_iter().flat_map(|it| it.held) {
            self.tell(id, event);
        }
    }

    /// Client of this daemon.
    fn own(&self, mate: &Mate) -> Option<ClientId> {
        let id = *self.names.get(&mate.name).filter(|_| mate.daemon == self.me.id)?;
        self.clients.get(&id).filter(|it| it.mate == *mate).map(|_| id)
    }

    pub(super) fn leave(
        &mut self,
        group: &Bytes,
        mate: &Mate,
        (place, sequence): (usize, u64),
        reason: Reason,
        position: (u64, u64, u64),
    ) {
        if self.groups.leave(group, mate, place, sequence) {
            self.tell_group(group, reason, Some(mate.clone()), position);
            // The one that leaves learns it too.
            if let Some(id) = self.own(mate) {
                let members = self.groups.members(group).to_vec();
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
        let members = self.groups.members(group).to_vec();
        let own: Vec<ClientId> = members.iter().filter_map(|it| self.own(it)).collect();
        let (group, view) = (group.clone(), self.view);
        let event = ClientEvent::Group { group, members, reason, subject, position, view };
        for id in own {
            self.tell(id, event.clone());
        }
    }

    pub(super) fn room(&self) -> Room {
        Room { waiting: self.settings.client_bytes, kept: self.settings.history_bytes }
    }

    pub(super) fn tell_all(&mut self, event: &ClientEvent) {
        let room = self.room();
        self.clients.values_mut().for_each(|client| client.push(event.clone(), room));
    }

    pub(super) fn tell(&mut self, id: ClientId, event: ClientEvent) {
        let room = self.room();
        if let Some(client) = self.clients.get_mut(&id) {
            client.push(event, room);
        }
    }

    /// Client connects with a name of 1 to 56 bytes. A session of an earlier run of the same
    /// program ends at once.
    ///
    /// # Errors
    /// [`SendError::Name`]: the name is too short or long, or a run that is not earlier has it.
    pub fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        name: Bytes,
        incarnation: u64,
    ) -> Result<(), SendError> {
        let other = self.names.get(&name).copied();
        let is_newer = other
            .and_then(|it| self.clients.get(&it))
            .is_none_or(|it| it.mate.incarnation < incarnation);
        let fits = (1..=CLIENT_BYTES_MAX).contains(&name.len());
        if !fits || !is_newer || self.clients.contains_key(&id) {
            return Err(SendError::Name);
        }
        if let Some(other) = other {
            self.disconnect(cx, other);
            self.events.push_back(DaemonEvent::End(other));
        }
        self.names.insert(name.clone(), id);
        let mut client = Client::new(Mate { daemon: self.me.id, name, incarnation });
        let members = self.current.graph.members.clone();
        let names = self.member_names();
        let together = [self.me].to_vec();
        let view = ClientEvent::View { id: self.view, members, names, together, previous: None };
        client.push(view, self.room());
        self.clients.insert(id, client);
        Ok(())
    }

    /// The connection of a client is lost: the session waits for the client to resume.
    pub fn suspend(&mut self, now: Time, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.away_since = Some(now);
        }
    }

    /// Client resumes a session over another connection, with all events below number `next`.
    /// Returns the numbers of the first and the last event that are kept no more, if there are any.
    ///
    /// # Errors
    /// [`SendError::Name`]: there is no such session, or no such number.
    pub fn resume(
        &mut self,
        id: ClientId,
        (name, incarnation): (&Bytes, u64),
        next: u64,
    ) -> Result<Option<(u64, u64)>, SendError> {
        let old = *self.names.get(name).ok_or(SendError::Name)?;
        let client = self.clients.get_mut(&old).filter(|it| it.mate.incarnation == incarnation);
        let client = client.ok_or(SendError::Name)?;
        if !client.resume(next) {
            return Err(SendError::Name);
        }
        let gap = client.gap(next);
        if let Some(client) = self.clients.remove(&old) {
            self.names.insert(name.clone(), id);
            self.clients.insert(id, client);
        }
        if old != id {
            self.events.push_back(DaemonEvent::End(old));
        }
        Ok(gap)
    }

    /// Client is gone for good.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.names.remove(&client.mate.name);
        self.step(cx.now, Kind::Gone, &client.mate.encode(), &[]);
        self.settle(cx);
    }

    /// Ends sessions of clients that have been away for too long.
    pub(super) fn expire_clients(&mut self, cx: &mut Cx<'_>) {
        let is_over = |it: &Client| it.away_since.is_some_and(|at| cx.now >= at + RESUME_MAX);
        let over = self.clients.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id);
        let over: Vec<ClientId> = over.collect();
        over.into_iter().for_each(|id| self.disconnect(cx, id));
    }

    /// Next event for a client, with its number in the session.
    pub fn poll_client(&mut self, id: ClientId) -> Option<(u64, ClientEvent)> {
        let room = self.room();
        self.clients.get_mut(&id)?.pop(room)
    }

    /// Client asks to join a group.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn join(&mut self, cx: &mut Cx<'_>, id: ClientId, group: Bytes) -> Result<(), SendError> {
        self.check(&[&group])?;
        let client = self.clients.get_mut(&id).ok_or(SendError::Name)?;
        let joining =
            Joining { group: group.clone(), announced: None, joins_at: None, held: Vec::new() };
        client.joining.push(joining);
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
            for joining in client.joining.iter_mut().filter(|it| it.group == *group) {
                joining.announced = Some((self.current.ballot, sequence));
            }
        }
    }

    /// Client asks to leave a group.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn part(&mut self, cx: &mut Cx<'_>, id: ClientId, group: Bytes) -> Result<(), SendError> {
        self.check(&[&group])?;
        let client = self.clients.get_mut(&id).ok_or(SendError::Name)?;
        // A client whose step is on its way is a member until its next step.
        client.joining.retain(|it| it.group != group || it.joins_at.is_some());
        let client = client.mate.encode();
        self.step(cx.now, Kind::Leave, &client, &[&group]);
        self.settle(cx);
        Ok(())
    }

    pub(super) fn check(&self, groups: &[&[u8]]) -> Result<(), SendError> {
        let named = groups.iter().all(|it| (1..=GROUP_BYTES_MAX).contains(&it.len()));
        if named && (1..=GROUPS_MAX).contains(&groups.len()) {
            Ok(())
        } else {
            Err(SendError::Group)
        }
    }

    /// True if messages can be sent: a view has begun and no change is in progress.
    pub(super) fn is_open(&self) -> bool {
        self.current.is_open && !self.is_changing()
    }

    /// Sends a message of a client to groups.
    ///
    /// # Errors
    /// The message is not taken: a name or length is wrong, members change at this moment, or not
    /// all daemons have earlier messages of this one yet.
    pub fn send(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        service: Service,
        groups: &[&[u8]],
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.check(groups)?;
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(SendError::Length);
        }
        let name = self.clients.get(&id).ok_or(SendError::Name)?.mate.encode();
        if !self.is_open() {
            return Err(SendError::Changing);
        }
        if self.current.unstable_bytes() >= self.settings.retention_bytes {
            return Err(SendError::Retention);
        }
        let mut ready = Vec::new();
        let count = payload.len().div_ceil(PAYLOAD_BYTES_MAX).max(1);
        for i in 0..count {
            let from = i * PAYLOAD_BYTES_MAX;
            let part = &payload[from..payload.len().min(from + PAYLOAD_BYTES_MAX)];
            let kind = if i == 0 { Kind::Message } else { Kind::More };
            let what = (kind, service, i + 1 == count);
            let table = &self.groups;
            self.current.send(what, &name, groups, &[part], |cell| table.route(cell), &mut ready);
        }
        for message in ready {
            self.take_message(cx.now, message);
        }
        self.settle(cx);
        Ok(())
    }

    /// Sends a step of a client's membership to all daemons.
    pub(super) fn step(&mut self, now: Time, kind: Kind, client: &Bytes, groups: &[&Bytes]) {
        if !self.is_open() {
            let groups = groups.iter().copied().cloned().collect();
            return self.steps.push((kind, client.clone(), groups));
        }
        let groups: Vec<&[u8]> = groups.iter().map(|it| &***it).collect();
        let groups = &groups[..];
        let mut ready = Vec::new();
        let what = (kind, Service::Reliable, true);
        self.current.send(what, client, groups, &[], |_| Set::default(), &mut ready);
        self.take_messages(now, ready);
    }

    /// Sends the steps that had to wait for the view.
    pub(super) fn catch_up(&mut self, now: Time) {
        if self.is_open() {
            for (kind, client, groups) in core::mem::take(&mut self.steps) {
                self.step(now, kind, &client, &groups.iter().collect::<Vec<_>>());
            }
        }
    }

    /// Makes members of the clients whose groups all daemons route here.
    pub(super) fn finish_joins(&mut self, now: Time) {
        if !self.is_open() {
            return;
        }
        let (ballot, (_, stable)) = (self.current.ballot, self.current.own());
        let mut done = Vec::new();
        for (id, client) in &mut self.clients {
            for joining in &mut client.joining {
                if joining.announced.is_some_and(|(at, number)| at == ballot && number <= stable) {
                    joining.announced = None;
                    done.push((*id, client.mate.encode(), joining.group.clone()));
                }
            }
        }
        for (id, name, group) in done {
            let joins_at = Some(self.current.time + 1);
            let joining = self.clients.get_mut(&id).into_iter().flat_map(|it| &mut it.joining);
            let same = |it: &&mut Joining| it.group == group && it.joins_at.is_none();
            joining.filter(same).for_each(|it| it.joins_at = joins_at);
            self.step(now, Kind::Joined, &name, &[&group]);
        }
    }

    /// Asks again for groups of clients that have not joined yet.
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
