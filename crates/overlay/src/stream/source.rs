//! Stream of one source: retained cells, and pieces of messages; and the queue of cells and clocks
//! that wait for a link.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::Encoded;

use super::CompleteMessage;
use crate::cell::{Cell, Kind};
use crate::client::Parts;
use crate::ids::{DaemonSet, LinkId, ViewId};
use crate::wire::{Clock, FRAME_BYTES_MAX, Item};

#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pub(super) parts: Parts,
    /// Number of the cell that continues the message; 0 for none.
    pub(super) next: u64,
}

impl Pieces {
    pub(super) fn add(
        &mut self,
        source: usize,
        sequence: u64,
        cell: Cell,
    ) -> Option<CompleteMessage> {
        if cell.kind != Kind::Continuation {
            self.parts.clear();
        } else if self.next != sequence {
            // The first piece was for other daemons, or lost with its source.
            return None;
        }
        self.parts.push(cell.payload.clone());
        self.next = if cell.last { 0 } else { sequence + 1 };
        let (time, is_last) = (cell.time, cell.last);
        let parts = |it: &mut Self| core::mem::take(&mut it.parts);
        is_last.then(|| CompleteMessage { source, sequence, time, cell, parts: parts(self) })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) link: LinkId,
    /// Daemons behind the link in the source's tree.
    pub(super) below: DaemonSet,
    /// Number up to which all of these have acknowledged the cells.
    pub(super) acked: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    /// Link towards the source; `None` at the source itself.
    pub(super) parent: Option<LinkId>,
    pub(super) children: Vec<Child>,
    /// Sequence number up to which this daemon has all cells addressed to it.
    pub(super) through: u64,
    /// Lower bound of the Lamport time of further cells.
    pub(super) clock: u64,
    /// Sequence number up to which all members have the cells.
    pub(super) stable: u64,
    pub(super) cells: VecDeque<(u64, Bytes)>,
    pub(super) bytes: usize,
    pub(super) pieces: Pieces,
    /// Number that this daemon has acknowledged, and bytes since then.
    pub(super) acked: u64,
    pub(super) unacked: usize,
    pub(super) time_below: u64,
    /// True if the next poll of the parent's link sends an acknowledgement.
    pub(super) ack_due: bool,
    /// Numbers and times of safe messages that earlier messages may still precede.
    pub(super) safe: VecDeque<(u64, u64)>,
}

impl Source {
    pub(super) fn retain(&mut self, sequence: u64, bytes: Bytes) {
        self.bytes += bytes.len();
        let at = self.cells.partition_point(|it| it.0 < sequence);
        self.cells.insert(at, (sequence, bytes));
    }

    pub(super) fn has(&self, sequence: u64) -> bool {
        self.cells.binary_search_by_key(&sequence, |it| it.0).is_ok()
    }

    pub(super) fn acked_below(&self) -> u64 {
        self.children.iter().map(|it| it.acked).min().unwrap_or(u64::MAX)
    }

    /// Returns the number up to which this daemon can acknowledge the cells.
    pub(super) fn acknowledgeable(&self) -> u64 {
        self.safe.front().map_or(self.through, |it| it.0 - 1)
    }

    pub(super) fn prune(&mut self, stable: u64) {
        self.stable = self.stable.max(stable);
        while self.cells.front().is_some_and(|it| it.0 <= self.stable) {
            self.bytes -= self.cells.pop_front().map_or(0, |(_, cell)| cell.len());
        }
    }
}

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
