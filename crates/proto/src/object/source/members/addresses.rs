//! Addresses of members, their names in reports, and the messages that count as theirs.

use faircast_base::{BadInput, Checked, Duration, NodeId, Time};

use super::{GONE, Member, Members, OVER, Standing};
use crate::object::MemberState;
use crate::object::wire::LEAD_MAX;

impl Members {
    /// Whether a member is at `node`: what comes from there came through no element.
    pub(in crate::object) fn is_at(&self, node: NodeId) -> bool {
        self.by_node.contains_key(&node)
    }

    /// Whether what `from` says in the name of `member` counts.
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
            // Other packets of the member may come while none of its messages is taken.
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

    /// Whether nothing has come from it though several messages should have.
    pub(super) fn is_silent(&self, now: Time, member: &Member) -> bool {
        member.is(&[MemberState::Lost]) || now.since(member.status.heard) >= self.silence()
    }

    /// Time in which several messages of a member should have come.
    pub(super) fn silence(&self) -> Duration {
        self.status_interval(Duration::MAX) * SILENT_MESSAGES
    }

    /// Member `id` is `node`, and `reporter` in reports unless that is somebody else who is there.
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

    /// Standing of `node`, which has been heard, by its report in the name of `reporter`, if it has one.
    ///
    /// Elements pass NAKs on in their own name, so that there the reporter's word must do.
    pub(in crate::object) fn hear(
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
            // Other members need not wait for one that data does not reach: its requests are served when no other
            // member wants anything.
            MemberState::Joined | MemberState::Receiving
                if status.path.is_some() && self.reached > 0 =>
            {
                Standing::Unserved
            }
            MemberState::Joined | MemberState::Receiving => Standing::Member,
            // A member that has everything holds up no other.
            MemberState::Done | MemberState::Deferred => Standing::Unserved,
            MemberState::Failed | MemberState::Left | MemberState::Lost => {
                return Standing::Unknown;
            }
        };
        status.heard = now;
        standing
    }
}

/// Missing messages in a row after which a member is silent.
const SILENT_MESSAGES: u64 = 5;
