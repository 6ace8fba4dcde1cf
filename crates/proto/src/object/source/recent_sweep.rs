//! Blocks that the sweep has sent lately: requests for them may have crossed their packets.

use alloc::collections::VecDeque;
use core::ops::Range;

use faircast_base::{Duration, Time};

use crate::object::layout::BlockId;

/// Time for which swept blocks are remembered: longest round trip in a report.
const KEPT: Duration = Duration::from_secs(64);

/// Most entries. Adjacent blocks swept within [`TOGETHER`] share one.
const ENTRIES_MAX: usize = 8192;

const TOGETHER: Duration = Duration::from_millis(1);

/// Runs of swept blocks with the times at which their sweep began, latest last.
#[derive(Debug, Default)]
pub(super) struct RecentSweep {
    runs: VecDeque<(Time, Range<BlockId>)>,
}

impl RecentSweep {
    pub(super) fn note(&mut self, now: Time, block_id: BlockId) {
        while self.runs.len() >= ENTRIES_MAX
            || self.runs.front().is_some_and(|(at, _)| now.since(*at) >= KEPT)
        {
            self.runs.pop_front();
        }
        match self.runs.back_mut() {
            Some((at, run)) if run.end == block_id && now.since(*at) < TOGETHER => {
                run.end = block_id + 1;
            }
            _ => self.runs.push_back((now, block_id..block_id + 1)),
        }
    }

    /// Returns the runs whose sweep began less than `span` ago.
    pub(super) fn within(&self, now: Time, span: Duration) -> impl Iterator<Item = Range<BlockId>> {
        let late = self.runs.iter().rev().take_while(move |(at, _)| now.since(*at) < span);
        late.map(|(_, run)| run.clone())
    }

    pub(super) fn has(&self, block_id: BlockId, now: Time, span: Duration) -> bool {
        self.within(now, span).any(|run| run.contains(&block_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms};
    use alloc::vec::Vec;

    #[test]
    fn blocks_of_one_millisecond_share_an_entry_and_old_ones_go() {
        let mut recent = RecentSweep::default();
        let nanos = |nanos| at(0) + Duration::from_nanos(nanos);
        for (now, block_id) in [(nanos(0), 5), (nanos(999_999), 6), (at(1), 7), (at(1), 9)] {
            recent.note(now, block_id);
        }
        let within = |now, span| recent.within(now, span).collect::<Vec<_>>();
        assert_eq!(within(at(1), ms(2)), [9..10, 7..8, 5..7]);
        assert_eq!(within(at(1), ms(1)), [9..10, 7..8]);
        assert!(recent.has(6, at(1), ms(2)) && !recent.has(6, at(1), ms(1)));
        assert!(!recent.has(8, at(1), ms(2)));
        for block_id in 0..2 * ENTRIES_MAX as u64 {
            recent.note(at(2), 10 * block_id);
        }
        assert_eq!(recent.runs.len(), ENTRIES_MAX);
        recent.note(at(2) + KEPT, 3);
        assert_eq!(recent.runs.len(), 1);
    }
}
