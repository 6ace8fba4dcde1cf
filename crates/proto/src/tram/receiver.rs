//! Receiver: composes membership and receive window, and is a head to others if it may.

mod affiliation;
mod application;
mod arrival;
mod claims;
mod delivery;
mod ending;
mod negotiation;
mod output;
mod reports;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, NodeId, Time};

use super::identity::Identity;
use super::membership::{Affiliation, Head, HeadStatus, Seeker};
use super::settings::{HeadRole, TramSettings};
use super::window::{Cache, ReceiveWindow, Repairer};
use super::wire::{Ack, Advertisement, Body, Packet, SourceState};
use super::{GivenHead, HEADS, TramSetup};
use crate::LossRecord;
use crate::timers::{Timers, reasons};
use crate::{Datagram, Destination, FlowEvent, Machine, Membership, StreamEvent, Transmit};
use affiliation::PastParents;
use claims::{Claims, OVERTAKEN_MAX};
use delivery::{Delivery, Retention};
use ending::Session;
use negotiation::Negotiation;
use reports::Reports;

/// Upper bound of levels in a tree.
const LEVEL_MAX: u8 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    Member,
    /// The receiver has everything, and repairs losses of its members.
    Serving,
    /// The receiver has said goodbye, and repeats it on request until this time.
    Left(Time),
}

reasons! {
    enum Timer {
        Start,
        Ack,
        Request,
        /// End of the wait for reordered packets of a gap.
        Reordering,
        Pace,
        SourceSilence,
        EndQuiet,
    }
}

#[derive(Debug, Default)]
struct NextAck {
    due: bool,
    congested: bool,
    /// True if the parent is to answer with a hello. An acknowledgement is due then too.
    hello_missing: bool,
}

/// Receiver of a session.
#[derive(Default)]
pub struct TramReceiver {
    settings: TramSettings,
    identity: Identity,
    name: u64,
    phase: Phase,
    /// True once the receiver is to leave as soon as it has no members.
    is_closing: bool,
    session: Session,
    /// `None` if the settings are given.
    negotiation: Option<Box<Negotiation>>,
    affiliation: Affiliation,
    past_parents: PastParents,
    head: Head,
    /// True once the group of heads was joined, or is not needed.
    joined_heads: bool,
    repairer: Repairer,
    /// `None` before the first packet is known.
    window: Option<ReceiveWindow>,
    next_ack: NextAck,
    delivery: Delivery,
    claims: Claims,
    losses: LossRecord,
    /// `None` with TRAM's own control.
    reports: Option<Box<Reports>>,
    timers: Timers<Timer, 7>,
    events: VecDeque<StreamEvent>,
}

impl TramReceiver {
    pub(super) fn new(setup: &TramSetup<'_>) -> Self {
        let reports = setup.steering.map(|it| Box::new(Reports::new(it, setup.options)));
        let TramSetup { session, source, start, head, name, .. } = *setup;
        let own = Self::under(setup.settings(), (Identity::new(session), source), start, head);
        Self { reports, name, ..own }
    }

    fn under(
        settings: TramSettings,
        (identity, source): (Identity, NodeId),
        start: Time,
        head: Option<GivenHead>,
    ) -> Self {
        let mut timers = Timers::default();
        timers.arm(Timer::Start, start);
        Self {
            identity,
            session: Session { source, ..Session::default() },
            affiliation: Affiliation::new(&settings, head),
            head: Head::new(&settings, settings.head),
            repairer: Repairer::new(&settings, 1),
            joined_heads: settings.head == HeadRole::Never,
            timers,
            settings,
            ..Self::default()
        }
    }

    fn level(&self) -> u8 {
        self.affiliation.parent.map_or(0, |parent| parent.level.saturating_add(1))
    }

    /// Resigns if the receiver has members but no parent, so that it may take any head.
    fn check_headless(&mut self) {
        if self.level() > 0 {
            self.past_parents.latest_level = self.level();
        } else if self.affiliation.binds_to().is_none() && self.has_members() {
            self.head.resign(true);
        }
    }

    fn head_status(&self) -> HeadStatus {
        let level = self.level();
        let low = self.repairer.cache.first;
        let (id, name) = (self.identity.known_id(), self.name);
        let status = HeadStatus { level, low, first_kept: low, id, name, ..HeadStatus::default() };
        let Some(window) = &self.window else { return status };
        let high = window.reception.end - 1;
        // A receiver that catches up lacks packets that it would promise.
        let behind = window.reception.first_missing() + self.settings.cache_floor() as u64 <= high;
        // A receiver that changes heads takes no members: two could form a loop.
        let stays = level > 0 && self.affiliation.binds_to().is_none();
        let can_serve = self.settings.head != HeadRole::Never && stays && !behind;
        HeadStatus { can_serve, high, done: self.session.last == Some(high), ..status }
    }

    fn seeker(&self, now: Time) -> Seeker {
        let id = self.identity.known_id();
        let role = self.settings.head;
        Seeker {
            may_be_head: role != HeadRole::Never,
            level_with_members: self.has_members().then_some(self.past_parents.latest_level),
            first_missing: self.window.as_ref().map_or(1, |it| it.reception.first_missing()),
            level_and_id: (self.level(), id),
            awaits_lan_head: self.level() == 0 && self.head.election.awaits_elected(now, role, id),
        }
    }

    fn take(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let packet = Packet::of_datagram(datagram, self.identity.session)?;
        let from = datagram.from;
        if self.is_over() {
            self.answer_after_end(cx, (from, packet.sender), &packet.body);
            return Ok(());
        }
        if let Some(negotiation) = &self.negotiation {
            if let Body::Settings(bytes) = packet.body {
                return self.on_settings(cx, from, bytes);
            }
            if negotiation.agreed.is_none() {
                // The source repeats its settings, and lost packets are repaired.
                return Ok(());
            }
        }
        match packet.body {
            Body::Beacon(state) => {
                self.check_state(cx, from, &packet.body, state)?;
                self.on_source_state(cx.now, state);
                self.affiliation.on_packet(cx.now, from, None);
                self.on_highest_sent(cx, state.sequence, state.done);
                self.give_up_obsolete(cx, state)
            }
            Body::Data(data) => {
                self.check_state(cx, from, &packet.body, data.state)?;
                if !data.state.repair {
                    self.on_source_state(cx.now, data.state);
                }
                self.affiliation.on_packet(cx.now, from, None);
                self.on_data(cx, &data, datagram)
            }
            _ => self.on_control(cx, &packet, datagram),
        }
    }

    /// Fails if the source cannot have this state: the packet is forged.
    fn check_state(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        body: &Body<'_>,
        state: SourceState,
    ) -> Checked {
        if !state.repair && from != self.session.source {
            return Err(BadInput::Foreign);
        }
        if !self.can_have_sent(cx, body, &state) {
            return Err(BadInput::OutOfWindow);
        }
        if state.repair {
            return Ok(());
        }
        let SourceState { sequence, done, .. } = state;
        let goes_on =
            |(last, since)| sequence > last || !done && cx.now.since(since) >= OVERTAKEN_MAX;
        if self.session.end_claim.is_some_and(goes_on) {
            self.deny_end();
        }
        if self.phase == Phase::Member {
            self.session.last.take_if(|last| sequence > *last);
        }
        if self.claims.highest.get().is_some_and(|high| sequence > *high) {
            self.claims.highest.contradict();
        }
        Ok(())
    }

    fn on_control(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        datagram: &Datagram<'_>,
    ) -> Checked {
        let from = datagram.from;
        let is_source = from == self.session.source;
        let alone = matches!(datagram.to, Destination::Node(_));
        match packet.body {
            // Only the source has level 1.
            Body::Advertisement(Advertisement { level: 1, .. }) if !is_source => {
                return Err(BadInput::Foreign);
            }
            Body::Advertisement(advertisement) => {
                self.head.advertising.on_other(packet.ttl, advertisement.state);
                let sender = (from, packet.sender, packet.ttl);
                self.head.election.on_advertisement(cx.now, sender, &advertisement);
                let seeker = self.seeker(cx.now);
                self.affiliation.on_advertisement(cx.now, (sender, alone), &advertisement, seeker);
                self.affiliation.on_packet(cx.now, from, Some(advertisement.level));
            }
            Body::Solicitation(solicitation) if is_source => {
                self.head.supersede(cx.now, None, solicitation.name);
            }
            Body::Solicitation(solicitation) => {
                let status = self.head_status();
                let sender = (from, packet.ttl, alone);
                self.head.on_solicitation(cx.now, sender, solicitation, status);
            }
            Body::Bind(_) if is_source => return Err(BadInput::Foreign),
            Body::Bind(bind) => {
                let status = self.head_status();
                let can_serve = status.can_serve && !self.is_head(from);
                let status = HeadStatus { can_serve, ..status };
                self.head.on_bind(cx.now, from, packet.sender, bind, status)?;
            }
            Body::Accept(accept) => self.on_accept(cx, (from, packet.sender), accept)?,
            Body::Reject(reason) => self.on_reject(cx, from, reason),
            Body::Hello(hello) => self.on_hello(cx, from, &hello),
            Body::Ack(ack) => self.on_ack(cx, (from, packet.sender), &ack)?,
            Body::Report(report) => {
                let is_member = self.head.members.by_node.contains_key(&from);
                let reports = self.reports.as_mut().filter(|_| is_member);
                let parent = self.affiliation.parent;
                let beyond = parent.map_or(Duration::ZERO, |parent| parent.round_trip);
                reports.ok_or(BadInput::Foreign)?.take(cx, from, &report, beyond)?;
            }
            Body::Settings(_) | Body::Beacon(_) | Body::Data(_) => {}
            // Status packets are for the source, and its answers are for the application.
            Body::Status(_) | Body::StatusReply(_) => return Err(BadInput::Foreign),
        }
        Ok(())
    }

    fn on_ack(&mut self, cx: &mut Cx<'_>, from: (NodeId, u64), ack: &Ack<'_>) -> Checked {
        let Some(window) = &self.window else { return Err(BadInput::Foreign) };
        // A member may know of later packets than its head.
        let end = (window.reception.end, self.settings.cache_floor() as u64);
        let has = |cache: &Cache, sequence| cache.get(sequence).is_some();
        let is_of_member = self.head.on_ack(cx.now, from, ack, end, &mut self.repairer, has)?;
        if is_of_member
            && ack.congested
            && let Some(window) = &mut self.window
            && window.reports_congestion_below()
        {
            (self.next_ack.congested, self.next_ack.due) = (true, true);
        }
        if is_of_member && ack.leaves && self.delivery.completed {
            // The goodbye informs the head above.
            self.next_ack.due = true;
        }
        self.after_progress(cx);
        Ok(())
    }
}

impl Machine for TramReceiver {
    type Event = StreamEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if self.phase == Phase::Waiting {
            return;
        }
        self.identity.id(cx);
        let outcome = self.take(cx, &datagram);
        cx.check(outcome);
        self.check_headless();
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if self.timers.take_due(Timer::Start, now) {
            self.phase = Phase::Member;
        }
        if matches!(self.phase, Phase::Waiting | Phase::Left(_)) {
            return;
        }
        if self.timers.take_due(Timer::SourceSilence, now) {
            let due = self.silent_until();
            if due > now {
                self.timers.arm(Timer::SourceSilence, due);
            } else {
                // The session is over; heads and members detect the same silence.
                self.leave(now);
                self.past_parents.goodbyes.clear();
                self.events.push_back(FlowEvent::Gone.into());
                return;
            }
        }
        if self.timers.take_due(Timer::Ack, now) {
            self.on_ack_timer(cx);
        }
        if self.timers.take_due(Timer::Reordering, now) {
            self.request_lost(cx);
        }
        if self.timers.take_due(Timer::Request, now) {
            self.on_request_timer(cx);
        }
        self.timers.take_due(Timer::Pace, now);
        if self.timers.take_due(Timer::EndQuiet, now) {
            self.confirm_end(cx);
            if self.is_over() {
                return;
            }
        }
        if let Some(Reports { feedback, .. }) = self.reports.as_deref_mut()
            && feedback.next_timeout().is_some_and(|at| at <= now)
        {
            feedback.on_timeout(cx);
        }
        let seeker = self.seeker(cx.now);
        let change = self.affiliation.on_timeout(now, seeker);
        self.on_parent_change(cx, change);
        let end = self.window.as_ref().map_or(0, |window| window.reception.end);
        if !self.head.on_timeout(now, end, &self.repairer).is_empty() {
            self.after_progress(cx);
        }
        self.check_headless();
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.is_closing = true;
        self.check_end(cx);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        (!core::mem::replace(&mut self.joined_heads, true)).then_some(Membership::Join(HEADS))
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.phase == Phase::Waiting {
            return None;
        }
        if let Some(transmit) = self.poll_ack(cx, buf).or_else(|| self.poll_report(cx, buf)) {
            return Some(transmit);
        }
        let status = self.head_status();
        if let Some(transmit) = self.head.poll(cx, &mut self.identity, status, false, buf) {
            return Some(transmit);
        }
        if self.is_over() {
            return None;
        }
        self.poll_request(cx, buf)
            .or_else(|| self.poll_ack(cx, buf))
            .or_else(|| self.poll_repair(cx, buf))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.is_over() {
            return None;
        }
        let started = self.phase != Phase::Waiting;
        let has_parent = self.affiliation.parent.is_some();
        let reports = self.reports.as_ref().and_then(|it| it.next_timeout(has_parent));
        let others = [self.affiliation.next_timeout(), self.head.next_timeout(), reports];
        let others = others.into_iter().flatten().filter(|_| started);
        self.timers.next().into_iter().chain(others).min()
    }
}

#[cfg(test)]
mod tests;
