//! Record of a receiver's packets, and of the gaps between them.

use core::ops::Range;

use faircast_base::{Duration, Time};

use crate::congestion::common::lateness::Disorder;
use crate::ranges::RangeSet;

/// Largest credible jump of packet numbers, which bounds forged gaps; windows are much smaller.
pub(crate) const JUMP_MAX: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    New,
    Late,
    /// Packet of a gap that counted as lost, as the original or as a repair.
    Repaired {
        original: bool,
    },
    /// Packet that is here, was given up, or was sent before this receiver took part.
    Useless,
    TooFar,
}

/// Received packets of a session: all before the first missing one, and some after it.
#[derive(Debug, Default)]
pub(crate) struct Reception {
    /// One past the highest packet that is known to be sent.
    pub(crate) end: u64,
    pub(crate) missing: RangeSet,
    /// Bound of lost packets: missing ones before it count as lost, later ones may come late.
    pub(crate) lost_before: u64,
    pub(crate) disorder: Disorder,
}

impl Reception {
    /// Creates the record of a receiver that begins with `first`, while all up to `last` were sent.
    pub(crate) fn joining(first: u64, last: u64) -> Self {
        let (end, mut missing) = (first.max(last + 1), RangeSet::default());
        missing.insert(first..end);
        Self { end, missing, lost_before: first, disorder: Disorder::default() }
    }

    /// Returns the first missing packet: all before it are here or given up (H_r + 1 in the paper).
    pub(crate) fn first_missing(&self) -> u64 {
        self.missing.iter().next().map_or(self.end, |run| run.start)
    }

    pub(crate) fn lost(&self) -> impl Iterator<Item = Range<u64>> {
        let runs = self.missing.iter().take_while(|run| run.start < self.lost_before);
        runs.map(|run| run.start..run.end.min(self.lost_before))
    }

    /// Returns the packet up to which the window moves, the first lost one: disorder closes none.
    pub(crate) fn window_base(&self) -> u64 {
        let waited_for = self.missing.within(self.lost_before..self.end);
        let waited_for = waited_for.map(|run| run.end - run.start);
        self.lost().next().map_or_else(|| self.end - waited_for.sum::<u64>(), |lost| lost.start)
    }

    pub(crate) fn has_losses(&self) -> bool {
        self.lost().next().is_some()
    }

    pub(crate) fn lost_packets_from(&self, from: u64) -> u64 {
        self.lost().map(|run| run.end.saturating_sub(run.start.max(from))).sum()
    }

    /// Records a packet, with the path's round trip. With `learns`, late originals set the wait.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        (sequence, repair): (u64, bool),
        (learns, round_trip): (bool, Option<Duration>),
    ) -> Arrived {
        if sequence >= self.end {
            if sequence - self.end > JUMP_MAX {
                return Arrived::TooFar;
            }
            if sequence > self.end {
                self.open_gap(now, sequence, (learns, round_trip));
            }
            self.end = sequence + 1;
            return Arrived::New;
        }
        if !repair {
            self.disorder.came(now, sequence);
        }
        if !self.missing.contains(sequence) {
            return Arrived::Useless;
        }
        self.missing.remove(sequence..sequence + 1);
        match sequence < self.lost_before {
            true => Arrived::Repaired { original: !repair },
            false => Arrived::Late,
        }
    }

    fn open_gap(&mut self, now: Time, to: u64, (learns, round_trip): (bool, Option<Duration>)) {
        self.missing.insert(self.end..to);
        if learns {
            self.disorder.notice(now, (self.end, to), round_trip);
        }
    }

    pub(crate) fn extend_to(&mut self, now: Time, last: u64, learns: (bool, Option<Duration>)) {
        if last >= self.end && last - self.end < JUMP_MAX {
            self.open_gap(now, last + 1, learns);
            self.end = last + 1;
        }
    }

    /// Decides which missing packets count as lost. Returns the decided range if it has losses.
    pub(crate) fn find_lost(&mut self, now: Time) -> Option<Range<u64>> {
        let to = match self.next_loss() {
            Some(_) => self.disorder.overdue(now)?,
            // No open gap may still close, so every missing packet is lost.
            None => self.end,
        };
        let from = self.lost_before;
        self.lost_before = from.max(to);
        let lost = self.missing.within(from..to).next().is_some();
        if lost {
            self.disorder.lateness.lost(now);
        }
        lost.then_some(from..to)
    }

    pub(crate) fn next_loss(&self) -> Option<Time> {
        self.disorder.next(self.lost_before).map(|(due, _)| due)
    }

    pub(crate) fn rewind(&mut self, last: u64) {
        if last + 1 < self.end {
            self.missing.remove(last + 1..self.end);
            self.end = last + 1;
            self.lost_before = self.lost_before.min(self.end);
            self.disorder.gaps.rewind(self.end);
        }
    }

    /// Gives up the missing packets before `end`, and reports each run of them.
    pub(crate) fn give_up(&mut self, end: u64, mut lost: impl FnMut(Range<u64>)) {
        if end > self.end {
            self.missing.insert(self.end..end);
            self.end = end;
        }
        self.lost_before = self.lost_before.max(end);
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
    use crate::world::{at, ms};
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    const LEARNS: (bool, Option<Duration>) = (true, None);

    fn arrive(reception: &mut Reception, now: u64, sequence: u64) -> Arrived {
        reception.arrive(at(now), (sequence, false), LEARNS)
    }

    #[test]
    fn gaps_open_and_close() {
        let mut reception = Reception::joining(5, 0);
        let repaired = Arrived::Repaired { original: true };
        let steps = [
            (4, Arrived::Useless, 5, None),
            (5, Arrived::New, 6, None),
            (9, Arrived::New, 6, Some(6..10)),
            (9, Arrived::Useless, 6, None),
            (6, repaired, 7, None),
        ];
        for (sequence, arrived, first_missing, lost) in steps {
            assert_eq!(arrive(&mut reception, 0, sequence), arrived, "{sequence}");
            assert_eq!(reception.first_missing(), first_missing, "after {sequence}");
            assert_eq!(reception.find_lost(at(0)), lost, "after {sequence}");
        }
        let repair = reception.arrive(at(0), (8, true), LEARNS);
        assert_eq!(repair, Arrived::Repaired { original: false });
        assert_eq!(arrive(&mut reception, 0, 7), repaired);
        assert_eq!(arrive(&mut reception, 0, 11 + JUMP_MAX), Arrived::TooFar);
        assert!(!reception.has_losses() && reception.end == 10 && reception.first_missing() == 10);
    }

    #[test]
    fn a_receiver_that_joins_late_lacks_all_that_was_sent() {
        let mut reception = Reception::joining(1, 3 * JUMP_MAX);
        assert_eq!(arrive(&mut reception, 0, 3 * JUMP_MAX + 1), Arrived::New);
        assert_eq!(reception.find_lost(at(0)), Some(1..3 * JUMP_MAX + 2));
        assert_eq!((reception.first_missing(), reception.lost_packets_from(0)), (1, 3 * JUMP_MAX));
        let next = Reception::joining(8, 7);
        assert_eq!((next.first_missing(), next.end, next.has_losses()), (8, 8, false));
    }

    #[test]
    fn once_packets_were_late_a_gap_is_a_loss_after_its_time() {
        let mut reception = Reception::joining(1, 0);
        (1..=3).for_each(|sequence| _ = arrive(&mut reception, 0, 2 * sequence));
        assert_eq!(reception.find_lost(at(0)), Some(1..7), "later packets tell");
        // The first packet is 10 ms late; the wait is half as much again.
        assert_eq!(arrive(&mut reception, 10, 1), Arrived::Repaired { original: true });
        assert_eq!(reception.disorder.tolerance(), Some(ms(15)));
        arrive(&mut reception, 20, 9);
        arrive(&mut reception, 22, 12);
        assert_eq!((reception.find_lost(at(34)), reception.next_loss()), (None, Some(at(35))));
        assert_eq!(reception.lost().collect::<Vec<_>>(), [3..4, 5..6]);
        assert_eq!(arrive(&mut reception, 34, 8), Arrived::Late);
        assert_eq!(reception.next_loss(), Some(at(41)));
        assert_eq!((reception.find_lost(at(40)), reception.find_lost(at(41))), (None, Some(7..8)));
        assert_eq!(reception.lost_packets_from(0), 3);
        reception.extend_to(at(42), 14, LEARNS);
        assert_eq!(reception.find_lost(at(100)), Some(8..15));
    }

    #[test]
    fn what_was_only_told_of_is_missing_and_can_be_given_up() {
        let mut reception = Reception::joining(1, 0);
        let extend_to = |reception: &mut Reception, last: u64| {
            let before = reception.lost_packets_from(0);
            reception.extend_to(at(0), last, LEARNS);
            reception.find_lost(at(0));
            reception.lost_packets_from(0) - before
        };
        assert_eq!(extend_to(&mut reception, 0), 0);
        assert_eq!(extend_to(&mut reception, 10), 10);
        assert_eq!(extend_to(&mut reception, 10), 0);
        assert_eq!(extend_to(&mut reception, 11 + JUMP_MAX), 0, "nobody sends so much at once");
        arrive(&mut reception, 0, 4);
        let mut lost = Vec::new();
        reception.give_up(7, |run| lost.push(run));
        assert_eq!(lost, [1..4, 5..7]);
        assert_eq!((reception.first_missing(), reception.lost_packets_from(0)), (7, 4));
    }

    #[test]
    fn what_was_said_of_packets_to_come_can_be_taken_back() {
        let mut reception = Reception::joining(1, 0);
        arrive(&mut reception, 0, 1);
        reception.extend_to(at(0), 60, LEARNS);
        assert_eq!(reception.find_lost(at(0)), Some(1..61));
        reception.rewind(5);
        assert_eq!((reception.end, reception.lost_packets_from(0)), (6, 4));
        assert_eq!(reception.first_missing(), 2);
        reception.rewind(9);
        assert_eq!(reception.end, 6, "nothing is said of later packets");
        assert_eq!(arrive(&mut reception, 0, 6), Arrived::New);
    }

    proptest::proptest! {
        #[test]
        fn it_is_the_set_of_what_has_come(arrivals: Vec<(u8, u8)>) {
            let (mut reception, mut here) = (Reception::joining(1, 0), BTreeSet::new());
            let mut now = 0;
            for (sequence, wait) in arrivals {
                let sequence = 1 + u64::from(sequence);
                now += u64::from(wait % 8);
                let useless = arrive(&mut reception, now, sequence) == Arrived::Useless;
                reception.find_lost(at(now));
                proptest::prop_assert_eq!(useless, !here.insert(sequence));
                let first = (1..).find(|x| !here.contains(x)).unwrap();
                proptest::prop_assert_eq!(reception.first_missing(), first);
                let mut later = Reception { disorder: reception.disorder.clone(), ..Reception::joining(1, 0) };
                later.lost_before = reception.lost_before;
                (later.end, later.missing) = (reception.end, reception.missing.clone());
                later.find_lost(at(now + 1000));
                proptest::prop_assert_eq!(later.lost_packets_from(0) + here.len() as u64 + 1, reception.end);
                proptest::prop_assert!(reception.lost_packets_from(0) <= later.lost_packets_from(0));
            }
        }
    }
}
