//! Sets of packet numbers as runs: what a receiver holds out of order, what a sender knows of it.

use alloc::collections::VecDeque;

/// A set of numbers, kept as disjoint runs in ascending order. Numbers mostly come in at the top
/// and go at the bottom, which costs a few nanoseconds; elsewhere a look-up is a binary search.
/// Memory is proportional to the number of runs, which is at most half the window.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeSet {
    /// Each the first number of the run and the first after it. No two touch.
    runs: VecDeque<(u64, u64)>,
}

impl RangeSet {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
    }

    /// The first number above all in the set.
    pub(super) fn end(&self) -> Option<u64> {
        self.runs.back().map(|run| run.1)
    }

    /// The run that holds `number`.
    pub(super) fn run_with(&self, number: u64) -> Option<(u64, u64)> {
        self.runs.get(self.first_ending_after(number)).copied().filter(|run| run.0 <= number)
    }

    /// Adds `start .. end`, which is not empty; says whether any of it is new.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        debug_assert!(start < end);
        match self.runs.back_mut() {
            Some(last) if start > last.1 => self.runs.push_back((start, end)),
            Some(last) if start >= last.0 => {
                let grows = end > last.1;
                last.1 = last.1.max(end);
                return grows;
            }
            Some(_) => return self.insert_below_top(start, end),
            None => self.runs.push_back((start, end)),
        }
        true
    }

    /// The general case: `start` lies below the last run.
    fn insert_below_top(&mut self, start: u64, end: u64) -> bool {
        // Runs first .. beyond touch or overlap the new one and become one with it.
        let first = self.runs.partition_point(|run| run.1 < start);
        let mut beyond = first;
        while self.runs.get(beyond).is_some_and(|run| run.0 <= end) {
            beyond += 1;
        }
        if first == beyond {
            self.runs.insert(first, (start, end));
            return true;
        }
        let merged = (self.runs[first].0.min(start), self.runs[beyond - 1].1.max(end));
        let unchanged = self.runs[first] == merged;
        self.runs[first] = merged;
        self.runs.drain(first + 1..beyond);
        !unchanged
    }

    /// Removes all numbers below `number`.
    pub(super) fn remove_below(&mut self, number: u64) {
        while let Some(run) = self.runs.front_mut() {
            if run.1 > number {
                run.0 = run.0.max(number);
                break;
            }
            self.runs.pop_front();
        }
    }

    /// The first number from `number` on that is not in the set although a higher one is.
    pub(super) fn gap_from(&self, number: u64) -> Option<u64> {
        let at = self.first_ending_after(number);
        let run = self.runs.get(at)?;
        if run.0 > number {
            return Some(number);
        }
        (at + 1 < self.runs.len()).then_some(run.1)
    }

    fn first_ending_after(&self, number: u64) -> usize {
        // Recovery asks about the lowest runs, arrivals about the highest.
        match (self.runs.front(), self.runs.back()) {
            (Some(first), _) if first.1 > number => 0,
            (_, Some(last)) if last.0 <= number => self.runs.len() - usize::from(last.1 > number),
            _ => self.runs.partition_point(|run| run.1 <= number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn touching_runs_become_one() {
        let mut set = RangeSet::default();
        for (start, end, grows) in
            [(5, 8, true), (10, 12, true), (8, 10, true), (6, 11, false), (1, 3, true)]
        {
            assert_eq!(set.insert(start, end), grows, "{start}..{end}");
        }
        assert_eq!(set.runs, [(1, 3), (5, 12)]);
        assert_eq!(set.gap_from(1), Some(3));
        assert_eq!(set.gap_from(5), None);
    }

    proptest! {
        #[test]
        fn a_range_set_is_a_set(ops in proptest::collection::vec((0u8..8, 0u64..60, 1u64..9), 1..60)) {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for (op, start, len) in ops {
                if op == 0 {
                    set.remove_below(start);
                    model.retain(|n| *n >= start);
                } else {
                    let before = model.len();
                    model.extend(start..start + len);
                    prop_assert_eq!(set.insert(start, start + len), model.len() > before);
                }
                prop_assert_eq!(set.end(), model.last().map(|n| n + 1));
                prop_assert!(set.runs.iter().zip(set.runs.iter().skip(1)).all(|(a, b)| a.1 < b.0));
                for n in 0..70 {
                    prop_assert_eq!(set.run_with(n).is_some(), model.contains(&n));
                    let top = model.last().copied().unwrap_or(0);
                    let gap = (n..top).find(|m| !model.contains(m));
                    prop_assert_eq!(set.gap_from(n), gap, "from {}", n);
                }
            }
        }
    }
}
