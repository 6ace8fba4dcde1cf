//! Silent members: hellos that request an answer, and the receivers below a lost head.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::Members;
use super::member::{Member, Progress};
use crate::tram::membership::departures::Departures;

/// Time for which a head refuses a member that never acknowledged.
const UNCONFIRMED_REFUSED_FOR: Duration = Duration::from_secs(4);

/// Longest time to the first acknowledgement of a new member, for which packets are kept.
const CONFIRMATION_MAX: Duration = Duration::from_secs(1);

/// Needs of the receivers below a lost head; the source waits for them until they have a head.
#[derive(Debug)]
pub(super) struct Orphans {
    /// Number of the lost head.
    head: u64,
    /// Receivers below the lost head, and those that had moved to other heads before.
    receivers: u32,
    moved_away: u32,
    pub(super) first_missing: u64,
    /// Last allowed packet; `None` if the lost head was catching up.
    pub(super) allowed: Option<u64>,
    expire_at: Time,
}

impl Orphans {
    fn of(member: &Member, expire_at: Time) -> Self {
        let Progress { first_missing, allowed, .. } = member.progress;
        Self {
            head: member.id,
            receivers: member.subtree.receivers,
            moved_away: member.subtree.moved_away,
            first_missing,
            allowed: (!member.catches_up()).then_some(allowed),
            expire_at,
        }
    }

    /// True if fewer receivers have found another head than were below the lost one.
    fn remain(&self, departures: &Departures) -> bool {
        let found = departures.found_from(self.head).saturating_sub(self.moved_away);
        found < self.receivers && !departures.is_back(self.head)
    }
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
        for node in &lost {
            self.lose(now, *node);
        }
        self.drop_found_orphans();
        (asked, lost)
    }

    pub(super) fn lose(&mut self, now: Time, node: NodeId) {
        let Some(member) = self.by_node.remove(&node) else { return };
        if member.is_confirmed() {
            self.record(node, &member, member.fate);
        } else {
            self.refuse(node, now + UNCONFIRMED_REFUSED_FOR);
        }
        if member.subtree.receivers == 0 || member.progress.needs_reread {
            return;
        }
        // Each entry was a member, so there are no more entries than members.
        if self.orphans.len() >= self.limits.members {
            self.orphans.remove(0);
        }
        self.orphans.push(Orphans::of(&member, now + self.orphans_for));
    }

    pub(super) fn drop_found_orphans(&mut self) {
        let departures = &self.departures;
        self.orphans.retain(|orphans| orphans.remain(departures));
    }
}
