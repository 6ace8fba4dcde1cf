//! A receiver: it gets a head, acknowledges what comes, and is a head to others where it may be.

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

/// A tree has fewer levels than this.
const LEVEL_MAX: u8 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    /// It takes part, or tries to.
    Member,
    /// It has all, and members that have not.
    Serving,
    /// It has said goodbye, and says it again to whoever asks.
    Left,
}

reasons! {
    enum Timer {
        Start,
        /// An acknowledgement is due by time.
        Ack,
        Ask,
        /// Gaps that nothing has closed are losses.
        Gaps,
        /// The next repair may leave.
        Pace,
        /// The source has been silent for long.
        Silence,
        /// The end of the session was not contradicted.
        End,
    }
}

/// Longest silence of the source before a receiver takes the session to be over.
const SILENCE_MAX: Duration = Duration::from_secs(250);

/// After the end of a session so long a silence shows that nobody repairs what is still missing.
const ENDED_SILENCE: Duration = Duration::from_secs(10);

/// Longest silence of a stream after its end and the loss of the last head: the time to find another head after an attack.
const HEADLESS_SILENCE: Duration = super::RECOVERY;

/// Whether an application says when it needs nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    /// None does: it has all when it has all packets.
    #[default]
    Not,
    /// It has not said so yet.
    Until,
    Released,
}

/// What an end has of its own while it waits for the settings of the source.
struct Own {
    options: Options,
    /// What it insists on, where it does not follow the source.
    negotiation: TreeNegotiation,
    /// Who it is in the reports of schemes.
    node: NodeId,
    head: Option<GivenHead>,
}

/// What it has of the session since a head has taken it.
#[derive(Debug, Default)]
struct Reached {
    reception: Reception,
    /// How far the source can have come.
    reach: Reach,
    window: ReceiverWindow,
    acks: AckSchedule,
    /// The first packet that it takes, and the one that is delivered next.
    start: u64,
    deliver: u64,
    /// First packet sent after this receiver joined: earlier packets say nothing about its path.
    sent_since: u64,
    /// Its data begins with the session's.
    from_start: bool,
    lost_any: bool,
    /// H_a as reported last, H_a as reported before that, and the number of receivers below.
    told_allowed: u64,
    told_before: u64,
    told_below: (u64, u32),
    /// The acknowledgement window for which congestion below was passed on.
    passed_on: u64,
    /// Timers of acknowledgements since a packet was repaired, and up to where packets were asked for.
    fruitless: u32,
    asked_until: u64,
    /// How often it has asked since a repair came.
    asks: u32,
    /// Packets before this one may have been delivered in the source's name, and were none of its own.
    rewound_until: u64,
    /// The head that was left for a better one, which still repairs what is before this packet.
    before: Option<(NodeId, u64)>,
}

impl Reached {
    /// True if the last acknowledgement may have been lost while somebody waits for it: packets are missing, or H_a was
    /// raised and no packet beyond the former H_a has come.
    fn awaits_answer(&self) -> bool {
        let (end, before) = (self.reception.end, self.told_before);
        let is_closed = before > 0 && end <= before + 1 && end + self.window.ack_window > before;
        self.reception.lacks() || is_closed
    }
}

/// A receiver.
#[derive(Default)]
pub struct TramReceiver {
    settings: TramSettings,
    identity: Identity,
    source: NodeId,
    /// The number of its name; 0 without one.
    name: u64,
    phase: Phase,
    parent: Parent,
    head: Head,
    reached: Option<Reached>,
    /// What the source has said last.
    front: Front,
    front_at: Time,
    source_heard_at: Time,
    /// The last packet of all, where it is known.
    last: Option<u64>,
    pace: Pace,
    /// Its level while it had a head last.
    level_before: u8,
    ack_due: bool,
    congested: bool,
    hello_missing: bool,
    /// Goodbyes to heads that are no longer wanted.
    goodbyes: VecDeque<NodeId>,
    bytes: u64,
    completed: bool,
    pruned: bool,
    closing: bool,
    lingers_until: Time,
    joined: bool,
    /// The application takes nothing for now.
    held: bool,
    kept: Kept,
    /// Settings of the receiver, if it follows those of the source, and the source's messages about them.
    follows: Option<Box<Own>>,
    told: Told,
    doubts: Doubts,
    /// What it speaks with the source, where it waited for that; or why they speak nothing.
    spoken: Option<Stack>,
    mismatch: Option<SchemeMismatch>,
    losses: LossRecord,
    /// Where a scheme steers the source.
    reports: Option<Box<Reports>>,
    /// Packets that were sent to members, and the number of its head.
    repairs: u64,
    head_number: u64,
    /// How many heads have had it. Where it has lost the last one, which may be taken for its loss: the number of that, or 0
    /// where it knows better, and when it was heard last.
    joins: u16,
    missed: Option<(u64, Time)>,
    /// When a packet came last that was missing.
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

    /// The same under these settings.
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

    /// Its level: one more than its head's; 0 without one.
    fn level(&self) -> u8 {
        self.parent.bound.map_or(0, |bound| bound.level.saturating_add(1))
    }

    /// Whoever has members and finds no head above itself lets them go, so that it may look anywhere.
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
        // Whoever catches up has not yet what it would promise.
        let behind = reached.reception.first_missing() + self.settings.cache_floor() as u64 <= high;
        // Whoever moves takes nobody along: two that ask each other would be a loop.
        let stays = level > 0 && !self.parent.is_binding();
        let fit = self.settings.head != HeadRole::Never && stays && !behind;
        Known { level, fit, low, high, done: self.last == Some(high), id, name }
    }

    /// Until when it is to hear of the session again.
    fn silent_until(&self) -> Time {
        match self.last.is_some() || self.front.done {
            // The source of an application that says when all is over does not stay to see it.
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
                // It comes again.
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
            // Nobody but the source is of the first level.
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
            // The source has no head.
            Body::Bind(_) if from == self.source => return Err(BadInput::Foreign),
            Body::Bind(bind) => {
                // Nobody becomes its own head's head.
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
            // What it was told once holds.
            Body::Settings(_) => {}
            // The words of others are for the source, and its answers for who keeps the object.
            Body::Member(_) | Body::Answer(_) => return Err(BadInput::Foreign),
        }
        Ok(())
    }

    fn on_ack(&mut self, cx: &mut Cx<'_>, from: (NodeId, u64), ack: &Ack<'_>) -> Checked {
        let Some(reached) = &self.reached else { return Err(BadInput::Foreign) };
        // A member may have heard of more than its head has.
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
            // The head above hears of it with the goodbye.
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
                // There is no session any more. Whoever waits for this end finds out in the same way.
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
