//! Sets of numbers as ranges.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Set of numbers, as disjoint ranges. Operations take time logarithmic in the number of ranges,
/// and linear in the ranges that they join or cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Iterates over all ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    pub(crate) fn end(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, &end)| end)
    }

    /// Returns the least range that contains all numbers of the set.
    pub(crate) fn span(&self) -> Range<u64> {
        let start = self.ranges.first_key_value().map_or(0, |(&start, _)| start);
        start..self.end().unwrap_or(0)
    }

    /// Returns the range that contains `x`.
    pub fn around(&self, x: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..=x).next_back()?;
        (x < end).then_some(start..end)
    }

    pub(crate) fn contains(&self, x: u64) -> bool {
        self.around(x).is_some()
    }

    pub(crate) fn gap_from(&self, x: u64) -> Option<u64> {
        let gap = self.around(x).map_or(x, |range| range.end);
        (gap < self.end()?).then_some(gap)
    }

    pub(crate) fn first_from(&self, x: u64) -> Option<u64> {
        let next = || self.ranges.range(x..).next().map(|(&start, _)| start);
        if self.contains(x) { Some(x) } else { next() }
    }

    /// Inserts `range`. Returns true if any of its numbers is new.
    pub fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let Range { mut start, mut end } = range;
        // Fast path for numbers that arrive in order: the last range that `range` may touch grows.
        if let Some((&last, last_end)) = self.ranges.range_mut(..=end).next_back()
            && last <= start
            && *last_end >= start
        {
            let more = *last_end < end;
            *last_end = end.max(*last_end);
            return more;
        }
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&next);
            end = end.max(next_end);
        }
        self.ranges.insert(start, end);
        true
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((_, before_end)) = self.ranges.range_mut(..range.start).next_back()
            && *before_end > range.start
        {
            let end = core::mem::replace(before_end, range.start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
        }
        while let Some((&start, &end)) = self.ranges.range(range.clone()).next() {
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
        }
    }

    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.ranges.range(..range.start).next_back();
        // An inverted range would panic.
        let end = range.end.max(range.start);
        let rest = self.ranges.range(range.start..end);
        first.into_iter().chain(rest).filter_map(move |(&from, &to)| {
            let cut = from.max(range.start)..to.min(end);
            (!cut.is_empty()).then_some(cut)
        })
    }

    /// Joins ranges with the smallest gaps until `max` remain, but never across a multiple of 2^32.
    pub(crate) fn limit(&mut self, max: usize) {
        let extra = self.len().saturating_sub(max);
        if extra == 0 {
            return;
        }
        let next = self.ranges.iter().skip(1);
        let mut gaps: Vec<(u64, u64, u64)> = (self.ranges.iter().zip(next))
            .filter(|((before, _), (start, _))| **before >> 32 == **start >> 32)
            .map(|((_, &end), (&start, _))| (start - end, end, start))
            .collect();
        gaps.sort_unstable();
        for (_, end, start) in gaps.into_iter().take(extra) {
            self.insert(end..start);
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use faircast_base::{NodeId, Purpose, Rng};

    #[test]
    fn it_behaves_as_a_set() {
        let mut rng = Rng::new(3, NodeId(0), Purpose::Fault);
        let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
        for round in 0..3000 {
            let start = rng.below(100);
            let range = start..start + rng.below(12);
            if rng.below(2) == 0 {
                let before = model.len();
                model.extend(range.clone());
                assert_eq!(set.insert(range.clone()), model.len() > before, "round {round}");
            } else {
                set.remove(range.clone());
                model.retain(|x| !range.contains(x));
            }
            let members: Vec<u64> = set.iter().flatten().collect();
            assert_eq!(members, model.iter().copied().collect::<Vec<_>>(), "round {round}");
            let apart: Vec<_> = set.iter().collect();
            assert!(apart.windows(2).all(|pair| pair[0].end < pair[1].start), "round {round}");
            let x = rng.below(120);
            assert_eq!(set.contains(x), model.contains(&x));
            assert_eq!(set.first_from(x), model.range(x..).next().copied());
            assert_eq!(set.end(), model.last().map(|last| last + 1));
            let gap = (x..model.last().copied().unwrap_or(0)).find(|x| !model.contains(x));
            assert_eq!(set.gap_from(x), gap, "from {x} in round {round}");
            let window = x..x + rng.below(20);
            let within: Vec<u64> = set.within(window.clone()).flatten().collect();
            assert_eq!(within, model.range(window).copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn too_many_ranges_are_joined_across_the_least_gaps() {
        let mut set = RangeSet::default();
        for range in [0..1, 10..11, 13..14, 30..31, 1 << 32..1 + (1 << 32)] {
            set.insert(range);
        }
        set.limit(4);
        assert_eq!(set.iter().collect::<Vec<_>>()[1], 10..14);
        set.limit(1);
        assert_eq!((set.len(), set.count()), (2, 32), "parts stay apart");
    }
}
