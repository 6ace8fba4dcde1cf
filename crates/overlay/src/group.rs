//! Groups: members in the agreed order, and daemons that receive a group's messages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::ids::{DaemonId, DaemonRun, DaemonSet};

/// Client of the overlay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// Daemon that serves the client.
    pub daemon: DaemonId,
    /// Name of the client at its daemon.
    pub name: Bytes,
    /// Number of the client's run; grows with each start.
    pub incarnation: u64,
}

impl MemberId {
    /// Reads a client of `daemon` from a cell: incarnation (8 bytes) and name.
    pub(crate) fn decode(daemon: DaemonId, bytes: &Bytes) -> Self {
        let incarnation = bytes.first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
        Self { daemon, name: bytes.slice(bytes.len().min(8)..), incarnation }
    }

    pub(crate) fn encode(&self) -> Bytes {
        [&self.incarnation.to_be_bytes()[..], &self.name].concat().into()
    }
}

#[derive(Clone, Debug, Default)]
struct Group {
    members: Vec<MemberId>,
    /// Clients that have announced a join, with the cell number of the announcement.
    joining: Vec<(MemberId, u64)>,
    /// Daemons with members or joining clients.
    routes: DaemonSet,
    /// Members that ask senders to wait while a member is slow.
    holding_members: Vec<MemberId>,
    /// Daemons with slow members, for which senders wait.
    holds: DaemonSet,
}

impl Group {
    fn route(&mut self, member: &MemberId, rank: usize) {
        let here = |it: &MemberId| it.daemon == member.daemon;
        let is_wanted = self.members.iter().any(here) || self.joining.iter().any(|it| here(&it.0));
        self.routes.set(rank, is_wanted);
    }
}

/// Groups of the view, as of a place in the agreed order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    table: BTreeMap<Bytes, Group>,
    /// Groups of each member or joining client.
    by_member: BTreeMap<MemberId, BTreeSet<Bytes>>,
    /// Members of the largest group; `None` if not known.
    largest: Option<usize>,
}

impl Groups {
    /// Makes the groups of a view of memberships: group, member, and true if it holds senders.
    pub(crate) fn of_tables(
        mut joined: Vec<(Bytes, MemberId, bool)>,
        daemons: &[DaemonRun],
    ) -> Self {
        let mut groups = Self::default();
        joined.sort();
        for (group, member, holds_senders) in joined {
            if let Some(rank) = daemons.iter().position(|it| it.id == member.daemon) {
                groups.join(group, member, holds_senders, (rank, 0));
            }
        }
        groups
    }

    pub(crate) fn route(&self, groups: &[&[u8]]) -> DaemonSet {
        let known = groups.iter().filter_map(|name| self.table.get(*name));
        known.fold(DaemonSet::default(), |to, it| to.or(it.routes))
    }

    pub(crate) fn members(&self, group: &[u8]) -> &[MemberId] {
        self.table.get(group).map_or(&[], |it| &it.members)
    }

    /// Returns the members of `groups`, once per group, as a share of the largest group.
    pub(crate) fn reach(&mut self, groups: &[&[u8]]) -> f64 {
        let table = &self.table;
        let len = |it: &Group| it.members.len();
        let largest =
            *self.largest.get_or_insert_with(|| table.values().map(len).max().unwrap_or_default());
        let reached: usize = groups.iter().filter_map(|name| table.get(*name)).map(len).sum();
        reached as f64 / largest.max(1) as f64
    }

    pub(crate) fn is_held(&self, groups: &[&[u8]]) -> bool {
        let mut known = groups.iter().filter_map(|name| self.table.get(*name));
        known.any(|it| it.holds != DaemonSet::default())
    }

    /// Returns the groups of a member whose senders wait for slow members.
    pub(crate) fn with_holding_member(&self, member: &MemberId) -> Vec<Bytes> {
        let holds = |name: &Bytes| {
            let group = self.table.get(name);
            group.is_some_and(|it| !it.holding_members.is_empty() && it.members.contains(member))
        };
        self.of(member).into_iter().filter(holds).collect()
    }

    pub(crate) fn holds_senders(&self, name: &Bytes, member: &MemberId) -> bool {
        self.table.get(name).is_some_and(|it| it.holding_members.contains(member))
    }

    pub(crate) fn hold(&mut self, name: &[u8], rank: usize, is_held: bool) {
        if let Some(group) = self.table.get_mut(name) {
            group.holds.set(rank, is_held);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &[MemberId])> {
        self.table.iter().map(|(name, it)| (name, &*it.members))
    }

    pub(crate) fn announce(&mut self, group: Bytes, member: MemberId, rank: usize, sequence: u64) {
        self.by_member.entry(member.clone()).or_default().insert(group.clone());
        let group = self.table.entry(group).or_default();
        group.joining.retain(|it| it.0 != member);
        group.joining.push((member, sequence));
        group.routes.set(rank, true);
    }

    /// Adds a client. Returns true if the client was no member before.
    pub(crate) fn join(
        &mut self,
        group: Bytes,
        member: MemberId,
        holds_senders: bool,
        (rank, sequence): (usize, u64),
    ) -> bool {
        self.by_member.entry(member.clone()).or_default().insert(group.clone());
        let group = self.table.entry(group).or_default();
        group.holding_members.retain(|it| *it != member);
        if holds_senders {
            group.holding_members.push(member.clone());
        }
        group.joining.retain(|it| it.0 != member || it.1 > sequence);
        let is_new = !group.members.contains(&member);
        if is_new {
            group.members.push(member.clone());
            self.largest = self.largest.map(|it| it.max(group.members.len()));
        }
        group.route(&member, rank);
        is_new
    }

    pub(crate) fn leave(
        &mut self,
        name: &Bytes,
        member: &MemberId,
        rank: usize,
        sequence: u64,
    ) -> bool {
        let Some(group) = self.table.get_mut(name) else { return false };
        let before = group.members.len();
        group.members.retain(|it| it != member);
        group.holding_members.retain(|it| it != member);
        group.joining.retain(|it| it.0 != *member || it.1 > sequence);
        group.route(member, rank);
        let left = before > group.members.len();
        self.largest = self.largest.filter(|it| *it > before);
        let is_joining = group.joining.iter().any(|it| it.0 == *member);
        if group.routes == DaemonSet::default() {
            self.table.remove(name);
        }
        if !is_joining && let Some(groups) = self.by_member.get_mut(member) {
            groups.remove(name);
            if groups.is_empty() {
                self.by_member.remove(member);
            }
        }
        left
    }

    /// Forgets the numbers of announcements, which begin again in a new configuration.
    pub(crate) fn renumber(&mut self) {
        for group in self.table.values_mut() {
            group.joining.iter_mut().for_each(|it| it.1 = 0);
        }
    }

    pub(crate) fn of(&self, member: &MemberId) -> Vec<Bytes> {
        self.by_member.get(member).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_member_are_those_it_has_joined_or_announced_and_not_left() {
        let member = MemberId { daemon: DaemonId(1), name: "a".into(), incarnation: 1 };
        let other = MemberId { daemon: DaemonId(2), ..member.clone() };
        let mut groups = Groups::default();
        for name in ["x", "y", "z"] {
            groups.announce(name.into(), member.clone(), 0, 5);
            assert!(groups.join(name.into(), other.clone(), name == "y", (1, 1)));
        }
        assert!(groups.join("x".into(), member.clone(), false, (0, 6)));
        assert!(groups.join("y".into(), member.clone(), false, (0, 7)));
        assert_eq!(groups.of(&member), ["x", "y", "z"]);
        assert_eq!(groups.with_holding_member(&member), ["y"]);
        // The announcement for "x" that follows the leave remains; that for "z" is cancelled.
        groups.announce("x".into(), member.clone(), 0, 9);
        assert!(groups.leave(&"x".into(), &member, 0, 8));
        assert!(!groups.leave(&"z".into(), &member, 0, 8));
        assert_eq!(groups.of(&member), ["x", "y"]);
        assert_eq!(groups.of(&other), ["x", "y", "z"]);
        groups.of(&member).iter().for_each(|it| _ = groups.leave(it, &member, 0, 10));
        assert_eq!((groups.of(&member).len(), groups.by_member.len()), (0, 1));
        assert_eq!(groups.route(&[b"x"]), DaemonSet::of(1));
    }
}
