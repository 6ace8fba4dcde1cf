//! How a receiver finds out what is missing, and what it does as time passes.

use faircast_base::{Cx, Event, Seq};

use super::crowd::Backoff;
use super::{ReceiverSession, RepairLayer, Requests, Timer};
use crate::pgm::repair::naks::Expired;

impl<R: RepairLayer> ReceiverSession<R> {
    /// Looks for gaps after something came. A gap counts as missing once enough later packets have
    /// come, or some time after it showed: packets that only overtook each other cause no NAK.
    pub(super) fn find_gaps(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        if window.next >= window.known {
            self.timers.disarm(Timer::Gaps);
            return;
        }
        if let Some(passed) = window.passed_by(self.config.reorder_packets as usize) {
            self.declare(cx, passed);
        }
        self.suspect(cx);
    }

    /// Sets the timer for gaps that too few packets have shown.
    fn suspect(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        if self.timers.is_armed(Timer::Gaps) {
            return;
        }
        let from = self.declared.max(window.next);
        let received = window.highest.map_or(window.next, |highest| highest + 1);
        let (to, delay) = if window.has_gap(from, received) {
            (received, self.config.reorder_delay)
        } else if window.has_gap(from.max(received), window.known) {
            (window.known, self.config.tail_delay)
        } else {
            return;
        };
        self.suspected = to;
        self.timers.arm(Timer::Gaps, cx.now + delay);
    }

    pub(super) fn expire_gaps(&mut self, cx: &mut Cx<'_>) {
        if self.timers.take_due(Timer::Gaps, cx.now) {
            self.declare(cx, self.suspected);
            self.suspect(cx);
        }
    }

    /// All that has not come before `to` counts as missing now.
    pub(super) fn declare(&mut self, cx: &mut Cx<'_>, to: u64) {
        let Some(window) = &self.window else { return };
        let mut from = self.declared.max(window.next);
        if from >= to {
            return;
        }
        self.declared = to;
        let mut backoff = Backoff::new(cx.now, self.config.nak_lists);
        while from < to {
            let Some(window) = &self.window else { return };
            let naks = self.repair.naks();
            let missing = |index: &u64| {
                !window.received(*index)
                    && !window.is_given_up(*index)
                    && naks.is_none_or(|naks| !naks.has(*index))
            };
            let Some(first) = (from..to).find(missing) else { break };
            let end = (first..to).find(|index| !missing(index)).unwrap_or(to);
            self.declare_run(cx, &mut backoff, first, end - 1);
            from = end;
        }
        self.advance(cx);
    }

    /// Packets `first` to `last` are missing.
    pub(super) fn declare_run(
        &mut self,
        cx: &mut Cx<'_>,
        backoff: &mut Backoff,
        first: u64,
        last: u64,
    ) {
        for index in first..=last {
            cx.emit(Event::LossDetected { seq: index });
            if let Some(naks) = self.repair.naks_mut() {
                naks.hold_back(index, backoff, cx.rng);
            } else if let Some(window) = &mut self.window {
                window.give_up(index);
            }
        }
        self.missing = self.missing.max(Some(last));
        if self.repair.naks().is_none()
            && let Some(at) = self.lone_nak.plan(cx, backoff, first)
        {
            self.timers.arm(Timer::LoneNak, at);
        }
        // Truncation is the wrap of sequence numbers.
        self.feedback.on_missing(cx, Seq::new(first as u32), Seq::new(last as u32));
    }

    pub(super) fn expire_naks(&mut self, cx: &mut Cx<'_>) {
        let can_ask = self.path().is_some();
        let naks = self.repair.naks_mut();
        let Expired { stuck, give_up } = naks.map(|it| it.expire(cx, can_ask)).unwrap_or_default();
        if self.timers.take_due(Timer::LoneNak, cx.now) {
            if can_ask {
                self.lone_nak.run_out(cx.now);
            } else {
                // Without an SPM it has no way to go.
                let backoff = cx.rng.up_to(self.config.nak_backoff);
                self.timers.arm(Timer::LoneNak, cx.now + backoff);
            }
        }
        if stuck || !can_ask && self.timers.is_armed(Timer::LoneNak) {
            self.feedback.on_stuck(cx);
            self.want_spm(cx);
        }
        if let Some(window) = &mut self.window
            && !give_up.is_empty()
        {
            give_up.iter().for_each(|&index| window.give_up(index));
            self.advance(cx);
        }
    }

    /// Asks for an SPM, and again later if none comes.
    pub(super) fn expire_request(&mut self, cx: &mut Cx<'_>) {
        if self.timers.take_due(Timer::SpmRequest, cx.now) {
            self.requests_due = Requests { to_group: true, to_source: true };
            self.request_later(cx);
        }
    }
}
