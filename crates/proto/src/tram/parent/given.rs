//! The head that a receiver was given, which it finds by its number or by its name.

use faircast_base::{NodeId, Time};

use super::{BIND_TIMEOUT, BIND_TRIES, Candidate, Parent, SOLICIT_INTERVAL, Search, Step, Timer};
use crate::tram::GivenHead;

/// How often a head that was given is asked, with an interval of solicitations between, until others are.
pub(super) const TRIES: u32 = 60;

#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    head: GivenHead,
    /// Where it is, once that is known.
    node: Option<NodeId>,
    /// How often it is still asked.
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
    /// Asks the head that it was given, or where that is; `false` where there is none any more.
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
                // Asked once each time: it is asked again anyway.
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

    /// The node that has the number of this name is heard: where that is the head that it was given it asks that at
    /// once. Who has the name later, as after a start anew, is not believed while the first one answers.
    pub(super) fn find_given(&mut self, now: Time, node: NodeId, name: u64) {
        let Some(given) = &mut self.given else { return };
        if given.node.is_none() && given.head == GivenHead::Named(name) {
            given.node = Some(node);
            if matches!(self.search, Search::Seeking { .. }) {
                self.timers.arm(Timer::Round, now);
            }
        }
    }

    /// A node has not answered: whoever has its name is found anew.
    pub(super) fn lose_given(&mut self, node: NodeId) {
        if let Some(given) = self.given.as_mut().filter(|it| it.node == Some(node))
            && let GivenHead::Named(_) = given.head
        {
            given.node = None;
        }
    }

    /// The head that it was given has not all that is wanted: another has.
    pub(in crate::tram) fn on_lacking(&mut self) {
        self.given = None;
    }
}
