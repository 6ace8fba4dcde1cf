//! Arrival of data at a receiver: losses, delivery, and the window after it.

use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::{BadInput, Checked, CutReason, Cx, Duration, Event, Time};

use super::{Retention, Timer, TramReceiver};
use crate::congestion::Arrival;
use crate::pgm::session::reach::Belief;
use crate::tram::seq;
use crate::tram::settings::HeadRole;
use crate::tram::window::{Arrived, ReceiveWindow};
use crate::tram::wire::{Body, Data, SourceState};
use crate::{Datagram, Destination, FlowEvent, LossRecord};

/// Longest time by which a packet with an older session state is overtaken: 200 ms.
const OLD_STATE_MAX: Duration = Duration::from_millis(200);

impl TramReceiver {
    /// True if the source can have sent this with `state`. A jump ahead takes several packets;
    /// lower numbers of the source void earlier packets in its name.
    pub(super) fn can_have_sent(
        &mut self,
        cx: &mut Cx<'_>,
        body: &Body<'_>,
        state: &SourceState,
    ) -> bool {
        let Some(window) = &mut self.window else { return true };
        let sequence = state.sequence;
        match body {
            // A repair of an unknown packet must be forged: no receiver requests such a packet.
            _ if state.repair => sequence < window.reception.end,
            Body::Data(_) => {
                // Copies count too: forged packets may have been delivered in place of real ones.
                let start = self.delivery.start;
                let open = sequence >= start || self.delivery.next == start;
                match window.reach.take(cx.now, sequence, open) {
                    Belief::Doubted => false,
                    Belief::Believed => true,
                    Belief::Rewound(first) => {
                        self.rewind(cx, first, sequence);
                        true
                    }
                }
            }
            _ => window.reach.can_lead(cx.now, sequence),
        }
    }

    /// True if a packet is one that was given up, or delivered from a forgery.
    fn was_passed(&self, sequence: u64) -> bool {
        let Some(window) = &self.window else { return false };
        let limit = match self.settings.obsolete_after {
            0 => window.forged_until,
            _ => window.reception.first_missing(),
        };
        // No record shows if packets that do not count have come.
        sequence < limit && (self.losses.counts(sequence) || sequence < self.losses.from())
    }

    /// Drops packets after `index`, which were not the source's: that has sent `first` to `index`.
    pub(super) fn rewind(&mut self, cx: &mut Cx<'_>, first: u64, index: u64) {
        let Some(window) = &mut self.window else { return };
        self.session.state.sequence = index;
        if index < self.delivery.start {
            self.begin_at(cx, first);
            self.losses = LossRecord::starting_at(first);
            if let Some(window) = &mut self.window {
                window.counted_from = first;
            }
        } else {
            let last = (index - 1).max(self.delivery.next.saturating_sub(1));
            window.reception.rewind(last);
            window.counted_from = window.counted_from.min(last + 1);
            self.repairer.cache.rewind(last + 1);
            self.losses.rewind(last + 1, |event| cx.emit(event));
            // Forged packets were delivered in place of these.
            self.losses.missing(index..last + 1, |event| cx.emit(event));
            window.forged_until = last + 1;
        }
        (self.session.last, self.session.state.done) = (None, false);
        self.deny_end();
        if let Some(reports) = &mut self.reports {
            reports.on_rewind(cx, index);
        }
    }

    pub(super) fn begin_at(&mut self, cx: &mut Cx<'_>, start: u64) {
        let first_ack = start + cx.rng.below(u64::from(self.settings.ack_window));
        let SourceState { sequence: highest, advertise_interval, .. } = self.session.state;
        let window = ReceiveWindow::new(&self.settings, cx.now, start, highest, first_ack);
        self.losses = LossRecord::starting_at(window.counted_from);
        self.window = Some(window);
        (self.delivery.start, self.delivery.next) = (start, start);
        (self.delivery.from_start, self.delivery.lost_any) = (start == 1, false);
        self.past_parents.previous = None;
        self.repairer.restart(&self.settings, start);
        self.head.restart(&self.settings);
        self.head.set_advertise_interval(cx.now, advertise_interval);
        if self.settings.head != HeadRole::Never {
            self.head.begin(cx.now, self.settings.formation);
        }
    }

    pub(super) fn on_source_state(&mut self, now: Time, state: SourceState) {
        let is_older = state.sequence < self.session.state.sequence;
        if self.window.is_some() && is_older && now.since(self.session.state_at) < OLD_STATE_MAX {
            return;
        }
        if !state.prune {
            self.claims.prune.contradict();
        } else if self.claims.prune.claim(now, (), Duration::ZERO, |()| true) {
            self.head.prune(&self.settings, state.worst_loss, state.sequence);
        }
        let session = &mut self.session;
        (session.state, session.state_at, session.source_packet_at) = (state, now, now);
        self.timers.arm_by(Timer::SourceSilence, self.silent_until());
        self.head.set_advertise_interval(now, state.advertise_interval);
        if self.window.is_none() {
            self.head.become_candidate(now);
        }
        self.affiliation.on_session(now, state.advertise_interval);
    }

    /// Learns that the packets up to `last` were sent, and that no packet follows if `done`.
    pub(super) fn on_highest_sent(&mut self, cx: &mut Cx<'_>, last: u64, done: bool) {
        let learns = self.learns();
        let Some(window) = &mut self.window else { return };
        window.reception.extend_to(cx.now, last, learns);
        if done {
            self.on_end_claimed(cx.now, last);
        }
        // The source will not send these packets by itself: they must be requested.
        self.next_ack.due |= self.find_lost(cx) > 0;
        self.after_progress(cx);
    }

    /// Returns true if late packets set the wait for gaps, and the round trip to the parent.
    fn learns(&self) -> (bool, Option<Duration>) {
        let parent = self.affiliation.parent;
        (self.settings.reorder_learn, parent.map(|parent| parent.round_trip))
    }

    /// Counts overdue packets as lost, and plans a request for them.
    pub(super) fn request_lost(&mut self, cx: &mut Cx<'_>) {
        let ask_interval = self.settings.ask_interval;
        if self.find_lost(cx) > 0 && ask_interval > Duration::ZERO {
            self.timers.arm_by(Timer::Request, cx.now + ask_interval);
        }
    }

    /// Counts the missing packets whose wait is over as lost. Returns the number of them.
    fn find_lost(&mut self, cx: &mut Cx<'_>) -> u64 {
        let Some(window) = &mut self.window else { return 0 };
        let found = window.reception.find_lost(cx.now);
        if let Some(at) = window.reception.next_loss() {
            self.timers.arm_by(Timer::Reordering, at);
        }
        let Some(range) = found else { return 0 };
        let runs: Vec<_> = window.reception.missing.within(range).collect();
        let lost = runs.iter().map(|run| run.end - run.start).sum();
        self.count_losses(cx, runs);
        lost
    }

    fn count_losses(&mut self, cx: &mut Cx<'_>, runs: Vec<Range<u64>>) {
        let Some(window) = &mut self.window else { return };
        // Packets from before this receiver took part say nothing about its path.
        let (since, from) = (window.counted_from, self.losses.from());
        for Range { start, end } in runs.into_iter().filter(|run| run.end > since) {
            let first = start.max(since);
            window.congestion.lost_packets += end.saturating_sub(first.max(from));
            self.losses.missing(first..end, |event| cx.emit(event));
            if let Some(reports) = &mut self.reports {
                reports.on_missing(cx, first, end - first);
            }
        }
    }

    pub(super) fn on_data(
        &mut self,
        cx: &mut Cx<'_>,
        data: &Data<'_>,
        datagram: &Datagram<'_>,
    ) -> Checked {
        if self.window.is_none() {
            return Ok(());
        }
        let Data { state, payload, .. } = data;
        let SourceState { sequence, repair, .. } = *state;
        self.make_room(cx, state)?;
        if !repair {
            self.give_up_obsolete(cx, *state)?;
        }
        let was_passed = !repair && self.was_passed(sequence);
        let arrived = self.record_arrival(cx, sequence, repair);
        let duplicate = arrived == Arrived::Useless && !was_passed;
        self.request_lost(cx);
        // The payload is taken even if the announcement is wrong.
        let informed = self.inform_scheme(cx, data, datagram, (arrived, duplicate));
        let Some(window) = &mut self.window else { return Ok(()) };
        match arrived {
            // Most receivers have no use for a repair to all.
            Arrived::Useless if repair => return Ok(()),
            Arrived::Useless => return Err(BadInput::Duplicate),
            Arrived::TooFar => return Err(BadInput::OutOfWindow),
            Arrived::New => {
                if window.ack_schedule.on_packet(cx.now, sequence) {
                    self.end_ack_window(cx, sequence);
                }
            }
            Arrived::Late => self.repairer.on_packet(sequence, true),
            Arrived::Repaired { .. } => {
                window.requests.on_repair();
                // The window may move.
                let is_requested = window.reception.first_missing() < window.requests.end;
                self.next_ack.due |= !is_requested || !window.reception.has_losses();
                let to_all = matches!(datagram.to, Destination::Group(_));
                self.repairer.on_packet(sequence, to_all);
            }
        }
        self.session.data_at = cx.now;
        self.repairer.cache.insert(sequence, payload, datagram.zeros);
        if state.done && !repair {
            self.on_end_claimed(cx.now, sequence);
        }
        self.deliver(cx);
        self.after_progress(cx);
        informed
    }

    /// Fails without room: all packets with room were sent before, and are requested.
    fn make_room(&mut self, cx: &mut Cx<'_>, state: &SourceState) -> Checked {
        let sequence = state.sequence;
        let done = self.needed_from();
        self.repairer.cache.make_room(sequence, done);
        let room_until = self.repairer.cache.room_until();
        let Some(window) = &mut self.window else { return Ok(()) };
        if sequence < room_until {
            return Ok(());
        }
        let end_before = window.reception.end;
        window.reception.extend_to(cx.now, room_until - 1, (false, None));
        if !state.repair {
            let first = self.losses.from().max(end_before);
            if sequence < first {
                self.losses.arrived(sequence, |event| cx.emit(event));
            } else {
                self.losses.missing(first..sequence, |event| cx.emit(event));
                self.losses.count_from(sequence + 1);
            }
        }
        self.request_lost(cx);
        Err(BadInput::OutOfWindow)
    }

    fn record_arrival(&mut self, cx: &mut Cx<'_>, sequence: u64, repair: bool) -> Arrived {
        let learns = self.learns();
        let Some(window) = &mut self.window else { return Arrived::Useless };
        let arrived = window.reception.arrive(cx.now, (sequence, repair), learns);
        if arrived == (Arrived::Repaired { original: true }) && sequence >= self.losses.from() {
            let lost_packets = &mut window.congestion.lost_packets;
            *lost_packets = lost_packets.saturating_sub(1);
        }
        if !repair {
            self.losses.arrived(sequence, |event| cx.emit(event));
        } else if !matches!(arrived, Arrived::Useless | Arrived::TooFar) {
            self.losses.missing(sequence..sequence + 1, |event| cx.emit(event));
        }
        arrived
    }

    fn inform_scheme(
        &mut self,
        cx: &mut Cx<'_>,
        data: &Data<'_>,
        datagram: &Datagram<'_>,
        (arrived, duplicate): (Arrived, bool),
    ) -> Checked {
        let is_original = datagram.from == self.session.source && arrived != Arrived::TooFar;
        let Some(reports) = self.reports.as_mut().filter(|_| is_original) else { return Ok(()) };
        let Data { state, announce, payload } = *data;
        let window = self.window.as_ref();
        let arrival = Arrival {
            seq: seq(state.sequence),
            len: payload.len() as u32 + datagram.zeros,
            repair: state.repair,
            duplicate,
            congestion_experienced: datagram.congestion_experienced,
            reordering: window.and_then(|window| window.reception.disorder.tolerance()),
        };
        reports.on_data(cx, state.sequence, &arrival, announce)
    }

    pub(super) fn give_up_obsolete(&mut self, cx: &mut Cx<'_>, state: SourceState) -> Checked {
        let limit = state.forget_before;
        if limit != self.settings.forget_before(state.sequence) {
            return Err(BadInput::Absurd);
        }
        if limit > 0 {
            let limit = self.claims.obsolete.take(cx.now, limit);
            if self.window.as_ref().is_some_and(|window| limit > window.reception.first_missing()) {
                self.give_up_before(cx, limit);
            }
        }
        Ok(())
    }

    fn end_ack_window(&mut self, cx: &mut Cx<'_>, highest: u64) {
        let step = self.report_step();
        let Some(window) = &mut self.window else { return };
        let congested = window.end_ack_window(cx.now, highest, self.losses.from());
        let window_milli = (window.congestion.size * 1000.0) as u64;
        if congested {
            cx.emit(Event::Cut { reason: CutReason::Loss, window_milli });
        }
        self.next_ack.congested |= congested;
        // The end of a window is reported, except well within a large one.
        let late = window.ack_schedule.packets * 2 >= step;
        self.next_ack.due |= congested || late || window.reception.has_losses();
    }

    pub(super) fn deliver(&mut self, cx: &mut Cx<'_>) {
        if self.delivery.held || self.delivery.is_retained() {
            return;
        }
        let mut bytes = Vec::new();
        while let Some((seq, zeros)) = self.take_next(&mut bytes) {
            let bytes = core::mem::take(&mut bytes);
            cx.emit(Event::Delivered { seq, bytes: bytes.len() as u32 + zeros });
            self.events.push_back(FlowEvent::Delivered { bytes, zeros }.into());
        }
    }

    pub(super) fn take_next(&mut self, bytes: &mut Vec<u8>) -> Option<(u64, u32)> {
        let end = self.window.as_ref()?.reception.first_missing();
        let (found, jumped) = self.delivery.take(&self.repairer.cache, end, bytes);
        if self.settings.head == HeadRole::Never {
            self.repairer.cache.forget(self.delivery.next);
        } else if jumped {
            self.repairer.cache.forget(self.needed_from());
        }
        found
    }

    /// Returns the first packet that must be kept: for delivery, or for a member.
    fn needed_from(&self) -> u64 {
        self.head.members.first_missing().unwrap_or(u64::MAX).min(self.delivery.next)
    }

    pub(super) fn give_up_before(&mut self, cx: &mut Cx<'_>, end: u64) {
        let Some(window) = &mut self.window else { return };
        let mut lost = 0;
        // Gaps not yet counted as losses: a source that repairs little would notice no congestion.
        let (decided, mut fresh) = (window.reception.lost_before, Vec::new());
        window.reception.give_up(end, |run| {
            lost += run.end - run.start;
            if run.end > decided {
                fresh.push(run.start.max(decided)..run.end);
            }
            self.losses.missing(run.clone(), |event| cx.emit(event));
            cx.emit(Event::Abandoned { seq: run.start, count: run.end - run.start });
        });
        if lost > 0 {
            self.delivery.lost_any = true;
            let packets = u32::try_from(lost).unwrap_or(u32::MAX);
            self.events.push_back(FlowEvent::Lost { packets }.into());
        }
        self.count_losses(cx, fresh);
        self.deliver(cx);
    }

    /// Gives up the backlog of a receiver that was away for long, as if it had just joined: repairs
    /// of more than a head keeps would delay the session.
    pub(super) fn give_up_backlog(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        // Forged beacons must not raise this limit, which is irreversible.
        let end = window.reach.newest + 1;
        let is_long = end > window.reception.first_missing() + self.settings.cache_floor() as u64;
        if self.can_ask_otherwise() && self.affiliation.parent.is_none() && is_long {
            self.give_up_before(cx, end);
        }
    }

    /// True if given-up packets cost little: the application gets them elsewhere.
    pub(super) fn can_ask_otherwise(&self) -> bool {
        self.delivery.retention == Retention::UntilReleased && !self.has_members()
    }

    /// Updates window, cache and end after progress here, of the application, or of members.
    pub(crate) fn after_progress(&mut self, cx: &mut Cx<'_>) {
        let level = self.level();
        let Some(window) = &mut self.window else { return };
        window.on_progress(level);
        let (first_missing, allowed) =
            (window.reception.first_missing(), window.congestion.allowed);
        let reported = window.reported.allowed;
        let done = self.needed_from();
        self.repairer.cache.purge(done);
        self.repairer.cache.make_room(allowed, done);
        if self.allowed() > reported + self.report_step() {
            self.next_ack.due = true;
        }
        let previous = &mut self.past_parents.previous;
        if let Some((node, _)) = previous.take_if(|(_, end)| first_missing >= *end) {
            self.past_parents.goodbyes.push_back(node);
        }
        self.check_end(cx);
    }

    fn report_step(&self) -> u64 {
        let below = self.head.members.allowed();
        self.window.as_ref().map_or(0, |window| window.report_step(below))
    }

    pub(super) fn allowed(&self) -> u64 {
        let (room_until, below) = (self.repairer.cache.room_until(), self.head.members.allowed());
        self.window.as_ref().map_or(0, |window| window.allowed(room_until, below))
    }
}
