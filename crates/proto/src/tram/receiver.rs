//! A receiver: it gets a head, acknowledges what comes, and is a head to others where it may be.

mod acks;
mod application;
mod membership;
mod output;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, CutReason, Cx, Duration, Event, NodeId, Time};

use super::HEADS;
use super::TramSetup;
use super::head::{Head, Known, decode};
use super::identity::Identity;
use super::parent::{Parent, Seeker};
use super::reception::{Arrived, JUMP_MAX, Reception};
use super::settings::{HeadRole, TramSettings};
use super::window::ReceiverWindow;
use super::wire::{Ack, Body, Front};
use crate::congestion::Pace;
use crate::content::Held;
use crate::timers::{Reason, Timers};
use crate::{AppEvent, Datagram, Destination, Machine, Membership, Transmit};
use acks::AckSchedule;

/// Most missing packets that one arrival is traced for; all are counted.
const TRACED_LOSSES_MAX: u64 = 1000;

/// Intervals of acknowledgements in which a head that is alive repairs nothing, until it is left.
const FRUITLESS_MAX: u32 = 10;

/// Up to how often the time from one asking to the next doubles.
const ASKS_MAX: u32 = 6;

/// A tree has fewer levels than this.
const LEVEL_MAX: u8 = 64;

/// How long whoever is done answers its head, whose hello may say that the goodbye was lost.
const LINGERS: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    /// It takes part, or tries to.
    Member,
    /// It has all, and members that have not.
    Serving,
    /// It has said goodbye, and says it again to whoever asks.
    Left,
}

/// Why it wants to be called.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Start,
    /// An acknowledgement is due by time.
    Ack,
    /// What is missing is asked for.
    Ask,
    /// The next repair may leave.
    Pace,
    /// The source has been silent for long.
    Silence,
}

impl Reason for Timer {
    const ALL: &'static [Self] = &[Self::Start, Self::Ack, Self::Ask, Self::Pace, Self::Silence];

    fn number(self) -> usize {
        self as usize
    }
}

/// What it has of the session since a head has taken it.
#[derive(Debug)]
struct Reached {
    reception: Reception,
    window: ReceiverWindow,
    acks: AckSchedule,
    /// The packet that is delivered next.
    deliver: u64,
    /// Its data begins with the session's.
    from_start: bool,
    lost_any: bool,
    /// H_a as it was told last, and how many receivers below.
    told_allowed: u64,
    told_below: (u64, u32),
    /// The acknowledgement window for which congestion below was passed on.
    passed_on: u64,
    /// Timers of acknowledgements since a packet was repaired, and up to where packets were asked for.
    fruitless: u32,
    asked_until: u64,
    /// How often it has asked since a repair came.
    asks: u32,
    /// The head that was left for a better one, which still repairs what is before this packet.
    before: Option<(NodeId, u64)>,
}

/// A receiver.
pub struct TramReceiver {
    settings: TramSettings,
    identity: Identity,
    source: NodeId,
    phase: Phase,
    parent: Parent,
    head: Head,
    reached: Option<Reached>,
    /// What the source has said last.
    front: Front,
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
    /// The application has not said yet that it needs nothing more.
    kept: bool,
    lost: u64,
    timers: Timers<Timer, 5>,
    events: VecDeque<AppEvent>,
}

impl TramReceiver {
    /// A receiver of a session.
    pub(super) fn new(setup: &TramSetup<'_>) -> Self {
        let settings = TramSettings::from_options(setup.options);
        let mut timers = Timers::new();
        timers.arm(Timer::Start, setup.start);
        Self {
            identity: Identity::new(setup.session),
            source: setup.source,
            phase: Phase::Waiting,
            parent: Parent::new(&settings, setup.head),
            head: Head::new(&settings, settings.head, 1),
            reached: None,
            front: Front::default(),
            source_heard_at: Time::ZERO,
            last: None,
            pace: Pace::new(1.0, Pace::BURST),
            level_before: 0,
            ack_due: false,
            congested: false,
            hello_missing: false,
            goodbyes: VecDeque::new(),
            bytes: 0,
            completed: false,
            pruned: false,
            closing: false,
            lingers_until: Time::MAX,
            joined: settings.head == HeadRole::Never,
            held: false,
            kept: false,
            lost: 0,
            timers,
            events: VecDeque::new(),
            settings,
        }
    }

    /// Its level: one more than its head's; 0 without one.
    fn level(&self) -> u8 {
        self.parent.bound().map_or(0, |bound| bound.level.saturating_add(1))
    }

    /// Whoever has members and finds no head above itself lets them go, so that it may look anywhere.
    fn check_headless(&mut self) {
        if self.level() > 0 {
            self.level_before = self.level();
        } else if !self.parent.is_binding() && !self.head.members.is_empty() {
            self.head.resign(true);
        }
    }

    fn known(&self) -> Known {
        let level = self.level();
        let low = self.head.cache.front();
        let Some(reached) = &self.reached else {
            return Known { level, fit: false, low, high: 0, done: false };
        };
        let high = reached.reception.end() - 1;
        // Whoever catches up has not yet what it would promise.
        let behind = reached.reception.first_missing() + self.settings.cache_floor() as u64 <= high;
        // Whoever moves takes nobody along: two that ask each other would be a loop.
        let stays = level > 0 && !self.parent.is_binding();
        let fit = self.settings.head != HeadRole::Never && stays && !behind;
        Known { level, fit, low, high, done: self.last == Some(high) }
    }

    fn seeker(&self) -> Seeker {
        let wants = match &self.reached {
            Some(reached) => reached.reception.first_missing(),
            None => 1,
        };
        let may_be_head = self.settings.head != HeadRole::Never;
        let below = (!self.head.members.is_empty()).then_some(self.level_before);
        Seeker { may_be_head, below, wants, place: (self.level(), self.identity.known_id()) }
    }

    fn take(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Result<(), BadInput> {
        let packet = decode(datagram, self.identity.session())?;
        let from = datagram.from;
        if self.phase == Phase::Left {
            self.answer_after_end(cx, from, &packet.body);
            return Ok(());
        }
        match packet.body {
            Body::Beacon(front) | Body::Data(front, _) if !front.repair && from != self.source => {
                return Err(BadInput::Foreign);
            }
            Body::Beacon(front) => {
                self.on_front(cx.now, front);
                self.parent.on_heard(cx.now, from, None);
                self.hear_of(cx, front.sequence, front.done);
            }
            Body::Data(front, payload) => {
                if !front.repair {
                    self.on_front(cx.now, front);
                }
                self.parent.on_heard(cx.now, from, None);
                let to_all = matches!(datagram.to, Destination::Group(_));
                self.on_data(cx, &front, (payload, datagram.zeros), to_all)?;
            }
            Body::Advertisement(advertisement) => {
                let seeker = self.seeker();
                let heard = (from, packet.sender, packet.ttl);
                self.parent.on_advertisement(cx.now, heard, &advertisement, seeker);
                self.parent.on_heard(cx.now, from, Some(advertisement.level));
            }
            Body::Solicitation(role) => {
                let known = self.known();
                self.head.on_solicitation(from, packet.ttl, role, known);
            }
            Body::Bind(bind) => {
                // Nobody becomes its own head's head.
                let known = self.known();
                let known = Known { fit: known.fit && !self.parent.concerns(from), ..known };
                self.head.on_bind(cx.now, from, packet.sender, bind, known);
            }
            Body::Accept(accept) => self.on_accept(cx, from, accept)?,
            Body::Reject(reason) => self.on_reject(cx, from, reason),
            Body::Hello(hello) => self.on_hello(cx, from, &hello),
            Body::Ack(ack) => self.on_ack(cx, from, &ack)?,
            // The words of others are for the source, and its answers for who keeps the object.
            Body::Member(_) | Body::Answer(_) => return Err(BadInput::Foreign),
        }
        Ok(())
    }

    /// What the source says of the session with each packet.
    fn on_front(&mut self, now: Time, front: Front) {
        // An old packet that was delayed says nothing new, and one from far ahead cannot be believed.
        if let Some(reached) = &self.reached
            && !(self.front.sequence..=reached.reception.end() + JUMP_MAX).contains(&front.sequence)
        {
            return;
        }
        if front.prune && !self.front.prune {
            self.head.prune(&self.settings, front.worst_loss, front.sequence);
        }
        self.front = front;
        self.source_heard_at = now;
        self.timers.arm_by(Timer::Silence, now + self.settings.silence_max);
        self.head.set_advertise_interval(now, front.advertise_interval);
        if !self.pruned {
            self.parent.on_session(now, front.advertise_interval);
        }
    }

    /// The source has sent everything up to `last`.
    fn hear_of(&mut self, cx: &mut Cx<'_>, last: u64, done: bool) {
        let Some(reached) = &mut self.reached else { return };
        let first = reached.reception.end();
        let missing = reached.reception.hear_of(last);
        reached.window.on_missing(missing);
        tell_of_losses(cx, first, missing);
        // What nobody sends any more can only be asked for.
        self.ack_due |= missing > 0;
        if done && reached.reception.end() == last + 1 {
            self.last = Some(last);
        }
        self.after_progress(cx);
    }

    fn on_data(
        &mut self,
        cx: &mut Cx<'_>,
        front: &Front,
        (payload, zeros): (&[u8], u32),
        to_all: bool,
    ) -> Result<(), BadInput> {
        let Some(reached) = &mut self.reached else { return Ok(()) };
        let sequence = front.sequence;
        if sequence >= self.head.cache.room_until() {
            // More than this end allowed. It is asked for when there is room.
            return Err(BadInput::OutOfWindow);
        }
        let forgets = front.forget_before > reached.reception.first_missing() && !front.repair;
        if forgets && front.forget_before <= reached.reception.end() + JUMP_MAX {
            let end = front.forget_before;
            self.give_up_before(cx, end);
        }
        let Some(reached) = &mut self.reached else { return Ok(()) };
        let first = reached.reception.end();
        let arrived = reached.reception.arrive(sequence);
        match arrived {
            // A repair to all is of no use to most of them.
            Arrived::Useless if front.repair => return Ok(()),
            Arrived::Useless => return Err(BadInput::Duplicate),
            Arrived::TooFar => return Err(BadInput::OutOfWindow),
            Arrived::New { missing } => {
                self.lost += missing;
                reached.window.on_missing(missing);
                tell_of_losses(cx, first, missing);
                if missing > 0 && self.settings.ask_interval > Duration::ZERO {
                    self.timers.arm_by(Timer::Ask, cx.now + self.settings.ask_interval);
                }
                if reached.acks.on_packet(cx.now, sequence) {
                    self.end_window(cx, sequence);
                }
            }
            Arrived::Repaired => {
                (reached.fruitless, reached.asks) = (0, 0);
                self.head.on_repaired(sequence, to_all);
                // The last gap is closed, or the last that was asked for: nothing holds the window up any more.
                self.ack_due |= reached.reception.is_complete()
                    || reached.reception.first_missing() >= reached.asked_until;
            }
        }
        self.head.cache.insert(sequence, Held { bytes: payload.to_vec(), zeros });
        if front.done && !front.repair {
            self.last = Some(sequence);
        }
        self.deliver(cx);
        self.after_progress(cx);
        Ok(())
    }

    /// An acknowledgement window has ended.
    fn end_window(&mut self, cx: &mut Cx<'_>, highest: u64) {
        let Some(reached) = &mut self.reached else { return };
        let missing = reached.reception.missing_packets();
        let known = reached.reception.end() - reached.reception.first_missing();
        let congested = reached.window.end(cx.now, missing, known);
        reached.acks.schedule(highest + reached.window.ack_window());
        let window_milli = (reached.window.size() * 1000.0) as u64;
        if congested {
            cx.emit(Event::Cut { reason: CutReason::Loss, window_milli });
        }
        self.congested |= congested;
        self.ack_due = true;
    }

    /// Hands over what is in order.
    fn deliver(&mut self, cx: &mut Cx<'_>) {
        let Some(reached) = self.reached.as_mut().filter(|_| !self.held) else { return };
        let keeps = self.settings.head != HeadRole::Never;
        let end = reached.reception.first_missing();
        while reached.deliver < end {
            let seq = reached.deliver;
            reached.deliver += 1;
            let Some(held) = self.head.cache.get(seq) else { continue };
            let bytes = held.bytes.len() as u32 + held.zeros;
            self.bytes += u64::from(bytes);
            cx.emit(Event::Delivered { seq, bytes });
            let (bytes, zeros) = (held.bytes.clone(), held.zeros);
            self.events.push_back(AppEvent::Delivered { bytes, zeros });
        }
        if !keeps {
            self.head.cache.forget(reached.deliver);
        }
    }

    /// What is before `end` will never come.
    fn give_up_before(&mut self, cx: &mut Cx<'_>, end: u64) {
        let Some(reached) = &mut self.reached else { return };
        let mut lost = 0;
        reached.reception.give_up(end, |run| {
            lost += run.end - run.start;
            for seq in run.take(TRACED_LOSSES_MAX as usize) {
                cx.emit(Event::Abandoned { seq });
            }
        });
        if lost > 0 {
            reached.lost_any = true;
            let packets = u32::try_from(lost).unwrap_or(u32::MAX);
            self.events.push_back(AppEvent::Lost { packets });
        }
        self.deliver(cx);
    }

    /// More is here, or members have more: the window may open, room may be made, and the end may have come.
    fn after_progress(&mut self, cx: &mut Cx<'_>) {
        let Some(reached) = &mut self.reached else { return };
        let first_missing = reached.reception.first_missing();
        reached.window.on_progress(first_missing);
        let done = self.head.members.first_missing().unwrap_or(u64::MAX).min(reached.deliver);
        self.head.cache.purge(done);
        let half = reached.window.ack_window() / 2;
        let told = reached.told_allowed;
        if self.allowed() > told + half {
            self.ack_due = true;
        }
        let Some(reached) = &mut self.reached else { return };
        if let Some((node, _)) = reached.before.take_if(|before| first_missing >= before.1) {
            self.goodbyes.push_back(node);
        }
        self.check_end(cx);
    }

    /// H_a of this end and all below it: what its own window and its room allow, and what its members do.
    fn allowed(&self) -> u64 {
        let Some(reached) = &self.reached else { return 0 };
        let own = reached.window.allowed().min(self.head.cache.room_until() - 1);
        // What it told once stands: the source may have sent it by now.
        self.head
            .members
            .allowed_by_any()
            .map_or(own, |below| below.min(own))
            .max(reached.told_allowed)
    }

    fn has_all(&self) -> bool {
        let Some(reached) = &self.reached else { return false };
        self.last.is_some_and(|last| reached.reception.first_missing() > last)
    }

    fn check_end(&mut self, cx: &mut Cx<'_>) {
        if self.has_all() && !self.completed {
            self.completed = true;
            self.ack_due = true;
            self.phase = Phase::Serving;
            let whole = self.reached.as_ref().is_some_and(|it| it.from_start && !it.lost_any);
            if whole {
                cx.emit(Event::Completed { bytes: self.bytes });
                self.events.push_back(AppEvent::Completed);
            }
        }
        if (self.completed && !self.kept || self.closing) && self.phase != Phase::Left {
            if self.closing {
                self.head.resign(true);
            }
            if self.head.members.is_empty() {
                self.leave(cx.now);
            }
        }
    }

    fn leave(&mut self, now: Time) {
        let before = self.reached.as_mut().and_then(|it| it.before.take()).map(|it| it.0);
        let bound = self.parent.bound().map(|bound| bound.node);
        self.goodbyes.extend(bound.into_iter().chain(before));
        self.parent.stop();
        self.phase = Phase::Left;
        self.lingers_until = now + LINGERS;
        self.timers.disarm_all();
    }

    /// Whoever has gone is asked by a head that has not heard it.
    fn answer_after_end(&mut self, cx: &mut Cx<'_>, from: NodeId, body: &Body<'_>) {
        match body {
            Body::Hello(hello)
                if hello.asks(self.identity.id(cx)) && cx.now < self.lingers_until =>
            {
                self.goodbyes.push_back(from);
            }
            Body::Bind(bind) => {
                let known = Known { level: 0, fit: false, low: 0, high: 0, done: false };
                self.head.on_bind(cx.now, from, 0, *bind, known);
            }
            // Whoever takes it for its head still is to look for another.
            Body::Ack(ack) if cx.now < self.lingers_until => {
                let has_none = |_: &super::cache::Cache, _| false;
                let _ = self.head.on_ack(cx.now, from, ack, (0, 0), has_none);
            }
            _ => {}
        }
    }

    fn on_ack(&mut self, cx: &mut Cx<'_>, from: NodeId, ack: &Ack<'_>) -> Result<(), BadInput> {
        let Some(reached) = &self.reached else { return Err(BadInput::Foreign) };
        // A member may have heard of more than its head has.
        let end = (reached.reception.end(), self.settings.cache_floor() as u64);
        let has = |cache: &super::cache::Cache, sequence| cache.get(sequence).is_some();
        let told = self.head.on_ack(cx.now, from, ack, end, has)?;
        let window = reached.reception.end() / reached.window.ack_window();
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

    fn arm_ack(&mut self, now: Time) {
        if let Some(reached) = &self.reached {
            self.timers.arm(Timer::Ack, now + reached.acks.interval());
        }
    }

    /// What is missing is asked for, and again when a repair should have come, less and less often while none does.
    fn on_ask_timer(&mut self, now: Time) {
        let round_trip = self.parent.bound().map_or(Duration::ZERO, |bound| bound.round_trip);
        let Some(reached) = self.reached.as_mut().filter(|it| !it.reception.is_complete()) else {
            return;
        };
        self.ack_due = true;
        let interval = (round_trip * 3 / 2 + self.settings.ask_interval) * (1 << reached.asks);
        reached.asks = (reached.asks + 1).min(ASKS_MAX);
        self.timers.arm(Timer::Ask, now + interval.min(reached.acks.interval()));
    }

    /// Time alone wants an acknowledgement where something is missing, or where the source may wait for one.
    fn on_ack_timer(&mut self, cx: &mut Cx<'_>) {
        self.arm_ack(cx.now);
        let Some(reached) = &mut self.reached else { return };
        let closed = reached.reception.end() + reached.window.ack_window() > reached.told_allowed;
        let lacks = !reached.reception.is_complete();
        let changed = reached.told_below != self.head.members.all();
        self.ack_due |= lacks || closed || changed || self.completed;
        if !lacks {
            reached.fruitless = 0;
            return;
        }
        reached.fruitless += 1;
        if reached.fruitless > FRUITLESS_MAX {
            reached.fruitless = 0;
            let seeker = self.seeker();
            let news = self.parent.on_bad_head(cx.now, seeker, true);
            self.on_news(cx, news);
        }
    }
}

fn tell_of_losses(cx: &mut Cx<'_>, first: u64, missing: u64) {
    for seq in first..first + missing.min(TRACED_LOSSES_MAX) {
        cx.emit(Event::LossDetected { seq });
    }
}

impl Machine for TramReceiver {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if self.phase == Phase::Waiting {
            return;
        }
        self.identity.id(cx);
        if let Err(reason) = self.take(cx, &datagram) {
            cx.emit(Event::BadInput { reason });
        }
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
            let due = self.source_heard_at + self.settings.silence_max;
            if due > now {
                self.timers.arm(Timer::Silence, due);
            } else {
                // There is no session any more. Whoever waits for this end finds out in the same way.
                self.leave(now);
                self.goodbyes.clear();
                self.events.push_back(AppEvent::Gone);
                return;
            }
        }
        if self.timers.take_due(Timer::Ack, now) {
            self.on_ack_timer(cx);
        }
        if self.timers.take_due(Timer::Ask, now) {
            self.on_ask_timer(now);
        }
        self.timers.take_due(Timer::Pace, now);
        let seeker = self.seeker();
        let news = self.parent.on_timeout(now, seeker);
        self.on_news(cx, news);
        if !self.head.on_timeout(now).is_empty() {
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
        if let Some(transmit) = self.poll_ack(cx, buf) {
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

    fn poll_event(&mut self) -> Option<AppEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Left {
            return None;
        }
        let started = self.phase != Phase::Waiting;
        let others = [self.parent.next_timeout(), self.head.next_timeout()];
        let others = others.into_iter().flatten().filter(|_| started);
        self.timers.next().into_iter().chain(others).min()
    }
}
