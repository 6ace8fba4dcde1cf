//! Questions to members that may be gone: those that have left by a goodbye, which anybody can
//! forge, and earlier members of a name whose receiver was restarted or has moved. Any receiver can
//! claim a name, so the earlier member is asked, and stays if it answers. Until that member counts
//! as silent, it closes the window for all.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::{Member, Members};

/// Delay from a goodbye until the member is asked: packets until then predate the goodbye.
const ASKED_AFTER: Duration = Duration::from_millis(100);

/// Time after a goodbye in which a member can return; a departed member answers for as long.
const RETURN_MAX: Duration = Duration::from_secs(10);

const LEAVES_MAX: usize = 256;

/// Interval and number of questions; chosen. At 10 % loss one live member in 4000 binds anew.
const QUESTION_INTERVAL: Duration = Duration::from_millis(250);
const QUESTIONS_MAX: u32 = 5;

#[derive(Debug)]
struct Leave {
    node: NodeId,
    member: Member,
    left_at: Time,
    asked: bool,
}

impl Leave {
    fn is_over(&self, now: Time) -> bool {
        now.since(self.left_at) >= RETURN_MAX
    }

    fn is_of(&self, node: NodeId, id: u64) -> bool {
        (self.node, self.member.id) == (node, id)
    }
}

#[derive(Debug, Default)]
pub(crate) struct RecentLeaves(Vec<Leave>);

impl RecentLeaves {
    pub(super) fn add(&mut self, now: Time, node: NodeId, mut member: Member) {
        self.0.retain(|leave| !leave.is_over(now) && !leave.is_of(node, member.id));
        if self.0.len() >= LEAVES_MAX {
            self.0.remove(0);
        }
        member.subtree.unlisted = 0;
        self.0.push(Leave { node, member, left_at: now, asked: false });
    }

    pub(crate) fn position(&self, now: Time, node: NodeId, id: u64) -> Option<usize> {
        self.0.iter().position(|leave| leave.is_of(node, id) && !leave.is_over(now))
    }

    /// Takes back the member with this number, unless its packet may predate the goodbye.
    pub(super) fn take_back(&mut self, now: Time, node: NodeId, id: u64) -> Option<Member> {
        let position = self.position(now, node, id)?;
        if now.since(self.0[position].left_at) < ASKED_AFTER {
            return None;
        }
        let mut member = self.0.remove(position).member;
        member.joins = member.joins.saturating_add(1);
        member.life.on_packet(now);
        (member.progress.advanced_at, member.progress.ineffective_repairs) = (now, 0);
        Some(member)
    }

    /// Returns the members to ask now, and the time of the next question.
    pub(crate) fn ask(&mut self, now: Time) -> (Option<Time>, Vec<(NodeId, u64)>) {
        self.0.retain(|leave| !leave.is_over(now));
        let (mut next_at, mut asked) = (None, Vec::new());
        for leave in self.0.iter_mut().filter(|leave| !leave.asked) {
            let due_at = leave.left_at + ASKED_AFTER;
            if due_at <= now {
                leave.asked = true;
                asked.push((leave.node, leave.member.id));
            } else {
                next_at = Some(next_at.map_or(due_at, |next: Time| next.min(due_at)));
            }
        }
        (next_at, asked)
    }
}

#[derive(Debug)]
pub(super) struct Earlier {
    pub(super) node: NodeId,
    id: u64,
    questions: u32,
    next_at: Time,
}

impl Members {
    /// Notes that this name is now at `node`. Returns true if members are to be asked.
    pub(crate) fn supersede(&mut self, now: Time, node: Option<NodeId>, name: u64) -> bool {
        let is_earlier = |(other, member): &(&NodeId, &Member)| {
            name != 0 && member.name == name && Some(**other) != node && member.is_confirmed()
        };
        for (&node, member) in self.by_node.iter().filter(is_earlier) {
            if self.superseded.iter().all(|earlier| earlier.node != node) {
                let (id, questions) = (member.id, 0);
                self.superseded.push(Earlier { node, id, questions, next_at: now });
            }
        }
        !self.superseded.is_empty()
    }

    /// Returns the time of the next question, members to ask, and those removed without an answer.
    pub(crate) fn ask_superseded(
        &mut self,
        now: Time,
    ) -> (Option<Time>, Vec<(NodeId, u64)>, Vec<NodeId>) {
        let (mut asked, mut lost) = (Vec::new(), Vec::new());
        let by_node = &self.by_node;
        self.superseded.retain_mut(|earlier| {
            let is_here = by_node.get(&earlier.node).is_some_and(|member| member.id == earlier.id);
            if earlier.next_at > now || !is_here {
                return is_here;
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
        self.lose(now, &lost);
        (self.superseded.iter().map(|earlier| earlier.next_at).min(), asked, lost)
    }
}
