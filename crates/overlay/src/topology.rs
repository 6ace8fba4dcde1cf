//! Link-state database, connected components, and shortest-path trees.
//!
//! Each daemon floods its links. A link counts only if both ends advertise it with both
//! incarnations. Members are the daemons reachable over such links, not a clique.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, Time};
use faircast_proto::fields::{Encoded, Fields};

use crate::ids::{DAEMONS_MAX, DaemonId, DaemonRun, DaemonSet};
use crate::wire::{NUMBER_MAX, put_list, put_name, take_list};

/// Maximum length of a daemon's name in bytes.
pub const NAME_BYTES_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advert {
    pub(crate) origin: DaemonRun,
    /// Number of the advertisement; grows from run to run too.
    pub(crate) number: u64,
    pub(crate) name: String,
    /// Links that are up, by peer: one-way cost in microseconds, serial number of the last start.
    pub(crate) links: Vec<(DaemonRun, u32, u32)>,
}

impl Advert {
    /// Returns the sort key of age, number first: the clocks of incarnations may be set back.
    pub(crate) fn age(&self) -> (u64, u64) {
        (self.number, self.origin.incarnation)
    }
}

impl Encoded for Advert {
    fn put(&self, out: &mut Vec<u8>) {
        (self.origin, self.number).put(out);
        put_name(out, self.name.as_bytes());
        put_list(out, &self.links);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let (origin, number) = fields.read()?;
        let name = fields.text(NAME_BYTES_MAX)?;
        let links: Vec<(DaemonRun, u32, u32)> = take_list(fields)?;
        let sorted = links.windows(2).all(|two| two[0].0.id < two[1].0.id);
        let fits = links.len() < DAEMONS_MAX && number <= NUMBER_MAX;
        (sorted && fits).then_some(Self { origin, number, name, links })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Database {
    adverts: BTreeMap<DaemonId, (Advert, Time)>,
    /// Number of the own newest advertisement, and time of the next one.
    number: u64,
    pub(crate) renew_at: Time,
    /// Incarnation of a later run with this name, and number of answers to its advertisements.
    rival: (u64, u32),
}

impl Database {
    pub(crate) fn new(now: Time) -> Self {
        Self { renew_at: now, ..Self::default() }
    }

    pub(crate) fn renew(
        &mut self,
        now: Time,
        (origin, name): (DaemonRun, String),
        links: Vec<(DaemonRun, u32, u32)>,
    ) -> Advert {
        self.number += 1;
        self.renew_at = now + ADVERT_INTERVAL;
        Advert { origin, number: self.number, name, links }
    }

    /// True if an advertisement of another run with the own name, maybe forged, needs an answer
    /// with a greater number. Of two active daemons with one name the earlier run gives up.
    pub(crate) fn must_answer(&mut self, me: DaemonRun, advert: &Advert) -> bool {
        let known = self.get(me.id);
        let is_new = known.is_none_or(|known| advert.age() >= known.age() && advert != known);
        let other = advert.origin.incarnation;
        if advert.origin.id != me.id || !is_new {
            return false;
        }
        if other > me.incarnation {
            let before = if self.rival.0 == other { self.rival.1 } else { 0 };
            self.rival = (other, before.saturating_add(1));
            if self.rival.1 > ANSWERS_MAX {
                return false;
            }
        }
        self.number = advert.number.min(NUMBER_MAX - 1);
        true
    }

    /// Stores an advertisement. Returns true if it is new and must be flooded.
    pub(crate) fn take(&mut self, now: Time, advert: Advert) -> bool {
        let known = self.get(advert.origin.id);
        let new = known.is_none_or(|known| advert.age() > known.age());
        let has_room = known.is_some() || self.adverts.len() < DATABASE_MAX;
        if new && has_room {
            self.adverts.insert(advert.origin.id, (advert, now));
        }
        new && has_room
    }

    pub(crate) fn get(&self, id: DaemonId) -> Option<&Advert> {
        self.adverts.get(&id).map(|(advert, _)| advert)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Advert> {
        self.adverts.values().map(|(advert, _)| advert)
    }

    pub(crate) fn expire(&mut self, now: Time, members: &[DaemonRun]) {
        let is_member = |it: &Advert| members.binary_search(&it.origin).is_ok();
        self.adverts.retain(|_, (it, at)| is_member(it) || now.since(*at) < KEPT);
    }

    pub(crate) fn component(&self, of: DaemonRun) -> Graph {
        let mut members = alloc::vec![of];
        let mut next = 0;
        while next < members.len() {
            for (peer, ..) in self.two_way(members[next]) {
                if !members.contains(&peer) && members.len() < DAEMONS_MAX {
                    members.push(peer);
                }
            }
            next += 1;
        }
        members.sort_unstable();
        let mut edges = Vec::new();
        for (a, member) in members.iter().enumerate() {
            for (peer, cost, serial) in self.two_way(*member) {
                if let Ok(b) = members.binary_search(&peer)
                    && a < b
                {
                    edges.push((a as u8, b as u8, cost, serial));
                }
            }
        }
        Graph { members, edges }
    }

    /// Returns the links that both ends advertise: higher cost, sum of both serial numbers.
    fn two_way(&self, member: DaemonRun) -> impl Iterator<Item = (DaemonRun, u32, u32)> {
        let own = self.get(member.id).filter(|it| it.origin == member);
        let links = own.into_iter().flat_map(|it| &it.links);
        links.filter_map(move |(peer, cost, serial)| {
            let other = self.get(peer.id).filter(|it| it.origin == *peer)?;
            let (_, back, other) = other.links.iter().find(|(end, ..)| *end == member)?;
            Some((*peer, *cost.max(back), serial.wrapping_add(*other)))
        })
    }
}

/// Lifetime of an advertisement without a newer one: 900 s.
const KEPT: Duration = Duration::from_secs(900);
/// Interval between advertisements of a daemon, which restore lost knowledge: 300 s.
const ADVERT_INTERVAL: Duration = Duration::from_secs(300);
const DATABASE_MAX: usize = 4 * DAEMONS_MAX;
/// Maximum number of answers to another run with the own name; an earlier run leaves few adverts.
const ANSWERS_MAX: u32 = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    pub(crate) members: Vec<DaemonRun>,
    /// Places of both ends (lower first), cost in microseconds, and serial number of a link.
    pub(crate) edges: Vec<(u8, u8, u32, u32)>,
}

impl Encoded for Graph {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(out, &self.members);
        (self.edges.len() as u16).put(out);
        self.edges.iter().for_each(|it| it.put(out));
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let members: Vec<DaemonRun> = take_list(fields)?;
        let count: u16 = fields.read()?;
        let edges =
            (0..count).map(|_| fields.read()).collect::<Option<Vec<(u8, u8, u32, u32)>>>()?;
        let sorted = members.windows(2).all(|two| two[0].id < two[1].id);
        let known = edges.iter().all(|(a, b, ..)| a < b && usize::from(*b) < members.len());
        let fits = !members.is_empty() && members.len() <= DAEMONS_MAX;
        (sorted && known && fits).then_some(Self { members, edges })
    }
}

impl Graph {
    pub(crate) fn rank(&self, member: DaemonRun) -> Option<usize> {
        self.members.binary_search(&member).ok()
    }

    fn around(&self, rank: usize) -> impl Iterator<Item = (usize, u32)> {
        self.edges.iter().filter_map(move |&(a, b, cost, _)| {
            let (a, b) = (usize::from(a), usize::from(b));
            if a == rank { Some((b, cost)) } else { (b == rank).then_some((a, cost)) }
        })
    }

    /// Returns the parent of each reachable daemon in the shortest-path tree from `root`. Of equal
    /// paths the one through the lower rank wins, so that all daemons find the same tree.
    pub(crate) fn tree(&self, root: usize) -> Vec<Option<usize>> {
        self.paths(root).0
    }

    /// Returns the round-trip time from `root` to the furthest reachable member.
    pub(crate) fn round_trip(&self, root: usize) -> Duration {
        let costs = self.paths(root).1.into_iter().filter(|it| *it < u64::MAX);
        Duration::from_micros(costs.max().unwrap_or_default()) * 2
    }

    fn paths(&self, root: usize) -> (Vec<Option<usize>>, Vec<u64>) {
        let count = self.members.len();
        let mut parents = alloc::vec![None; count];
        let mut costs = alloc::vec![u64::MAX; count];
        let mut done = DaemonSet::default();
        costs[root] = 0;
        while let Some(near) = (0..count)
            .filter(|it| !done.has(*it) && costs[*it] < u64::MAX)
            .min_by_key(|it| costs[*it])
        {
            done.set(near, true);
            for (next, cost) in self.around(near) {
                // A cost of 0 would make the order of daemons undefined.
                let through = costs[near] + u64::from(cost.max(1));
                if !done.has(next)
                    && (through < costs[next]
                        || through == costs[next] && Some(near) < parents[next])
                {
                    (costs[next], parents[next]) = (through, Some(near));
                }
            }
        }
        (parents, costs)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.tree(0).iter().skip(1).all(Option::is_some)
    }

    /// True if `other` has the same members and all these links, none of which went down meanwhile.
    pub(crate) fn stands_in(&self, other: &Self) -> bool {
        let same =
            |a: &(u8, u8, u32, u32), b: &(u8, u8, u32, u32)| (a.0, a.1, a.3) == (b.0, b.1, b.3);
        self.members == other.members
            && self.edges.iter().all(|edge| other.edges.iter().any(|it| same(edge, it)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64) -> DaemonRun {
        DaemonRun { id: DaemonId(id), incarnation: 1 }
    }

    fn advert(id: u64, links: &[(u64, u32)]) -> Advert {
        let links = links.iter().map(|(peer, cost)| (member(*peer), *cost, 1)).collect();
        Advert { origin: member(id), number: 1, name: "d".into(), links }
    }

    #[test]
    fn a_link_counts_if_both_ends_advertise_it() {
        let mut database = Database::default();
        database.take(Time::ZERO, advert(1, &[(2, 10), (3, 10)]));
        database.take(Time::ZERO, advert(2, &[(1, 30)]));
        database.take(Time::ZERO, advert(3, &[(4, 10)]));
        let graph = database.component(member(1));
        assert_eq!(graph.members, [member(1), member(2)]);
        assert_eq!(graph.edges, [(0, 1, 30, 2)]);
    }

    #[test]
    fn a_component_needs_no_clique_and_trees_go_round_a_cut() {
        let mut database = Database::default();
        for (id, links) in
            [(1, &[(2, 10)][..]), (2, &[(1, 10), (3, 10)]), (3, &[(2, 10), (4, 1)]), (4, &[(3, 1)])]
        {
            assert!(database.take(Time::ZERO, advert(id, links)));
            assert!(!database.take(Time::ZERO, advert(id, links)), "the same again is old");
        }
        let graph = database.component(member(3));
        assert_eq!(graph.members.len(), 4);
        assert_eq!(graph.tree(0), [None, Some(0), Some(1), Some(2)]);
        assert_eq!(graph.tree(3), [Some(1), Some(2), Some(3), None]);
        assert!(graph.is_connected());
    }

    #[test]
    fn a_greater_number_replaces_another_incarnation() {
        let mut database = Database::default();
        database.take(Time::ZERO, advert(1, &[(2, 10)]));
        database.take(Time::ZERO, advert(2, &[(1, 10)]));
        let again = |incarnation, number| Advert {
            origin: DaemonRun { incarnation, ..member(2) },
            number,
            ..advert(2, &[(1, 10)])
        };
        assert!(database.take(Time::ZERO, again(0, 2)));
        assert_eq!(database.component(member(1)).members, [member(1)]);
        assert!(!database.take(Time::ZERO, again(9, 1)), "its number is less");
        assert!(database.take(Time::ZERO, again(1, 2)));
    }

    #[test]
    fn encodings_are_read_back_and_nonsense_is_refused() {
        let advert = advert(7, &[(1, 10), (2, 20)]);
        let mut bytes = Vec::new();
        advert.put(&mut bytes);
        assert_eq!(Fields(&bytes).read(), Some(advert));
        let graph = Graph { members: [1, 2].map(member).to_vec(), edges: [(0, 1, 5, 2)].to_vec() };
        bytes.clear();
        graph.put(&mut bytes);
        assert_eq!(Fields(&bytes).read(), Some(graph.clone()));
        for edges in [[(1, 1, 5, 2)], [(0, 2, 5, 2)]] {
            bytes.clear();
            Graph { edges: edges.to_vec(), ..graph.clone() }.put(&mut bytes);
            assert_eq!(Fields(&bytes).read::<Graph>(), None);
        }
    }

    #[test]
    fn an_earlier_run_is_always_answered_and_a_later_one_eight_times() {
        let run = |incarnation| DaemonRun { id: DaemonId(1), incarnation };
        let mut database = Database::new(Time::ZERO);
        let forged = |incarnation, number| Advert {
            origin: run(incarnation),
            number,
            name: "d".into(),
            links: Vec::new(),
        };
        let answers = |database: &mut Database, incarnation| {
            (1..20).filter(|it| database.must_answer(run(5), &forged(incarnation, *it))).count()
        };
        assert_eq!([4, 6, 7].map(|it| answers(&mut database, it)), [19, 8, 8]);
        let own = database.renew(Time::ZERO, (run(5), "d".into()), Vec::new());
        assert_eq!(own.number, 9, "above the number of the last answered advertisement");
    }
}
