//! Queue of cells and clocks that wait for a link.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::Encoded;

use crate::ids::ViewId;
use crate::wire::{Clock, FRAME_BYTES_MAX, Item};

/// Maximum unreliable bytes that wait for a link: 1 s at 1 Mbit/s. Newer cells replace older ones.
const UNRELIABLE_BYTES_MAX: usize = 128 * 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Item>,
    /// Number of items that have left: the position of the first waiting item.
    items_left: u64,
    /// By source: number up to which the link knows the stream, and position of its last clock.
    source_positions: BTreeMap<u8, (u64, Option<u64>)>,
    pub(crate) bytes: usize,
    /// Number of waiting cells, and total bytes of cells that have left.
    pub(super) cells: usize,
    pub(crate) left_bytes: u64,
    /// Position, sequence number and Lamport time of each unreliable cell; total of their bytes.
    unreliable: VecDeque<(u64, u64, u64)>,
    unreliable_bytes: usize,
}

impl Queue {
    pub(super) fn push_cell(&mut self, source: u8, sequence: u64, cell: Bytes) {
        let known = self.source_positions.entry(source).or_default();
        let step = sequence - known.0;
        *known = (sequence, None);
        self.bytes += cell.len();
        self.cells += 1;
        self.items.push_back(Item::Cell { source, step, cell });
    }

    pub(super) fn push_unreliable(&mut self, source: u8, sequence: u64, time: u64, cell: Bytes) {
        self.unreliable.push_back((self.items_left + self.items.len() as u64, sequence, time));
        self.unreliable_bytes += cell.len();
        self.push_cell(source, sequence, cell);
        while self.unreliable_bytes > UNRELIABLE_BYTES_MAX
            && let Some((position, sequence, time)) = self.unreliable.pop_front()
        {
            let Some(item) = self.items.get_mut((position - self.items_left) as usize) else {
                continue;
            };
            let Item::Cell { source, ref cell, .. } = *item else { continue };
            self.bytes -= cell.len();
            self.cells -= 1;
            self.unreliable_bytes -= cell.len();
            // The clock keeps the number from which the source's next cell counts its step.
            let clock = Clock { sequence, time, stable: 0, wanted: false };
            *item = Item::Clock(source, clock);
        }
    }

    pub(super) fn push_clock(&mut self, source: u8, clock: Clock) {
        let known = self.source_positions.entry(source).or_default();
        known.0 = known.0.max(clock.sequence);
        let waiting =
            known.1.filter(|at| *at >= self.items_left).map(|at| (at - self.items_left) as usize);
        if let Some(Item::Clock(_, before)) = waiting.and_then(|at| self.items.get_mut(at)) {
            let wanted = before.wanted || clock.wanted;
            *before = Clock { wanted, ..clock };
        } else {
            known.1 = Some(self.items_left + self.items.len() as u64);
            self.items.push_back(Item::Clock(source, clock));
        }
    }

    pub(super) fn fill(&mut self, config: ViewId, out: &mut Vec<u8>) {
        while let Some(item) = self.items.front() {
            let (bytes, cells) = match item {
                Item::Cell { cell, .. } => (cell.len(), 1),
                _ => (0, 0),
            };
            if !out.is_empty() && out.len() + bytes + Item::HEAD_BYTES_MAX > FRAME_BYTES_MAX {
                break;
            }
            if out.is_empty() {
                config.put(out);
            }
            item.put(out);
            if self.unreliable.front().is_some_and(|it| it.0 == self.items_left) {
                self.unreliable.pop_front();
                self.unreliable_bytes -= bytes;
            }
            self.items.pop_front();
            self.items_left += 1;
            self.bytes -= bytes;
            self.cells -= cells;
            self.left_bytes += bytes as u64;
        }
    }
}
