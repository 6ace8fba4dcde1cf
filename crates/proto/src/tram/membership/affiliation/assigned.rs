//! Assigned head of a receiver, which the receiver finds by its node or its name.

use faircast_base::{NodeId, Time};

use super::{
    Affiliation, BIND_TIMEOUT, BIND_TRIES, Candidate, Request, SOLICIT_INTERVAL, Search, Timer,
};
use crate::tram::GivenHead;

/// Requests to an assigned head before others are asked, a solicitation interval apart.
pub(super) const TRIES: u32 = 60;

#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    head: GivenHead,
    node: Option<NodeId>,
    tries: u32,
}

impl Assigned {
    pub(super) fn new(head: GivenHead) -> Self {
        let node = match head {
            GivenHead::Node(node) => Some(node),
            GivenHead::Named(_) => None,
        };
        Self { head, node, tries: TRIES }
    }
}

impl Affiliation {
    pub(super) fn request_assigned(&mut self, now: Time) -> bool {
        let Some(assigned) = &mut self.assigned else { return false };
        assigned.tries = assigned.tries.saturating_sub(1);
        let Assigned { head, node, tries } = *assigned;
        if tries == 0 {
            self.assigned = None;
        }
        match (node, head) {
            (Some(node), _) | (None, GivenHead::Node(node)) => {
                let head = Candidate::assigned(now, node, self.rings.max);
                self.search = Search::Binding { head, since: now, tries: BIND_TRIES };
                self.due = Some(Request::Bind { to: node, distance: self.rings.max });
                self.timers.arm(Timer::SearchRound, now + BIND_TIMEOUT);
            }
            (None, GivenHead::Named(name)) => {
                self.search = Search::Seeking { rounds: 0 };
                self.due = Some(Request::Solicit { ttl: self.rings.max, name });
                self.timers.arm(Timer::SearchRound, now + SOLICIT_INTERVAL);
            }
        }
        true
    }

    /// Takes the node of a head's name. A later node is ignored while the first one answers.
    pub(super) fn find_assigned(&mut self, now: Time, node: NodeId, name: u64) {
        let Some(assigned) = &mut self.assigned else { return };
        if assigned.node.is_none() && assigned.head == GivenHead::Named(name) {
            assigned.node = Some(node);
            if matches!(self.search, Search::Seeking { .. }) {
                self.timers.arm(Timer::SearchRound, now);
            }
        }
    }

    pub(super) fn lose_assigned(&mut self, node: NodeId) {
        if let Some(assigned) = self.assigned.as_mut().filter(|it| it.node == Some(node))
            && let GivenHead::Named(_) = assigned.head
        {
            assigned.node = None;
        }
    }

    /// Drops the assigned head, which lacks wanted packets that another head has.
    pub(crate) fn drop_assigned(&mut self) {
        self.assigned = None;
    }
}
