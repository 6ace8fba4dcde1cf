//! Queue of cells and clocks that wait for a link.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::Encoded;

use crate::ids::Ballot;
use crate::wire::{Clock, FRAME_BYTES_MAX, Item};

/// Items that wait for a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
    /// Number of items that have left.
    left: u64,
    /// For each source the number up to which the link knows its stream, and the place of a clock
    /// behind which nothing of the source waits.
    known: BTreeMap<u8, (u64, Option<u64>)>,
    pub(super) bytes: usize,
}

impl Queue {
    pub(super) fn push_cell(&mut self, source: u8, sequence: u64, cell: Bytes) {
        let known = self.known.entry(source).or_default();
        let step = sequence - known.0;
        *known = (sequence, None);
        self.bytes += cell.len();
        self.items.push_back(Item::Cell { source, step, cell });
    }

    pub(super) fn push_clock(&mut self, source: u8, clock: Clock) {
        let known = self.known.entry(source).or_default();
        known.0 = known.0.max(clock.sequence);
        let waiting = known.1.filter(|at| *at >= self.left).map(|at| (at - self.left) as usize);
        if let Some(Item::Clock(_, before)) = waiting.and_then(|at| self.items.get_mut(at)) {
            let wanted = before.wanted || clock.wanted;
            *before = Clock { wanted, ..clock };
        } else {
            known.1 = Some(self.left + self.items.len() as u64);
            self.items.push_back(Item::Clock(source, clock));
        }
    }

    /// Moves items into a frame of a configuration, as far as there is room.
    pub(super) fn fill(&mut self, ballot: Ballot, out: &mut Vec<u8>) {
        while let Some(item) = self.items.front() {
            let bytes = match item {
                Item::Cell { cell, .. } => cell.len(),
                _ => 0,
            };
            if !out.is_empty() && out.len() + bytes + Item::HEAD_BYTES_MAX > FRAME_BYTES_MAX {
                break;
            }
            if out.is_empty() {
                ballot.put(out);
            }
            item.put(out);
            self.items.pop_front();
            self.left += 1;
            self.bytes -= bytes;
        }
    }
}
