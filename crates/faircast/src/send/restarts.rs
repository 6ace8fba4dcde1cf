//! Restarted receivers: pairs of a member and its successor, and copies of one receiver's folder.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use faircast_base::{Duration, NodeId, Time};
use faircast_proto::object::{MemberState, MemberStatus};

/// Members of a session by the identity in their folders, or else by name. Addresses may change.
pub(super) struct Restarts<'a> {
    members: &'a [MemberStatus],
    now: Time,
    total: u64,
    by_identity: BTreeMap<u64, Latest<'a>>,
    by_name: BTreeMap<&'a str, Latest<'a>>,
}

/// Members with one identity or name, reduced to those that decide.
struct Latest<'a> {
    member: &'a MemberStatus,
    /// Member that sent last.
    heard: &'a MemberStatus,
    both: Option<(u64, u64)>,
}

impl<'a> Latest<'a> {
    fn note<K: Ord>(all: &mut BTreeMap<K, Self>, key: K, member: &'a MemberStatus) {
        match all.get_mut(&key) {
            None => drop(all.insert(key, Self { member, heard: member, both: None })),
            Some(latest) => latest.add(member),
        }
    }

    fn add(&mut self, member: &'a MemberStatus) {
        let overlap =
            |one: &MemberStatus, other: &MemberStatus| one.home_heard > other.since + OVERLAP;
        if overlap(self.heard, member) && overlap(member, member) {
            self.both.get_or_insert((self.heard.id, member.id));
        }
        if member.home_heard >= self.heard.home_heard {
            self.heard = member;
        }
        self.member = member;
    }
}

impl<'a> Restarts<'a> {
    pub(super) fn new(members: &'a [MemberStatus], now: Time, total: u64) -> Self {
        let mut sorted: Vec<&MemberStatus> = members.iter().collect();
        sorted.sort_by_key(|member| member.since);
        let (mut by_identity, mut by_name) = (BTreeMap::new(), BTreeMap::new());
        let known = [MemberState::Receiving, MemberState::Done, MemberState::Deferred];
        let stays = |member: &&MemberStatus| known.contains(&member.state) || is_gone(member);
        for member in sorted.into_iter().filter(stays) {
            if let Some(identity) = member.identity {
                Latest::note(&mut by_identity, identity, member);
            }
            if !member.name.is_empty() {
                Latest::note(&mut by_name, &*member.name, member);
            }
        }
        Self { members, now, total, by_identity, by_name }
    }

    /// Returns pairs of a member and its successor, which joined after the member's last message.
    /// Two live members both stay, and a member that has everything too.
    pub(super) fn pairs(
        &self,
        waited_for: &BTreeSet<String>,
        host: impl Fn(NodeId) -> Option<IpAddr>,
    ) -> Vec<(u64, u64)> {
        // Members send at intervals of 20 ms times their number, and at least once a second.
        let silence = (SILENCE_EACH * self.members.len() as u64).max(SILENCE_MIN);
        let lacking = self.members.iter().filter(|member| member.state != MemberState::Done);
        let pair = |old: &MemberStatus| {
            let comes_after = |new: &MemberStatus, silence: Duration| {
                let silent = self.now.since(new.since) >= silence;
                let stays = !is_gone(new) && new.id != old.id && new.since > old.home_heard;
                stays && (is_gone(old) || silent)
            };
            let identity = old.identity.and_then(|identity| self.by_identity.get(&identity));
            if let Some(Latest { member, both: None, .. }) = identity
                && comes_after(member, silence)
            {
                return Some((old.id, member.id));
            }
            // A name shared by several live members identifies none of them.
            let Latest { member: new, both: None, .. } = self.by_name.get(&*old.name)? else {
                return None;
            };
            let home = |member: &MemberStatus| host(member.home);
            let here = home(old).is_some() && home(old) == home(new);
            let others = matches!((old.identity, new.identity), (Some(a), Some(b)) if a != b);
            // A receiver that had everything at its start has no folder with an identity any more.
            let may_be =
                !others || here || new.found >= self.total || waited_for.contains(&old.name);
            let silence = if here { silence } else { silence.max(SILENCE_ELSEWHERE) };
            (may_be && comes_after(new, silence)).then_some((old.id, new.id))
        };
        lacking.filter_map(pair).collect()
    }

    pub(super) fn clones(&self) -> Vec<(u64, u64)> {
        self.by_identity.values().filter_map(|latest| latest.both).collect()
    }
}

fn is_gone(member: &MemberStatus) -> bool {
    use MemberState::{Failed, Left, Lost};
    matches!(member.state, Failed | Left | Lost)
}

/// Time in which a member sends several times: per member, and the minimum.
const SILENCE_EACH: Duration = Duration::from_millis(60);
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// Silence after which a member elsewhere may take a name: the old member may only be paused.
const SILENCE_ELSEWHERE: Duration = Duration::from_secs(15);

/// Overlap of two members after which both count as live; packets are delayed by less.
const OVERLAP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use MemberState::{Done, Joined, Left, Lost, Receiving};
    use faircast_proto::object::MemberLoad;

    use super::*;

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    fn member(id: u64, name: &str, since: u64, heard: u64, state: MemberState) -> MemberStatus {
        MemberStatus {
            id,
            node: NodeId(id as u32),
            home: NodeId(id as u32),
            home_heard: at(heard),
            reporter: NodeId(id as u32),
            name: name.to_string(),
            identity: None,
            state,
            bytes: 0,
            found: 0,
            loss: 0.0,
            since: at(since),
            heard: at(heard),
            done: None,
            reason: String::new(),
            load: MemberLoad::default(),
            limit: None,
            place: None,
            path: None,
        }
    }

    fn of(identity: u64, member: MemberStatus) -> MemberStatus {
        MemberStatus { identity: Some(identity), ..member }
    }

    fn host(node: NodeId) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, u8::from(node.0 > 5)]))
    }

    #[test]
    fn who_comes_back_takes_its_own_place_and_nobody_elses() {
        let new = |name| member(2, name, 7, 10, Receiving);
        // Another host replays the last packet of a killed receiver.
        let repeated =
            MemberStatus { node: NodeId(9), heard: at(10), ..member(1, "a", 0, 5, Receiving) };
        let old = || member(1, "a", 0, 5, Receiving);
        let elsewhere = |since, state| member(7, "a", since, 30, state);
        let here = [(1, 2)];
        for (case, now, old, new, want) in [
            ("repeated from elsewhere", 10, repeated, new("a"), &here[..]),
            ("killed", 10, old(), new("a"), &here),
            ("both alive", 10, member(1, "a", 0, 9, Receiving), new("a"), &[]),
            ("another name", 10, member(1, "b", 0, 5, Receiving), new("a"), &[]),
            ("no name", 10, member(1, "", 0, 5, Receiving), new(""), &[]),
            ("done", 10, member(1, "a", 0, 5, Done), new("a"), &[]),
            ("too early", 10, old(), member(2, "a", 8, 9, Done), &[]),
            ("left", 10, member(1, "a", 0, 5, Left), member(2, "a", 8, 9, Done), &here),
            ("gone again", 10, old(), member(2, "a", 7, 8, Left), &[]),
            ("its store is not open", 10, old(), member(2, "a", 7, 10, Joined), &[]),
            ("elsewhere, by name alone, silent for a pause", 20, old(), elsewhere(7, Done), &[]),
            ("elsewhere, by name alone", 22, old(), elsewhere(7, Done), &[(1, 7)]),
            ("elsewhere, lost", 10, member(1, "a", 0, 5, Lost), elsewhere(7, Done), &[(1, 7)]),
            (
                "elsewhere, by identity",
                10,
                of(4, old()),
                of(4, member(7, "b", 7, 10, Done)),
                &[(1, 7)],
            ),
            ("elsewhere, another identity", 60, of(4, old()), of(5, elsewhere(7, Done)), &[]),
            ("here, another folder", 10, of(4, old()), of(5, new("a")), &here),
        ] {
            let members = [old, new];
            let restarts = Restarts::new(&members, at(now), 1000);
            assert_eq!(restarts.pairs(&BTreeSet::new(), host), want, "{case}");
            assert!(restarts.clones().is_empty(), "{case}");
        }
    }

    #[test]
    fn a_name_that_is_waited_for_and_a_whole_copy_stand_for_one_receiver() {
        let old = of(4, member(1, "a", 0, 5, Lost));
        let new = of(5, member(7, "a", 7, 30, Receiving));
        let whole = MemberStatus { found: 1000, ..new.clone() };
        let names = BTreeSet::from(["a".to_string()]);
        for (new, names, want) in [
            (&new, &BTreeSet::new(), &[][..]),
            (&new, &names, &[(1, 7)]),
            (&whole, &BTreeSet::new(), &[(1, 7)]),
        ] {
            let members = [old.clone(), new.clone()];
            assert_eq!(Restarts::new(&members, at(30), 1000).pairs(names, host), want);
        }
    }

    #[test]
    fn two_of_one_name_are_not_merged_and_their_folders_tell_them_apart() {
        let both = [of(4, member(1, "web", 0, 9, Lost)), of(5, member(2, "web", 0, 9, Lost))];
        let back = of(5, member(3, "web", 12, 30, Done));
        let members = [&both[..], std::slice::from_ref(&back)].concat();
        let none = BTreeSet::new();
        assert_eq!(Restarts::new(&members, at(30), 9).pairs(&none, host), [(2, 3)]);
        let without = |it: &MemberStatus| MemberStatus { identity: None, ..it.clone() };
        let members: Vec<_> = members.iter().map(without).collect();
        assert!(Restarts::new(&members, at(30), 9).pairs(&none, host).is_empty());
    }

    #[test]
    fn a_copied_folder_is_noticed_and_tells_nobody_apart() {
        let members =
            [of(4, member(1, "a", 0, 30, Receiving)), of(4, member(7, "b", 3, 30, Receiving))];
        let restarts = Restarts::new(&members, at(30), 9);
        assert_eq!(restarts.clones(), [(1, 7)]);
        assert!(restarts.pairs(&BTreeSet::new(), host).is_empty());
        let members = [of(4, member(1, "a", 0, 9, Lost)), of(4, member(7, "b", 3, 30, Done))];
        assert!(Restarts::new(&members, at(30), 9).pairs(&BTreeSet::new(), host).is_empty());
    }
}
