//! Stream of one source: retained cells, and pieces of messages.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;

use super::Ready;
use crate::cell::{Cell, Kind};
use crate::client::Parts;
use crate::ids::{LinkId, Set};

#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pub(super) parts: Parts,
    pub(super) next: u64,
}

impl Pieces {
    pub(super) fn add(&mut self, source: usize, sequence: u64, cell: Cell) -> Option<Ready> {
        if cell.kind != Kind::More {
            self.parts.clear();
        } else if self.next != sequence {
            // The first piece was for other daemons, or lost with its source.
            return None;
        }
        self.parts.push(cell.payload.clone());
        self.next = if cell.last { 0 } else { sequence + 1 };
        let (time, is_last) = (cell.time, cell.last);
        let parts = |it: &mut Self| core::mem::take(&mut it.parts);
        is_last.then(|| Ready { source, sequence, time, cell, parts: parts(self) })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) link: LinkId,
    pub(super) below: Set,
    pub(super) acked: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Source {
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
    /// Last acknowledged number, greatest Lamport time behind the children, unacknowledged bytes.
    pub(super) acked: u64,
    pub(super) behind: u64,
    pub(super) unacked: usize,
    pub(super) ack_due: bool,
    /// Numbers and times of safe messages that earlier messages may still precede.
    pub(super) safe: VecDeque<(u64, u64)>,
}

impl Source {
    pub(super) fn keep(&mut self, sequence: u64, bytes: Bytes) {
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
    pub(super) fn certain(&self) -> u64 {
        self.safe.front().map_or(self.through, |it| it.0 - 1)
    }

    pub(super) fn settle(&mut self, stable: u64) {
        self.stable = self.stable.max(stable);
        while self.cells.front().is_some_and(|it| it.0 <= self.stable) {
            self.bytes -= self.cells.pop_front().map_or(0, |(_, cell)| cell.len());
        }
    }
}
