//! Reordering tolerance: an option without counterpart in ns-2's agents, off by default. A hole is
//! a loss once it lasts longer than packets are usually late (src: RFC 8985 s6.2). Meanwhile each
//! acknowledgement releases a packet (src: RFC 4653 s3). A cut for late packets is reverted (src:
//! RFC 8985 s7.4).

use alloc::collections::BTreeMap;

use faircast_base::{Cx, Duration, Time};

use super::Flavour;
use super::sender::{LastCut, TcpSender};
use crate::congestion::common::lateness::{Gaps, Lateness, bound};

#[derive(Debug, Default)]
pub(super) struct Reordering {
    lateness: Lateness,
    gaps: Gaps,
    /// One past the highest packet of any block.
    told: u64,
    resent: BTreeMap<u64, Time>,
    rtt_min: Option<Duration>,
    undo: Option<Undo>,
}

/// Window before a cut, and the retransmitted packets since whose originals came.
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: f64,
    ssthresh: f64,
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

    pub(super) fn on_cut(&mut self, now: Time, cwnd: f64, ssthresh: f64) {
        self.lateness.lost(now);
        self.undo = Some(Undo { cwnd, ssthresh, resent: 0, late: 0 });
    }

    pub(super) fn on_timeout(&mut self) {
        (self.gaps, self.undo, self.told) = (Gaps::default(), None, 0);
        self.resent.clear();
    }

    /// Notes received packets. Missing packets that come without a repair were late.
    fn came(&mut self, now: Time, from: u64, to: u64) {
        let mut from = from;
        while let Some(seq) = self.gaps.first_from(from).filter(|seq| *seq < to) {
            from = seq + 1;
            let Some(late) = self.gaps.came(now, seq) else { continue };
            let resent = self.resent.get(&seq).copied();
            // A packet within a round trip of its retransmission is the original (src: RFC 3522).
            let original =
                resent.is_none_or(|at| self.rtt_min.is_some_and(|least| now.since(at) < least));
            if !original {
                continue;
            }
            self.lateness.came(late, bound(self.rtt_min));
            if let Some(undo) = self.undo.as_mut().filter(|_| resent.is_some()) {
                undo.late += 1;
            }
        }
    }

    fn on_ack(&mut self, now: Time, una: u64, ack: u64, blocks: &[(u64, u64)]) {
        self.came(now, una, ack);
        for &(start, end) in blocks {
            self.came(now, start, end);
        }
        self.told = self.told.max(ack);
        let mut ascending: [(u64, u64); super::wire::SACK_BLOCKS_MAX] = Default::default();
        let ascending = &mut ascending[..blocks.len()];
        ascending.copy_from_slice(blocks);
        ascending.sort_unstable();
        for &(start, end) in &*ascending {
            if start > self.told {
                self.gaps.notice(now, self.told, start);
            }
            self.told = self.told.max(end);
        }
        while self.resent.first_key_value().is_some_and(|(seq, _)| *seq < ack) {
            self.resent.pop_first();
        }
    }

    fn on_duplicate(&mut self, now: Time, una: u64) {
        if self.gaps.next(una).is_none() {
            self.gaps.notice(now, una, una + 1);
        }
    }
}

impl TcpSender {
    pub(super) fn note_order(&mut self, cx: &mut Cx<'_>, ack: u64, blocks: &[(u64, u64)]) {
        let (una, high) = (self.una, self.high);
        let Some(reordering) = &mut self.reordering else { return };
        reordering.on_ack(cx.now, una, ack, blocks);
        if ack == una && una < high && self.flavour != Flavour::Sack {
            reordering.on_duplicate(cx.now, una);
        }
        let undone = reordering.undo.take_if(|undo| undo.resent > 0 && undo.late >= undo.resent);
        if let Some(Undo { cwnd, ssthresh, .. }) = undone {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = self.ssthresh.max(ssthresh);
            self.inflation = 0;
            if self.last_cut == LastCut::DupAcks {
                self.last_cut = LastCut::Recovered;
            }
            if core::mem::take(&mut self.recovering) {
                self.recover = 1;
                self.last_una = self.una;
            }
        }
    }

    pub(super) fn hole_is_lost(&self, now: Time) -> Option<bool> {
        let reordering = self.reordering.as_ref()?;
        reordering.tolerance()?;
        Some(reordering.due(self.una).is_some_and(|due| due <= now))
    }

    /// Returns the time at which to answer the loss of the first hole, unless acknowledged before.
    pub(super) fn hole_due(&self) -> Option<Time> {
        let due = self.reordering.as_ref()?.due(self.una)?;
        let recovers = match self.flavour {
            Flavour::Sack => self.recovering,
            Flavour::Reno | Flavour::NewReno => self.last_cut == LastCut::DupAcks,
        };
        (!recovers && self.may_fast_retransmit()).then_some(due)
    }

    pub(super) fn send_beyond_hole(&mut self, cx: &mut Cx<'_>) {
        if self.dup_acks == 0 {
            return self.send_window(cx, false, usize::MAX);
        }
        loop {
            let before = self.next;
            self.send_one(cx);
            if self.next == before {
                break;
            }
        }
    }
}
