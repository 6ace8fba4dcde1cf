//! How a receiver finds out what is missing, and what it does as time passes.

use faircast_base::{Cx, Event, Seq};

use super::crowd::Backoff;
use super::{ReceiverSession, RepairLayer, Requests};

impl<R: RepairLayer> ReceiverSession<R> {
    /// Looks for gaps after something came. A gap counts as missing once enough later packets have
    /// come, or some time after it showed: packets that only overtook each other cause no NAK.
    pub(super) fn find_gaps(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        if window.next >= window.known {
            self.suspicion = None;
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
        if self.suspicion.is_some() {
            return;
        }
        let from = self.declared.max(window.next);
        let received = window.highest.map_or(window.next, |highest| highest + 1);
        if window.has_gap(from, received) {
            self.suspicion = Some((cx.now + self.config.reorder_delay, received));
        } else if window.has_gap(from.max(received), window.known) {
            self.suspicion = Some((cx.now + self.config.tail_delay, window.known));
        }
    }

    pub(super) fn expire_suspicion(&mut self, cx: &mut Cx<'_>) {
        if let Some((at, to)) = self.suspicion
            && at <= cx.now
        {
            self.suspicion = None;
            self.declare(cx, to);
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
            let missing = |index: &u64| {
                !window.received(*index) && !window.is_given_up(*index) && !self.repair.asks(*index)
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
        let mut asked = true;
        for index in first..=last {
            cx.emit(Event::LossDetected { seq: index });
            asked = self.repair.ask(cx, backoff, index);
            if let Some(window) = self.window.as_mut().filter(|_| !asked) {
                window.give_up(index);
            }
        }
        self.missing = self.missing.max(Some(last));
        if !asked {
            self.lone_nak.plan(cx, backoff, first);
        }
        // Truncation is the wrap of sequence numbers.
        self.feedback.on_missing(cx, Seq::new(first as u32), Seq::new(last as u32));
    }

    pub(super) fn expire_naks(&mut self, cx: &mut Cx<'_>) {
        let can_ask = self.path().is_some();
        let (stuck, given_up) = self.repair.on_timeout(cx, can_ask);
        let stuck = self.lone_nak.on_timeout(cx, self.config.nak_backoff, can_ask) || stuck;
        if stuck {
            self.feedback.on_stuck(cx);
            self.want_spm(cx);
        }
        if let Some(window) = &mut self.window
            && !given_up.is_empty()
        {
            given_up.iter().for_each(|&index| window.give_up(index));
            self.advance(cx);
        }
    }

    /// Asks for an SPM, and again later if none comes.
    pub(super) fn expire_request(&mut self, cx: &mut Cx<'_>) {
        if self.request_at.is_some_and(|at| at <= cx.now) {
            self.requests_due = Requests { to_group: true, to_source: true };
            let backoff = cx.rng.up_to(self.config.spm_request_backoff);
            self.request_at = Some(cx.now + self.config.spm_request_backoff + backoff);
        }
    }
}
