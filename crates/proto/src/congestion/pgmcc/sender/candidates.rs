//! Candidates: receivers that wait for a comparison with the acker. A NAK reports a loss just
//! counted; the acker's last report is often older, so a near receiver with the same losses looks
//! far slower (src: seada-helmy s4.4: pairs of switches). A candidate waits until the acker has
//! reported on all packets that the candidate had seen.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, SwitchReason, Time};

use super::PgmccSender;
use crate::congestion::pgmcc::receivers::RttSample;

/// Most candidates waiting. The oldest is dropped and returns with its next NAK.
const CANDIDATES_MAX: usize = 16;

/// Longest wait of a candidate: 64 s. An acker silent for that time has stalled.
const WAIT_MAX: Duration = Duration::from_secs(64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    id: NodeId,
    lost: Seq,
    seen: Seq,
    since: Time,
}

#[derive(Debug, Default)]
pub(super) struct Candidates(Vec<Candidate>);

impl PgmccSender {
    pub(super) fn can_compare(
        &mut self,
        now: Time,
        from: NodeId,
        nak: Option<Seq>,
        sample: Option<RttSample>,
    ) -> bool {
        let Some(lost) = nak.filter(|_| self.config.compare_alike) else { return true };
        // The candidate has seen nothing later than the echoed packet. The acker's report includes
        // a loss only after enough later packets.
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
