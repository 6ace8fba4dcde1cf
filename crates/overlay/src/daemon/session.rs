//! Sessions of clients: requests, and delivery of messages and of steps of membership.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Time};

use super::Daemon;
use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX, Kind, PAYLOAD_BYTES_MAX, Service};
use crate::client::{Client, ClientEvent, Joining, Reason, SendError};
use crate::group::Mate;
use crate::ids::{ClientId, Set};
use crate::stream::Ready;

/// Most bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

impl Daemon {
    pub(super) fn take_message(&mut self, now: Time, message: Ready) {
        let is_recovery = matches!(message.cell.kind, Kind::Recovered | Kind::Sent | Kind::Have);
        match (&mut self.entry, &mut self.tables) {
            (Some(_), _) if is_recovery => self.take_recovery(now, &message),
            (Some(entry), _) => entry.waiting.push(message),
            (None, Some(_)) if message.cell.kind == Kind::Table => self.take_table(now, message),
            (None, Some(tables)) => tables.waiting.push(message),
            (None, None) => self.deliver(message),
        }
    }

    pub(super) fn take_messages(&mut self, now: Time, messages: Vec<Ready>) {
        messages.into_iter().for_each(|message| self.take_message(now, message));
    }

    /// Delivers a message or a step of membership to the clients of this daemon.
    pub(super) fn deliver(&mut self, message: Ready) {
        let Ready { source, sequence, time, cell, parts } = message;
        let Some(daemon) = self.current.graph.members.get(source).map(|it| it.id) else { return };
        let mate = Mate { daemon, name: cell.client.clone() };
        let position = (time, source as u64, 0);
        match cell.kind {
            Kind::Message | Kind::More => {
                let mut to: Vec<ClientId> = Vec::new();
                for group in cell.groups() {
                    for member in self.groups.members(&group) {
                        if member.daemon == self.me.id
                            && let Some(id) = self.names.get(&member.name)
                            && !to.contains(id)
                        {
                            to.push(*id);
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
                for id in to {
                    self.tell(id, event.clone());
                }
            }
            Kind::Join => {
                for group in cell.groups() {
                    self.groups.announce(group, source);
                }
            }
            Kind::Joined => {
                for group in cell.groups() {
                    if daemon == self.me.id
                        && let Some(id) = self.names.get(&mate.name)
                        && let Some(client) = self.clients.get_mut(id)
                    {
                        client.joining.retain(|it| it.group != group);
                    }
                    if self.groups.join(group.clone(), mate.clone(), source) {
                        self.tell_group(&group, Reason::Join, Some(mate.clone()), position);
                    }
                }
            }
            Kind::Leave => {
                for group in cell.groups() {
                    self.leave(&group, &mate, source, Reason::Leave, position);
                }
            }
            Kind::Gone => {
                for group in self.groups.of(&mate) {
                    self.leave(&group, &mate, source, Reason::Disconnect, position);
                }
            }
            Kind::Table | Kind::Recovered | Kind::Sent | Kind::Have => {}
        }
    }

    pub(super) fn leave(
        &mut self,
        group: &Bytes,
        mate: &Mate,
        place: usize,
        reason: Reason,
        position: (u64, u64, u64),
    ) {
        let joining = mate.daemon == self.me.id
            && self.clients.values().any(|it| it.joining.iter().any(|it| it.group == *group));
        if self.groups.leave(group, mate, place, joining) {
            self.tell_group(group, reason, Some(mate.clone()), position);
            // The one that leaves learns it too.
            if mate.daemon == self.me.id
                && let Some(id) = self.names.get(&mate.name).copied()
            {
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
        let own: Vec<ClientId> = members
            .iter()
            .filter(|it| it.daemon == self.me.id)
            .filter_map(|it| self.names.get(&it.name).copied())
            .collect();
        let (group, view) = (group.clone(), self.view);
        let event = ClientEvent::Group { group, members, reason, subject, position, view };
        for id in own {
            self.tell(id, event.clone());
        }
    }

    pub(super) fn tell_all(&mut self, event: &ClientEvent) {
        for client in self.clients.values_mut() {
            client.push(event.clone(), self.settings.client_bytes);
        }
    }

    pub(super) fn tell(&mut self, id: ClientId, event: ClientEvent) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.push(event, self.settings.client_bytes);
        }
    }

    /// A client connects with a name of 1 to 64 bytes, which no other client here has.
    ///
    /// # Errors
    /// [`SendError::Name`]: the name is taken, or too short or long.
    pub fn connect(&mut self, id: ClientId, name: Bytes) -> Result<(), SendError> {
        let fits = (1..=GROUP_BYTES_MAX).contains(&name.len()) && !self.names.contains_key(&name);
        if !fits || self.clients.contains_key(&id) {
            return Err(SendError::Name);
        }
        self.names.insert(name.clone(), id);
        let mut client = Client::new(name);
        if self.tables.is_none() {
            let members = self.current.graph.members.clone();
            let names = self.member_names();
            let (id, together) = (self.view, Vec::new());
            let view = ClientEvent::View { id, members, names, together, previous: None };
            client.push(view, self.settings.client_bytes);
        }
        self.clients.insert(id, client);
        Ok(())
    }

    /// A client is gone.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.names.remove(&client.name);
        let mate = Mate { daemon: self.me.id, name: client.name.clone() };
        if !self.groups.of(&mate).is_empty() {
            self.step(cx.now, Kind::Gone, &client.name, &[]);
        }
    }

    /// Next event for a client.
    pub fn poll_client(&mut self, id: ClientId) -> Option<ClientEvent> {
        self.clients.get_mut(&id)?.pop()
    }

    /// Client asks to join a group.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn join(&mut self, cx: &mut Cx<'_>, id: ClientId, group: Bytes) -> Result<(), SendError> {
        self.check(&[&group])?;
        let client = self.clients.get_mut(&id).ok_or(SendError::Name)?;
        client.joining.push(Joining { group: group.clone(), announced: None });
        let name = client.name.clone();
        self.announce(&name, &group);
        self.settle(cx);
        Ok(())
    }

    pub(super) fn announce(&mut self, name: &Bytes, group: &Bytes) {
        if !self.is_open() {
            return;
        }
        self.step(self.progress_at, Kind::Join, name, &[group]);
        let (sequence, _) = self.current.own();
        if let Some(client) = self.names.get(name).and_then(|id| self.clients.get_mut(id)) {
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
        client.joining.retain(|it| it.group != group);
        let name = client.name.clone();
        if !self.is_open() {
            return Err(SendError::Changing);
        }
        self.step(cx.now, Kind::Leave, &name, &[&group]);
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
        let name = self.clients.get(&id).ok_or(SendError::Name)?.name.clone();
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
    pub(super) fn step(&mut self, now: Time, kind: Kind, client: &[u8], groups: &[&[u8]]) {
        if !self.is_open() {
            return;
        }
        let mut ready = Vec::new();
        let what = (kind, Service::Reliable, true);
        self.current.send(what, client, groups, &[], |_| Set::default(), &mut ready);
        self.take_messages(now, ready);
    }

    /// Makes members of the clients whose groups all daemons route here.
    pub(super) fn finish_joins(&mut self, now: Time) {
        if !self.is_open() {
            return;
        }
        let (ballot, (_, stable)) = (self.current.ballot, self.current.own());
        let mut done = Vec::new();
        for client in self.clients.values_mut() {
            for joining in &mut client.joining {
                if joining.announced.is_some_and(|(at, number)| at == ballot && number <= stable) {
                    joining.announced = None;
                    done.push((client.name.clone(), joining.group.clone()));
                }
            }
        }
        for (name, group) in done {
            self.step(now, Kind::Joined, &name, &[&group]);
        }
    }

    /// Asks again for groups of clients that have not joined yet.
    pub(super) fn reroute_joins(&mut self) {
        let mut again = Vec::new();
        for client in self.clients.values_mut() {
            for joining in &mut client.joining {
                again.push((client.name.clone(), joining.group.clone()));
            }
        }
        for (name, group) in again {
            self.announce(&name, &group);
        }
    }
}
