//! Removal of members that are silent, or that hold the group up without progress.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::{Member, Members, REFUSED_MAX};
use crate::tram::wire::Fate;
use crate::{Destination, keep_last};

/// Time for which a head refuses a member that never acknowledged.
const UNCONFIRMED_REFUSED_FOR: Duration = Duration::from_secs(4);

/// Longest time to the first acknowledgement of a new member, for which packets are kept.
const CONFIRMATION_MAX: Duration = Duration::from_secs(1);

/// Time for which a head refuses a member that it removed for a stall.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Longest time without progress, in acknowledgement intervals; members leave a head after as many.
pub(super) const STALL_INTERVALS: u64 = 10;

/// Repairs without effect, and time without progress, after which a member counts as stalled early;
/// chosen. A short outage of its path is no stall.
pub(super) const INEFFECTIVE_MAX: u32 = 10;
pub(super) const EARLY_STALL: Duration = Duration::from_secs(3);
pub(super) const EARLY_STALL_INTERVALS: u64 = 3;

/// Needs of the receivers below a lost head; the source waits for them until they have a head.
#[derive(Debug)]
pub(super) struct Orphans {
    head: u64,
    /// Receivers below the lost head, and those that had moved to other heads before.
    receivers: u32,
    moved_away: u32,
    pub(super) first_missing: u64,
    /// Last allowed packet; `None` if the lost head was catching up.
    pub(super) allowed: Option<u64>,
    expire_at: Time,
}

impl Members {
    /// Counts hellos to members silent for `silence`. Returns numbers to ask and removed nodes.
    pub(crate) fn check_silence(
        &mut self,
        now: Time,
        silence: Duration,
        unanswered_max: u32,
    ) -> (Vec<u64>, Vec<NodeId>) {
        let (mut asked, mut lost) = (Vec::new(), Vec::new());
        self.orphans.retain(|orphans| orphans.expire_at > now);
        for (&node, member) in &mut self.by_node {
            let life = &mut member.life;
            life.confirmation_expired =
                !life.confirmed && now.since(life.joined_at) >= CONFIRMATION_MAX;
            if now.since(life.last_packet_at) < silence {
                continue;
            }
            if life.unanswered_hellos >= unanswered_max {
                lost.push(node);
            } else {
                life.unanswered_hellos += 1;
                asked.push(member.id);
            }
        }
        self.lose(now, &lost);
        (asked, lost)
    }

    pub(super) fn lose(&mut self, now: Time, nodes: &[NodeId]) {
        for node in nodes {
            let Some(member) = self.by_node.remove(node) else { continue };
            if member.is_confirmed() {
                self.record(*node, &member, member.fate);
            } else {
                let until = now + UNCONFIRMED_REFUSED_FOR;
                keep_last(&mut self.refused, REFUSED_MAX, (*node, until));
            }
            if member.subtree.receivers == 0 || member.progress.needs_reread {
                continue;
            }
            // Each entry was a member, so there are no more entries than members.
            if self.orphans.len() >= self.members_max {
                self.orphans.remove(0);
            }
            self.orphans.push(Orphans {
                head: member.id,
                receivers: member.subtree.receivers,
                moved_away: member.subtree.moved_away,
                first_missing: member.progress.first_missing,
                allowed: (!member.catches_up()).then_some(member.progress.allowed),
                expire_at: now + self.orphans_for,
            });
        }
        self.drop_found_orphans();
    }

    pub(super) fn drop_found_orphans(&mut self) {
        // Fewer receivers have found another head than were below the lost one.
        self.orphans.retain(|Orphans { head, receivers, moved_away, .. }| {
            let found = self.departures.found_from(*head).saturating_sub(*moved_away);
            found < *receivers && !self.departures.is_back(*head)
        });
    }

    pub(crate) fn on_repair(&mut self, sequence: u64, to: Destination) {
        for (node, Member { progress, .. }) in &mut self.by_node {
            let gets = !matches!(to, Destination::Node(only) if only != *node);
            if progress.first_missing == sequence && gets {
                progress.ineffective_repairs = progress.ineffective_repairs.saturating_add(1);
            }
        }
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
        let mut stalled = Vec::new();
        for (&node, member) in &mut self.by_node {
            if waits(node, member.progress.first_missing) {
                member.progress.repair_queued_at = now;
            }
            let progress = &member.progress;
            let hinders =
                progress.allowed + 1 < end || filling && progress.first_missing <= first_kept;
            let lacks =
                progress.first_missing < end && !progress.needs_reread && member.is_confirmed();
            let ineffective =
                progress.ineffective_repairs >= INEFFECTIVE_MAX && !member.catches_up();
            let (since, timeout) = match ineffective || member.life.acked_once {
                true => (progress.advanced_at, self.stall_timeout.min(self.early_stall_timeout)),
                false => (progress.advanced_at.max(progress.repair_queued_at), self.stall_timeout),
            };
            if lacks && hinders && now.since(since) >= timeout {
                stalled.push(node);
            }
        }
        for node in &stalled {
            self.prune(*node);
            keep_last(&mut self.refused, REFUSED_MAX, (*node, now + REFUSED_FOR));
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
