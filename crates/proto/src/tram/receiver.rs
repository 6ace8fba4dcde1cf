//! Receiver: finds a head, acknowledges packets, and is a head to others if it may.

mod acks;
mod application;
mod arrival;
mod doubts;
mod ending;
mod forgotten;
mod membership;
mod output;
mod reports;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, NodeId, Time};

use super::cache::Cache;
use super::head::{Head, Known, decode};
use super::identity::Identity;
use super::parent::{Parent, Seeker};
use super::reception::Reception;
use super::settings::{HeadRole, TramSettings};
use super::window::ReceiverWindow;
use super::wire::{Ack, Advertisement, Body, Data, Front};
use super::{GivenHead, HEADS, TramSetup, TreeNegotiation};
use crate::LossRecord;
use crate::congestion::Pace;
use crate::options::Options;
use crate::pgm::negotiation::SchemeMismatch;
use crate::pgm::session::reach::Reach;
use crate::stack::Stack;
use crate::timers::{Timers, reasons};
use crate::{Datagram, Destination, FlowEvent, Machine, Membership, StreamEvent, Transmit};
use acks::AckSchedule;
use doubts::{Doubts, Told};
use reports::Reports;

/// Upper bound of levels in a tree.
const LEVEL_MAX: u8 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    Member,
    Serving,
    /// Has said goodbye, and repeats it on request.
    Left,
}

reasons! {
    enum Timer {
        Start,
        Ack,
        Ask,
        Gaps,
        Pace,
        Silence,
        /// The end of the session was not contradicted.
        End,
    }
}

/// Longest silence of the source before a receiver takes the session to be over: 250 s.
const SILENCE_MAX: Duration = Duration::from_secs(250);

/// Longest silence after the end of a session: 10 s shows that nobody repairs missing packets.
const ENDED_SILENCE: Duration = Duration::from_secs(10);

/// Longest silence of a stream after its end without a head: time to find one after an attack.
const HEADLESS_SILENCE: Duration = super::RECOVERY;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    /// No such application: all packets are enough.
    #[default]
    Not,
    /// The application still needs the receiver.
    Until,
    Released,
}

struct Own {
    options: Options,
    negotiation: TreeNegotiation,
    /// Node of this end in reports of schemes.
    node: NodeId,
    head: Option<GivenHead>,
}

#[derive(Debug, Default)]
struct Reached {
    reception: Reception,
    reach: Reach,
    window: ReceiverWindow,
    acks: AckSchedule,
    start: u64,
    deliver: u64,
    /// First packet sent after this receiver joined: earlier packets say nothing about its path.
    sent_since: u64,
    /// True if reception begins with the first packet of the session.
    from_start: bool,
    lost_any: bool,
    /// H_a of the last two acknowledgements, and the number of receivers below.
    told_allowed: u64,
    told_before: u64,
    told_below: (u64, u32),
    /// Acknowledgement window whose congestion below was passed on.
    passed_on: u64,
    /// Acknowledgement timers since the last repair, and the bound of requested packets.
    fruitless: u32,
    asked_until: u64,
    asks: u32,
    /// Bound of packets that may have been delivered from forgeries.
    rewound_until: u64,
    before: Option<(NodeId, u64)>,
}

impl Reached {
    /// True if a lost acknowledgement would stall: packets are missing, or a raised H_a is unused.
    fn awaits_answer(&self) -> bool {
        let (end, before) = (self.reception.end, self.told_before);
        let is_closed = before > 0 && end <= before + 1 && end + self.window.ack_window > before;
        self.reception.lacks() || is_closed
    }
}

/// Receiver of a session.
#[derive(Default)]
pub struct TramReceiver {
    settings: TramSettings,
    identity: Identity,
    source: NodeId,
    name: u64,
    phase: Phase,
    parent: Parent,
    head: Head,
    reached: Option<Reached>,
    front: Front,
    front_at: Time,
    source_heard_at: Time,
    last: Option<u64>,
    pace: Pace,
    level_before: u8,
    ack_due: bool,
    congested: bool,
    hello_missing: bool,
    goodbyes: VecDeque<NodeId>,
    bytes: u64,
    completed: bool,
    pruned: bool,
    closing: bool,
    lingers_until: Time,
    joined: bool,
    held: bool,
    kept: Kept,
    follows: Option<Box<Own>>,
    told: Told,
    doubts: Doubts,
    /// Agreed stack of a following receiver, or the reason for having none.
    spoken: Option<Stack>,
    mismatch: Option<SchemeMismatch>,
    losses: LossRecord,
    reports: Option<Box<Reports>>,
    /// Number of repairs sent to members, and the number of the head.
    repairs: u64,
    head_number: u64,
    /// Heads so far. After a loss: number of the head that may count this receiver as lost, else 0,
    /// and the time of its last packet.
    joins: u16,
    missed: Option<(u64, Time)>,
    /// Time of the last packet that was missing.
    came_at: Time,
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
            source,
            phase: Phase::Waiting,
            parent: Parent::new(&settings, head),
            head: Head::new(&settings, settings.head, 1),
            lingers_until: Time::MAX,
            joined: settings.head == HeadRole::Never,
            kept: Kept::Not,
            timers,
            settings,
            ..Self::default()
        }
    }

    fn level(&self) -> u8 {
        self.parent.bound.map_or(0, |bound| bound.level.saturating_add(1))
    }

    /// Resigns if the receiver has members but no head above, so that it may take any head.
    fn check_headless(&mut self) {
        if self.level() > 0 {
            self.level_before = self.level();
        } else if !self.parent.is_binding() && !self.head.members.children.is_empty() {
            self.head.resign(true);
        }
    }

    fn known(&self) -> Known {
        let level = self.level();
        let (low, id, name) = (self.head.cache.front, self.identity.known_id(), self.name);
        let Some(reached) = &self.reached else {
            return Known { level, fit: false, low, high: 0, done: false, id, name };
        };
        let high = reached.reception.end - 1;
        // A receiver that catches up lacks packets that it would promise.
        let behind = reached.reception.first_missing() + self.settings.cache_floor() as u64 <= high;
        // A receiver that changes heads takes no members: two could form a loop.
        let stays = level > 0 && !self.parent.is_binding();
        let fit = self.settings.head != HeadRole::Never && stays && !behind;
        Known { level, fit, low, high, done: self.last == Some(high), id, name }
    }

    fn silent_until(&self) -> Time {
        match self.last.is_some() || self.front.done {
            // The source leaves when its application says that all is over.
            true if self.kept != Kept::Not => {
                self.source_heard_at.max(self.came_at) + ENDED_SILENCE
            }
            // All has been sent, and no head is left that could repair it.
            _ if self.last.is_some() && self.phase == Phase::Member && self.level() == 0 => {
                let heard_at = self.source_heard_at.max(self.came_at).max(self.parent.lost_at);
                heard_at + HEADLESS_SILENCE
            }
            _ => self.source_heard_at + SILENCE_MAX,
        }
    }

    fn seeker(&self, now: Time) -> Seeker {
        let wants = match &self.reached {
            Some(reached) => reached.reception.first_missing(),
            None => 1,
        };
        let may_be_head = self.settings.head != HeadRole::Never;
        let below = (!self.head.members.children.is_empty()).then_some(self.level_before);
        let id = self.identity.known_id();
        let waits = self.level() == 0 && self.head.waits(now, id);
        Seeker { may_be_head, below, wants, place: (self.level(), id), waits }
    }

    fn take(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let packet = decode(datagram, self.identity.session)?;
        let from = datagram.from;
        if self.phase != Phase::Left && self.follows.is_some() {
            if let Body::Settings(bytes) = packet.body {
                return self.on_settings(cx, from, bytes);
            }
            if self.told.agreed.is_none() {
                // The source repeats its settings, and lost packets are repaired.
                return Ok(());
            }
        }
        if self.phase == Phase::Left {
            self.answer_after_end(cx, (from, packet.sender), &packet.body);
            return Ok(());
        }
        if let Body::Beacon(front) | Body::Data(Data { front, .. }) = &packet.body {
            if !front.repair && from != self.source {
                return Err(BadInput::Foreign);
            }
            if !self.can_have_sent(cx, &packet.body, front) {
                return Err(BadInput::OutOfWindow);
            }
            if !front.repair {
                self.contradict_end(cx.now, *front);
                if self.doubts.beyond.get().is_some_and(|high| front.sequence > *high) {
                    self.doubts.beyond.contradict();
                }
            }
        }
        match packet.body {
            Body::Beacon(front) => {
                self.on_front(cx.now, front);
                self.parent.on_heard(cx.now, from, None);
                self.hear_of(cx, front.sequence, front.done);
                self.forget(cx, front)?;
            }
            Body::Data(data) => {
                if !data.front.repair {
                    self.on_front(cx.now, data.front);
                }
                self.parent.on_heard(cx.now, from, None);
                self.on_data(cx, &data, datagram)?;
            }
            // Only the source has level 1.
            Body::Advertisement(Advertisement { level: 1, .. }) if from != self.source => {
                return Err(BadInput::Foreign);
            }
            Body::Advertisement(advertisement) => {
                self.head.advertising.on_other(packet.ttl, advertisement.state);
                let heard = (from, packet.sender, packet.ttl);
                self.head.on_advertisement(cx.now, heard, &advertisement);
                let seeker = self.seeker(cx.now);
                let alone = matches!(datagram.to, Destination::Node(_));
                self.parent.on_advertisement(cx.now, (heard, alone), &advertisement, seeker);
                self.parent.on_heard(cx.now, from, Some(advertisement.level));
            }
            Body::Solicitation(call) if from == self.source => {
                self.head.succeed(cx.now, None, call.name);
            }
            Body::Solicitation(call) => {
                let known = self.known();
                let alone = matches!(datagram.to, Destination::Node(_));
                self.head.on_solicitation(cx.now, (from, packet.ttl, alone), call, known);
            }
            Body::Bind(_) if from == self.source => return Err(BadInput::Foreign),
            Body::Bind(bind) => {
                let known = self.known();
                let known = Known { fit: known.fit && !self.parent.concerns(from), ..known };
                self.head.on_bind(cx.now, from, packet.sender, bind, known)?;
            }
            Body::Accept(accept) => self.on_accept(cx, (from, packet.sender), accept)?,
            Body::Reject(reason) => self.on_reject(cx, from, reason),
            Body::Hello(hello) => self.on_hello(cx, from, &hello),
            Body::Ack(ack) => self.on_ack(cx, (from, packet.sender), &ack)?,
            Body::Report(report) => {
                let is_member = self.head.members.is_member(from);
                let reports = self.reports.as_mut().filter(|_| is_member);
                let beyond = self.parent.bound.map_or(Duration::ZERO, |head| head.round_trip);
                reports.ok_or(BadInput::Foreign)?.take(cx, from, &report, beyond)?;
            }
            Body::Settings(_) => {}
            // Status packets are for the source, and its answers are for the application.
            Body::Member(_) | Body::Answer(_) => return Err(BadInput::Foreign),
        }
        Ok(())
    }

    fn on_ack(&mut self, cx: &mut Cx<'_>, from: (NodeId, u64), ack: &Ack<'_>) -> Checked {
        let Some(reached) = &self.reached else { return Err(BadInput::Foreign) };
        // A member may know of later packets than its head.
        let end = (reached.reception.end, self.settings.cache_floor() as u64);
        let has = |cache: &Cache, sequence| cache.get(sequence).is_some();
        let told = self.head.on_ack(cx.now, from, ack, end, has)?;
        let window = reached.reception.end / reached.window.ack_window;
        if told.congested
            && let Some(reached) = &mut self.reached
            && core::mem::replace(&mut reached.passed_on, window + 1) <= window
        {
            self.congested = true;
            self.ack_due = true;
        }
        if told.left && self.completed {
            // The goodbye informs the head above.
            self.ack_due = true;
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
        if matches!(self.phase, Phase::Waiting | Phase::Left) {
            return;
        }
        if self.timers.take_due(Timer::Silence, now) {
            let due = self.silent_until();
            if due > now {
                self.timers.arm(Timer::Silence, due);
            } else {
                // The session is over; heads and members detect the same silence.
                self.leave(now);
                self.goodbyes.clear();
                self.events.push_back(FlowEvent::Gone.into());
                return;
            }
        }
        if self.timers.take_due(Timer::Ack, now) {
            self.on_ack_timer(cx);
        }
        if self.timers.take_due(Timer::Gaps, now) {
            self.on_gaps_timer(cx);
        }
        if self.timers.take_due(Timer::Ask, now) {
            self.on_ask_timer(cx);
        }
        self.timers.take_due(Timer::Pace, now);
        if self.timers.take_due(Timer::End, now) {
            self.believe_end(cx);
            if self.phase == Phase::Left {
                return;
            }
        }
        if let Some(reports) = &mut self.reports {
            reports.on_timeout(cx);
        }
        let seeker = self.seeker(cx.now);
        let news = self.parent.on_timeout(now, seeker);
        self.on_news(cx, news);
        let end = self.reached.as_ref().map_or(0, |it| it.reception.end);
        if !self.head.on_timeout(now, end).is_empty() {
            self.after_progress(cx);
        }
        self.check_headless();
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.closing = true;
        self.check_end(cx);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        (!core::mem::replace(&mut self.joined, true)).then_some(Membership::Join(HEADS))
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.phase == Phase::Waiting {
            return None;
        }
        if let Some(transmit) = self.poll_ack(cx, buf).or_else(|| self.poll_report(cx, buf)) {
            return Some(transmit);
        }
        let known = self.known();
        if let Some(transmit) = self.head.poll(cx, &mut self.identity, known, false, buf) {
            return Some(transmit);
        }
        if self.phase == Phase::Left {
            return None;
        }
        self.poll_step(cx, buf)
            .or_else(|| self.poll_ack(cx, buf))
            .or_else(|| self.poll_repair(cx, buf))
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Left {
            return None;
        }
        let started = self.phase != Phase::Waiting;
        let has_head = self.parent.bound.is_some();
        let reports = self.reports.as_ref().and_then(|it| it.next_timeout(has_head));
        let others = [self.parent.next_timeout(), self.head.next_timeout(), reports];
        let others = others.into_iter().flatten().filter(|_| started);
        self.timers.next().into_iter().chain(others).min()
    }
}
