//! Scoreboard of a SACK sender: received packets and retransmitted holes.

use crate::ranges::RangeSet;

/// Scoreboard of ns-2's Sack1 agent. A lost retransmission is left to the timer.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    sacked: RangeSet,
    retransmitted: u64,
}

impl Scoreboard {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

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
        let arrived: u64 = self.sacked.iter().map(|run| run.end - run.start).sum();
        arrived as u32
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
        board.clear();
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
