//! Source of a session: the root of the tree. Composes membership, the repair of losses and rate
//! control: it sends the packets that all members allow.

mod application;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, Event, NodeId, Shortfall, Time};

use super::identity::Identity;
use super::membership::{Head, HeadStatus};
use super::rate::{self, Controller, RateControl, SentPacket, Steered, Window};
use super::settings::{Formation, HeadRole, LateJoin, Pruning, TramSettings};
use super::window::{Repair, Repairer};
use super::wire::{Ack, Announcement, Body, Data, Packet, Solicitation, SourceState};
use super::{HEADS, TramSetup};
use crate::congestion::{Bounds, Permit};
use crate::content::Packets;
use crate::timers::{Timers, reasons};
use crate::{
    Datagram, Destination, FlowEvent, Machine, Membership, ShortReceiver, StreamEvent, Transmit,
};

/// Longest stay after the last member has gone: a member that was given up may come back.
const STAYS: Duration = Duration::from_secs(2);

/// Duration and interval of the last beacons if the application knows who has everything.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_INTERVAL: Duration = Duration::from_millis(200);

/// Delay from the last packet for now to a beacon, in case the packet was lost.
const PAUSE_AFTER: Duration = Duration::from_millis(50);

/// Silence after which a beacon says that there is no more data for now: 3 s.
const FILLER_AFTER: Duration = Duration::from_secs(3);

/// Neighbouring heads that all advertise within one second, and the longest interval (src: jrms).
const HEADS_PER_SECOND: u64 = 30;
const ADVERTISE_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Acknowledgement windows that must be sent before any member counts as too slow (src: jrms).
const PRUNE_AFTER_WINDOWS: u64 = 5;

/// Time below the minimum rate before a member is pruned: the loss of a head is no reason.
const PRUNE_AFTER: Duration = Duration::from_secs(5);

/// Shortest time between two decisions to prune: the effect of one shows first.
const PRUNE_INTERVAL: Duration = Duration::from_secs(2);

/// Duration and interval of requests to heads to prune: a single packet could be anybody's.
const PRUNE_REQUESTED_FOR: Duration = Duration::from_millis(1800);
const PRUNE_REQUEST_INTERVAL: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    Gathering,
    Sending,
    /// All data was sent, and members may still lack some.
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

#[derive(Debug, Default)]
struct Progress {
    next: u64,
    bytes: u64,
    sent_at: Time,
    acknowledged: u64,
    /// Time of the last acknowledgement, or of the last new packet if later.
    acknowledged_at: Time,
}

/// Packets without data: beacons, settings, and names of restarted receivers.
#[derive(Debug, Default)]
struct Beacons {
    due: bool,
    /// Announcement of settings, sent repeatedly; `None` if receivers know them.
    settings: Option<Vec<u8>>,
    settings_due: bool,
    /// Longest time between two status packets of a receiver; zero for none.
    status_interval: Duration,
    paused_at: u64,
    restarted: Vec<u64>,
}

#[derive(Debug, Default)]
struct PruneDecisions {
    requested_until: Time,
    decided_at: Option<Time>,
    /// Time of the latest bind request: a member that has just come back did not lower the rate.
    bound_at: Time,
}

impl PruneDecisions {
    /// Returns true if a member is to be pruned, with a rate below the minimum since `below_since`.
    fn decide(&mut self, now: Time, below_since: Option<Time>) -> bool {
        let lately = self.decided_at.is_some_and(|at| now.since(at) < PRUNE_INTERVAL);
        let since = below_since.map(|since| since.max(self.bound_at));
        let decides = !lately && since.is_some_and(|since| now.since(since) >= PRUNE_AFTER);
        if decides {
            self.decided_at = Some(now);
            self.requested_until = now + PRUNE_REQUESTED_FOR;
        }
        decides
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
    /// True if the application decides when the source may leave.
    is_retained: bool,
    is_closing: bool,
    progress: Progress,
    head: Head,
    joined_heads: bool,
    repairer: Repairer,
    controller: Box<dyn Controller + Send>,
    announcement: Vec<u8>,
    /// True if new data goes before repairs, with which it alternates.
    data_has_turn: bool,
    beacons: Beacons,
    prune_decisions: PruneDecisions,
    timers: Timers<Timer, 5>,
    events: VecDeque<StreamEvent>,
}

impl<P: Packets> TramSource<P> {
    pub(super) fn new(setup: &TramSetup<'_>, packets: P) -> Self {
        let settings = setup.settings();
        let controller: Box<dyn Controller + Send> = match setup.steering {
            Some(steering) => {
                let bounds = Bounds::from_options(setup.options);
                Box::new(Steered::new(steering.control(setup.options), &settings, bounds))
            }
            None => Box::new(RateControl::new(&settings)),
        };
        let mut timers = Timers::default();
        timers.arm(Timer::Start, setup.start);
        let mut head = Head::new(&settings, HeadRole::Eager);
        head.be_source(&settings);
        let mut repairer = Repairer::new(&settings, 1);
        repairer.alternates = true;
        fresh! {
            Self {
                identity: Identity::new(setup.session),
                packets,
                to: setup.to,
                start: setup.start,
                progress: Progress { next: 1, sent_at: setup.start, ..Progress::default() },
                head,
                repairer,
                controller,
                timers,
                settings,
            }
            phase, is_retained, is_closing, joined_heads, announcement, data_has_turn, beacons,
            prune_decisions, events
        }
    }

    fn window(&self) -> Window {
        // Without members no packet is allowed.
        let allowed = self.head.members.allowed_by_any().unwrap_or(0);
        allowed.min(i64::MAX as u64) as i64 - self.progress.next as i64
    }

    fn low(&self) -> u64 {
        if self.settings.late_join == LateJoin::Full { 1 } else { self.repairer.cache.first }
    }

    fn head_status(&self) -> HeadStatus {
        HeadStatus {
            level: 1,
            can_serve: !self.is_parting(),
            low: self.low(),
            high: self.progress.next - 1,
            first_kept: self.repairer.cache.first,
            done: self.all_sent(),
            id: self.identity.known_id(),
            name: 0,
        }
    }

    fn all_sent(&self) -> bool {
        self.is_closing || self.packets.end().is_some_and(|end| self.progress.next > end)
    }

    fn state(&self, sequence: u64) -> SourceState {
        let advertise_interval = match self.settings.formation {
            Formation::Solicit => Duration::ZERO,
            // Heads adapt this interval themselves.
            Formation::Advertise => self.settings.advertise_interval,
            Formation::Both if self.phase != Phase::Gathering => Duration::ZERO,
            Formation::Both => {
                let heads = u64::from(self.head.members.below().1);
                let shared = Duration::from_millis(heads * 1000 / HEADS_PER_SECOND);
                shared.max(self.settings.advertise_interval).min(ADVERTISE_INTERVAL_MAX)
            }
        };
        SourceState {
            sequence,
            forget_before: self.settings.forget_before(sequence),
            rate: Bitrate::from_bits_per_s(self.controller.bits_per_s() as u64),
            ack_window: self.settings.ack_window as u16,
            advertise_interval,
            worst_loss: self.head.members.worst_loss(),
            status_interval: self.beacons.status_interval,
            repair: false,
            done: self.all_sent() && sequence + 1 >= self.progress.next,
            prune: false,
        }
    }

    fn take(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let packet = Packet::of_datagram(datagram, self.identity.session)?;
        let from = datagram.from;
        match packet.body {
            Body::Solicitation(solicitation) => {
                let status = self.head_status();
                let alone = matches!(datagram.to, Destination::Node(_));
                self.head.on_solicitation(cx.now, (from, packet.ttl, alone), solicitation, status);
            }
            Body::Bind(bind) => {
                let status = self.head_status();
                self.head.on_bind(cx.now, from, packet.sender, bind, status)?;
                self.prune_decisions.bound_at = cx.now;
                self.check_open(cx.now);
                self.check_begin(cx);
                if !self.is_deserted() {
                    self.check_end(cx.now);
                }
            }
            Body::Ack(ack) => self.on_ack(cx, (from, packet.sender), &ack)?,
            Body::Advertisement(_) | Body::Hello(_) | Body::Reject(_) => {}
            // The source is the only one, and has no head. Status packets go through `word_of`.
            Body::Beacon(_)
            | Body::Data(..)
            | Body::Accept(_)
            | Body::Status(_)
            | Body::StatusReply(_)
            | Body::Settings(_) => return Err(BadInput::Foreign),
            Body::Report(report) => {
                self.controller.take_report(cx, from, self.progress.next, &report)?;
            }
        }
        Ok(())
    }

    fn on_ack(&mut self, cx: &mut Cx<'_>, (from, id): (NodeId, u64), ack: &Ack<'_>) -> Checked {
        let (end, low) = (self.progress.next, self.low());
        let can_repair = |_: &_, sequence| sequence >= low && sequence < end;
        let (now, repairer) = (cx.now, &mut self.repairer);
        let is_of_member =
            self.head.on_ack(now, (from, id), ack, (end, 0), repairer, can_repair)?;
        self.progress.acknowledged_at = now;
        let has = self.head.members.first_missing().unwrap_or(1).min(end) - 1;
        let before = self.progress.acknowledged;
        self.progress.acknowledged = has.max(before);
        let bytes = (before..has).map(|index| self.packets.len(index));
        let bytes = bytes.fold(0, u32::saturating_add);
        let seq = ack.first_missing.min(end) - 1;
        cx.emit(Event::AckReceived { seq, bytes, from });
        let allowed = self.head.members.allowed_by_any().unwrap_or(0);
        let progress = rate::Progress {
            bytes,
            congested: is_of_member && ack.congested,
            highest: ack.highest,
            allowed: allowed.saturating_sub(has),
            flight: u32::try_from(end - 1 - has).unwrap_or(u32::MAX),
            repeated: core::mem::take(&mut self.repairer.repeated),
        };
        self.controller.on_progress(cx, progress);
        let enough = PRUNE_AFTER_WINDOWS * u64::from(self.settings.ack_window);
        // A low rate is the members' fault only if they keep the window small.
        let is_small = self.window() < Window::from(self.settings.ack_window);
        let is_sending = self.phase == Phase::Sending && self.beacons.paused_at != end;
        let may_prune = self.settings.pruning != Pruning::Off && is_sending && is_small;
        let below_since = self.controller.below_min_since(now);
        if may_prune && end >= enough && self.prune_decisions.decide(now, below_since) {
            self.timers.arm_by(Timer::Beacon, now + PRUNE_REQUEST_INTERVAL);
            let worst = self.head.members.worst_loss();
            self.head.prune(&self.settings, worst, end - 1);
        }
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

    fn make_room(&mut self) {
        let done = self.head.members.first_missing().unwrap_or(self.progress.next);
        self.repairer.cache.purge(done.min(self.progress.next));
    }

    fn check_begin(&mut self, cx: &mut Cx<'_>) {
        let early = cx.now.since(self.start) < self.settings.gather;
        if self.phase != Phase::Gathering || early {
            return;
        }
        let (receivers, _) = self.head.members.all();
        let is_confirmed =
            self.settings.wait_for == 0 || self.head.members.allowed_by_any().is_some();
        if is_confirmed && receivers >= u64::from(self.settings.wait_for) {
            self.phase = Phase::Sending;
            self.progress.sent_at = cx.now;
            self.check_end(cx.now);
        }
    }

    fn check_end(&mut self, now: Time) {
        if self.phase == Phase::Sending && self.all_sent() {
            self.phase = Phase::Finishing;
            self.progress.acknowledged_at = now;
            self.beacons.due = true;
            self.timers.arm_by(Timer::Beacon, now + self.beacon_interval());
        }
        if self.phase == Phase::Finishing && self.is_retained {
            // The application knows which receivers have everything, so nobody is waited for.
            let farewell = if self.is_deserted() { FAREWELL_INTERVAL } else { FAREWELL };
            self.timers.arm_by(Timer::End, now + farewell);
        } else if self.phase == Phase::Finishing {
            // A receiver that only requests a place, again and again, is not waited for.
            let at = match self.is_deserted() {
                true => now + STAYS,
                false => self.progress.acknowledged_at + self.settings.give_up,
            };
            self.timers.arm(Timer::End, at.max(now));
        }
    }

    fn is_deserted(&self) -> bool {
        self.head.members.by_node.is_empty() && self.head.members.allowed_by_any().is_none()
    }

    fn poll_data(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.phase != Phase::Sending || self.all_sent() {
            return None;
        }
        let sequence = self.progress.next;
        if sequence >= self.repairer.cache.room_until() {
            self.make_room();
            if sequence >= self.repairer.cache.room_until() {
                return None;
            }
        }
        let Some(len) = self.packets.ready(cx.now, sequence - 1) else {
            self.controller.on_idle(cx);
            if core::mem::replace(&mut self.beacons.paused_at, sequence) != sequence {
                // Nothing else would show the loss of the last packet before the pause.
                self.timers.arm_by(Timer::Beacon, cx.now + PAUSE_AFTER);
            }
            return None;
        };
        // Removed members or expired orphans may have opened the window.
        self.check_open(cx.now);
        let window = self.window();
        self.ask(cx, window, len, false)?;
        self.progress.next += 1;
        self.repairer.cache.insert(sequence, &[], 0);
        let prune = self.prunes(cx.now, window);
        let state = SourceState { prune, ..self.state(sequence) };
        let packet = SentPacket { sequence, bytes: len, repair: false, window };
        let transmit = self.write(cx, state, (self.to, u8::MAX), packet, buf);
        self.progress.bytes += u64::from(len);
        self.progress.sent_at = cx.now;
        self.repairer.alternating_sent = 0;
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
        now < self.prune_decisions.requested_until && window < 0
    }

    fn is_parting(&self) -> bool {
        self.is_retained && self.is_closing
    }

    fn beacon_interval(&self) -> Duration {
        if self.is_parting() { FAREWELL_INTERVAL } else { self.settings.beacon_interval }
    }

    fn poll_repair(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.repairer.is_waiting() {
            return None;
        }
        let window = self.window();
        // Packets have about equal lengths; the exact one is known only after the repair is taken.
        let len =
            self.packets.len(self.repairer.cache.first.min(self.progress.next - 1).max(1) - 1);
        self.ask(cx, window, len, true)?;
        let Repair { sequence, to, ttl } = self.repairer.next(cx.now, self.head.members.reach())?;
        self.head.members.on_repair(sequence, to);
        let len = self.packets.len(sequence - 1);
        let state = SourceState { repair: true, ..self.state(sequence) };
        let packet = SentPacket { sequence, bytes: len, repair: true, window };
        let transmit = self.write(cx, state, (to, ttl), packet, buf);
        self.repairer.sent += 1;
        Some(transmit)
    }

    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        state: SourceState,
        (to, ttl): (Destination, u8),
        packet: SentPacket,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        let SentPacket { sequence, bytes: len, repair, .. } = packet;
        self.data_has_turn = repair && self.controller.takes_turns();
        cx.emit(Event::DataSent { seq: sequence, bytes: len, repair });
        self.announcement.clear();
        let option = self.controller.on_sent(cx, packet, &mut self.announcement);
        let announce = option.map(|option| Announcement { option, value: &self.announcement });
        let data = Data { state, announce, payload: &[] };
        self.identity.packet(cx, ttl, Body::Data(data)).encode(buf);
        let zeros = self.packets.read(cx.now, sequence - 1, buf);
        super::wire::seal(buf);
        Transmit { zeros, payload_len: len, time_to_live: ttl, ..Transmit::control(to) }
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Done;
        self.timers.disarm_all();
        if self.is_retained {
            return;
        }
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
        if self.is_deserted() {
            cx.emit(Event::Completed { bytes: self.progress.bytes });
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
            (self.beacons.due, self.beacons.settings_due) = (true, true);
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
            let Progress { next, sent_at, .. } = self.progress;
            let is_sending = self.phase == Phase::Sending && self.beacons.paused_at != next;
            let prunes = self.prunes(now, self.window());
            self.beacons.due = prunes || !is_sending || now.since(sent_at) >= FILLER_AFTER;
            self.beacons.settings_due = true;
            let interval = self.beacon_interval();
            let interval = if prunes { interval.min(PRUNE_REQUEST_INTERVAL) } else { interval };
            self.timers.arm(Timer::Beacon, now + interval);
            let state = self.state(0);
            self.head.set_advertise_interval(now, state.advertise_interval);
        }
        if !self.head.on_timeout(now, self.progress.next, &self.repairer).is_empty() {
            self.make_room();
            self.check_end(now);
        }
        if self.timers.take_due(Timer::End, now) {
            self.finish(cx);
        }
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.is_closing = true;
        match self.phase {
            Phase::Gathering if self.is_retained => {
                // Receivers that look for a head learn that no data will come.
                self.phase = Phase::Sending;
                self.check_end(cx.now);
            }
            Phase::Waiting | Phase::Gathering => self.finish(cx),
            _ => self.check_end(cx.now),
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        (!core::mem::replace(&mut self.joined_heads, true)).then_some(Membership::Join(HEADS))
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return None;
        }
        // A receiver that does not know the settings cannot use a beacon.
        if core::mem::take(&mut self.beacons.settings_due)
            && let Some(settings) = &self.beacons.settings
        {
            let body = Body::Settings(settings);
            return Some(self.identity.send(cx, self.to, body, buf));
        }
        if core::mem::take(&mut self.beacons.due) {
            let prune = self.prunes(cx.now, self.window());
            let state =
                SourceState { done: self.all_sent(), prune, ..self.state(self.progress.next - 1) };
            return Some(self.identity.send(cx, self.to, Body::Beacon(state), buf));
        }
        if let Some(name) = self.beacons.restarted.pop() {
            let body = Body::Solicitation(Solicitation { role: HeadRole::Never, name });
            let to = Destination::Group(HEADS);
            return Some(self.identity.send(cx, to, body, buf));
        }
        let status = self.head_status();
        // Data and beacons are signs of life enough.
        if let Some(transmit) = self.head.poll(cx, &mut self.identity, status, true, buf) {
            return Some(transmit);
        }
        if self.data_has_turn
            && let Some(transmit) = self.poll_data(cx, buf)
        {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_repair(cx, buf) {
            return Some(transmit);
        }
        if self.repairer.is_waiting() {
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
        self.repairer.alternating_sent = 0;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, s};

    #[test]
    fn a_low_rate_of_five_seconds_decides_every_two_seconds() {
        let mut decisions = PruneDecisions { bound_at: s(1), ..PruneDecisions::default() };
        let mut decide = |second| decisions.decide(s(second), Some(at(0)));
        assert_eq!([5, 6, 7, 8, 9].map(&mut decide), [false, true, false, true, false]);
        assert!(!decisions.decide(s(20), None));
        assert!(s(9) < decisions.requested_until && decisions.requested_until <= s(10));
    }
}
