//! Groups that are being put together in memory from what comes in any order.

use std::collections::BTreeMap;

use super::counts::Counters;
use crate::layout::Group;

/// Bytes of groups that are put together at once.
const BYTES_MAX: usize = 12 << 20;
/// Groups that are put together at once; small files have small ones.
const SLOTS_MAX: usize = 256;
/// Groups of which a part was written and is remembered. Of others it is forgotten what there is:
/// they are hashed when everything is there, and not taken up again by a later run.
const PARTIAL_MAX: usize = 4096;
/// Ranges of one such group; a group has 16 symbols of the largest size and 750 of usual ones.
const RANGES_MAX: usize = 512;

/// Ranges of bytes, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    pub(crate) fn insert(&mut self, start: u32, end: u32) {
        // What comes in order, which is nearly all, extends the last range.
        if let Some(last) = self.0.last_mut()
            && last.0 <= start
            && start <= last.1
        {
            last.1 = last.1.max(end);
            return;
        }
        let from = self.0.partition_point(|range| range.1 < start);
        let to = self.0.partition_point(|range| range.0 <= end);
        let joined = match self.0.get(from..to) {
            Some([first, ..]) => (start.min(first.0), end.max(self.0[to - 1].1)),
            _ => (start, end),
        };
        self.0.splice(from..to, [joined]);
    }

    pub(crate) fn covers(&self, start: u32, end: u32) -> bool {
        self.0.iter().any(|range| range.0 <= start && end <= range.1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().copied()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Bytes of a group on their way to a file.
#[derive(Debug)]
pub struct Flight {
    pub(crate) group: Group,
    /// Of the group's length; what is not in `ranges` means nothing.
    pub(crate) bytes: Vec<u8>,
    pub(crate) ranges: Ranges,
    /// With this and what was written before, the group is complete.
    pub(crate) complete: bool,
}

impl Flight {
    /// Whether all of the group is in memory.
    pub(crate) fn whole(&self) -> bool {
        self.ranges.covers(0, self.group.len)
    }

    /// Writes all ranges, each with where it begins in the group.
    pub(crate) fn write<E>(
        &self,
        counters: &Counters,
        mut write: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (start, end) in self.ranges.iter() {
            write(start, &self.bytes[start as usize..end as usize])?;
            counters.update(|counts| counts.bytes_written += u64::from(end - start));
        }
        Ok(())
    }

    /// Copies what this has of `start..` over `out`.
    pub(crate) fn overlay(&self, start: u32, out: &mut [u8]) {
        let end = start + u32::try_from(out.len()).expect("at most a group");
        for range in self.ranges.iter() {
            let (from, to) = (range.0.max(start), range.1.min(end));
            if from < to {
                out[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&self.bytes[from as usize..to as usize]);
            }
        }
    }
}

/// All groups that are being put together.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    slots: Vec<Slot>,
    bytes: usize,
    touches: u64,
    /// What was written of groups that were put aside.
    partial: BTreeMap<u32, Ranges>,
    /// The slot used last.
    last: usize,
}

#[derive(Debug)]
struct Slot {
    flight: Flight,
    touched: u64,
}

impl Assembly {
    /// The group whose slot took bytes last, if it is one that has this byte of content.
    pub(crate) fn current(&self, offset: u64) -> Option<Group> {
        let group = self.slots.get(self.last)?.flight.group;
        group.range().contains(&offset).then_some(group)
    }

    /// Whether a slot for this group has to be made, for which there is no room.
    pub(crate) fn must_evict(&self, group: &Group) -> bool {
        let full = self.bytes + group.len as usize > BYTES_MAX || self.slots.len() >= SLOTS_MAX;
        full && !self.slots.is_empty() && self.find(group.index).is_none()
    }

    /// The slot that was not used for the longest time.
    pub(crate) fn evict(&mut self) -> Option<Flight> {
        let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.touched)?.0;
        let flight = self.take(oldest);
        let index = flight.group.index;
        let known = self.partial.get(&index).map_or(0, Ranges::len);
        let room = self.partial.len() < PARTIAL_MAX || known > 0;
        if room && known + flight.ranges.len() <= RANGES_MAX {
            let written = self.partial.entry(index).or_default();
            flight.ranges.iter().for_each(|(start, end)| written.insert(start, end));
        } else {
            self.partial.remove(&index);
        }
        Some(flight)
    }

    /// Takes bytes and then zeros into a group. What is complete with them comes back.
    pub(crate) fn insert(
        &mut self,
        group: &Group,
        within: u32,
        bytes: &[u8],
        zeros: usize,
        buffer: impl FnOnce() -> Vec<u8>,
    ) -> Option<Flight> {
        let index = self.find(group.index).unwrap_or_else(|| self.make(*group, buffer()));
        self.last = index;
        self.touches += 1;
        let slot = &mut self.slots[index];
        slot.touched = self.touches;
        let flight = &mut slot.flight;
        let start = within as usize;
        let middle = start + bytes.len();
        flight.bytes[start..middle].copy_from_slice(bytes);
        flight.bytes[middle..middle + zeros].fill(0);
        let end = u32::try_from(middle + zeros).expect("at most a group");
        flight.ranges.insert(within, end);
        let mut complete = flight.whole();
        if !complete && let Some(written) = self.partial.get(&group.index) {
            let mut both = written.clone();
            flight.ranges.iter().for_each(|(start, end)| both.insert(start, end));
            complete = both.covers(0, group.len);
        }
        if !complete {
            return None;
        }
        self.partial.remove(&group.index);
        Some(Flight { complete: true, ..self.take(index) })
    }

    /// What is in memory of a group.
    pub(crate) fn get(&self, group: u32) -> Option<&Flight> {
        self.find(group).map(|index| &self.slots[index].flight)
    }

    /// Forgets what was written of a group.
    pub(crate) fn forget(&mut self) {
        self.partial.clear();
    }

    fn find(&self, group: u32) -> Option<usize> {
        match self.slots.get(self.last) {
            Some(slot) if slot.flight.group.index == group => Some(self.last),
            _ => self.slots.iter().position(|slot| slot.flight.group.index == group),
        }
    }

    fn make(&mut self, group: Group, mut bytes: Vec<u8>) -> usize {
        bytes.resize(group.len as usize, 0);
        self.bytes += bytes.len();
        let flight = Flight { group, bytes, ranges: Ranges::default(), complete: false };
        self.slots.push(Slot { flight, touched: 0 });
        self.slots.len() - 1
    }

    fn take(&mut self, index: usize) -> Flight {
        let slot = self.slots.swap_remove(index);
        self.bytes -= slot.flight.bytes.len();
        slot.flight
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_have_what_was_put_into_them(
            inserts in prop::collection::vec((0u32..60, 1u32..20), 0..30),
        ) {
            let mut ranges = Ranges::default();
            let mut want = [false; 80];
            for (start, len) in inserts {
                ranges.insert(start, start + len);
                want[start as usize..(start + len) as usize].fill(true);
            }
            let mut got = [false; 80];
            let mut before = None;
            for (start, end) in ranges.iter() {
                prop_assert!(start < end && before.is_none_or(|before| before < start));
                before = Some(end);
                got[start as usize..end as usize].fill(true);
            }
            prop_assert_eq!(got, want);
            for start in 0..79 {
                for end in start + 1..80 {
                    let all = want[start..end].iter().all(|there| *there);
                    prop_assert_eq!(ranges.covers(start as u32, end as u32), all);
                }
            }
        }
    }

    fn group(index: u32, len: u32) -> Group {
        let offset = u64::from(index) << 20;
        Group { index, file: 0, file_offset: offset, offset, len, alone: false }
    }

    #[test]
    fn memory_is_bounded_however_the_bytes_come() {
        for len in [1 << 20, 100] {
            let mut assembly = Assembly::default();
            let mut evicted = 0;
            for index in 0..20_000 {
                let group = group(index, len);
                while assembly.must_evict(&group) {
                    assert!(assembly.evict().is_some());
                    evicted += 1;
                }
                assert!(assembly.insert(&group, 3, &[1], 0, Vec::new).is_none());
                assert!(assembly.bytes <= BYTES_MAX && assembly.slots.len() <= SLOTS_MAX);
            }
            assert_eq!(evicted, 20_000 - assembly.slots.len());
            assert_eq!(assembly.partial.len(), PARTIAL_MAX);
        }
    }

    #[test]
    fn a_group_that_was_put_aside_is_completed_by_the_rest() {
        let mut assembly = Assembly::default();
        let group = group(0, 10);
        assert!(assembly.insert(&group, 0, &[1; 4], 0, Vec::new).is_none());
        assert_eq!(assembly.evict().unwrap().ranges, Ranges(vec![(0, 4)]));
        let flight = assembly.insert(&group, 4, &[2; 4], 2, Vec::new).unwrap();
        assert!(flight.complete && !flight.whole());
        let mut out = [9; 10];
        flight.overlay(0, &mut out);
        assert_eq!(out, [9, 9, 9, 9, 2, 2, 2, 2, 0, 0]);
        assert!(assembly.partial.is_empty() && assembly.slots.is_empty());
    }
}
