//! Source of a session: the root of the tree, which sends the packets that all members allow.

mod application;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, Event, NodeId, Shortfall, Time};

use super::controller::{Controller, Leaving, Progress, Steered, Window};
use super::head::{Head, Known, Repair, decode};
use super::identity::Identity;
use super::rate::RateControl;
use super::settings::{Formation, HeadRole, LateJoin, Pruning, TramSettings};
use super::wire::{Ack, Body, Data, Front, Hello, Solicitation, Words};
use super::{HEADS, TramSetup};
use crate::congestion::{Bounds, Permit};
use crate::content::Packets;
use crate::timers::{Timers, reasons};
use crate::{
    Datagram, Destination, FlowEvent, Machine, Membership, ShortReceiver, StreamEvent, Transmit,
};

/// Silence after which a beacon says that there is no more data for now: 3 s.
const FILLER_AFTER: Duration = Duration::from_secs(3);

/// Longest stay after the last member has gone: a member that was given up may come back.
const STAYS: Duration = Duration::from_secs(2);

/// Duration and interval of the last beacons if the application knows who has everything.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_INTERVAL: Duration = Duration::from_millis(200);

/// Delay from the last packet for now to a beacon, in case the packet was lost.
const PAUSE_AFTER: Duration = Duration::from_millis(50);

/// Acknowledgement windows that must be sent before any member counts as too slow (src: jrms).
const PRUNE_AFTER_WINDOWS: u64 = 5;

/// Time below the minimum rate before a member is pruned: the loss of a head is no reason.
const PRUNE_AFTER: Duration = Duration::from_secs(5);

/// Duration and interval of requests to heads to prune: a single packet could be anybody's.
const PRUNE_SAID_FOR: Duration = Duration::from_millis(1800);
const PRUNE_SAID_EVERY: Duration = Duration::from_millis(400);

/// Shortest time between two decisions to prune: the effect of one shows first.
const PRUNE_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    Gathering,
    Sending,
    Finishing,
    Done,
}

reasons! {
    enum Timer {
        Start,
        Beacon,
        Pace,
        Gather,
        /// The last member has gone, or all are silent.
        End,
    }
}

/// Source of a session.
pub struct TramSource<P = Box<dyn Packets + Send>> {
    settings: TramSettings,
    identity: Identity,
    pub(crate) packets: P,
    to: Destination,
    start: Time,
    phase: Phase,
    kept: bool,
    status_interval: Duration,
    repairs: u64,
    head: Head,
    controller: Box<dyn Controller + Send>,
    announce: Vec<u8>,
    data_turn: bool,
    next: u64,
    bytes: u64,
    acknowledged: u64,
    /// Time of the last acknowledgement, or of the last new packet if later.
    acknowledged_at: Time,
    told_last: u64,
    last_sent: Time,
    beacon_due: bool,
    /// Announcement of settings, sent repeatedly; `None` if receivers know them. True if it is due.
    announced: Option<Vec<u8>>,
    announced_due: bool,
    anew: Vec<u64>,
    prunes_until: Time,
    pruned_at: Option<Time>,
    bound_at: Time,
    closing: bool,
    joined: bool,
    timers: Timers<Timer, 5>,
    events: VecDeque<StreamEvent>,
}

impl<P: Packets> TramSource<P> {
    pub(super) fn new(setup: &TramSetup<'_>, packets: P) -> Self {
        let settings = setup.settings();
        let controller: Box<dyn Controller + Send> = match setup.steering {
            Some(steering) => {
                let least = Bounds::from_options(setup.options).min;
                Box::new(Steered::new(steering.control(setup.options), &settings, least))
            }
            None => Box::new(RateControl::new(&settings)),
        };
        let mut timers = Timers::default();
        timers.arm(Timer::Start, setup.start);
        let mut head = Head::new(&settings, HeadRole::Eager, 1);
        head.be_source(&settings);
        fresh! {
            Self {
                identity: Identity::new(setup.session),
                packets,
                to: setup.to,
                start: setup.start,
                head,
                controller,
                next: 1,
                last_sent: setup.start,
                timers,
                settings,
            }
            phase, kept, status_interval, repairs, announce, data_turn, bytes, acknowledged,
            acknowledged_at, told_last, beacon_due, announced, announced_due, anew, prunes_until,
            pruned_at, bound_at, closing, joined, events
        }
    }

    fn window(&self) -> Window {
        // Without members no packet is allowed.
        let allowed = self.head.members.allowed_by_any().unwrap_or(0);
        allowed.min(i64::MAX as u64) as i64 - self.next as i64
    }

    fn low(&self) -> u64 {
        if self.settings.late_join == LateJoin::Full { 1 } else { self.head.cache.front }
    }

    fn known(&self) -> Known {
        let (low, high, id) = (self.low(), self.next - 1, self.identity.known_id());
        Known { level: 1, fit: !self.is_parting(), low, high, done: self.all_sent(), id, name: 0 }
    }

    fn all_sent(&self) -> bool {
        self.closing || self.packets.end().is_some_and(|end| self.next > end)
    }

    fn front(&self, sequence: u64) -> Front {
        let advertise_interval = match self.settings.formation {
            Formation::Solicit => Duration::ZERO,
            // Heads adapt this interval themselves.
            Formation::Advertise => self.settings.advertise_interval,
            Formation::Both if self.phase != Phase::Gathering => Duration::ZERO,
            Formation::Both => {
                let heads = self.head.members.below().1;
                Head::interval_for(self.settings.advertise_interval, heads)
            }
        };
        Front {
            sequence,
            forget_before: self.settings.forget_before(sequence),
            rate: Bitrate::from_bits_per_s(self.controller.bits_per_s() as u64),
            ack_window: self.settings.ack_window as u16,
            advertise_interval,
            worst_loss: self.head.members.worst_loss(),
            status_interval: self.status_interval,
            repair: false,
            done: self.all_sent() && sequence + 1 >= self.next,
            prune: false,
        }
    }

    fn take(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let packet = decode(datagram, self.identity.session)?;
        let from = datagram.from;
        match packet.body {
            Body::Solicitation(call) => {
                let known = self.known();
                let alone = matches!(datagram.to, Destination::Node(_));
                self.head.on_solicitation(cx.now, (from, packet.ttl, alone), call, known);
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
            Body::Ack(ack) => self.on_ack(cx, (from, packet.sender), &ack)?,
            Body::Advertisement(_) | Body::Hello(Hello { .. }) => {}
            // The source is the only one, and has no head. Status packets go through `word_of`.
            Body::Beacon(_)
            | Body::Data(..)
            | Body::Accept(_)
            | Body::Member(_)
            | Body::Answer(_)
            | Body::Settings(_) => {
                return Err(BadInput::Foreign);
            }
            Body::Reject(_) => {}
            Body::Report(report) => {
                self.controller.take_report(cx, from, self.next, &report)?;
            }
        }
        Ok(())
    }

    fn on_ack(&mut self, cx: &mut Cx<'_>, (from, id): (NodeId, u64), ack: &Ack<'_>) -> Checked {
        let (end, low) = (self.next, self.low());
        let can_repair = |_: &_, sequence| sequence >= low && sequence < end;
        let told = self.head.on_ack(cx.now, (from, id), ack, (end, 0), can_repair)?;
        self.acknowledged_at = cx.now;
        let bytes = self.newly_acknowledged();
        let seq = ack.first_missing.min(end) - 1;
        cx.emit(Event::AckReceived { seq, bytes, from });
        let has = self.head.members.first_missing().unwrap_or(1).min(self.next) - 1;
        let allowed = self.head.members.allowed_by_any().unwrap_or(0);
        let progress = Progress {
            bytes,
            congested: told.congested,
            highest: ack.highest,
            allowed: allowed.saturating_sub(has),
            flight: u32::try_from(self.next - 1 - has).unwrap_or(u32::MAX),
            repeated: self.head.repairs.take_repeated(),
        };
        self.controller.on_progress(cx, progress);
        self.consider_pruning(cx.now);
        self.make_room();
        self.check_open(cx.now);
        self.check_begin(cx);
        self.check_end(cx.now);
        Ok(())
    }

    fn check_open(&mut self, now: Time) {
        if self.window() >= 0 {
            self.controller.on_open(now);
        }
    }

    fn newly_acknowledged(&mut self) -> u32 {
        let has = self.head.members.first_missing().unwrap_or(1).min(self.next) - 1;
        let before = self.acknowledged;
        self.acknowledged = has.max(before);
        (before..has).map(|index| self.packets.len(index)).fold(0, u32::saturating_add)
    }

    fn make_room(&mut self) {
        let done = self.head.members.first_missing().unwrap_or(self.next);
        self.head.cache.purge(done.min(self.next));
    }

    fn consider_pruning(&mut self, now: Time) {
        let enough = PRUNE_AFTER_WINDOWS * u64::from(self.settings.ack_window);
        let lately = self.pruned_at.is_some_and(|at| now.since(at) < PRUNE_INTERVAL);
        // A low rate is the members' fault only if they keep the window small.
        let is_small = self.window() < Window::from(self.settings.ack_window);
        let is_sending = self.phase == Phase::Sending && self.told_last != self.next;
        let prunes = self.settings.pruning != Pruning::Off && is_sending && is_small;
        let since = self.controller.below_min_since(now);
        // A member that has just come back is not the cause of the low rate.
        let since = since.map(|since| since.max(self.bound_at));
        let settled = since.is_some_and(|since| now.since(since) >= PRUNE_AFTER);
        if prunes && !lately && settled && self.next >= enough {
            self.pruned_at = Some(now);
            self.prunes_until = now + PRUNE_SAID_FOR;
            self.timers.arm_by(Timer::Beacon, now + PRUNE_SAID_EVERY);
            let worst = self.head.members.worst_loss();
            self.head.prune(&self.settings, worst, self.next - 1);
        }
    }

    fn check_begin(&mut self, cx: &mut Cx<'_>) {
        let early = cx.now.since(self.start) < self.settings.gather;
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

    fn check_end(&mut self, now: Time) {
        if self.phase == Phase::Sending && self.all_sent() {
            self.phase = Phase::Finishing;
            self.acknowledged_at = now;
            self.beacon_due = true;
            self.timers.arm_by(Timer::Beacon, now + self.beacon_interval());
        }
        if self.phase == Phase::Finishing && self.kept {
            // The application knows which receivers have everything, so nobody is waited for.
            let farewell = if self.is_deserted() { FAREWELL_INTERVAL } else { FAREWELL };
            self.timers.arm_by(Timer::End, now + farewell);
        } else if self.phase == Phase::Finishing {
            // A receiver that only requests a place, again and again, is not waited for.
            let at = match self.is_deserted() {
                true => now + STAYS,
                false => self.acknowledged_at + self.settings.give_up,
            };
            self.timers.arm(Timer::End, at.max(now));
        }
    }

    fn is_deserted(&self) -> bool {
        self.head.members.children.is_empty() && self.head.members.allowed_by_any().is_none()
    }

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
        let Some(len) = self.packets.ready(cx.now, index) else {
            self.controller.on_idle(cx);
            self.on_pause(cx.now);
            return None;
        };
        // Removed members or expired orphans may have opened the window.
        self.check_open(cx.now);
        let window = self.window();
        self.ask(cx, window, len, false)?;
        let sequence = self.next;
        self.next += 1;
        self.head.cache.insert(sequence, &[], 0);
        let prune = self.prunes(cx.now, window);
        let front = Front { prune, ..self.front(sequence) };
        let leaving = Leaving { sequence, len, repair: false, window };
        let transmit = self.write(cx, front, (self.to, u8::MAX), leaving, buf);
        self.bytes += u64::from(len);
        self.last_sent = cx.now;
        self.head.repairs.on_data_sent();
        // A lack of acknowledgements does not close the window, nor does a packet at a closed one.
        if window >= 0 && self.window() < 0 && self.head.members.allowed_by_any().is_some() {
            self.controller.on_closed(cx.now);
        }
        self.check_end(cx.now);
        Some(transmit)
    }

    fn ask(&mut self, cx: &mut Cx<'_>, window: Window, len: u32, repair: bool) -> Option<()> {
        let permit = self.controller.permit(cx, window, len, repair);
        if let Permit::At(at) = permit {
            self.timers.arm(Timer::Pace, at);
        }
        (permit == Permit::Now).then_some(())
    }

    /// True if heads are to remove slow members; once the window opens, they have gone.
    fn prunes(&self, now: Time, window: Window) -> bool {
        now < self.prunes_until && window < 0
    }

    /// Arms a beacon at the start of a pause: nothing else would show the loss of the last packet.
    fn on_pause(&mut self, now: Time) {
        if core::mem::replace(&mut self.told_last, self.next) != self.next {
            self.timers.arm_by(Timer::Beacon, now + PAUSE_AFTER);
        }
    }

    fn is_parting(&self) -> bool {
        self.kept && self.closing
    }

    fn beacon_interval(&self) -> Duration {
        if self.is_parting() { FAREWELL_INTERVAL } else { self.settings.beacon_interval }
    }

    fn poll_repair(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.head.repairs.is_waiting() {
            return None;
        }
        let window = self.window();
        // Packets have about equal lengths; the exact one is known only after the repair is taken.
        let len = self.packets.len(self.head.cache.front.min(self.next - 1).max(1) - 1);
        self.ask(cx, window, len, true)?;
        let Repair { sequence, to, ttl } = self.head.next_repair(cx.now)?;
        let len = self.packets.len(sequence - 1);
        let front = Front { repair: true, ..self.front(sequence) };
        let leaving = Leaving { sequence, len, repair: true, window };
        let transmit = self.write(cx, front, (to, ttl), leaving, buf);
        self.repairs += 1;
        Some(transmit)
    }

    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        front: Front,
        (to, ttl): (Destination, u8),
        leaving: Leaving,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        let Leaving { sequence, len, repair, .. } = leaving;
        self.data_turn = repair && self.controller.takes_turns();
        cx.emit(Event::DataSent { seq: sequence, bytes: len, repair });
        self.announce.clear();
        let option = self.controller.on_sent(cx, leaving, &mut self.announce);
        let announce = option.map(|option| Words { option, value: &self.announce });
        let data = Data { front, announce, payload: &[] };
        self.identity.write_unsealed(cx, ttl, Body::Data(data), buf);
        let zeros = self.packets.read(cx.now, sequence - 1, buf);
        super::wire::seal(buf);
        Transmit { zeros, payload_len: len, time_to_live: ttl, ..Transmit::control(to) }
    }

    fn name_those_who_lack(&mut self, cx: &mut Cx<'_>) {
        let (named, unnamed) = self.head.members.shortfall();
        for ShortReceiver { node, reason, .. } in &named {
            cx.emit(Event::Incomplete { node: *node, receivers: 1, reason: *reason });
        }
        if unnamed > 0 {
            let receivers = u32::try_from(unnamed).unwrap_or(u32::MAX);
            cx.emit(Event::Incomplete { node: None, receivers, reason: Shortfall::Unnamed });
        }
        if unnamed > 0 || !named.is_empty() {
            self.events.push_back(StreamEvent::Incomplete { named, unnamed });
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Done;
        self.timers.disarm_all();
        if self.kept {
            return;
        }
        self.name_those_who_lack(cx);
        if self.is_deserted() {
            cx.emit(Event::Completed { bytes: self.bytes });
            self.events.push_back(FlowEvent::Completed.into());
        } else {
            self.events.push_back(FlowEvent::Gone.into());
        }
    }
}

impl<P: Packets> Machine for TramSource<P> {
    type Event = StreamEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return;
        }
        let outcome = self.take(cx, &datagram);
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if self.timers.take_due(Timer::Start, now) {
            self.phase = Phase::Gathering;
            (self.beacon_due, self.announced_due) = (true, true);
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
        self.controller.on_timeout(cx);
        if self.timers.take_due(Timer::Beacon, now) {
            self.beacon_due = self.phase != Phase::Sending
                || self.told_last == self.next
                || now.since(self.last_sent) >= FILLER_AFTER;
            let prunes = self.prunes(now, self.window());
            self.beacon_due |= prunes;
            self.announced_due = true;
            let interval = self.beacon_interval();
            let interval = if prunes { interval.min(PRUNE_SAID_EVERY) } else { interval };
            self.timers.arm(Timer::Beacon, now + interval);
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
            Phase::Gathering if self.kept => {
                // Receivers that look for a head learn that no data will come.
                self.phase = Phase::Sending;
                self.check_end(cx.now);
            }
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
        // A receiver that does not know the settings cannot use a beacon.
        if core::mem::take(&mut self.announced_due)
            && let Some(announced) = &self.announced
        {
            let body = Body::Settings(announced);
            return Some(self.identity.control(cx, self.to, u8::MAX, body, buf));
        }
        if core::mem::take(&mut self.beacon_due) {
            let prune = self.prunes(cx.now, self.window());
            let front = Front { done: self.all_sent(), prune, ..self.front(self.next - 1) };
            return Some(self.identity.control(cx, self.to, u8::MAX, Body::Beacon(front), buf));
        }
        if let Some(name) = self.anew.pop() {
            let body = Body::Solicitation(Solicitation { role: HeadRole::Never, name });
            let to = Destination::Group(HEADS);
            return Some(self.identity.control(cx, to, u8::MAX, body, buf));
        }
        let known = self.known();
        // Data and beacons are signs of life enough.
        if let Some(transmit) = self.head.poll(cx, &mut self.identity, known, true, buf) {
            return Some(transmit);
        }
        if self.data_turn
            && let Some(transmit) = self.poll_data(cx, buf)
        {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_repair(cx, buf) {
            return Some(transmit);
        }
        if self.head.repairs.is_waiting() {
            return None;
        }
        if let Some(transmit) = self.poll_data(cx, buf) {
            return Some(transmit);
        }
        // Late repairs take all turns while the window is closed or no data waits.
        let waits = self.phase == Phase::Sending && self.timers.is_armed(Timer::Pace);
        if waits && self.window() >= 0 {
            return None;
        }
        self.head.repairs.on_data_sent();
        self.poll_repair(cx, buf)
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Done {
            return None;
        }
        let others = [self.head.next_timeout(), self.controller.next_timeout()];
        let others = others.into_iter().flatten().filter(|_| self.phase != Phase::Waiting);
        self.timers.next().into_iter().chain(others).min()
    }
}
