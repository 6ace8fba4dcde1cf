//! Addresses of members, names under which they report, and the packets that count as theirs.

use faircast_base::{BadInput, Checked, Duration, NodeId, Time};

use super::{GONE, Member, Members, OVER, Standing};
use crate::object::MemberState;
use crate::object::wire::LEAD_MAX;

impl Members {
    pub(crate) fn is_at(&self, node: NodeId) -> bool {
        self.by_node.contains_key(&node)
    }

    pub(super) fn check(
        &self,
        now: Time,
        member: &Member,
        (from, authenticated): (NodeId, bool),
        number: u32,
    ) -> Checked {
        // Numbers wrap.
        let ahead = number.wrapping_sub(member.number).cast_signed();
        let silent = self.is_silent(now, member);
        if member.status.node == from {
            // Other packets of the member may arrive while none of its messages is accepted.
            let refused = now.since(member.taken_at) >= self.silence();
            let follows = (0..=LEAD_MAX).contains(&ahead) || authenticated && ahead >= 0;
            if follows || silent || refused { Ok(()) } else { Err(BadInput::Duplicate) }
        } else if (silent || authenticated) && ahead >= i32::from(member.is(&OVER)) {
            // A member is silent after its last message: only a new message moves it.
            Ok(())
        } else {
            Err(BadInput::Foreign)
        }
    }

    pub(super) fn is_silent(&self, now: Time, member: &Member) -> bool {
        member.is(&[MemberState::Lost]) || now.since(member.status.heard) >= self.silence()
    }

    pub(super) fn silence(&self) -> Duration {
        self.status_interval(Duration::MAX) * SILENT_MESSAGES
    }

    pub(super) fn bind(&mut self, now: Time, id: u64, node: NodeId, reporter: NodeId) {
        let other = self.by_reporter.get(&reporter).filter(|other| **other != id);
        let taken = other
            .and_then(|other| self.members.get(other))
            .is_some_and(|other| !other.is(&GONE) && !self.is_silent(now, other));
        let Some(Member { status, .. }) = self.members.get_mut(&id) else { return };
        let (old_node, old_reporter) = (status.node, status.reporter);
        (status.node, status.reporter) = (node, reporter);
        if old_node != node && self.by_node.get(&old_node) == Some(&id) {
            self.by_node.remove(&old_node);
        }
        if old_reporter != reporter && self.by_reporter.get(&old_reporter) == Some(&id) {
            self.by_reporter.remove(&old_reporter);
        }
        self.by_node.insert(node, id);
        if !taken {
            self.by_reporter.insert(reporter, id);
        }
    }

    /// Returns the standing of `node`, or for NAKs of `reporter` alone: elements forward NAKs under
    /// their own address.
    pub(crate) fn standing_of(
        &mut self,
        now: Time,
        node: NodeId,
        reporter: Option<NodeId>,
        through_elements: bool,
    ) -> Standing {
        let by_node = self.by_node.get(&node);
        let by_reporter = reporter.map(|reporter| self.by_reporter.get(&reporter));
        let id = match (by_node, by_reporter) {
            (Some(id), None) => id,
            (Some(id), Some(Some(reported))) if id == reported || through_elements => reported,
            (None, Some(Some(id))) if through_elements => id,
            _ => return Standing::Unknown,
        };
        let Some(Member { status, .. }) = self.members.get_mut(id) else {
            return Standing::Unknown;
        };
        if node == status.home {
            status.home_heard = now;
        }
        let standing = match status.state {
            // Members that data does not reach are served when no other member wants anything.
            MemberState::Joined | MemberState::Receiving
                if status.path.is_some() && self.reached > 0 =>
            {
                Standing::Unserved
            }
            MemberState::Joined | MemberState::Receiving => Standing::Member,
            MemberState::Done | MemberState::Deferred => Standing::Unserved,
            MemberState::Failed | MemberState::Left | MemberState::Lost => {
                return Standing::Unknown;
            }
        };
        status.heard = now;
        standing
    }
}

/// Consecutive missing messages after which a member is silent.
const SILENT_MESSAGES: u64 = 5;
