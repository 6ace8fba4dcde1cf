//! Parents that a receiver has had: what the present parent reports of them, and goodbyes to them.

use alloc::collections::VecDeque;

use faircast_base::{NodeId, Time};

#[derive(Debug, Default)]
pub(crate) struct PastParents {
    /// Number of the present or latest parent, and the level of the receiver below it.
    pub(crate) latest_id: u64,
    pub(crate) latest_level: u8,
    /// Parents so far.
    pub(crate) joins: u16,
    /// After a loss: number of the head that may count this receiver as lost, else 0, and the time
    /// of its last packet.
    pub(crate) lost: Option<(u64, Time)>,
    /// Previous parent, which still repairs the packets before `until`.
    pub(crate) previous: Option<PreviousParent>,
    goodbyes: VecDeque<NodeId>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PreviousParent {
    pub(crate) node: NodeId,
    pub(crate) until: u64,
}

impl PastParents {
    pub(crate) fn is_previous(&self, node: NodeId) -> bool {
        self.previous.is_some_and(|previous| previous.node == node)
    }

    /// Drops the previous parent if it is `node`. Returns true if so.
    pub(crate) fn drop_previous(&mut self, node: NodeId) -> bool {
        self.previous.take_if(|previous| previous.node == node).is_some()
    }

    /// Leaves the previous parent once nothing before its bound is missing.
    pub(crate) fn on_progress(&mut self, first_missing: u64) {
        if let Some(previous) = self.previous.take_if(|it| first_missing >= it.until) {
            self.goodbyes.push_back(previous.node);
        }
    }

    pub(crate) fn say_goodbye(&mut self, node: NodeId) {
        self.goodbyes.push_back(node);
    }

    /// Queues a goodbye to a head that counts this receiver as a member by mistake.
    pub(crate) fn say_goodbye_once(&mut self, node: NodeId) {
        if !self.goodbyes.contains(&node) {
            self.goodbyes.push_back(node);
        }
    }

    /// Queues goodbyes to all parents, at the end.
    pub(crate) fn leave(&mut self, parent: Option<NodeId>) {
        let previous = self.previous.take().map(|previous| previous.node);
        self.goodbyes.extend(parent.into_iter().chain(previous));
    }

    pub(crate) fn next_goodbye(&mut self) -> Option<NodeId> {
        self.goodbyes.pop_front()
    }

    /// Drops goodbyes to the previous parent, which still repairs.
    pub(crate) fn keep_previous(&mut self) {
        if let Some(previous) = self.previous {
            self.goodbyes.retain(|node| *node != previous.node);
        }
    }

    pub(crate) fn drop_goodbyes(&mut self) {
        self.goodbyes.clear();
    }
}
