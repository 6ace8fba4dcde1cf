//! Planner of a source over any transport: requested units of an object, and the order of sending.
//!
//! A source sends requested units only. Over PGM a unit is a block, over TRAM a symbol.

use alloc::vec::Vec;
use core::ops::Range;

use super::Part;
use super::layout::part_of;
use super::offer::Offer;
use crate::ranges::RangeSet;

/// Most runs of requested units. Beyond that the nearest runs are joined.
pub(super) const RUNS_MAX: usize = 4096;

/// Number of a unit of any part: parts follow one another.
pub(super) type Unit = u64;

/// Requested units, sent in ascending order and round again, the manifest always first.
#[derive(Debug)]
pub(super) struct Planner {
    units_per_block: u64,
    pub(super) requested: RangeSet,
    /// Units that were ever sent. Beyond [`RUNS_MAX`] runs, units between the nearest count too.
    pub(super) sent: RangeSet,
    /// One past the last sent unit of content or digests.
    position: Unit,
}

impl Planner {
    /// Creates a planner of blocks (1 unit each) or symbols.
    pub(super) fn new(units_per_block: u32) -> Self {
        let (requested, sent) = (RangeSet::default(), RangeSet::default());
        Self { units_per_block: units_per_block.into(), requested, sent, position: 0 }
    }

    fn part(&self, unit: Unit) -> Part {
        part_of(unit / self.units_per_block)
    }

    /// Takes the request of a receiver for the units `lacking`, except those `under_way` to it.
    /// Units of the rest that were sent before are repeats: `repeats_allowed` gets their number,
    /// and returns how many of them may be sent again. Returns true if any unit is new in the plan.
    pub(super) fn request(
        &mut self,
        lacking: impl IntoIterator<Item = Range<Unit>>,
        under_way: impl IntoIterator<Item = Range<Unit>>,
        repeats_allowed: impl FnOnce(u64) -> u64,
    ) -> bool {
        let mut wanted = RangeSet::default();
        for units in lacking {
            wanted.insert(units);
        }
        for units in self.requested.within(wanted.span()).chain(under_way) {
            wanted.remove(units);
        }
        let repeats: Vec<_> = wanted.iter().flat_map(|units| self.sent.within(units)).collect();
        let count = repeats.iter().map(|units| units.end - units.start).sum();
        let mut left = if count == 0 { 0 } else { repeats_allowed(count) };
        for units in repeats {
            let allowed = left.min(units.end - units.start);
            left -= allowed;
            wanted.remove(units.start + allowed..units.end);
        }
        for units in wanted.iter() {
            self.requested.insert(units);
        }
        self.requested.limit(RUNS_MAX);
        !wanted.is_empty()
    }

    /// Returns the next unit to send, if the offer allows its part by now.
    pub(super) fn next(&self, offer: &Offer) -> Option<Unit> {
        let first = self.requested.first_from(0)?;
        if self.part(first) == Part::Manifest {
            return Some(first);
        }
        let allowed = |unit: &Unit| offer.may_send(self.part(*unit));
        self.requested.first_from(self.position).filter(allowed).or(Some(first).filter(allowed))
    }

    pub(super) fn on_sent(&mut self, unit: Unit) {
        self.requested.remove(unit..unit + 1);
        self.sent.insert(unit..unit + 1);
        if self.sent.len() > 2 * RUNS_MAX {
            self.sent.limit(RUNS_MAX);
        }
        // A repeated manifest does not move the position in the content.
        if self.part(unit) != Part::Manifest {
            self.position = unit + 1;
        }
    }
}

#[cfg(test)]
mod tests;
