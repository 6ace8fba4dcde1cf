//! How a receiver finds out what is missing, and what it does as time passes.

use faircast_base::{Cx, Event, Seq, TimeoutKind};

use super::naks::{Backoff, State};
use super::{PgmReceiver, Requests};

impl PgmReceiver {
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
        let mut backoff = Backoff::new(cx.now, &self.config);
        while from < to {
            let Some(window) = &self.window else { return };
            let missing = |index: &u64| {
                !window.received(*index) && !window.is_given_up(*index) && !self.naks.has(*index)
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
            if self.repairs() {
                let deadline = self.naks.draw(backoff, cx.rng);
                self.naks.begin(index, State::BackOff, deadline);
            } else if let Some(window) = &mut self.window {
                window.give_up(index);
            }
        }
        self.missing = self.missing.max(Some(last));
        if !self.repairs() {
            self.want_lone_nak(cx, backoff, first);
        }
        // Truncation is the wrap of sequence numbers.
        self.feedback.on_missing(cx, Seq::new(first as u32), Seq::new(last as u32));
    }

    /// Where nothing is repaired, a loss still calls for a NAK with its report, at most one in an
    /// interval: the losses within one round trip are one event.
    fn want_lone_nak(&mut self, cx: &mut Cx<'_>, backoff: &mut Backoff, index: u64) {
        let interval = self.config.report_interval;
        let recent = self.lone_nak_last.is_some_and(|at| cx.now.since(at) < interval);
        if self.lone_nak.is_none() && !recent {
            self.lone_nak = Some((self.naks.draw(backoff, cx.rng), index));
        }
    }

    pub(super) fn expire_naks(&mut self, cx: &mut Cx<'_>) {
        let can_ask = self.path().is_some();
        let expired = self.naks.expire(cx.now, cx.rng, &self.config, can_ask);
        for (waited, kind) in [
            (expired.unconfirmed, TimeoutKind::NakConfirmation),
            (expired.unrepaired, TimeoutKind::NakRepair),
        ] {
            if let Some(wait) = waited {
                cx.emit(Event::Timeout { kind, after_ns: wait.as_nanos() });
            }
        }
        if let Some((at, index)) = self.lone_nak
            && at <= cx.now
        {
            if can_ask {
                self.lone_nak = None;
                self.lone_nak_due = Some(index);
                self.lone_nak_last = Some(cx.now);
            } else {
                let backoff = cx.rng.up_to(self.config.nak_backoff);
                self.lone_nak = Some((cx.now + backoff, index));
            }
        }
        let stuck = expired.stuck || (self.lone_nak.is_some() && !can_ask);
        if stuck {
            self.feedback.on_stuck(cx);
        }
        if stuck && self.request_at.is_none() {
            let backoff = cx.rng.up_to(self.config.spm_request_backoff);
            self.request_at = Some(cx.now + backoff);
        }
        if let Some(window) = &mut self.window
            && !expired.give_up.is_empty()
        {
            expired.give_up.iter().for_each(|&index| window.give_up(index));
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
