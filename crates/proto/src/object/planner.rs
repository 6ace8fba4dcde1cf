//! Planner of a source over any transport: requested units of an object, and the order of sending.
//!
//! A source sends requested units only. Over PGM a unit is a block, over TRAM a symbol.

use alloc::vec::Vec;
use core::ops::Range;

use super::Part;
use super::layout::{BLOCK_SYMBOLS, part_of};
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
    requested: RangeSet,
    /// Units that were ever sent. Beyond [`RUNS_MAX`] runs, units between the nearest count too.
    sent: RangeSet,
    /// One past the last sent unit of content or digests.
    position: Unit,
}

impl Planner {
    /// Creates a planner of whole blocks: a unit is a [`BlockId`](super::layout::BlockId).
    pub(super) fn of_blocks() -> Self {
        Self::new(1)
    }

    /// Creates a planner of symbols: a unit is a [`SymbolId`](super::layout::SymbolId).
    pub(super) fn of_symbols() -> Self {
        Self::new(BLOCK_SYMBOLS.into())
    }

    fn new(units_per_block: u64) -> Self {
        let (requested, sent) = (RangeSet::default(), RangeSet::default());
        Self { units_per_block, requested, sent, position: 0 }
    }

    fn part(&self, unit: Unit) -> Part {
        part_of(unit / self.units_per_block)
    }

    /// Requests units that nobody has had yet, or that every receiver lacks.
    pub(super) fn insert(&mut self, units: Range<Unit>) {
        self.requested.insert(units);
    }

    /// Takes the request of a receiver for the units `lacking`, except those `under_way` to it.
    ///
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
        self.limit_repeats(&mut wanted, repeats_allowed);
        for units in wanted.iter() {
            self.requested.insert(units);
        }
        self.requested.limit(RUNS_MAX);
        !wanted.is_empty()
    }

    fn limit_repeats(&self, wanted: &mut RangeSet, repeats_allowed: impl FnOnce(u64) -> u64) {
        let repeats: Vec<_> = wanted.iter().flat_map(|units| self.sent.within(units)).collect();
        let count = repeats.iter().map(|units| units.end - units.start).sum();
        let mut left = if count == 0 { 0 } else { repeats_allowed(count) };
        for units in repeats {
            let allowed = left.min(units.end - units.start);
            left -= allowed;
            wanted.remove(units.start + allowed..units.end);
        }
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

    /// Notes that a unit is sent now.
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

    pub(super) fn has_requests(&self) -> bool {
        !self.requested.is_empty()
    }

    pub(super) fn is_requested(&self, unit: Unit) -> bool {
        self.requested.contains(unit)
    }

    pub(super) fn first_requested_from(&self, unit: Unit) -> Option<Unit> {
        self.requested.first_from(unit)
    }

    pub(super) fn was_sent(&self, unit: Unit) -> bool {
        self.sent.contains(unit)
    }
}

#[cfg(test)]
mod tests;
