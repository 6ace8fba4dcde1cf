//! Assembly of groups in memory from symbols in any order.

use std::collections::BTreeMap;
use std::ops::Range;

use faircast_proto::RangeSet;

use super::Counters;
use crate::layout::Group;

const BYTES_MAX: usize = 12 << 20;
const SLOTS_MAX: usize = 256;
/// Most evicted groups with remembered ranges. Others are hashed at the end, and never resumed.
const PARTIAL_MAX: usize = 4096;
/// Most ranges of an evicted group: one more than a group of 1 MiB may have in assembly.
const RANGES_MAX: usize = 2049;
/// Most ranges of all evicted groups: 33 bytes each, 6.6 MB; fills a device store's 32 MiB.
const ALL_RANGES_MAX: usize = 200_000;
/// Bytes of a group per range in assembly; a group with more ranges is evicted. 12 MiB here and 8
/// MiB in the queue have 41 000 ranges (1.4 MB). Symbols of 256 bytes or more never cause this.
const RANGE_BYTES: u32 = 512;
const RANGES_MIN: usize = 16;

#[derive(Debug)]
pub struct Flight {
    pub(crate) group: Group,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ranges: RangeSet,
    /// True if this flight and earlier writes complete the group.
    pub(crate) complete: bool,
}

impl Flight {
    pub(crate) fn whole(&self) -> bool {
        self.covers(0, self.group.len)
    }

    pub(crate) fn covers(&self, start: u32, end: u32) -> bool {
        self.ranges.around(start.into()).is_some_and(|range| u64::from(end) <= range.end)
    }

    pub(crate) fn write<E>(
        &self,
        counters: &Counters,
        mut write: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for Range { start, end } in self.ranges.iter() {
            write(start as u32, &self.bytes[start as usize..end as usize])?;
            counters.update(|counts| counts.bytes_written += end - start);
        }
        Ok(())
    }

    pub(crate) fn overlay(&self, start: u32, out: &mut [u8]) {
        let (start, end) = (start as usize, start as usize + out.len());
        for range in self.ranges.iter() {
            let (from, to) = ((range.start as usize).max(start), (range.end as usize).min(end));
            if from < to {
                out[from - start..to - start].copy_from_slice(&self.bytes[from..to]);
            }
        }
    }
}

/// Groups in assembly. The least recently written one makes room.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    slots: Vec<Slot>,
    bytes: usize,
    /// Writes so far: the clock of [`Slot::written_at`].
    writes: u64,
    /// Ranges of evicted groups, by group, and the number of all these ranges.
    partial: BTreeMap<u32, RangeSet>,
    partial_ranges: usize,
    /// Slot of the last write, which the next one most likely continues.
    last: usize,
}

#[derive(Debug)]
struct Slot {
    flight: Flight,
    written_at: u64,
}

impl Assembly {
    pub(crate) fn current(&self, offset: u64) -> Option<Group> {
        let group = self.slots.get(self.last)?.flight.group;
        group.range().contains(&offset).then_some(group)
    }

    pub(crate) fn must_evict(&self, group: &Group) -> bool {
        let full = self.bytes + group.len as usize > BYTES_MAX || self.slots.len() >= SLOTS_MAX;
        full && !self.slots.is_empty() && self.find(group.index).is_none()
    }

    pub(crate) fn evict(&mut self) -> Option<Flight> {
        let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.written_at)?.0;
        Some(self.put_aside(oldest))
    }

    fn put_aside(&mut self, slot: usize) -> Flight {
        let flight = self.take(slot);
        let index = flight.group.index;
        let mut written = self.take_written(index);
        let ranges = written.len() + flight.ranges.len();
        if self.partial.len() < PARTIAL_MAX
            && ranges <= RANGES_MAX
            && self.partial_ranges + ranges <= ALL_RANGES_MAX
        {
            for range in flight.ranges.iter() {
                written.insert(range);
            }
            self.partial_ranges += written.len();
            self.partial.insert(index, written);
        }
        flight
    }

    /// Inserts bytes, then zeros. Returns a group that is complete or too fragmented to keep.
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
        self.writes += 1;
        let slot = &mut self.slots[index];
        slot.written_at = self.writes;
        let flight = &mut slot.flight;
        let start = within as usize;
        let middle = start + bytes.len();
        flight.bytes[start..middle].copy_from_slice(bytes);
        flight.bytes[middle..middle + zeros].fill(0);
        flight.ranges.insert(within.into()..(middle + zeros) as u64);
        let mut all = 0;
        let written = self.partial.get(&group.index);
        let from = |at| {
            flight.ranges.around(at).or_else(|| written.and_then(|written| written.around(at)))
        };
        while let Some(range) = from(all) {
            all = range.end;
        }
        let complete = all == u64::from(group.len);
        if !complete {
            let ranges_max = RANGES_MIN.max((group.len / RANGE_BYTES) as usize);
            let is_in_pieces = flight.ranges.len() > ranges_max;
            return is_in_pieces.then(|| self.put_aside(index));
        }
        self.take_written(group.index);
        Some(Flight { complete: true, ..self.take(index) })
    }

    pub(crate) fn get(&self, group: u32) -> Option<&Flight> {
        self.find(group).map(|index| &self.slots[index].flight)
    }

    pub(crate) fn forget(&mut self) {
        self.partial.clear();
        self.partial_ranges = 0;
    }

    fn take_written(&mut self, group: u32) -> RangeSet {
        let written = self.partial.remove(&group).unwrap_or_default();
        self.partial_ranges -= written.len();
        written
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
        let flight = Flight { group, bytes, ranges: RangeSet::default(), complete: false };
        self.slots.push(Slot { flight, written_at: 0 });
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
    use super::*;

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
    fn so_are_the_ranges_that_are_remembered() {
        const LEN: u32 = 500 * RANGE_BYTES;
        let mut assembly = Assembly::default();
        let all = ALL_RANGES_MAX / 500;
        for index in 0..all as u32 + 20 {
            let group = group(index, LEN);
            for within in (0..LEN).step_by(RANGE_BYTES as usize) {
                assert!(assembly.insert(&group, within, &[1], 0, Vec::new).is_none());
            }
            assert_eq!(assembly.evict().unwrap().ranges.len(), 500);
            let ranges: usize = assembly.partial.values().map(RangeSet::len).sum();
            assert_eq!(assembly.partial_ranges, ranges);
            assert!(ranges <= ALL_RANGES_MAX);
        }
        assert_eq!(assembly.partial.len(), all);
        assert!(assembly.insert(&group(0, LEN), 0, &[1; LEN as usize], 0, Vec::new).is_some());
        assert_eq!(assembly.partial_ranges, ALL_RANGES_MAX - 500);
        assembly.forget();
        assert_eq!(assembly.partial_ranges, 0);
    }

    #[test]
    fn so_are_the_ranges_of_groups_that_come_in_tiny_pieces() {
        for (len, most) in [(1 << 20, 2048), (10_000, 19), (100, RANGES_MIN)] {
            let mut assembly = Assembly::default();
            let group = group(0, len);
            let mut aside = 0;
            for within in (0..len - 2).step_by(4) {
                if let Some(flight) = assembly.insert(&group, within, &[1; 2], 0, Vec::new) {
                    assert!(!flight.complete);
                    assert_eq!(flight.ranges.len(), most + 1);
                    aside += flight.ranges.len();
                }
            }
            let rest = assembly.get(0).map_or(0, |flight| flight.ranges.len());
            assert!(aside > 0 && rest <= most);
            assert_eq!(aside + rest, (len as usize - 2).div_ceil(4), "nothing is lost");
        }
    }

    #[test]
    fn a_group_that_was_put_aside_is_completed_by_the_rest() {
        let mut assembly = Assembly::default();
        let group = group(0, 10);
        assert!(assembly.insert(&group, 0, &[1; 4], 0, Vec::new).is_none());
        assert!(assembly.evict().unwrap().ranges.iter().eq(std::iter::once(0..4)));
        let flight = assembly.insert(&group, 4, &[2; 4], 2, Vec::new).unwrap();
        assert!(flight.complete && !flight.whole());
        let mut out = [9; 10];
        flight.overlay(0, &mut out);
        assert_eq!(out, [9, 9, 9, 9, 2, 2, 2, 2, 0, 0]);
        assert!(assembly.partial.is_empty() && assembly.slots.is_empty());
    }
}
