//! Receivers that wait to be compared with the acker.
//!
//! A NAK tells of a loss that its sender has just counted. The acker's last report is often older
//! than that loss, and a low-pass filter forgets quickly: compared at that moment, a near receiver
//! with the same losses as a far acker looks far slower, becomes acker, and is replaced as soon as
//! the far one's NAK arrives. Seada and Helmy saw that in pairs of switches (s4.4). So a candidate
//! waits until the acker has reported on all packets that the candidate had seen.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, SwitchReason, Time};

use super::PgmccSender;
use crate::congestion::pgmcc::receivers::RttSample;

/// Candidates that wait at a time. Beyond it the oldest goes: its next NAK brings it back.
const CANDIDATES_MAX: usize = 16;

/// How long a candidate waits at the most; an acker that says nothing for so long has stalled.
const WAIT_MAX: Duration = Duration::from_secs(64);

/// A receiver that reported a loss which the acker has not reported on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    id: NodeId,
    /// The packet that it asks for.
    lost: Seq,
    /// The latest packet that it had seen when it reported.
    seen: Seq,
    since: Time,
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Candidates(Vec<Candidate>);

impl PgmccSender {
    /// Whether `from`, which asks for `nak`, can be compared with the acker now; otherwise it
    /// waits.
    pub(super) fn can_compare(
        &mut self,
        now: Time,
        from: NodeId,
        nak: Option<Seq>,
        sample: Option<RttSample>,
    ) -> bool {
        let Some(lost) = nak.filter(|_| self.config.compare_alike) else { return true };
        // What was sent since the packet whose timestamp it echoes it cannot have seen. A loss is in
        // the acker's report only once enough later packets are.
        let echoed = sample.map_or(lost, |sample| self.ledger.next() - sample.packets);
        let seen = echoed.max(lost) + self.config.reorder_tolerance;
        if self.acker_has_reported_on(seen) {
            return true;
        }
        let waiting = &mut self.candidates.0;
        waiting.retain(|candidate| candidate.id != from);
        if waiting.len() == CANDIDATES_MAX {
            waiting.remove(0);
        }
        waiting.push(Candidate { id: from, lost, seen, since: now });
        false
    }

    /// Compares the candidates that waited for what the acker has now reported.
    pub(super) fn compare_candidates(&mut self, cx: &mut Cx<'_>) {
        self.candidates.0.retain(|candidate| cx.now.since(candidate.since) < WAIT_MAX);
        let mut index = 0;
        while let Some(&Candidate { id, lost, seen, .. }) = self.candidates.0.get(index) {
            if !self.acker_has_reported_on(seen) {
                index += 1;
                continue;
            }
            self.candidates.0.remove(index);
            if self.acker_id() != Some(id) && self.beats_acker(cx.now, id) {
                self.appoint(cx, id, SwitchReason::Slower, Some(lost));
            }
        }
    }

    fn acker_has_reported_on(&self, seen: Seq) -> bool {
        let reported = self.acker.as_ref().and_then(|acker| acker.reported);
        reported.is_some_and(|highest| !highest.before(seen))
    }
}
