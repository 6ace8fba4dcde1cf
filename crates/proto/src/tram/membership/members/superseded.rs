//! Earlier members of a name whose receiver was restarted or has moved: they close the window for
//! all until they count as silent. Any receiver can claim a name, so the earlier member is asked,
//! and stays if it answers.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::{Member, Members};

/// Interval and number of questions; chosen. At 10 % loss one live member in 4000 binds anew.
const QUESTION_INTERVAL: Duration = Duration::from_millis(250);
const QUESTIONS_MAX: u32 = 5;

#[derive(Debug)]
struct Earlier {
    node: NodeId,
    id: u64,
    questions: u32,
    next_at: Time,
}

#[derive(Debug, Default)]
pub(super) struct Superseded {
    earlier: Vec<Earlier>,
}

impl Superseded {
    pub(super) fn on_packet(&mut self, node: NodeId) {
        self.earlier.retain(|earlier| earlier.node != node);
    }
}

/// Questions to superseded members.
pub(crate) struct Questions {
    pub(crate) next_at: Option<Time>,
    pub(crate) asked: Vec<(NodeId, u64)>,
    /// Members without an answer, which were removed.
    pub(crate) lost: Vec<NodeId>,
}

impl Members {
    /// Notes that a receiver with this name is now at `node`. Returns true if members are to be
    /// asked.
    pub(crate) fn supersede(&mut self, now: Time, node: Option<NodeId>, name: u64) -> bool {
        let is_earlier = |(other, member): &(&NodeId, &Member)| {
            name != 0 && member.name == name && Some(**other) != node && member.is_confirmed()
        };
        for (&node, member) in self.by_node.iter().filter(is_earlier) {
            let earlier = &mut self.superseded.earlier;
            if earlier.iter().all(|earlier| earlier.node != node) {
                earlier.push(Earlier { node, id: member.id, questions: 0, next_at: now });
            }
        }
        !self.superseded.earlier.is_empty()
    }

    pub(crate) fn ask_superseded(&mut self, now: Time) -> Questions {
        let (mut asked, mut lost) = (Vec::new(), Vec::new());
        let by_node = &self.by_node;
        let is_here = |it: &Earlier| by_node.get(&it.node).is_some_and(|member| member.id == it.id);
        self.superseded.earlier.retain_mut(|earlier| {
            if earlier.next_at > now || !is_here(earlier) {
                return is_here(earlier);
            }
            if earlier.questions == QUESTIONS_MAX {
                lost.push(earlier.node);
                return false;
            }
            earlier.questions += 1;
            earlier.next_at = now + QUESTION_INTERVAL;
            asked.push((earlier.node, earlier.id));
            true
        });
        for node in &lost {
            self.lose(now, *node);
        }
        self.drop_found_orphans();
        let next_at = self.superseded.earlier.iter().map(|earlier| earlier.next_at).min();
        Questions { next_at, asked, lost }
    }
}
