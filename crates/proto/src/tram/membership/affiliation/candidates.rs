//! Candidates: advertised heads that could be a receiver's, ranked.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::Seeker;
use crate::keep_last;
use crate::tram::settings::HeadRole;
use crate::tram::wire::{Advertisement, HeadState};

const CANDIDATES_MAX: usize = 10;

/// Silence after which a candidate is replaced before others: 10 s.
const CANDIDATE_SILENCE: Duration = Duration::from_secs(10);

/// Time for which other heads go before one that has failed, and the most such heads remembered.
/// The head may be the only one, so it stays a candidate.
const DISTRUSTED_FOR: Duration = Duration::from_secs(60);
const DISTRUSTED_MAX: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) node: NodeId,
    pub(super) id: u64,
    /// Least time to live of the head's packets, or the class of the round trip.
    pub(super) distance: u8,
    pub(super) unmeasured: bool,
    /// True if the head repairs even where others do.
    pub(super) is_eager: bool,
    pub(super) level: u8,
    pub(super) low: u64,
    pub(super) last_packet_at: Time,
    /// True if the head has failed this receiver lately, and advertises all the same.
    pub(super) distrusted: bool,
    /// True if the head takes only receivers that find no other.
    pub(super) is_last: bool,
}

impl Candidate {
    pub(super) fn lacks(&self, seeker: Seeker) -> bool {
        self.low > seeker.first_missing.max(1)
    }

    pub(super) fn assigned(now: Time, node: NodeId, distance: u8) -> Self {
        Self { node, distance, is_eager: true, level: 1, last_packet_at: now, ..Self::default() }
    }

    /// Returns the rank; the least is best. With members, levels precede distances: no loop forms.
    fn rank(&self, seeker: Seeker) -> (bool, bool, bool, u8, bool, u8) {
        let Self { distance, level, is_eager, distrusted, is_last, .. } = *self;
        let (first, second) =
            if seeker.level_with_members.is_some() { (level, distance) } else { (distance, level) };
        (distrusted, self.lacks(seeker), is_last, first, !is_eager, second)
    }
}

#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) known: Vec<Candidate>,
    /// The source, full or not: it takes receivers that need packets which only it has.
    pub(super) root: Option<Candidate>,
    distrusted: VecDeque<(NodeId, Time)>,
}

impl Candidates {
    /// Takes an advertisement; the distance may be unknown. Returns true for a candidate.
    pub(super) fn on_advertisement(
        &mut self,
        now: Time,
        (node, id, distance): (NodeId, u64, Option<u8>),
        advertisement: &Advertisement,
        seeker: Seeker,
    ) -> bool {
        let takes = advertisement.state.takes(seeker.may_be_head);
        let Advertisement { level, low, role, .. } = *advertisement;
        let is_distrusted = |it: &(NodeId, Time)| it.0 == node && it.1 > now;
        let mut fresh = Candidate {
            node,
            id,
            distance: distance.unwrap_or(u8::MAX),
            unmeasured: distance.is_none(),
            is_eager: role == HeadRole::Eager,
            level,
            low,
            last_packet_at: now,
            distrusted: self.distrusted.iter().any(is_distrusted),
            is_last: advertisement.state == HeadState::AcceptingMembers,
        };
        if level == 1 {
            self.root = Some(fresh);
        }
        if !takes || level == 0 || !seeker.is_below(level) {
            self.forget(node);
            return false;
        }
        if let Some(known) = self.known.iter_mut().find(|known| known.node == node) {
            // The distance only decreases: growing rings repeat with larger times to live.
            fresh.distance = known.distance.min(fresh.distance);
            fresh.unmeasured &= known.unmeasured;
            *known = fresh;
            return true;
        }
        let known = &self.known;
        if known.len() < CANDIDATES_MAX {
            self.known.push(fresh);
            return true;
        }
        let stale = known.iter().position(|it| now.since(it.last_packet_at) > CANDIDATE_SILENCE);
        let worst = (0..known.len()).max_by_key(|&i| known[i].rank(seeker));
        let worse = worst.filter(|&i| fresh.rank(seeker) < known[i].rank(seeker));
        if let Some(rank) = stale.or(worse) {
            self.known[rank] = fresh;
        }
        true
    }

    pub(super) fn best(
        &self,
        since: Time,
        seeker: Seeker,
        suits: impl Fn(&Candidate) -> bool,
    ) -> Option<Candidate> {
        let order = |it: &&Candidate| (it.last_packet_at < since, it.rank(seeker));
        self.known.iter().filter(|it| suits(it)).min_by_key(order).copied()
    }

    pub(super) fn take_unmeasured(&mut self, suits: impl Fn(&Candidate) -> bool) -> Option<NodeId> {
        let next = self.known.iter_mut().find(|it| it.unmeasured && suits(it))?;
        next.unmeasured = false;
        Some(next.node)
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        self.known.retain(|candidate| candidate.node != node);
    }

    /// Drops a failed head until it is received again, and ranks others before it for a while.
    pub(super) fn distrust(&mut self, now: Time, node: NodeId) {
        self.forget(node);
        self.distrusted.retain(|(known, until)| *known != node && *until > now);
        keep_last(&mut self.distrusted, DISTRUSTED_MAX, (node, now + DISTRUSTED_FOR));
    }
}
