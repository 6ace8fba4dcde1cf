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
    /// First packet of the candidate's NAK.
    lost: Seq,
    /// Packet on which the acker must have reported.
    seen: Seq,
    since: Time,
}

#[derive(Debug, Default)]
pub(super) struct Candidates(Vec<Candidate>);

impl PgmccSender {
    /// Returns true if the acker has reported on the packets that `from` had seen. Otherwise the
    /// receiver waits as a candidate.
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
        let seen = echoed.max(lost) + self.config.profile.loss_threshold();
        if self.election.acker_has_reported_on(seen) {
            return true;
        }
        let waiting = &mut self.election.candidates.0;
        waiting.retain(|candidate| candidate.id != from);
        if waiting.len() == CANDIDATES_MAX {
            waiting.remove(0);
        }
        waiting.push(Candidate { id: from, lost, seen, since: now });
        false
    }

    /// Compares the candidates on whose packets the acker has reported by now.
    pub(super) fn compare_candidates(&mut self, cx: &mut Cx<'_>) {
        self.election.candidates.0.retain(|candidate| cx.now.since(candidate.since) < WAIT_MAX);
        let mut index = 0;
        while let Some(&Candidate { id, lost, seen, .. }) = self.election.candidates.0.get(index) {
            if !self.election.acker_has_reported_on(seen) {
                index += 1;
                continue;
            }
            self.election.candidates.0.remove(index);
            if self.election.acker_id() != Some(id)
                && self.election.beats_acker(&self.config, cx.now, id)
            {
                self.appoint(cx, id, SwitchReason::Slower, Some(lost));
            }
        }
    }
}
