//! A receiver's record of the packets that have come, and of the gaps between them.

use core::ops::Range;

use crate::ranges::RangeSet;

/// How far beyond the last packet a packet may lie to be believed. Windows are much smaller; whoever invents a
/// number cannot open a gap that is longer.
pub(super) const JUMP_MAX: u64 = 1 << 16;

/// What an arrival was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// It is the first copy, and nobody had missed it; so many before it are missing now.
    New { missing: u64 },
    /// It fills a gap.
    Repaired,
    /// It is here already, was given up, or was sent before this receiver took part.
    Useless,
    /// It lies too far ahead to be believed.
    TooFar,
}

/// Which packets of a session are here: all before the first that is missing, and some after it.
#[derive(Debug)]
pub(super) struct Reception {
    /// One past the last packet that came, or that somebody told of.
    end: u64,
    /// Of those before `end`, the ones that are missing.
    missing: RangeSet,
}

impl Reception {
    /// Nothing has come, and `first` is the first that is wanted.
    pub(super) fn new(first: u64) -> Self {
        Self { end: first, missing: RangeSet::default() }
    }

    /// The first packet that is missing: all before it are here or given up (H_r + 1 in the paper).
    pub(super) fn first_missing(&self) -> u64 {
        self.missing.iter().next().map_or(self.end, |run| run.start)
    }

    /// One past the last packet that is known of.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The packets that are missing, in ascending order.
    pub(super) fn missing(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.missing.iter()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// How many packets are missing.
    pub(super) fn missing_packets(&self) -> u64 {
        self.missing.iter().map(|run| run.end - run.start).sum()
    }

    /// A packet has come.
    pub(super) fn arrive(&mut self, sequence: u64) -> Arrived {
        if sequence >= self.end {
            let missing = sequence - self.end;
            if missing > JUMP_MAX {
                return Arrived::TooFar;
            }
            self.missing.insert(self.end..sequence);
            self.end = sequence + 1;
            return Arrived::New { missing };
        }
        if !self.missing.contains(sequence) {
            return Arrived::Useless;
        }
        self.missing.remove(sequence..sequence + 1);
        Arrived::Repaired
    }

    /// The sender says that `last` was the last packet so far. Returns how many are newly missing; none where
    /// that cannot be believed.
    pub(super) fn hear_of(&mut self, last: u64) -> u64 {
        if last < self.end || last - self.end >= JUMP_MAX {
            return 0;
        }
        let missing = last + 1 - self.end;
        self.missing.insert(self.end..last + 1);
        self.end = last + 1;
        missing
    }

    /// These packets, all of which are known of, are not wanted.
    pub(super) fn skip(&mut self, packets: Range<u64>) {
        self.missing.remove(packets);
    }

    /// Whether a packet has not come yet.
    pub(super) fn lacks(&self, sequence: u64) -> bool {
        sequence >= self.end || self.missing.contains(sequence)
    }

    /// The source has come as far as `last` and no further: what was said of later packets is void.
    pub(super) fn rewind(&mut self, last: u64) {
        if last + 1 < self.end {
            self.missing.remove(last + 1..self.end);
            self.end = last + 1;
        }
    }

    /// Packets before `end` will never come. Calls `lost` for each run of them that was missing.
    pub(super) fn give_up(&mut self, end: u64, mut lost: impl FnMut(Range<u64>)) {
        if end > self.end {
            self.missing.insert(self.end..end);
            self.end = end;
        }
        loop {
            let first = self.missing.iter().next().filter(|run| run.start < end);
            let Some(run) = first else { return };
            let run = run.start..run.end.min(end);
            self.missing.remove(run.clone());
            lost(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    #[test]
    fn gaps_open_and_close() {
        let mut reception = Reception::new(5);
        let steps = [
            (4, Arrived::Useless, 5),
            (5, Arrived::New { missing: 0 }, 6),
            (9, Arrived::New { missing: 3 }, 6),
            (9, Arrived::Useless, 6),
            (6, Arrived::Repaired, 7),
            (8, Arrived::Repaired, 7),
            (8, Arrived::Useless, 7),
            (7, Arrived::Repaired, 10),
            (11 + JUMP_MAX, Arrived::TooFar, 10),
        ];
        for (sequence, arrived, first_missing) in steps {
            assert_eq!(reception.arrive(sequence), arrived, "{sequence}");
            assert_eq!(reception.first_missing(), first_missing, "after {sequence}");
        }
        assert!(reception.is_complete() && reception.end() == 10);
    }

    #[test]
    fn what_was_only_told_of_is_missing_and_can_be_given_up() {
        let mut reception = Reception::new(1);
        assert_eq!(reception.hear_of(0), 0);
        assert_eq!(reception.hear_of(10), 10);
        assert_eq!(reception.hear_of(10), 0);
        assert_eq!(reception.hear_of(11 + JUMP_MAX), 0, "nobody sends so much at once");
        reception.arrive(4);
        let mut lost = Vec::new();
        reception.give_up(7, |run| lost.push(run));
        assert_eq!(lost, [1..4, 5..7]);
        assert_eq!((reception.first_missing(), reception.missing_packets()), (7, 4));
    }

    #[test]
    fn what_was_said_of_packets_to_come_can_be_taken_back() {
        let mut reception = Reception::new(1);
        reception.arrive(1);
        reception.hear_of(60);
        reception.rewind(5);
        assert_eq!((reception.end(), reception.missing_packets()), (6, 4));
        assert!(reception.lacks(6) && reception.lacks(3) && !reception.lacks(1));
        reception.rewind(9);
        assert_eq!(reception.end(), 6, "nothing is said of later packets");
        assert_eq!(reception.arrive(6), Arrived::New { missing: 0 });
    }

    proptest::proptest! {
        #[test]
        fn it_is_the_set_of_what_has_come(arrivals: Vec<u8>) {
            let (mut reception, mut here) = (Reception::new(1), BTreeSet::new());
            for sequence in arrivals.into_iter().map(|x| 1 + u64::from(x)) {
                let useless = reception.arrive(sequence) == Arrived::Useless;
                proptest::prop_assert_eq!(useless, !here.insert(sequence));
                let first = (1..).find(|x| !here.contains(x)).unwrap();
                proptest::prop_assert_eq!(reception.first_missing(), first);
                let missing: u64 = reception.missing_packets();
                proptest::prop_assert_eq!(missing + here.len() as u64 + 1, reception.end());
            }
        }
    }
}
