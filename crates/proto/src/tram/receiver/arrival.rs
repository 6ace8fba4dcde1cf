//! Arrival of data: gaps, delivery, and the window after it.

use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::{BadInput, Checked, CutReason, Cx, Duration, Event, Time};

use super::acks::AckSchedule;
use super::{Kept, Reached, Timer, TramReceiver};
use crate::congestion::Arrival;
use crate::pgm::session::reach::{Belief, Reach};
use crate::tram::reception::{Arrived, Reception};
use crate::tram::settings::HeadRole;
use crate::tram::steering::seq;
use crate::tram::window::ReceiverWindow;
use crate::tram::wire::{Body, Data, Front};
use crate::{Datagram, Destination, FlowEvent, LossRecord};

/// Longest time by which a packet with an older session state is overtaken: 200 ms.
const FRONT_LATE: Duration = Duration::from_millis(200);

impl TramReceiver {
    /// True if the source can have sent this with `front`. A jump ahead takes several packets;
    /// lower numbers of the source void earlier packets in its name.
    pub(super) fn can_have_sent(
        &mut self,
        cx: &mut Cx<'_>,
        body: &Body<'_>,
        front: &Front,
    ) -> bool {
        let Some(reached) = &mut self.reached else { return true };
        let sequence = front.sequence;
        match body {
            // A repair of an unknown packet must be forged: no receiver requests such a packet.
            _ if front.repair => sequence < reached.reception.end,
            Body::Data(_) => {
                // Copies count too: forged packets may have been delivered in place of real ones.
                let open = sequence >= reached.start || reached.deliver == reached.start;
                match reached.reach.take(cx.now, sequence, open) {
                    Belief::Doubted => false,
                    Belief::Believed => true,
                    Belief::Rewound(first) => {
                        self.rewind(cx, first, sequence);
                        true
                    }
                }
            }
            _ => reached.reach.can_lead(cx.now, sequence),
        }
    }

    fn was_passed(&self, sequence: u64) -> bool {
        let Some(reached) = &self.reached else { return false };
        let limit = match self.settings.obsolete_after {
            0 => reached.rewound_until,
            _ => reached.reception.first_missing(),
        };
        // No record shows if packets that do not count have come.
        sequence < limit && (self.losses.counts(sequence) || sequence < self.losses.from())
    }

    /// Drops packets after `index`, which were not the source's: that has sent `first` to `index`.
    fn rewind(&mut self, cx: &mut Cx<'_>, first: u64, index: u64) {
        let Some(reached) = &mut self.reached else { return };
        self.front.sequence = index;
        if index < reached.start {
            self.begin_at(cx, first);
            self.losses = LossRecord::starting_at(first);
            if let Some(reached) = &mut self.reached {
                reached.sent_since = first;
            }
        } else {
            let last = (index - 1).max(reached.deliver.saturating_sub(1));
            reached.reception.rewind(last);
            reached.sent_since = reached.sent_since.min(last + 1);
            self.head.cache.rewind(last + 1);
            self.losses.rewind(last + 1, |event| cx.emit(event));
            // Forged packets were delivered in place of these.
            self.losses.missing(index..last + 1, |event| cx.emit(event));
            reached.rewound_until = last + 1;
        }
        (self.last, self.front.done) = (None, false);
        self.deny_end();
        if let Some(reports) = &mut self.reports {
            reports.on_rewind(cx, index);
        }
    }

    pub(super) fn go_back(&mut self, cx: &mut Cx<'_>, high: u64) {
        let Some(reached) = &mut self.reached else { return };
        let last = high.max(reached.deliver.saturating_sub(1));
        if last + 1 >= reached.reception.end {
            return;
        }
        reached.reach.go_back(cx.now, last);
        self.rewind(cx, last + 1, last + 1);
        self.front.sequence = last;
        self.after_progress(cx);
    }

    pub(super) fn begin_at(&mut self, cx: &mut Cx<'_>, start: u64) {
        let ack_window = u64::from(self.settings.ack_window);
        let first_ack = start + cx.rng.below(ack_window);
        // Packets sent earlier are wanted, but are no losses.
        self.losses = LossRecord::starting_at(start.max(self.front.sequence + 1));
        let intervals = (self.settings.ack_interval, self.settings.ack_interval_max);
        self.head = self.head.starting_at(&self.settings, start);
        self.head.set_advertise_interval(cx.now, self.front.advertise_interval);
        self.reached = Some(Reached {
            reception: Reception::joining(start, self.front.sequence),
            reach: Reach::new(cx.now, self.front.sequence.max(start.saturating_sub(1))),
            window: ReceiverWindow::new(&self.settings, cx.now, start, ack_window),
            acks: AckSchedule::new(first_ack, ack_window, intervals),
            start,
            deliver: start,
            sent_since: start.max(self.front.sequence + 1),
            from_start: start == 1,
            ..Reached::default()
        });
        if self.settings.head != HeadRole::Never {
            self.head.begin(cx.now, self.settings.formation);
        }
    }

    pub(super) fn on_front(&mut self, now: Time, front: Front) {
        // An old packet that was delayed says nothing new.
        let overtaken = now.since(self.front_at) < FRONT_LATE;
        if self.reached.is_some() && front.sequence < self.front.sequence && overtaken {
            return;
        }
        if !front.prune {
            self.doubts.prune.contradict();
        } else if self.doubts.prune.claim(now, (), Duration::ZERO, |()| true) {
            self.head.prune(&self.settings, front.worst_loss, front.sequence);
        }
        (self.front, self.front_at) = (front, now);
        self.source_heard_at = now;
        self.timers.arm_by(Timer::Silence, self.silent_until());
        self.head.set_advertise_interval(now, front.advertise_interval);
        if self.reached.is_none() {
            self.head.stand(now);
        }
        if !self.pruned {
            self.parent.on_session(now, front.advertise_interval);
        }
    }

    pub(super) fn hear_of(&mut self, cx: &mut Cx<'_>, last: u64, done: bool) {
        let learns = (self.settings.reorder_learn, self.round_trip());
        let Some(reached) = &mut self.reached else { return };
        reached.reception.hear_of(cx.now, last, learns);
        if done {
            self.doubt_end(cx.now, last);
        }
        // The source will not send these packets by itself: they must be requested.
        self.ack_due |= self.find_lost(cx) > 0;
        self.after_progress(cx);
    }

    fn round_trip(&self) -> Option<Duration> {
        self.parent.bound.map(|bound| bound.round_trip)
    }

    pub(super) fn on_gaps_timer(&mut self, cx: &mut Cx<'_>) {
        let lost = self.find_lost(cx);
        self.plan_asking(cx.now, lost);
    }

    fn plan_asking(&mut self, now: Time, lost: u64) {
        if lost > 0 && self.settings.ask_interval > Duration::ZERO {
            self.timers.arm_by(Timer::Ask, now + self.settings.ask_interval);
        }
    }

    pub(super) fn find_lost(&mut self, cx: &mut Cx<'_>) -> u64 {
        let Some(reached) = &mut self.reached else { return 0 };
        let found = reached.reception.find_lost(cx.now);
        if let Some(at) = reached.reception.next_loss() {
            self.timers.arm_by(Timer::Gaps, at);
        }
        let Some(range) = found else { return 0 };
        let runs: Vec<_> = reached.reception.missing_within(range).collect();
        let lost = runs.iter().map(|run| run.end - run.start).sum();
        self.count_losses(cx, runs);
        lost
    }

    fn count_losses(&mut self, cx: &mut Cx<'_>, runs: Vec<Range<u64>>) {
        let Some(reached) = &mut self.reached else { return };
        // Packets from before this receiver took part say nothing about its path.
        let (since, from) = (reached.sent_since, self.losses.from());
        for Range { start, end } in runs.into_iter().filter(|run| run.end > since) {
            let first = start.max(since);
            reached.window.on_missing(end.saturating_sub(first.max(from)));
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
        let Some(reached) = &mut self.reached else { return Ok(()) };
        let Data { front, payload, .. } = data;
        let sequence = front.sequence;
        let done = self.head.members.first_missing().unwrap_or(u64::MAX).min(reached.deliver);
        self.head.cache.make_room(sequence, done);
        if sequence >= self.head.cache.room_until() {
            let reached_before = reached.reception.end;
            // Packet beyond the room. All packets with room were sent before, and are requested.
            reached.reception.hear_of(cx.now, self.head.cache.room_until() - 1, (false, None));
            if !front.repair {
                self.on_no_room(cx, reached_before, sequence);
            }
            let lost = self.find_lost(cx);
            self.plan_asking(cx.now, lost);
            return Err(BadInput::OutOfWindow);
        }
        if !front.repair {
            self.forget(cx, *front)?;
        }
        let was_passed = !front.repair && self.was_passed(sequence);
        let learns = (self.settings.reorder_learn, self.round_trip());
        let Some(reached) = &mut self.reached else { return Ok(()) };
        let arrived = reached.reception.arrive(cx.now, (sequence, front.repair), learns);
        let duplicate = arrived == Arrived::Useless && !was_passed;
        if arrived == (Arrived::Repaired { original: true }) && sequence >= self.losses.from() {
            reached.window.on_late();
        }
        if !front.repair {
            self.losses.arrived(sequence, |event| cx.emit(event));
        } else if matches!(arrived, Arrived::New | Arrived::Late | Arrived::Repaired { .. }) {
            self.losses.missing(sequence..sequence + 1, |event| cx.emit(event));
        }
        let lost = self.find_lost(cx);
        self.plan_asking(cx.now, lost);
        // The payload is taken even if the announcement is wrong.
        let informed = self.inform(cx, data, datagram, (arrived, duplicate));
        let Some(reached) = &mut self.reached else { return Ok(()) };
        match arrived {
            // Most receivers have no use for a repair to all.
            Arrived::Useless if front.repair => return Ok(()),
            Arrived::Useless => return Err(BadInput::Duplicate),
            Arrived::TooFar => return Err(BadInput::OutOfWindow),
            Arrived::New => {
                if reached.acks.on_packet(cx.now, sequence) {
                    self.end_window(cx, sequence);
                }
            }
            Arrived::Late => self.head.repairs.on_repaired(sequence, true),
            Arrived::Repaired { .. } => {
                (reached.fruitless, reached.asks) = (0, 0);
                let to_all = matches!(datagram.to, Destination::Group(_));
                self.head.repairs.on_repaired(sequence, to_all);
                // The last gap or the last requested packet is here, so the window may move.
                self.ack_due |= !reached.reception.lacks()
                    || reached.reception.first_missing() >= reached.asked_until;
            }
        }
        self.came_at = cx.now;
        self.head.cache.insert(sequence, payload, datagram.zeros);
        if front.done && !front.repair {
            self.doubt_end(cx.now, sequence);
        }
        self.deliver(cx);
        self.after_progress(cx);
        informed
    }

    fn on_no_room(&mut self, cx: &mut Cx<'_>, reached: u64, sequence: u64) {
        let first = self.losses.from().max(reached);
        if sequence < first {
            self.losses.arrived(sequence, |event| cx.emit(event));
        } else {
            self.losses.missing(first..sequence, |event| cx.emit(event));
            self.losses.count_from(sequence + 1);
        }
    }

    fn inform(
        &mut self,
        cx: &mut Cx<'_>,
        data: &Data<'_>,
        datagram: &Datagram<'_>,
        (arrived, duplicate): (Arrived, bool),
    ) -> Checked {
        let Some(reports) = self.reports.as_mut().filter(|_| datagram.from == self.source) else {
            return Ok(());
        };
        if arrived == Arrived::TooFar {
            return Ok(());
        }
        let Data { front, announce, payload } = *data;
        let arrival = Arrival {
            seq: seq(front.sequence),
            len: payload.len() as u32 + datagram.zeros,
            repair: front.repair,
            duplicate,
            congestion_experienced: datagram.congestion_experienced,
            reordering: self
                .reached
                .as_ref()
                .and_then(|reached| reached.reception.disorder.tolerance()),
        };
        reports.on_data(cx, front.sequence, &arrival, announce)
    }

    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, front: Front) -> Checked {
        let limit = front.forget_before;
        if limit != self.settings.forget_before(front.sequence) {
            return Err(BadInput::Absurd);
        }
        if limit > 0 {
            let limit = self.doubts.forgotten.take(cx.now, limit);
            if self.reached.as_ref().is_some_and(|it| limit > it.reception.first_missing()) {
                self.give_up_before(cx, limit);
            }
        }
        Ok(())
    }

    fn end_window(&mut self, cx: &mut Cx<'_>, highest: u64) {
        let step = self.step();
        let Some(reached) = &mut self.reached else { return };
        let from = self.losses.from();
        let missing = reached.reception.lost_packets_from(from);
        let known =
            reached.reception.end.saturating_sub(reached.reception.first_missing().max(from));
        let congested = reached.window.end(cx.now, missing, known);
        reached.acks.schedule(highest + reached.window.ack_window);
        let window_milli = (reached.window.size * 1000.0) as u64;
        if congested {
            cx.emit(Event::Cut { reason: CutReason::Loss, window_milli });
        }
        self.congested |= congested;
        // The end of a window is reported, except well within a large one.
        let late = reached.acks.packets * 2 >= step;
        self.ack_due |= congested || late || reached.reception.lacks();
    }

    /// Delivers packets in order, unless the application takes them itself.
    pub(super) fn deliver(&mut self, cx: &mut Cx<'_>) {
        if self.held || self.kept != Kept::Not {
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
        let reached = self.reached.as_mut()?;
        let cache = &mut self.head.cache;
        let end = reached.reception.first_missing();
        let mut seq = reached.deliver;
        let found = loop {
            if seq >= end {
                break None;
            }
            if let Some((payload, zeros)) = cache.get(seq) {
                bytes.clear();
                bytes.extend_from_slice(payload);
                break Some((seq, zeros));
            }
            // Skips packets that are not wanted or never come: perhaps far more than can be kept.
            seq = cache.next_from(seq).unwrap_or(end).min(end);
        };
        let jumped = seq > reached.deliver;
        reached.deliver = seq + u64::from(found.is_some());
        if self.settings.head == HeadRole::Never {
            cache.forget(reached.deliver);
        } else if jumped {
            let needed = self.head.members.first_missing().unwrap_or(u64::MAX);
            cache.forget(reached.deliver.min(needed));
        }
        if let Some((_, zeros)) = found {
            self.bytes += bytes.len() as u64 + u64::from(zeros);
        }
        found
    }

    pub(super) fn give_up_before(&mut self, cx: &mut Cx<'_>, end: u64) {
        let Some(reached) = &mut self.reached else { return };
        let mut lost = 0;
        // Gaps not yet counted as losses: a source that repairs little would notice no congestion.
        let (decided, mut fresh) = (reached.reception.lost_before, Vec::new());
        reached.reception.give_up(end, |run| {
            lost += run.end - run.start;
            if run.end > decided {
                fresh.push(run.start.max(decided)..run.end);
            }
            self.losses.missing(run.clone(), |event| cx.emit(event));
            cx.emit(Event::Abandoned { seq: run.start, count: run.end - run.start });
        });
        if lost > 0 {
            reached.lost_any = true;
            let packets = u32::try_from(lost).unwrap_or(u32::MAX);
            self.events.push_back(FlowEvent::Lost { packets }.into());
        }
        self.count_losses(cx, fresh);
        self.deliver(cx);
    }

    /// Gives up the backlog of a receiver that was away for long, as if it had just joined: repairs
    /// of more than a head keeps would delay the session.
    pub(super) fn give_up_backlog(&mut self, cx: &mut Cx<'_>) {
        let Some(reached) = &self.reached else { return };
        let first = reached.reception.first_missing();
        // Forged beacons must not raise this limit, which is irreversible.
        let end = reached.reach.newest + 1;
        let is_long = end > first + self.settings.cache_floor() as u64;
        if self.can_ask_otherwise() && self.parent.bound.is_none() && is_long {
            self.give_up_before(cx, end);
        }
    }

    /// True if given-up packets cost little: the application gets them elsewhere.
    pub(super) fn can_ask_otherwise(&self) -> bool {
        self.kept == Kept::Until && !self.has_members()
    }

    /// Updates window, cache and end after progress here, of the application, or of members.
    pub(crate) fn after_progress(&mut self, cx: &mut Cx<'_>) {
        let Some(reached) = &mut self.reached else { return };
        let first_missing = reached.reception.first_missing();
        let level = self.parent.bound.map_or(0, |bound| bound.level.saturating_add(1));
        reached.window.on_progress(first_missing, reached.reception.reached(), level);
        let done = self.head.members.first_missing().unwrap_or(u64::MAX).min(reached.deliver);
        self.head.cache.purge(done);
        self.head.cache.make_room(reached.window.allowed, done);
        let told = reached.told_allowed;
        if self.allowed() > told + self.step() {
            self.ack_due = true;
        }
        let Some(reached) = &mut self.reached else { return };
        if let Some((node, _)) = reached.before.take_if(|before| first_missing >= before.1) {
            self.goodbyes.push_back(node);
        }
        self.check_end(cx);
    }

    /// Returns the growth of H_a acknowledged at once: a new member's window must not stay closed.
    fn step(&self) -> u64 {
        let Some(reached) = &self.reached else { return 0 };
        let below = self.head.members.allowed();
        match below.is_some_and(|below| below < reached.window.allowed) {
            true => reached.window.ack_window / 2,
            false => reached.window.step(),
        }
    }

    /// Returns H_a of this subtree: the least of own window, own room and the members' H_a.
    pub(super) fn allowed(&self) -> u64 {
        let Some(reached) = &self.reached else { return 0 };
        let own = reached.window.allowed.min(self.head.cache.room_until() - 1);
        // H_a never decreases: the source may have sent the packets by now.
        self.head.members.allowed().map_or(own, |below| below.min(own)).max(reached.told_allowed)
    }
}
