//! Repair tree of a flow over time: heads of receivers, and receivers at each level.

use std::collections::BTreeMap;

use faircast_base::{NodeId, Time};

use super::{Curve, Marks};

const HEAD_CHANGES_MAX: usize = 20_000;

/// Levels by which receivers are counted; the sender's is 1, the deepest count together.
pub(crate) const LEVELS: [&str; 10] = [
    "without a head",
    "level 2",
    "level 3",
    "level 4",
    "level 5",
    "level 6",
    "level 7",
    "level 8",
    "level 9",
    "level 10 and deeper",
];

/// Repair tree of a flow, with its changes.
#[derive(Clone, Debug, Default)]
pub struct TreeSeries {
    /// First changes of receivers' repair heads.
    pub(crate) changes: Vec<HeadChange>,
    pub(crate) total: u64,
    /// Receivers that replaced their head by another.
    pub moves: Marks,
    /// Number of receivers in each of `LEVELS`. A receiver that never had a head is in none.
    counts: [(u32, Curve); LEVELS.len()],
    /// Index in `LEVELS` of each receiver that has not left.
    places: BTreeMap<NodeId, usize>,
}

/// New repair head of a receiver, or loss of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadChange {
    pub(crate) at: Time,
    pub(crate) receiver: NodeId,
    pub(crate) head: Option<NodeId>,
}

impl TreeSeries {
    pub(super) fn change(&mut self, at: Time, receiver: NodeId, head: Option<NodeId>, level: u32) {
        self.list(HeadChange { at, receiver, head });
        let deepest = LEVELS.len() - 1;
        let place = match head {
            Some(_) => (level.max(2) as usize - 1).min(deepest),
            None => 0,
        };
        let before = self.places.insert(receiver, place);
        if head.is_some() && before.is_some() {
            self.moves.push(at, 0.0);
        }
        if before == Some(place) {
            return;
        }
        if let Some(before) = before {
            self.count(at, before, |count| count.saturating_sub(1));
        }
        self.count(at, place, |count| count + 1);
    }

    pub(super) fn leave(&mut self, at: Time, receiver: NodeId) {
        if let Some(place) = self.places.remove(&receiver) {
            self.list(HeadChange { at, receiver, head: None });
            self.count(at, place, |count| count.saturating_sub(1));
        }
    }

    fn list(&mut self, change: HeadChange) {
        self.total += 1;
        if self.changes.len() < HEAD_CHANGES_MAX {
            self.changes.push(change);
        }
    }

    fn count(&mut self, at: Time, place: usize, change: impl Fn(u32) -> u32) {
        let (count, curve) = &mut self.counts[place];
        if curve.is_empty() {
            curve.push(Time::ZERO, 0.0);
        }
        *count = change(*count);
        curve.push(at, f64::from(*count));
    }

    pub(crate) fn levels(&self) -> impl Iterator<Item = (usize, &Curve)> {
        self.counts
            .iter()
            .map(|(_, curve)| curve)
            .enumerate()
            .filter(|(_, curve)| !curve.is_empty())
    }
}
