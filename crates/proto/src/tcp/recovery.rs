//! Loss recovery state of a sender, common to all flavours; scoreboard of SACK.

use crate::ranges::RangeSet;

/// Numbers of packets are one more than ns-2's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    /// End of the packets sent before the last cut (recover_ + 1); 1 after a SACK recovery.
    pub(super) recover: u64,
    /// Duplicate acknowledgements since the last new one (dupacks_).
    pub(super) dup_acks: u32,
    pub(super) last_cut: LastCut,
    /// NewReno: true once this recovery had a partial acknowledgement.
    pub(super) is_partial: bool,
    /// SACK: packets in the network during fast recovery (pipe_); `None` outside.
    pub(super) pipe: Option<i64>,
    /// SACK: true from a timeout to the next new acknowledgement.
    pub(super) after_timeout: bool,
}

/// Reason of the last cut (ns-2: last_cwnd_action_).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastCut {
    #[default]
    None,
    /// Duplicate acknowledgements; fast recovery lasts.
    DupAcks,
    /// Duplicate acknowledgements; fast recovery has ended.
    Recovered,
    Timeout,
}

impl Recovery {
    /// Ends fast recovery of Reno and NewReno, if any.
    pub(super) fn end_fast_recovery(&mut self) {
        if self.last_cut == LastCut::DupAcks {
            self.last_cut = LastCut::Recovered;
        }
    }

    /// True if duplicate acknowledgements may start a fast retransmit: not for losses of packets
    /// sent before the last cut (ns-2: bugFix_; src: RFC 6582 s4, the careful variant).
    pub(super) fn may_fast_retransmit(&self, una: u64) -> bool {
        // The exception permits fast repair of the first data packet.
        una > self.recover || una == 1
    }

    /// Starts anew after a timeout with packets up to `sent_end` in flight.
    pub(super) fn time_out(&mut self, sent_end: u64) {
        *self = Self {
            recover: sent_end,
            last_cut: LastCut::Timeout,
            is_partial: self.is_partial,
            after_timeout: true,
            ..Self::default()
        };
    }
}

/// Scoreboard of ns-2's Sack1 agent. A lost retransmission is left to the timer.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    sacked: RangeSet,
    retransmitted: u64,
}

impl Scoreboard {
    pub(super) fn update(&mut self, una: u64, blocks: &[(u64, u64)]) -> bool {
        self.sacked.remove(0..una);
        let mut news = false;
        for &(start, end) in blocks {
            if end > una {
                news |= self.sacked.insert(start.max(una)..end);
            }
        }
        news
    }

    pub(super) fn next_hole(&mut self, una: u64) -> Option<u64> {
        if self.sacked.is_empty() {
            return None;
        }
        self.retransmitted = self.retransmitted.max(una);
        let hole = self.sacked.gap_from(self.retransmitted)?;
        self.retransmitted = hole;
        Some(hole)
    }

    pub(super) fn arrived(&self) -> u32 {
        self.sacked.iter().map(|run| (run.end - run.start) as u32).sum()
    }

    pub(super) fn mark_retransmitted(&mut self, seq: u64) {
        self.retransmitted = self.retransmitted.max(seq + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_hole_is_offered_once_from_the_bottom_up() {
        let mut board = Scoreboard::default();
        assert_eq!(board.next_hole(10), None);
        assert!(board.update(10, &[(12, 14), (17, 18)]));
        assert!(!board.update(10, &[(12, 14)]), "nothing new");
        let mut holes = Vec::new();
        while let Some(hole) = board.next_hole(10) {
            board.mark_retransmitted(hole);
            holes.push(hole);
        }
        assert_eq!(holes, [10, 11, 14, 15, 16]);
        assert!(board.update(10, &[(20, 21)]));
        assert_eq!(board.next_hole(10), Some(18));
    }

    #[test]
    fn a_cumulative_acknowledgement_outruns_the_retransmissions() {
        let mut board = Scoreboard::default();
        board.update(10, &[(12, 14), (20, 21)]);
        board.mark_retransmitted(10);
        board.update(16, &[(20, 21)]);
        assert_eq!(board.next_hole(16), Some(16));
        board = Scoreboard::default();
        assert_eq!(board.next_hole(16), None);
    }

    #[test]
    fn blocks_below_the_cumulative_acknowledgement_say_nothing() {
        let mut board = Scoreboard::default();
        assert!(!board.update(10, &[(5, 8), (8, 10)]));
        assert!(board.update(10, &[(8, 12)]));
        assert_eq!(board.next_hole(10), None);
    }
}
