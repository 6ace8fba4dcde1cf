//! The source of a session: the root of the tree, which sends what all allow.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, CutReason, Cx, Duration, Event, NodeId, Time};

use super::head::{Head, Known, Repair, decode};
use super::identity::Identity;
use super::rate::{RateControl, Window};
use super::settings::{Formation, HeadRole, LateJoin, Pruning, TramSettings};
use super::wire::{Ack, Body, Front, Hello, is_word};
use super::{HEADS, TramSetup};
use crate::congestion::Permit;
use crate::content::Packets;
use crate::timers::{Reason, Timers};
use crate::{AppEvent, Datagram, Destination, Machine, Membership, Transmit};

/// After so long without a packet a beacon says that there is nothing more for now.
const FILLER_AFTER: Duration = Duration::from_secs(3);

/// How long the source stays when its last member has gone: one that was given up may come back.
const STAYS: Duration = Duration::from_secs(2);

/// Acknowledgement windows that must have been sent before anybody counts as too slow (src: jrms).
const PRUNE_AFTER_WINDOWS: u64 = 5;

/// How long the rate has been too low until somebody is pruned for it: a head that was lost is no reason.
const PRUNE_AFTER: Duration = Duration::from_secs(5);

/// Least time between two decisions to prune: what one has brought shows first.
const PRUNE_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before its start.
    Waiting,
    /// Receivers join.
    Gathering,
    Sending,
    /// All has been sent.
    Finishing,
    Done,
}

/// Why it wants to be called.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Start,
    Beacon,
    /// The next packet may leave.
    Pace,
    /// Data may begin.
    Gather,
    /// Its last member has gone, or all are silent.
    End,
}

impl Reason for Timer {
    const ALL: &'static [Self] = &[Self::Start, Self::Beacon, Self::Pace, Self::Gather, Self::End];

    fn number(self) -> usize {
        self as usize
    }
}

/// A source.
pub struct TramSource<P = Box<dyn Packets + Send>> {
    settings: TramSettings,
    identity: Identity,
    packets: P,
    to: Destination,
    start: Time,
    phase: Phase,
    /// Data waits for a word of the application.
    gated: bool,
    /// The application has not said yet that it may end.
    held: bool,
    status_interval: Duration,
    repairs: u64,
    head: Head,
    rate: RateControl,
    /// The packet that is sent next; the first is 1.
    next: u64,
    /// Application bytes sent.
    bytes: u64,
    acknowledged: u64,
    /// When a member said anything last, or all had been sent.
    acknowledged_at: Time,
    told_window: u64,
    last_sent: Time,
    beacon_due: bool,
    prune_due: bool,
    pruned_at: Option<Time>,
    /// When a receiver asked last to become a member.
    bound_at: Time,
    closing: bool,
    joined: bool,
    timers: Timers<Timer, 5>,
    events: VecDeque<AppEvent>,
}

impl<P: Packets> TramSource<P> {
    /// A source of `packets`.
    pub(super) fn new(setup: &TramSetup<'_>, packets: P) -> Self {
        let settings = TramSettings::from_options(setup.options);
        let mut timers = Timers::new();
        timers.arm(Timer::Start, setup.start);
        Self {
            identity: Identity::new(setup.session),
            packets,
            to: setup.to,
            start: setup.start,
            phase: Phase::Waiting,
            gated: false,
            held: false,
            status_interval: Duration::ZERO,
            repairs: 0,
            head: Head::new(&settings, HeadRole::Eager, 1),
            rate: RateControl::new(&settings),
            next: 1,
            bytes: 0,
            acknowledged: 0,
            acknowledged_at: Time::ZERO,
            told_window: 0,
            last_sent: setup.start,
            beacon_due: false,
            prune_due: false,
            pruned_at: None,
            bound_at: Time::ZERO,
            closing: false,
            joined: false,
            timers,
            events: VecDeque::new(),
            settings,
        }
    }

    /// Of packet `next`: how many more are allowed after it; negative where it is not.
    fn window(&self) -> Window {
        // Without members nobody allows anything.
        let allowed = self.head.members.allowed_by_any().unwrap_or(0);
        allowed.min(i64::MAX as u64) as i64 - self.next as i64
    }

    /// The first packet that it repairs.
    fn low(&self) -> u64 {
        if self.settings.late_join == LateJoin::Full { 1 } else { self.head.cache.front() }
    }

    fn known(&self) -> Known {
        let (low, high, id) = (self.low(), self.next - 1, self.identity.known_id());
        Known { level: 1, fit: true, low, high, done: self.all_sent(), id }
    }

    fn all_sent(&self) -> bool {
        self.closing || self.packets.end().is_some_and(|end| self.next > end)
    }

    fn front(&self, sequence: u64) -> Front {
        let advertise_interval = match self.settings.formation {
            Formation::Solicit => Duration::ZERO,
            Formation::Both if self.phase != Phase::Gathering => Duration::ZERO,
            _ => {
                let heads = self.head.members.below().1;
                Head::interval_for(self.settings.advertise_interval, heads)
            }
        };
        Front {
            sequence,
            forget_before: match u64::from(self.settings.obsolete_after) {
                0 => 0,
                packets => (sequence + 1).saturating_sub(packets),
            },
            rate: Bitrate::from_bits_per_s(self.rate.bits_per_s() as u64),
            ack_window: self.settings.ack_window as u16,
            advertise_interval,
            worst_loss: self.head.members.worst_loss(),
            status_interval: self.status_interval,
            repair: false,
            done: self.all_sent() && sequence + 1 >= self.next,
            prune: false,
        }
    }

    fn take(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Result<(), BadInput> {
        let packet = decode(datagram, self.identity.session())?;
        let from = datagram.from;
        match packet.body {
            Body::Solicitation(role) => {
                let known = self.known();
                let alone = matches!(datagram.to, Destination::Node(_));
                self.head.on_solicitation(cx.now, (from, packet.ttl, alone), role, known);
            }
            Body::Bind(bind) => {
                let known = self.known();
                self.head.on_bind(cx.now, from, packet.sender, bind, known)?;
                self.bound_at = cx.now;
                self.check_open(cx.now);
                self.check_begin(cx);
                if !self.is_deserted() {
                    self.check_end(cx.now);
                }
            }
            Body::Ack(ack) => self.on_ack(cx, from, &ack)?,
            // Heads advertise themselves to all.
            Body::Advertisement(_) | Body::Hello(Hello { .. }) => {}
            // There is one source, and it has no head. What receivers tell of themselves is for who asked for it.
            Body::Beacon(_)
            | Body::Data(..)
            | Body::Accept(_)
            | Body::Member(_)
            | Body::Answer(_) => {
                return Err(BadInput::Foreign);
            }
            Body::Reject(_) => {}
        }
        Ok(())
    }

    fn on_ack(&mut self, cx: &mut Cx<'_>, from: NodeId, ack: &Ack<'_>) -> Result<(), BadInput> {
        let (end, low) = (self.next, self.low());
        let can_repair = |_: &_, sequence| sequence >= low && sequence < end;
        let told = self.head.on_ack(cx.now, from, ack, (end, 0), can_repair)?;
        self.acknowledged_at = cx.now;
        let bytes = self.newly_acknowledged();
        self.rate.on_acknowledged(cx.now, bytes);
        cx.emit(Event::AckReceived { seq: ack.first_missing - 1, bytes, from });
        let has = self.head.members.first_missing().unwrap_or(1).min(self.next) - 1;
        let allowed = self.head.members.allowed_by_any().unwrap_or(0);
        let flight = u32::try_from(self.next - 1 - has).unwrap_or(u32::MAX);
        let window_milli = allowed.saturating_sub(has).saturating_mul(1000);
        if core::mem::replace(&mut self.told_window, window_milli) != window_milli {
            cx.emit(Event::Window { window_milli, flight });
        }
        if told.congested {
            self.rate.end_slow_start(cx.now);
            cx.emit(Event::Cut { reason: CutReason::Loss, window_milli: 0 });
        }
        self.consider_pruning(cx.now);
        self.make_room();
        self.check_open(cx.now);
        self.check_begin(cx);
        self.check_end(cx.now);
        Ok(())
    }

    /// The window may have opened.
    fn check_open(&mut self, now: Time) {
        if self.window() >= 0 {
            self.rate.on_opened(now);
        }
    }

    /// Bytes that all direct members have now, and had not before.
    fn newly_acknowledged(&mut self) -> u32 {
        let has = self.head.members.first_missing().unwrap_or(1).min(self.next) - 1;
        let before = self.acknowledged;
        self.acknowledged = has.max(before);
        (before..has).map(|index| self.packets.len(index)).fold(0, u32::saturating_add)
    }

    /// What all members have need not be kept.
    fn make_room(&mut self) {
        let done = self.head.members.first_missing().unwrap_or(self.next);
        self.head.cache.purge(done.min(self.next));
    }

    /// The group is slower than it may be: who is it that is too slow?
    fn consider_pruning(&mut self, now: Time) {
        let enough = PRUNE_AFTER_WINDOWS * u64::from(self.settings.ack_window);
        let lately = self.pruned_at.is_some_and(|at| now.since(at) < PRUNE_INTERVAL);
        let prunes = self.settings.pruning != Pruning::Off;
        let since = self.rate.below_min_since(now);
        // Whoever has come back finds a rate that is not its fault.
        let since = since.map(|since| since.max(self.bound_at));
        let settled = since.is_some_and(|since| now.since(since) >= PRUNE_AFTER);
        if prunes && !lately && settled && self.next >= enough {
            self.pruned_at = Some(now);
            self.prune_due = true;
            let worst = self.head.members.worst_loss();
            self.head.prune(&self.settings, worst, self.next - 1);
        }
    }

    fn check_begin(&mut self, cx: &mut Cx<'_>) {
        let early = self.gated || cx.now.since(self.start) < self.settings.gather;
        if self.phase != Phase::Gathering || early {
            return;
        }
        let (receivers, _) = self.head.members.all();
        let told = self.settings.wait_for == 0 || self.head.members.allowed_by_any().is_some();
        if told && receivers >= u64::from(self.settings.wait_for) {
            self.phase = Phase::Sending;
            self.last_sent = cx.now;
            self.check_end(cx.now);
        }
    }

    /// All has been sent: the end comes when the last member has gone.
    fn check_end(&mut self, now: Time) {
        if self.phase == Phase::Sending && self.all_sent() {
            self.phase = Phase::Finishing;
            self.acknowledged_at = now;
            self.beacon_due = true;
            self.timers.arm_by(Timer::Beacon, now + self.settings.beacon_interval);
        }
        if self.phase == Phase::Finishing && !self.held {
            // Who only asks for a place, again and again, is not waited for.
            let at = match self.is_deserted() {
                true => now + STAYS,
                false => self.acknowledged_at + self.settings.give_up,
            };
            self.timers.arm(Timer::End, at.max(now));
        }
    }

    fn is_deserted(&self) -> bool {
        self.head.members.is_empty() && self.head.members.allowed_by_any().is_none()
    }

    /// The next new packet, where one may leave.
    fn poll_data(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.phase != Phase::Sending || self.all_sent() {
            return None;
        }
        if self.next >= self.head.cache.room_until() {
            self.make_room();
            if self.next >= self.head.cache.room_until() {
                return None;
            }
        }
        let index = self.next - 1;
        let len = self.packets.ready(cx.now, index)?;
        let window = self.window();
        match self.rate.permit(cx.now, window, len, false) {
            Permit::Now => {}
            Permit::At(at) => {
                self.timers.arm(Timer::Pace, at);
                return None;
            }
            Permit::Blocked => return None,
        }
        let sequence = self.next;
        self.next += 1;
        self.head.cache.insert(sequence, &[], 0);
        let front = self.front(sequence);
        // Where the window has opened since it was decided, whoever was too slow has gone.
        let prune = core::mem::take(&mut self.prune_due) && window < 0;
        let front = Front { prune, ..front };
        let transmit = self.write(cx, front, self.to, u8::MAX, index, len, buf);
        self.bytes += u64::from(len);
        self.last_sent = cx.now;
        self.head.on_data_sent();
        cx.emit(Event::DataSent { seq: sequence, bytes: len, repair: false });
        if self.rate.on_sent(cx.now, window, len) {
            cx.emit(Event::Rate { bits_per_s: self.rate.bits_per_s() as u64 });
        }
        // While nobody has spoken the window is closed, but not by anybody; and what leaves while it stays closed
        // does not close it.
        if window >= 0 && self.window() < 0 && self.head.members.allowed_by_any().is_some() {
            self.rate.on_closed(cx.now);
        }
        self.check_end(cx.now);
        Some(transmit)
    }

    fn poll_late(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.head.on_data_sent();
        self.poll_repair(cx, buf)
    }

    fn poll_repair(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.head.has_repairs() {
            return None;
        }
        let window = self.window();
        // Packets are of about one length; this one's is not known before it is taken.
        let len = self.packets.len(self.head.cache.front().min(self.next - 1).max(1) - 1);
        if let Permit::At(at) = self.rate.permit(cx.now, window, len, true) {
            self.timers.arm(Timer::Pace, at);
            return None;
        }
        let Repair { sequence, to, ttl } = self.head.next_repair(cx.now)?;
        let len = self.packets.len(sequence - 1);
        let front = Front { repair: true, ..self.front(sequence) };
        let transmit = self.write(cx, front, to, ttl, sequence - 1, len, buf);
        self.repairs += 1;
        cx.emit(Event::DataSent { seq: sequence, bytes: len, repair: true });
        self.rate.on_repair_sent(cx.now, window, len);
        Some(transmit)
    }

    #[expect(clippy::too_many_arguments, reason = "all that a packet is made of")]
    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        front: Front,
        to: Destination,
        ttl: u8,
        index: u64,
        len: u32,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        self.identity.write_unsealed(cx, ttl, Body::Data(front, &[]), buf);
        let zeros = self.packets.read(cx.now, index, buf);
        super::wire::seal(buf);
        Transmit { zeros, payload_len: len, time_to_live: ttl, ..Transmit::control(to) }
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Done;
        self.timers.disarm_all();
        if self.is_deserted() {
            cx.emit(Event::Completed { bytes: self.bytes });
            self.events.push_back(AppEvent::Completed);
        } else {
            self.events.push_back(AppEvent::Gone);
        }
    }
}

/// What a source has done so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceCounts {
    /// New packets, and repairs.
    pub(crate) packets: u64,
    pub(crate) repairs: u64,
    /// The rate of an open window.
    pub(crate) bits_per_s: f64,
}

/// For applications that decide themselves when data begins, and when all is over.
impl<P: Packets> TramSource<P> {
    /// A source whose data waits for [`open_gate`](Self::open_gate), and whose end for [`release`](Self::release).
    pub(crate) fn gated(setup: &TramSetup<'_>, packets: P) -> Self {
        Self { gated: true, held: true, ..Self::new(setup, packets) }
    }

    /// Data may begin as soon as a receiver is there.
    pub(crate) fn open_gate(&mut self, cx: &mut Cx<'_>) {
        self.gated = false;
        self.check_begin(cx);
    }

    /// It may end when its last member has gone.
    pub(crate) fn release(&mut self, cx: &mut Cx<'_>) {
        self.held = false;
        self.check_end(cx.now);
    }

    pub(crate) fn packets(&self) -> &P {
        &self.packets
    }

    pub(crate) fn packets_mut(&mut self) -> &mut P {
        &mut self.packets
    }

    pub(crate) fn has_sent_all(&self) -> bool {
        self.packets.end().is_some_and(|end| self.next > end)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(crate) fn counts(&self) -> SourceCounts {
        let (packets, repairs) = (self.next - 1, self.repairs);
        SourceCounts { packets, repairs, bits_per_s: self.rate.bits_per_s() }
    }

    /// Receivers are to speak of themselves after so long without a word.
    pub(crate) fn set_status_interval(&mut self, interval: Duration) {
        self.status_interval = interval.min(Duration::from_millis(u64::from(u16::MAX)));
    }

    /// No more payload than this, where that is less than the options say.
    pub(crate) fn set_limit(&mut self, limit: Option<Bitrate>) {
        self.rate.set_limit(limit);
    }

    /// What a receiver says of itself, where that is what a packet of this session has.
    pub(crate) fn word_of<'a>(&self, datagram: &Datagram<'a>) -> Option<&'a [u8]> {
        if !is_word(datagram.bytes) {
            return None;
        }
        match decode(datagram, self.identity.session()).ok()?.body {
            Body::Member(word) => Some(word),
            _ => None,
        }
    }

    /// Writes an answer to it.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        to: Destination,
        answer: &[u8],
        buf: &mut Vec<u8>,
    ) -> Transmit {
        self.identity.control(cx, to, u8::MAX, Body::Answer(answer), buf)
    }
}

impl<P: Packets> Machine for TramSource<P> {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return;
        }
        if let Err(reason) = self.take(cx, &datagram) {
            cx.emit(Event::BadInput { reason });
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if self.timers.take_due(Timer::Start, now) {
            self.phase = Phase::Gathering;
            self.beacon_due = true;
            self.head.begin(now, self.settings.formation);
            self.timers.arm(Timer::Beacon, now + self.settings.beacon_interval);
            self.timers.arm(Timer::Gather, now + self.settings.gather);
        }
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return;
        }
        if self.timers.take_due(Timer::Gather, now) {
            self.check_begin(cx);
        }
        self.timers.take_due(Timer::Pace, now);
        if self.timers.take_due(Timer::Beacon, now) {
            self.beacon_due =
                self.phase != Phase::Sending || now.since(self.last_sent) >= FILLER_AFTER;
            self.timers.arm(Timer::Beacon, now + self.settings.beacon_interval);
            let front = self.front(0);
            self.head.set_advertise_interval(now, front.advertise_interval);
        }
        if !self.head.on_timeout(now, self.next).is_empty() {
            self.make_room();
            self.check_end(now);
        }
        if self.timers.take_due(Timer::End, now) {
            self.finish(cx);
        }
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.closing = true;
        match self.phase {
            Phase::Waiting | Phase::Gathering => self.finish(cx),
            _ => self.check_end(cx.now),
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        (!core::mem::replace(&mut self.joined, true)).then_some(Membership::Join(HEADS))
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return None;
        }
        if core::mem::take(&mut self.beacon_due) {
            let front = Front { done: self.all_sent(), ..self.front(self.next - 1) };
            return Some(self.identity.control(cx, self.to, u8::MAX, Body::Beacon(front), buf));
        }
        let known = self.known();
        // Data and beacons are signs of life enough.
        if let Some(transmit) = self.head.poll(cx, &mut self.identity, known, true, buf) {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_repair(cx, buf) {
            return Some(transmit);
        }
        if self.head.has_repairs() {
            return None;
        }
        // Where no new data may leave those who came late have all the turns.
        self.poll_data(cx, buf).or_else(|| self.poll_late(cx, buf))
    }

    fn poll_event(&mut self) -> Option<AppEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Done {
            return None;
        }
        let head = self.head.next_timeout().filter(|_| self.phase != Phase::Waiting);
        self.timers.next().into_iter().chain(head).min()
    }
}
