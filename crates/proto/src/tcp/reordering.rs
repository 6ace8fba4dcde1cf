//! Tolerance of reordering, which ns-2's agents do not have: an option, off by default.
//!
//! A hole is a loss when it has lasted for longer than packets are late (src: RFC 8985 s6.2; the time is learnt as at
//! all other ends here, see `congestion::common::lateness`). Meanwhile each acknowledgement lets a packet go (src:
//! RFC 4653 s3), and a cut for packets that then come after all is taken back (src: RFC 8985 s7.4).

use alloc::collections::BTreeMap;

use faircast_base::{Cx, Duration, Time};

use super::Flavour;
use super::sender::{LastCut, TcpSender};
use crate::congestion::common::lateness::{Gaps, Lateness, bound};

/// State of a sender that tolerates reordering.
#[derive(Debug, Default)]
pub(super) struct Reordering {
    lateness: Lateness,
    gaps: Gaps,
    /// One past the highest packet that a block has told of.
    told: u64,
    /// Retransmission times of holes.
    resent: BTreeMap<u64, Time>,
    rtt_min: Option<Duration>,
    /// The last cut, while it may be taken back.
    undo: Option<Undo>,
}

/// A window before a cut, and how many packets that were retransmitted since have come as originals.
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: f64,
    ssthresh: f64,
    resent: u32,
    late: u32,
}

impl Reordering {
    /// Time to wait for a hole; `None` if duplicates show a loss.
    fn tolerance(&self) -> Option<Duration> {
        self.lateness.tolerance(bound(self.rtt_min))
    }

    /// Time at which the hole at `una` is a loss; `None` if there is none, or it has been retransmitted.
    fn due(&self, una: u64) -> Option<Time> {
        let tolerance = self.tolerance().filter(|_| !self.resent.contains_key(&una))?;
        let (noticed, _) = self.gaps.next(una)?;
        Some(noticed + tolerance)
    }

    /// One past the last hole that is a loss; `None` where all holes are.
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

    /// The window is about to be cut.
    pub(super) fn on_cut(&mut self, now: Time, cwnd: f64, ssthresh: f64) {
        self.lateness.lost(now);
        self.undo = Some(Undo { cwnd, ssthresh, resent: 0, late: 0 });
    }

    pub(super) fn on_timeout(&mut self) {
        (self.gaps, self.undo, self.told) = (Gaps::default(), None, 0);
        self.resent.clear();
    }

    /// Packets of this range have arrived. Packets that were missed and not repaired were late.
    fn came(&mut self, now: Time, from: u64, to: u64) {
        let mut from = from;
        while let Some(seq) = self.gaps.first_from(from).filter(|seq| *seq < to) {
            from = seq + 1;
            let Some(late) = self.gaps.came(now, seq) else { continue };
            let resent = self.resent.get(&seq).copied();
            // A packet that comes within a round trip of its retransmission is the original (src: RFC 3522).
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

    /// An acknowledgement of all before `ack` and of these blocks; `una` was the first that was missing.
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

    /// A duplicate acknowledgement without blocks: packet `una` is missing.
    fn on_duplicate(&mut self, now: Time, una: u64) {
        if self.gaps.next(una).is_none() {
            self.gaps.notice(now, una, una + 1);
        }
    }
}

impl TcpSender {
    /// Takes what an acknowledgement says of the order of packets.
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

    /// True if the first hole is a loss by now; `None` if duplicates decide.
    pub(super) fn hole_is_lost(&self, now: Time) -> Option<bool> {
        let reordering = self.reordering.as_ref()?;
        reordering.tolerance()?;
        Some(reordering.due(self.una).is_some_and(|due| due <= now))
    }

    /// Time at which the first hole is a loss to be answered, unless an acknowledgement comes before.
    pub(super) fn hole_due(&self) -> Option<Time> {
        let due = self.reordering.as_ref()?.due(self.una)?;
        let recovers = match self.flavour {
            Flavour::Sack => self.recovering,
            Flavour::Reno | Flavour::NewReno => self.last_cut == LastCut::DupAcks,
        };
        (!recovers && self.may_fast_retransmit()).then_some(due)
    }

    /// Sends new packets in the place of those that have arrived beyond a hole.
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
