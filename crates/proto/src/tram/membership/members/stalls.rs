//! Stalled members: repairs without effect, and removal of members that hold the group up.

use faircast_base::{Duration, NodeId, Time};

use super::{Member, Members};
use crate::Destination;
use crate::tram::settings::TramSettings;
use crate::tram::wire::Fate;

use alloc::vec::Vec;

/// Time for which a head refuses a member that it removed for a stall.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Longest time without progress, in acknowledgement intervals; members leave a head after as many.
pub(super) const STALL_INTERVALS: u64 = 10;

/// Repairs without effect, and time without progress, after which a member counts as stalled early;
/// chosen. A short outage of its path is no stall.
pub(super) const INEFFECTIVE_MAX: u32 = 10;
pub(super) const EARLY_STALL: Duration = Duration::from_secs(3);
const EARLY_STALL_INTERVALS: u64 = 3;

/// Repairs without effect after which a member gets fewer repairs, by unicast; chosen.
const INEFFECTIVE_FEW: u32 = 3;

/// Times without progress after which a member has stalled.
#[derive(Debug, Default)]
pub(super) struct StallTimeouts {
    normal: Duration,
    /// Timeout of a member that was repaired in vain, or acknowledged only once.
    early: Duration,
}

impl StallTimeouts {
    pub(super) fn new(settings: &TramSettings) -> Self {
        // Longer than delays of acknowledgements and hellos.
        let interval = settings.ack_interval.max(settings.hello_interval);
        Self {
            normal: settings.ack_interval_max * STALL_INTERVALS,
            early: EARLY_STALL.max(interval * EARLY_STALL_INTERVALS),
        }
    }

    fn have_passed(&self, now: Time, member: &Member) -> bool {
        let progress = &member.progress;
        let ineffective = progress.ineffective_repairs >= INEFFECTIVE_MAX && !member.catches_up();
        if ineffective || member.life.acked_once {
            now.since(progress.advanced_at) >= self.normal.min(self.early)
        } else {
            now.since(progress.advanced_at.max(progress.repair_queued_at)) >= self.normal
        }
    }
}

impl Members {
    pub(crate) fn on_repair(&mut self, sequence: u64, to: Destination) {
        let gets = |node: &NodeId| !matches!(to, Destination::Node(only) if only != *node);
        for (node, member) in &mut self.by_node {
            let Member { progress, .. } = member;
            if progress.first_missing == sequence && gets(node) {
                progress.ineffective_repairs = progress.ineffective_repairs.saturating_add(1);
            }
        }
    }

    /// True if repairs have no effect on a member that is not catching up.
    pub(crate) fn is_stalling(&self, node: NodeId) -> bool {
        self.is_unreached(node) && !self.catches_up(node)
    }

    /// True if repairs did not reach the member: its reported time to live may be too small.
    pub(crate) fn is_unreached(&self, node: NodeId) -> bool {
        let member = self.by_node.get(&node);
        member.is_some_and(|it| it.progress.ineffective_repairs >= INEFFECTIVE_FEW)
    }

    /// Removes and refuses stalled members that block packets after `end`, or a `filling` cache.
    /// `waits` is true for a repair that is queued for a member.
    pub(crate) fn remove_stalled(
        &mut self,
        now: Time,
        (first_kept, end): (u64, u64),
        filling: bool,
        waits: impl Fn(NodeId, u64) -> bool,
    ) -> Vec<NodeId> {
        for (node, member) in &mut self.by_node {
            if waits(*node, member.progress.first_missing) {
                member.progress.repair_queued_at = now;
            }
        }
        let is_stalled = |member: &Member| {
            let progress = &member.progress;
            let hinders =
                progress.allowed + 1 < end || filling && progress.first_missing <= first_kept;
            let lacks =
                progress.first_missing < end && !progress.needs_reread && member.is_confirmed();
            lacks && hinders && self.stall_timeouts.have_passed(now, member)
        };
        let stalled: Vec<NodeId> =
            self.iter().filter(|(_, member)| is_stalled(member)).map(|(node, _)| node).collect();
        for node in &stalled {
            self.prune(*node);
            self.refuse(*node, now + REFUSED_FOR);
        }
        stalled
    }

    /// Returns the time to live of repairs to all members.
    pub(crate) fn reach(&self) -> u8 {
        let of = |member: &Member| match member.progress.ineffective_repairs >= INEFFECTIVE_MAX {
            true => self.ttl,
            false => member.distance,
        };
        self.by_node.values().map(of).max().unwrap_or(1)
    }

    pub(crate) fn prune(&mut self, node: NodeId) -> Option<u64> {
        let member = self.by_node.remove(&node)?;
        self.record(node, &member, Fate::Pruned);
        Some(member.id)
    }
}
