//! Members that have left by a goodbye, which anybody can forge.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::Member;

/// Delay from a goodbye until the member is asked: packets until then predate the goodbye.
const ASKED_AFTER: Duration = Duration::from_millis(100);

/// Time after a goodbye in which a member can return; a departed member answers for as long.
const RETURN_MAX: Duration = Duration::from_secs(10);

/// Most remembered goodbyes; chosen.
const LEAVES_MAX: usize = 256;

#[derive(Debug)]
struct Leave {
    node: NodeId,
    member: Member,
    left_at: Time,
    /// True once the member was asked whether it has left.
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
pub(crate) struct RecentLeaves {
    leaves: Vec<Leave>,
}

impl RecentLeaves {
    pub(super) fn add(&mut self, now: Time, node: NodeId, mut member: Member) {
        self.leaves.retain(|leave| !leave.is_over(now) && !leave.is_of(node, member.id));
        if self.leaves.len() >= LEAVES_MAX {
            self.leaves.remove(0);
        }
        member.subtree.unlisted = 0;
        self.leaves.push(Leave { node, member, left_at: now, asked: false });
    }

    fn position(&self, now: Time, node: NodeId, id: u64) -> Option<usize> {
        self.leaves.iter().position(|leave| leave.is_of(node, id) && !leave.is_over(now))
    }

    pub(crate) fn contains(&self, now: Time, node: NodeId, id: u64) -> bool {
        self.position(now, node, id).is_some()
    }

    /// Takes back the member with this number, unless its packet may predate the goodbye.
    pub(super) fn take_back(&mut self, now: Time, node: NodeId, id: u64) -> Option<Member> {
        let position = self.position(now, node, id)?;
        if now.since(self.leaves[position].left_at) < ASKED_AFTER {
            return None;
        }
        let mut member = self.leaves.remove(position).member;
        member.joins = member.joins.saturating_add(1);
        member.life.on_packet(now);
        (member.progress.advanced_at, member.progress.ineffective_repairs) = (now, 0);
        Some(member)
    }

    /// Returns the members to ask now, and the time of the next question.
    pub(crate) fn ask(&mut self, now: Time) -> (Option<Time>, Vec<(NodeId, u64)>) {
        self.leaves.retain(|leave| !leave.is_over(now));
        let due = |leave: &&mut Leave| !leave.asked && leave.left_at + ASKED_AFTER <= now;
        let asked = self.leaves.iter_mut().filter(due).map(|leave| {
            leave.asked = true;
            (leave.node, leave.member.id)
        });
        let asked = asked.collect();
        let unasked = self.leaves.iter().filter(|leave| !leave.asked);
        (unasked.map(|leave| leave.left_at + ASKED_AFTER).min(), asked)
    }
}
