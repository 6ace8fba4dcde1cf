//! Elections among neighbouring heads: one head for each LAN, and eager ones before reluctant ones.

use faircast_base::{Duration, NodeId, Time};

use crate::tram::settings::{HeadRole, TramSettings};
use crate::tram::wire::{Advertisement, HeadState};

/// Most advertisements in a row that another head may miss before it is forgotten.
const MISSED_MAX: u64 = 3;

/// Advertisement intervals that receivers wait for the head of their LAN: 3 to choose it; chosen.
const AWAIT_INTERVALS: u64 = 8;

/// Rank in an election; the least wins: the source, eager heads, lower levels, lower numbers (src:
/// jrms).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    is_receiver: bool,
    is_reluctant: bool,
    level: u8,
    id: u64,
}

impl Rank {
    /// Returns the rank of a head. A head without a level (0) comes after all with a level.
    pub(crate) fn new(role: HeadRole, level: u8, id: u64) -> Self {
        let level = level.wrapping_sub(1);
        Self { is_receiver: level != 0, is_reluctant: role != HeadRole::Eager, level, id }
    }
}

#[derive(Clone, Copy, Debug)]
struct Rival {
    node: NodeId,
    rank: Rank,
    distance: u8,
    last_packet_at: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Election {
    /// Hops of a LAN, within which one head is enough; 0 for no elections.
    pub(crate) lan: u8,
    best: Option<Rival>,
    eager: Option<Rival>,
    pub(crate) interval: Duration,
    pub(crate) interval_min: Duration,
    candidate_since: Option<Time>,
}

impl Election {
    pub(crate) fn new(settings: &TramSettings) -> Self {
        let lan = u8::try_from(settings.lan).unwrap_or(u8::MAX);
        let interval = settings.advertise_interval;
        Self { lan, interval, interval_min: interval, ..Self::default() }
    }

    pub(crate) fn on_advertisement(
        &mut self,
        now: Time,
        (node, id, ttl): (NodeId, u64, u8),
        it: &Advertisement,
    ) {
        let rank = Rank::new(it.role, it.level, id);
        let sender = Rival { node, rank, distance: ttl, last_packet_at: now };
        // A full head of the LAN does not count; a candidate without a level may get room.
        let takes = it.state == HeadState::Accepting || it.lan && it.level == 0;
        if it.lan && ttl <= self.lan {
            let better = |other: &Rival| rank < other.rank;
            self.best = self.update(now, self.best, sender, takes, better);
        }
        if it.role == HeadRole::Eager && it.level > 1 {
            let nearer = |other: &Rival| ttl < other.distance;
            self.eager = self.update(now, self.eager, sender, takes, nearer);
        }
    }

    fn update(
        &self,
        now: Time,
        known: Option<Rival>,
        sender: Rival,
        takes: bool,
        is_before: impl Fn(&Rival) -> bool,
    ) -> Option<Rival> {
        let known = known.filter(|other| self.is_fresh(now, other));
        let same = known.filter(|other| other.node == sender.node);
        match (known, same) {
            (_, Some(_)) if !takes => None,
            (_, Some(same)) => {
                Some(Rival { distance: same.distance.min(sender.distance), ..sender })
            }
            (Some(other), None) if !takes || !is_before(&other) => Some(other),
            (_, None) => takes.then_some(sender),
        }
    }

    fn is_fresh(&self, now: Time, other: &Rival) -> bool {
        now.since(other.last_packet_at) <= self.interval * (MISSED_MAX + 1)
    }

    pub(crate) fn yields(&self, now: Time, own: Rank) -> bool {
        self.best.is_some_and(|other| other.rank < own && self.is_fresh(now, &other))
    }

    /// True if another candidate of the LAN must get a head first, to become this receiver's head.
    pub(crate) fn awaits_elected(&self, now: Time, role: HeadRole, id: u64) -> bool {
        let own = Rank::new(role, 0, id);
        let first = self.best.filter(|other| other.rank.level == own.level && other.rank < own);
        let wait_max = self.interval * AWAIT_INTERVALS;
        let waits = self.candidate_since.is_some_and(|since| now.since(since) < wait_max);
        waits && first.is_some_and(|other| self.is_fresh(now, &other))
    }

    pub(crate) fn become_candidate(&mut self, now: Time) -> bool {
        if self.lan > 0 {
            self.candidate_since.get_or_insert(now);
        }
        self.lan > 0
    }

    /// Returns the time to live of advertisements, at most `ttl`; `None` if there are none. A
    /// reluctant head reaches only receivers nearer to it than any eager head with room.
    pub(crate) fn reach(&self, now: Time, role: HeadRole, ttl: u8) -> Option<u8> {
        let eager = self.eager.filter(|it| role != HeadRole::Eager && self.is_fresh(now, it));
        let reach = eager.map_or(ttl, |eager| ttl.min(eager.distance.saturating_sub(1)));
        (reach > 0).then_some(reach)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::world::{at, ms};

    const INTERVAL: u64 = 500;

    fn election(lan: u32) -> Election {
        Election::new(&TramSettings { lan, ..TramSettings::default() })
    }

    fn says(state: HeadState, role: HeadRole, level: u8, lan: bool) -> Advertisement {
        let (members, members_max, low) = (0, 5, 1);
        Advertisement { state, role, level, members, members_max, low, lan, name: 0 }
    }

    #[test]
    fn the_source_is_before_eager_heads_then_levels_then_numbers_decide() {
        use HeadRole::{Eager, Reluctant};
        let in_order = [
            [(Eager, 1, 900), (Eager, 2, 5), (Eager, 3, 4), (Eager, 0, 1)].to_vec(),
            [(Reluctant, 2, 7), (Reluctant, 2, 8), (Reluctant, 0, 2)].to_vec(),
        ];
        let rank = |(role, level, id)| Rank::new(role, level, id);
        let ranks: Vec<Rank> = in_order.concat().into_iter().map(rank).collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
    }

    #[test]
    fn one_head_of_a_lan_shows_itself_and_another_when_it_is_full_or_gone() {
        use HeadState::{Accepting, AcceptingHeads, NotAccepting};
        let mut election = election(1);
        let own = Rank::new(HeadRole::Reluctant, 3, 50);
        let mut hear = |now, id: u64, ttl, level, state| {
            let said = says(state, HeadRole::Reluctant, level, true);
            election.on_advertisement(at(now), (NodeId(id as u32), id, ttl), &said);
            election.yields(at(now), own)
        };
        assert!(!hear(0, 60, 1, 3, Accepting), "a higher number");
        assert!(!hear(10, 1, 2, 2, Accepting), "it is not of this LAN");
        assert!(hear(20, 70, 1, 2, Accepting), "a lower level");
        assert!(hear(30, 60, 1, 3, Accepting), "the better one is still there");
        for state in [AcceptingHeads, NotAccepting] {
            assert!(!hear(40, 70, 1, 2, state), "it does not take all, so another one is wanted");
            assert!(hear(50, 70, 1, 2, Accepting));
        }
        assert!(!hear(60, 70, 1, 2, NotAccepting));
        assert!(hear(70, 40, 1, 3, Accepting), "another one is that one already");
        let last = 70 + INTERVAL * (MISSED_MAX + 1);
        assert!(election.yields(at(last), own));
        assert!(!election.yields(at(last + 1), own), "it is gone");
    }

    #[test]
    fn a_head_that_is_no_hop_away_silences_reluctant_ones_and_breaks_nothing() {
        let mut election = election(0);
        let said = says(HeadState::Accepting, HeadRole::Eager, 2, false);
        election.on_advertisement(at(0), (NodeId(1), 1, 0), &said);
        assert_eq!(election.reach(at(1), HeadRole::Reluctant, 8), None);
        assert_eq!(election.reach(at(1), HeadRole::Eager, 8), Some(8));
    }

    #[test]
    fn who_has_no_head_yet_stands_for_its_lan_but_after_those_who_have() {
        let mut election = election(2);
        let own = Rank::new(HeadRole::Eager, 0, 50);
        for (id, role, want) in [(60, HeadRole::Eager, false), (40, HeadRole::Eager, true)] {
            let said = says(HeadState::NotAccepting, role, 0, true);
            election.on_advertisement(at(0), (NodeId(id), id.into(), 2), &said);
            assert_eq!(election.yields(at(1), own), want, "{id}");
        }
        let bound = Rank::new(HeadRole::Eager, 4, 50);
        assert!(!election.yields(at(1), bound));
        let awaits =
            |election: &Election, now, id| election.awaits_elected(now, HeadRole::Eager, id);
        assert!(!awaits(&election, at(1), 50), "it does not become a candidate itself");
        assert!(election.become_candidate(at(0)));
        assert!(awaits(&election, at(1), 50));
        assert!(!awaits(&election, at(1), 30), "it is the first itself");
        election.candidate_since = Some(at(0));
        let (late, said) = (
            at(INTERVAL * AWAIT_INTERVALS),
            says(HeadState::NotAccepting, HeadRole::Eager, 0, true),
        );
        election.on_advertisement(late, (NodeId(40), 40, 2), &said);
        assert!(!awaits(&election, late, 50), "not for ever");
    }

    #[test]
    fn a_reluctant_head_is_heard_only_by_those_to_whom_no_eager_one_is_as_near() {
        use HeadRole::{Eager, Reluctant};
        let mut election = election(0);
        assert_eq!(election.reach(at(0), Reluctant, 8), Some(8));
        let hear = |election: &mut Election, now, node: u32, ttl, state, level| {
            let said = says(state, Eager, level, false);
            election.on_advertisement(at(now), (NodeId(node), 1, ttl), &said);
        };
        hear(&mut election, 0, 9, 2, HeadState::Accepting, 1);
        assert_eq!(election.reach(at(0), Reluctant, 8), Some(8), "that is the source");
        hear(&mut election, 0, 1, 6, HeadState::Accepting, 2);
        hear(&mut election, 1, 2, 4, HeadState::Accepting, 3);
        hear(&mut election, 2, 1, 8, HeadState::Accepting, 2);
        assert_eq!(election.reach(at(2), Reluctant, 8), Some(3));
        assert_eq!(election.reach(at(2), Reluctant, 2), Some(2));
        assert_eq!(election.reach(at(2), Eager, 8), Some(8));
        hear(&mut election, 3, 2, 4, HeadState::NotAccepting, 3);
        assert_eq!(election.reach(at(3), Reluctant, 8), Some(8), "it takes nobody any more");
        hear(&mut election, 4, 3, 1, HeadState::Accepting, 2);
        assert_eq!(election.reach(at(4), Reluctant, 8), None);
        let gone = at(4) + ms(INTERVAL) * (MISSED_MAX + 1) + ms(1);
        assert_eq!(election.reach(gone, Reluctant, 8), Some(8));
    }
}
