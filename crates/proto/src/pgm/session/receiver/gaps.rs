//! Detection of lost packets: gaps that later packets, or time, have passed.

use faircast_base::{Cx, Duration, Seq};

use super::naks::Backoff;
use super::{ReceiverSession, RepairLayer, Timer};
use crate::congestion::common::lateness::Disorder;

/// Later packets before a packet counts as missing (src: RFC 3208 s6.3 names 2 as possible).
const REORDER_PACKETS: usize = 2;

/// Time after which a gap counts as missing with fewer later packets.
pub(crate) const REORDER_DELAY: Duration = Duration::from_millis(20);

#[derive(Default)]
#[repr(C)] // Hot fields first: see the receiver's session.
pub(super) struct Gaps {
    pub(super) disorder: Disorder,
    pub(super) declared_end: u64,
    pub(super) latest_missing: Option<u64>,
    pub(super) suspected_end: u64,
}

impl Gaps {
    pub(super) fn rewind(&mut self, index: u64) {
        self.disorder.gaps.rewind(index);
        self.latest_missing = self.latest_missing.filter(|&missing| missing < index);
    }
}

impl<R: RepairLayer> ReceiverSession<R> {
    /// Returns the time that a packet may be late on a reordering path; `None` on any other.
    pub(crate) fn reordering_tolerance(&self) -> Option<Duration> {
        self.gaps.disorder.tolerance()
    }

    /// Searches for gaps, which count as missing after some later packets or some time.
    pub(super) fn find_gaps(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        if window.next >= window.known {
            self.timers.disarm(Timer::Gaps);
            return;
        }
        let passed = match self.gaps.disorder.tolerance() {
            Some(_) => self.gaps.disorder.overdue(cx.now),
            None => window.passed_by(REORDER_PACKETS),
        };
        if let Some(passed) = passed {
            self.declare(cx, passed);
        }
        self.suspect(cx);
    }

    pub(super) fn suspect(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        if self.timers.is_armed(Timer::Gaps) {
            return;
        }
        let from = self.gaps.declared_end.max(window.next);
        let received = window.highest.map_or(window.next, |highest| highest + 1);
        let least = self.gaps.disorder.tolerance().unwrap_or_default();
        let (to, at) = if window.has_gap(from, received) {
            // A gap unknown to `disorder` is before all received packets.
            let unnoticed = (cx.now + REORDER_DELAY.max(least), received);
            let (due, end) = self.gaps.disorder.next(from).unwrap_or(unnoticed);
            (end, due)
        } else if window.has_gap(from.max(received), window.known) {
            (window.known, cx.now + self.config.settings.tail_delay.max(least))
        } else {
            return;
        };
        self.gaps.suspected_end = to;
        self.timers.arm(Timer::Gaps, at.max(cx.now));
    }

    pub(super) fn declare(&mut self, cx: &mut Cx<'_>, to: u64) {
        let Some(window) = &self.window else { return };
        let mut from = self.gaps.declared_end.max(window.next);
        if from >= to {
            return;
        }
        self.gaps.declared_end = to;
        let mut backoff = Backoff::new(cx.now);
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

    /// Declares adjacent packets as missing: they are requested, or given up without repair.
    pub(super) fn declare_run(
        &mut self,
        cx: &mut Cx<'_>,
        backoff: &mut Backoff,
        first: u64,
        last: u64,
    ) {
        self.extent.losses.missing(first..last + 1, |event| cx.emit(event));
        self.gaps.disorder.lateness.lost(cx.now);
        for index in first..=last {
            if let Some(naks) = self.repair.naks_mut() {
                naks.back_off(index, backoff, cx.rng);
            } else if let Some(window) = &mut self.window {
                window.give_up(index);
            }
        }
        self.gaps.latest_missing = self.gaps.latest_missing.max(Some(last));
        if self.repair.naks().is_none()
            && let Some(at) = self.lone_nak.plan(cx, backoff, first)
        {
            self.timers.arm(Timer::LoneNak, at);
        }
        self.scheme.feedback.on_missing(cx, Seq::new(first as u32), Seq::new(last as u32));
    }
}
