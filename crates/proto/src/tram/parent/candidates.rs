//! Candidates: heads that could be a receiver's, as they have advertised themselves, and which of them is best.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::Seeker;
use crate::keep_last;
use crate::tram::settings::HeadRole;
use crate::tram::wire::{Advertisement, HeadState};

/// Most heads that are remembered.
const CANDIDATES_MAX: usize = 10;

/// A candidate that is silent for so long is forgotten before others.
const CANDIDATE_SILENCE: Duration = Duration::from_secs(10);

/// Time in which others go before a head that did not answer, or did not do what it promised, and how many such
/// heads are remembered. It may have been cut off, or be the only one, so it stays a candidate.
const DISTRUSTED_FOR: Duration = Duration::from_secs(60);
const DISTRUSTED_MAX: usize = 16;

/// A head that could be this receiver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) node: NodeId,
    pub(super) id: u64,
    /// How far it is: the least time to live with which it was heard, or the class of the round trip to it.
    pub(super) distance: u8,
    /// The round trip is not known and has not been asked for.
    pub(super) unmeasured: bool,
    /// It is one whether others are or not.
    pub(super) is_eager: bool,
    /// Heads between it and the source, whose own level is 1.
    pub(super) level: u8,
    /// The first packet that it can repair.
    pub(super) low: u64,
    pub(super) heard_at: Time,
    /// True if it has failed this receiver not long ago, and advertises itself all the same.
    pub(super) distrusted: bool,
    /// It takes who finds no other.
    pub(super) is_last: bool,
}

impl Candidate {
    pub(super) fn lacks(&self, seeker: Seeker) -> bool {
        self.low > seeker.wants.max(1)
    }

    /// One that was given: nothing else is known of it.
    pub(super) fn given(now: Time, node: NodeId, distance: u8) -> Self {
        Self { node, distance, is_eager: true, level: 1, heard_at: now, ..Self::default() }
    }

    /// The best has the least: one that has not failed, then one that has all that is wanted, then one that does not leave it to
    /// others, then the nearest, and of these an eager one; but whoever has members goes by levels first, so that no two nodes can become each other's heads.
    fn rank(&self, seeker: Seeker) -> (bool, bool, bool, u8, bool, u8) {
        let Self { distance, level, is_eager, distrusted, is_last, .. } = *self;
        let (first, second) =
            if seeker.below.is_some() { (level, distance) } else { (distance, level) };
        (distrusted, self.lacks(seeker), is_last, first, !is_eager, second)
    }
}

/// Nodes that were found wanting not long ago: the last few of them.
#[derive(Debug, Default)]
struct Distrusted(VecDeque<(NodeId, Time)>);

impl Distrusted {
    fn add(&mut self, now: Time, node: NodeId) {
        self.0.retain(|(known, until)| *known != node && *until > now);
        keep_last(&mut self.0, DISTRUSTED_MAX, (node, now + DISTRUSTED_FOR));
    }

    fn contains(&self, now: Time, node: NodeId) -> bool {
        self.0.iter().any(|(known, until)| *known == node && *until > now)
    }
}

#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) known: Vec<Candidate>,
    /// The source, full or not: it takes those who need what only it has.
    pub(super) root: Option<Candidate>,
    distrusted: Distrusted,
}

impl Candidates {
    /// True if a head has advertised itself after this moment.
    pub(super) fn is_heard(&self, node: NodeId, since: Time) -> bool {
        let heard = |it: &Candidate| it.node == node && it.heard_at > since;
        self.known.iter().chain(&self.root).any(heard)
    }

    /// A head advertises itself; how far it is may not be known. Returns whether it is a candidate.
    pub(super) fn hear(
        &mut self,
        now: Time,
        (node, id, distance): (NodeId, u64, Option<u8>),
        advertisement: &Advertisement,
        seeker: Seeker,
    ) -> bool {
        let takes = advertisement.state.takes(seeker.may_be_head);
        let Advertisement { level, low, role, .. } = *advertisement;
        let mut fresh = Candidate {
            node,
            id,
            distance: distance.unwrap_or(u8::MAX),
            unmeasured: distance.is_none(),
            is_eager: role == HeadRole::Eager,
            level,
            low,
            heard_at: now,
            distrusted: self.distrusted.contains(now, node),
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
            // How far it is can only be found to be less: a ring that grows is heard again and again.
            fresh.distance = known.distance.min(fresh.distance);
            fresh.unmeasured &= known.unmeasured;
            *known = fresh;
        } else {
            self.remember(now, fresh, seeker);
        }
        true
    }

    fn remember(&mut self, now: Time, fresh: Candidate, seeker: Seeker) {
        if self.known.len() < CANDIDATES_MAX {
            self.known.push(fresh);
            return;
        }
        let known = &self.known;
        let stale = known.iter().position(|it| now.since(it.heard_at) > CANDIDATE_SILENCE);
        let worst = (0..known.len()).max_by_key(|&i| known[i].rank(seeker));
        let worse = worst.filter(|&i| fresh.rank(seeker) < known[i].rank(seeker));
        if let Some(place) = stale.or(worse) {
            self.known[place] = fresh;
        }
    }

    /// The best of those that suit; those first that were heard since `since`.
    pub(super) fn best(
        &self,
        since: Time,
        seeker: Seeker,
        suits: impl Fn(&Candidate) -> bool,
    ) -> Option<Candidate> {
        let order = |it: &&Candidate| (it.heard_at < since, it.rank(seeker));
        self.known.iter().filter(|it| suits(it)).min_by_key(order).copied()
    }

    /// Those to which the round trip is still to be asked for, as it is now.
    pub(super) fn take_unmeasured(&mut self, suits: impl Fn(&Candidate) -> bool) -> Option<NodeId> {
        let next = self.known.iter_mut().find(|it| it.unmeasured && suits(it))?;
        next.unmeasured = false;
        Some(next.node)
    }

    /// It is no candidate before it is heard again.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.known.retain(|candidate| candidate.node != node);
    }

    /// Takes head `node` from the candidates until it is heard again, and ranks all others before it for
    /// [`DISTRUSTED_FOR`]: it has failed this receiver.
    pub(super) fn distrust(&mut self, now: Time, node: NodeId) {
        self.forget(node);
        self.distrusted.add(now, node);
    }
}
