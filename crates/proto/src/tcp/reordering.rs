//! Reordering tolerance: an option without counterpart in ns-2's agents, off by default. A hole is
//! a loss once it lasts longer than packets are usually late (src: RFC 8985 s6.2). Meanwhile each
//! acknowledgement releases a packet (src: RFC 4653 s3). A cut for late packets is reverted (src:
//! RFC 8985 s7.4).

use alloc::collections::BTreeMap;

use faircast_base::{Cx, Duration, Time};

use super::Flavour;
use super::recovery::{CongestionWindow, LastCut};
use super::sender::TcpSender;
use crate::congestion::common::lateness::{Gaps, Lateness, bound};

#[derive(Debug, Default)]
pub(super) struct Reordering {
    lateness: Lateness,
    gaps: Gaps,
    /// One past the highest packet that an acknowledgement or a block has covered.
    covered_end: u64,
    /// Retransmitted packets without an acknowledgement, with the time of the last retransmission.
    resent: BTreeMap<u64, Time>,
    rtt_min: Option<Duration>,
    undo: Option<Undo>,
}

/// Window before a cut, and the retransmitted packets since whose originals came.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: CongestionWindow,
    resent: u32,
    late: u32,
}

impl Reordering {
    fn tolerance(&self) -> Option<Duration> {
        self.lateness.tolerance(bound(self.rtt_min))
    }

    fn due(&self, una: u64) -> Option<Time> {
        let tolerance = self.tolerance().filter(|_| !self.resent.contains_key(&una))?;
        let (noticed, _) = self.gaps.next(una)?;
        Some(noticed + tolerance)
    }

    pub(super) fn lost_before(&self, now: Time) -> Option<u64> {
        let tolerance = self.tolerance()?;
        Some(self.gaps.overdue(now, tolerance).unwrap_or(0))
    }

    pub(super) fn on_round_trip(&mut self, rtt: Duration) {
        self.rtt_min = Some(self.rtt_min.map_or(rtt, |least| least.min(rtt)));
    }

    pub(super) fn on_resent(&mut self, now: Time, seq: u64) {
        self.resent.insert(seq, now);
        if let Some(undo) = &mut self.undo {
            undo.resent += 1;
        }
    }

    pub(super) fn on_cut(&mut self, now: Time, window: CongestionWindow) {
        self.lateness.lost(now);
        self.undo = Some(Undo { window, resent: 0, late: 0 });
    }

    pub(super) fn on_timeout(&mut self) {
        (self.gaps, self.undo, self.covered_end) = (Gaps::default(), None, 0);
        self.resent.clear();
    }

    fn on_received(&mut self, now: Time, mut from: u64, to: u64) {
        while let Some(seq) = self.gaps.first_from(from).filter(|seq| *seq < to) {
            from = seq + 1;
            let Some(late) = self.gaps.came(now, seq) else { continue };
            let resent = self.resent.get(&seq).copied();
            // A packet within a round trip of its retransmission is the original (src: RFC 3522).
            let original =
                resent.is_none_or(|at| self.rtt_min.is_some_and(|least| now.since(at) < least));
            if original {
                self.lateness.came(late, bound(self.rtt_min));
                if let Some(undo) = self.undo.as_mut().filter(|_| resent.is_some()) {
                    undo.late += 1;
                }
            }
        }
    }

    fn on_ack(&mut self, now: Time, una: u64, ack: u64, blocks: &[(u64, u64)]) {
        self.on_received(now, una, ack);
        for &(start, end) in blocks {
            self.on_received(now, start, end);
        }
        self.covered_end = self.covered_end.max(ack);
        let mut ascending = blocks.to_vec();
        ascending.sort_unstable();
        for (start, end) in ascending {
            if start > self.covered_end {
                self.gaps.notice(now, self.covered_end, start);
            }
            self.covered_end = self.covered_end.max(end);
        }
        self.resent = self.resent.split_off(&ack);
    }
}

impl TcpSender {
    pub(super) fn note_order(&mut self, cx: &mut Cx<'_>, ack: u64, blocks: &[(u64, u64)]) {
        let (una, sent_end) = (self.una, self.sent_end);
        let Some(reordering) = &mut self.reordering else { return };
        reordering.on_ack(cx.now, una, ack, blocks);
        let is_duplicate = ack == una && una < sent_end && self.flavour != Flavour::Sack;
        if is_duplicate && reordering.gaps.next(una).is_none() {
            reordering.gaps.notice(cx.now, una, una + 1);
        }
        let undone = reordering.undo.take_if(|undo| undo.resent > 0 && undo.late >= undo.resent);
        if let Some(Undo { window, .. }) = undone {
            self.window.undo_cut(&window);
            self.recovery.end_fast_recovery();
            if self.recovery.pipe.take().is_some() {
                self.recovery.recover = 1;
                self.last_una = self.una;
            }
        }
    }

    /// Returns true if the first hole counts as lost; `None` on a path that has not reordered.
    pub(super) fn hole_is_lost(&self, now: Time) -> Option<bool> {
        let reordering = self.reordering.as_ref()?;
        reordering.tolerance()?;
        Some(reordering.due(self.una).is_some_and(|due| due <= now))
    }

    /// Returns the time at which to answer the loss of the first hole, unless acknowledged before.
    pub(super) fn hole_due(&self) -> Option<Time> {
        let due = self.reordering.as_ref()?.due(self.una)?;
        let recovers = match self.flavour {
            Flavour::Sack => self.recovery.pipe.is_some(),
            Flavour::Reno | Flavour::NewReno => self.recovery.last_cut == LastCut::DupAcks,
        };
        (!recovers && self.may_fast_retransmit()).then_some(due)
    }

    /// Sends a new packet for each one that arrived after the hole.
    pub(super) fn send_beyond_hole(&mut self, cx: &mut Cx<'_>) {
        if self.recovery.dup_acks == 0 {
            return self.send_window(cx, false, usize::MAX);
        }
        while self.limited_transmit(cx) {}
    }
}
