//! Record of the item in each packet of an object's stream, so that any packet can be read again.

use alloc::vec::Vec;
use core::ops::Range;

use crate::object::layout::SymbolId;

/// Most recorded runs of packets. With a full record no symbol is sent again.
const RUNS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Announcement of the object; `exhausted` is true if nothing was left to send.
    Announcement {
        exhausted: bool,
    },
    Symbol(SymbolId),
}

/// Consecutive packets with consecutive symbols, or one announcement.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    item: Item,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    runs: Vec<Run>,
    pub(super) end: u64,
}

impl Log {
    pub(super) fn is_full(&self) -> bool {
        self.runs.len() >= RUNS_MAX
    }

    pub(super) fn push(&mut self, item: Item) {
        let follows = match (self.runs.last(), item) {
            (Some(&Run { first, item: Item::Symbol(id) }), Item::Symbol(next)) => {
                id + (self.end - first) == next
            }
            _ => false,
        };
        if !follows {
            self.runs.push(Run { first: self.end, item });
        }
        self.end += 1;
    }

    pub(super) fn get(&self, index: u64) -> Option<Item> {
        let run = self.runs[..self.runs.partition_point(|run| run.first <= index)].last()?;
        (index < self.end).then_some(match run.item {
            Item::Symbol(id) => Item::Symbol(id + (index - run.first)),
            announcement => announcement,
        })
    }

    pub(super) fn symbols(&self, after: u64) -> impl Iterator<Item = Range<SymbolId>> {
        // A receiver sends this number, so it may be anything.
        let after = after.min(self.end);
        let from = self.runs.partition_point(|run| run.first <= after).saturating_sub(1);
        let ends = self.runs[from..].iter().skip(1).map(|run| run.first).chain([self.end]);
        self.runs[from..].iter().zip(ends).filter_map(move |(run, end)| {
            let Item::Symbol(id) = run.item else { return None };
            let skipped = after.saturating_sub(run.first);
            (run.first + skipped < end).then_some(id + skipped..id + (end - run.first))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Returns a log of an announcement, symbols 5 to 9, an announcement, symbols 0 to 2 and 20.
    fn log() -> Log {
        let mut log = Log::default();
        let announcement = Item::Announcement { exhausted: false };
        let symbols = |range: Range<u64>| range.map(Item::Symbol);
        let all = [announcement].into_iter().chain(symbols(5..10)).chain([announcement]);
        all.chain(symbols(0..3)).chain(symbols(20..21)).for_each(|item| log.push(item));
        log
    }

    #[test]
    fn every_packet_holds_what_it_held() {
        let log = log();
        let held: Vec<_> = (0..12).map(|index| log.get(index)).collect();
        let announcement = Some(Item::Announcement { exhausted: false });
        let symbol = |id| Some(Item::Symbol(id));
        let mut want = vec![announcement];
        want.extend((5..10).map(symbol));
        want.push(announcement);
        want.extend([0, 1, 2, 20].map(symbol));
        want.push(None);
        assert_eq!(held, want);
        assert_eq!((log.end, log.runs.len()), (11, 5));
    }

    #[test]
    fn what_comes_after_a_packet_is_known() {
        let log = log();
        let symbols = |after| log.symbols(after).collect::<Vec<_>>();
        assert_eq!(symbols(0), [5..10, 0..3, 20..21]);
        assert_eq!(symbols(3), [7..10, 0..3, 20..21]);
        assert_eq!(symbols(8), [1..3, 20..21]);
        assert_eq!(symbols(11), []);
    }
}
