//! Stream of one source: retained cells, and pieces of messages.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;

use super::CompleteMessage;
use crate::cell::{Cell, Kind};
use crate::client::Parts;
use crate::ids::{DaemonSet, LinkId};

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
    /// Greatest Lamport time in acknowledgements of the children.
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
