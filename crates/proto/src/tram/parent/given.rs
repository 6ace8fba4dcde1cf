//! Assigned head of a receiver, which the receiver finds by its node or its name.

use faircast_base::{NodeId, Time};

use super::{BIND_TIMEOUT, BIND_TRIES, Candidate, Parent, SOLICIT_INTERVAL, Search, Step, Timer};
use crate::tram::GivenHead;

/// Requests to an assigned head before others are asked, a solicitation interval apart.
pub(super) const TRIES: u32 = 60;

#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    head: GivenHead,
    node: Option<NodeId>,
    tries: u32,
}

impl Given {
    pub(super) fn new(head: GivenHead) -> Self {
        let node = match head {
            GivenHead::Node(node) => Some(node),
            GivenHead::Named(_) => None,
        };
        Self { head, node, tries: TRIES }
    }
}

impl Parent {
    pub(super) fn ask_given(&mut self, now: Time) -> bool {
        let Some(given) = &mut self.given else { return false };
        given.tries = given.tries.saturating_sub(1);
        let Given { head, node, tries } = *given;
        if tries == 0 {
            self.given = None;
        }
        match (node, head) {
            (Some(node), _) | (None, GivenHead::Node(node)) => {
                let head = Candidate::given(now, node, self.ring_max);
                self.search = Search::Binding { head, since: now, tries: BIND_TRIES };
                self.due = Some(Step::Bind { to: node, distance: self.ring_max });
                self.timers.arm(Timer::Round, now + BIND_TIMEOUT);
            }
            (None, GivenHead::Named(name)) => {
                self.search = Search::Seeking { rounds: 0 };
                self.due = Some(Step::Solicit { ttl: self.ring_max, name });
                self.timers.arm(Timer::Round, now + SOLICIT_INTERVAL);
            }
        }
        true
    }

    /// Takes the node of a head's name. A later node is ignored while the first one answers.
    pub(super) fn find_given(&mut self, now: Time, node: NodeId, name: u64) {
        let Some(given) = &mut self.given else { return };
        if given.node.is_none() && given.head == GivenHead::Named(name) {
            given.node = Some(node);
            if matches!(self.search, Search::Seeking { .. }) {
                self.timers.arm(Timer::Round, now);
            }
        }
    }

    pub(super) fn lose_given(&mut self, node: NodeId) {
        if let Some(given) = self.given.as_mut().filter(|it| it.node == Some(node))
            && let GivenHead::Named(_) = given.head
        {
            given.node = None;
        }
    }

    /// Drops the assigned head, which lacks wanted packets that another head has.
    pub(in crate::tram) fn on_lacking(&mut self) {
        self.given = None;
    }
}
