//! Links to other daemons, with the frames that wait in their control lanes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::Time;

use crate::ids::LinkId;
use crate::neighbor::Neighbours;

/// Maximum control queue of a link in bytes, above a whole overlay's database; then it closes.
const CONTROL_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, Default)]
struct ControlQueue {
    frames: VecDeque<Bytes>,
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    pub(super) neighbours: Neighbours,
    control: BTreeMap<LinkId, ControlQueue>,
}

impl Links {
    pub(super) fn open(&mut self, now: Time, link: LinkId, is_initiator: bool) {
        self.neighbours.open(now, link, is_initiator);
        self.control.insert(link, ControlQueue::default());
    }

    /// Removes a link. True if the link was up.
    pub(super) fn close(&mut self, now: Time, link: LinkId) -> bool {
        self.control.remove(&link);
        self.neighbours.close(now, link)
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.control.keys().copied().collect()
    }

    pub(super) fn is_up(&self, link: LinkId) -> bool {
        self.neighbours.get(link).is_some_and(|it| it.is_up)
    }

    /// Queues a frame of the control lane. False if the peer reads too slowly.
    pub(super) fn push(&mut self, link: LinkId, frame: Bytes) -> bool {
        let Some(queue) = self.control.get_mut(&link) else { return true };
        if queue.bytes > CONTROL_BYTES_MAX {
            return false;
        }
        queue.bytes += frame.len();
        queue.frames.push_back(frame);
        true
    }

    pub(super) fn poll(&mut self, link: LinkId) -> Option<Bytes> {
        let queue = self.control.get_mut(&link)?;
        let frame = queue.frames.pop_front()?;
        queue.bytes -= frame.len();
        Some(frame)
    }
}
