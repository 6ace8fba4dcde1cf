//! Delivery of complete messages, and of membership steps, to own clients.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::Time;

use super::Daemon;
use super::clients::Receivers;
use crate::cell::{Cell, Kind};
use crate::client::{ClientEvent, Reason};
use crate::group::MemberId;
use crate::ids::ClientId;
use crate::mutant::{Mutant, breaks};
use crate::stream::CompleteMessage;

impl Daemon {
    pub(super) fn take_messages(
        &mut self,
        now: Time,
        messages: impl IntoIterator<Item = CompleteMessage>,
    ) {
        for message in messages {
            match (&mut self.change.recovery, message.cell.kind) {
                (Some(_), Kind::Recovered | Kind::RecoveryEnd | Kind::HasAllCells) => {
                    self.take_recovery(now, &message);
                }
                (Some(_), Kind::Table) => self.take_table(now, &message),
                (Some(it), _) if !breaks(Mutant::EarlyNext) => it.early.push(message),
                _ => self.deliver(message),
            }
        }
    }

    pub(super) fn deliver(&mut self, message: CompleteMessage) {
        let CompleteMessage { source, sequence, ref cell, .. } = message;
        let Some(daemon) = self.current.graph.members.get(source).map(|it| it.id) else { return };
        let member = MemberId::decode(daemon, &cell.client);
        match cell.kind {
            Kind::Message | Kind::Continuation => self.deliver_message(member, message),
            Kind::Join => {
                for group in cell.groups.copies() {
                    self.groups.announce(group, member.clone(), source, sequence);
                }
            }
            Kind::Joined => self.deliver_join(&member, &message),
            Kind::Leave => {
                for group in cell.groups.copies() {
                    self.deliver_leave(&group, &member, &message, Reason::Leave);
                }
            }
            Kind::Disconnect => {
                for group in self.groups.of(&member) {
                    self.deliver_leave(&group, &member, &message, Reason::Disconnect);
                }
            }
            Kind::Hold | Kind::Release => {
                for group in cell.groups.iter() {
                    self.groups.hold(group, source, cell.kind == Kind::Hold);
                }
                self.slow.releases += 1;
            }
            _ => {}
        }
    }

    fn deliver_message(&mut self, from: MemberId, message: CompleteMessage) {
        let CompleteMessage { sequence, time, cell, parts, .. } = message;
        let mut to = Receivers::new();
        for group in cell.groups.iter() {
            let before = to.len();
            for member in self.groups.members(group) {
                if let Some((id, client)) = self.clients.session_of(member)
                    && !to[..before].contains(&id)
                    && !client.has_left(group, time)
                {
                    to.push(id);
                }
            }
        }
        if cell.service.is_ordered() {
            self.give_receipt(&from, sequence, &cell);
        }
        let sender = if breaks(Mutant::NotToSelf) { self.session_of(&from) } else { None };
        let event = Arc::new(ClientEvent::Message {
            from,
            service: cell.service,
            groups: cell.groups,
            parts,
            view: self.view,
            sequence,
        });
        self.clients.defer(&event, time, &mut to);
        to.retain(|id| sender != Some(*id));
        to.into_iter().for_each(|id| self.notify(id, event.clone()));
    }

    fn give_receipt(&mut self, member: &MemberId, sequence: u64, cell: &Cell) {
        let Some(id) = self.session_of(member) else { return };
        let Some(client) = self.clients.by_id.get_mut(&id) else { return };
        let Some(at) = client.receipts.iter().position(|it| it.0 == sequence) else { return };
        let Some((_, request)) = client.receipts.remove(at) else { return };
        let runs = &self.transitional_set;
        let remains =
            |it: &&MemberId| runs.is_empty() || runs.iter().any(|run| run.id == it.daemon);
        let all = cell.groups.iter().flat_map(|it| self.groups.members(it));
        let reached: BTreeSet<&MemberId> = all.filter(remains).collect();
        let (members, view) = (reached.len() as u32, self.view);
        self.notify(id, ClientEvent::Receipt { request, members, view });
    }

    fn deliver_join(&mut self, member: &MemberId, message: &CompleteMessage) {
        let CompleteMessage { source, sequence, time, ref cell, .. } = *message;
        let holds_senders = !cell.payload.is_empty();
        let is_slow = self.session_of(member).is_some_and(|id| self.slow.clients.contains_key(&id));
        self.slow.is_news |= holds_senders || is_slow;
        for group in cell.groups.copies() {
            let at = (source, sequence);
            if self.groups.join(group.clone(), member.clone(), holds_senders, at) {
                let (subject, position) = (Some(member.clone()), (time, source as u64, 0));
                self.notify_group(&group, Reason::Join, subject, position);
            }
            let due = self.clients.complete_join(&self.groups, (member, &group), time);
            let Some((id, events)) = due else { continue };
            events.into_iter().for_each(|event| self.notify(id, event));
        }
    }

    fn deliver_leave(
        &mut self,
        group: &Bytes,
        member: &MemberId,
        message: &CompleteMessage,
        reason: Reason,
    ) {
        let CompleteMessage { source, sequence, time, .. } = *message;
        if let Some(client) = self.clients.of_member(member) {
            client.leaving.retain(|it| it.0 != *group || it.1 > time);
        }
        if !self.groups.leave(group, member, source, sequence) {
            return;
        }
        self.slow.is_news |= self.slow.held.contains(group);
        let (subject, position) = (Some(member.clone()), (time, source as u64, 0));
        let event = self.notify_group(group, reason, subject, position);
        if let Some(id) = self.session_of(member) {
            self.notify(id, event);
        }
    }

    pub(super) fn session_of(&self, member: &MemberId) -> Option<ClientId> {
        self.clients.session_of(member).map(|it| it.0)
    }

    /// Queues the members of a group for its members among own clients. Returns the event.
    pub(super) fn notify_group(
        &mut self,
        group: &Bytes,
        reason: Reason,
        subject: Option<MemberId>,
        position: (u64, u64, u64),
    ) -> Arc<ClientEvent> {
        let members: Arc<[MemberId]> = self.groups.members(group).into();
        let own: Vec<ClientId> = members.iter().filter_map(|it| self.session_of(it)).collect();
        let (group, view) = (group.clone(), self.view);
        let event =
            Arc::new(ClientEvent::Group { group, members, reason, subject, position, view });
        own.into_iter().for_each(|id| self.notify(id, event.clone()));
        event
    }

    pub(super) fn notify_all(&mut self, event: ClientEvent) {
        let event = Arc::new(event);
        let ids: Vec<ClientId> = self.clients.by_id.keys().copied().collect();
        ids.into_iter().for_each(|id| self.notify(id, event.clone()));
    }

    pub(super) fn notify(&mut self, id: ClientId, event: impl Into<Arc<ClientEvent>>) {
        if self.clients.push(id, event.into()) {
            self.note_queue(id);
        }
    }

    pub(super) fn note_queue(&mut self, id: ClientId) {
        if let Some(client) = self.clients.by_id.get(&id) {
            self.slow.note_queue(id, client, self.clients.room.waiting);
        }
    }
}
