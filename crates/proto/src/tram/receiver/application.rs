//! Interface of a receiver's application: delivery, release, and status for the source.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, NodeId, Time};

use super::reports::Reports;
use super::{Delivery, Negotiation, Phase, Retention, TramReceiver};
use crate::object::TreePlace;
use crate::options::Options;
use crate::pgm::negotiation::SchemeMismatch;
use crate::stack::Stack;
use crate::tram::settings::{HeadRole, TramSettings};
use crate::tram::wire::{Body, Packet, is_status};
use crate::tram::{GivenHead, TramSetup, TreeNegotiation, steering_at};
use crate::{Datagram, Destination, Transmit};

/// For applications that decide when they take packets, and when they need no more.
impl TramReceiver {
    /// Creates a receiver that follows the settings of its source, and is `node` in reports.
    pub(crate) fn following(
        setup: &TramSetup<'_>,
        node: NodeId,
        negotiation: TreeNegotiation,
    ) -> Self {
        let mut receiver = Self::new(setup);
        let negotiation = Negotiation::new(setup.options.clone(), negotiation, node, setup.head);
        receiver.negotiation = Some(Box::new(negotiation));
        // The receiver exists because of a packet from the source.
        receiver.session.source_packet_at = setup.start;
        receiver
    }

    pub(crate) fn kept(setup: &TramSetup<'_>, node: NodeId, negotiation: TreeNegotiation) -> Self {
        let mut receiver = Self::following(setup, node, negotiation);
        receiver.delivery.retention = Retention::UntilReleased;
        receiver
    }

    pub(super) fn on_settings(&mut self, cx: &mut Cx<'_>, from: NodeId, bytes: &[u8]) -> Checked {
        if from != self.session.source {
            return Err(BadInput::Foreign);
        }
        let Some(negotiation) = &mut self.negotiation else { return Ok(()) };
        let (node, assigned) = (negotiation.node, negotiation.assigned);
        if let Some((tree, options)) = negotiation.on_settings(cx.now, bytes)? {
            self.begin_under(cx, (tree, &options), node, assigned);
        }
        Ok(())
    }

    /// Begins under the agreed settings. A receiver that has begun goes on from its present packet.
    fn begin_under(
        &mut self,
        cx: &mut Cx<'_>,
        (tree, options): (Stack, &Options),
        node: NodeId,
        assigned: Option<GivenHead>,
    ) {
        let now = cx.now;
        let settings = TramSettings::of(options, tree.scheme.is_some());
        let steering = steering_at(tree, node);
        let source = self.session.source;
        let begun = Self::under(settings, (self.identity, source), now, assigned);
        let before = core::mem::replace(self, begun);
        (self.name, self.negotiation) = (before.name, before.negotiation);
        (self.phase, self.joined_heads) = (before.phase, before.joined_heads);
        (self.is_closing, self.events) = (before.is_closing, before.events);
        let Delivery { bytes, held, retention, .. } = before.delivery;
        self.delivery = Delivery { bytes, held, retention, ..Delivery::default() };
        self.past_parents.joins = before.past_parents.joins;
        self.session.source_packet_at = now;
        self.reports = steering.map(|it| Box::new(Reports::new(it, options)));
        if let Some(window) = before.window {
            if let Some(parent) = before.affiliation.parent {
                self.past_parents.goodbyes.push_back(parent.node);
            }
            self.begin_at(cx, before.delivery.next);
            self.delivery.from_start = before.delivery.from_start;
            self.delivery.lost_any = before.delivery.lost_any;
            if let Some(again) = &mut self.window {
                // The loss record goes on, and so does its span.
                again.counted_from = window.counted_from;
            }
        }
        self.losses = before.losses;
    }

    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>, held: bool) {
        if core::mem::replace(&mut self.delivery.held, held) && !held {
            self.deliver(cx);
            self.after_progress(cx);
        }
    }

    /// Moves the next packet's bytes to `bytes`, and returns the zeros after them. When none is
    /// left, call [`after_progress`](Self::after_progress).
    pub(crate) fn take_packet(&mut self, bytes: &mut Vec<u8>) -> Option<u32> {
        self.take_next(bytes).map(|(_, zeros)| zeros)
    }

    /// Passes over all packets before the first missing one.
    pub(crate) fn pass_over(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        let end = window.reception.first_missing();
        if self.delivery.next < end {
            self.delivery.next = end;
            if self.settings.head == HeadRole::Never {
                self.repairer.cache.forget(end);
            }
            self.after_progress(cx);
        }
    }

    pub(crate) fn release(&mut self, cx: &mut Cx<'_>) {
        self.delivery.retention = Retention::Released;
        self.check_end(cx);
    }

    pub(crate) fn has_members(&self) -> bool {
        !self.head.members.by_node.is_empty()
    }

    /// Returns the next packet that the application takes; 0 before the first one.
    pub(crate) fn taken(&self) -> u64 {
        if self.window.is_some() { self.delivery.next } else { 0 }
    }

    pub(crate) fn place(&self) -> TreePlace {
        let has_parent = self.affiliation.parent.is_some();
        // A departed receiver reports its last place.
        let placed = has_parent || self.is_over();
        let level = if has_parent { self.level() } else { self.past_parents.latest_level };
        TreePlace {
            number: self.identity.known_id(),
            head: if placed { self.past_parents.latest_id } else { 0 },
            level: if placed { level } else { 0 },
            members: self.head.members.by_node.len() as u32,
            repairs: self.repairer.sent,
        }
    }

    pub(crate) fn spoken(&self) -> Option<Stack> {
        self.negotiation.as_ref()?.stack
    }

    pub(crate) fn mismatch(&self) -> Option<&SchemeMismatch> {
        self.negotiation.as_ref()?.mismatch.as_ref()
    }

    pub(crate) fn has_delivered_all(&self) -> bool {
        let has_last = self.session.last.is_some_and(|last| self.delivery.next > last);
        self.events.is_empty() && self.window.is_some() && has_last
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Left(_))
    }

    pub(crate) const fn is_pruned(&self) -> bool {
        self.affiliation.is_pruned
    }

    /// Returns the packets known to be sent since this receiver took part, and the lost ones.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let known = self.window.as_ref().map_or(0, |window| {
            let end = window.reception.end.max(self.losses.end());
            end.saturating_sub(window.counted_from)
        });
        (known, self.losses.lost())
    }

    pub(crate) fn heard_at(&self) -> Option<Time> {
        Some(self.session.source_packet_at).filter(|at| *at > Time::ZERO)
    }

    pub(crate) fn status_interval(&self) -> Option<Duration> {
        let interval = self.session.state.status_interval;
        (interval > Duration::ZERO).then_some(interval)
    }

    pub(crate) fn latest_of(&self, datagram: &Datagram<'_>) -> Option<u64> {
        match Packet::of_datagram(datagram, self.identity.session).ok()?.body {
            Body::Beacon(state) => Some(state.sequence),
            Body::Data(data) => Some(data.state.sequence).filter(|_| !data.state.repair),
            _ => None,
        }
    }

    pub(crate) fn answer_of<'a>(&self, datagram: &Datagram<'a>) -> Option<&'a [u8]> {
        if !is_status(datagram.bytes) {
            return None;
        }
        match Packet::of_datagram(datagram, self.identity.session).ok()?.body {
            Body::StatusReply(answer) => Some(answer),
            _ => None,
        }
    }

    pub(crate) fn lacks_packets(&self) -> bool {
        self.window.as_ref().is_some_and(|window| window.reception.has_losses())
    }

    pub(crate) fn word(&mut self, cx: &mut Cx<'_>, word: &[u8], buf: &mut Vec<u8>) -> Transmit {
        let to = Destination::Node(self.session.source);
        self.identity.send(cx, to, Body::Status(word), buf)
    }
}
