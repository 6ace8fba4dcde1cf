//! Groups: members by their place in the common order, and daemons that get a group's messages.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::ids::{DaemonId, Set};

/// A client of the overlay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mate {
    /// The daemon that serves the client.
    pub daemon: DaemonId,
    /// Name of the client at its daemon.
    pub name: Bytes,
    /// Number of the client's run, which grows with each start.
    pub incarnation: u64,
}

impl Mate {
    /// Reads a client of a daemon from a cell: incarnation (8 bytes) and name.
    pub(crate) fn decode(daemon: DaemonId, bytes: &Bytes) -> Self {
        let incarnation = bytes.first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
        Self { daemon, name: bytes.slice(bytes.len().min(8)..), incarnation }
    }

    /// Client in cells.
    pub(crate) fn encode(&self) -> Bytes {
        [&self.incarnation.to_be_bytes()[..], &self.name].concat().into()
    }
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// Members, in the order in which they have joined.
    members: Vec<Mate>,
    /// Clients that are about to join, with the numbers of their announcements.
    joining: Vec<(Mate, u64)>,
    /// Places of the daemons of both.
    routes: Set,
    /// Members that ask for senders to wait while a member is slow.
    askers: Vec<Mate>,
    /// Places of the daemons that have such slow members.
    holds: Set,
}

impl Group {
    fn route(&mut self, mate: &Mate, place: usize) {
        let here = |it: &Mate| it.daemon == mate.daemon;
        let is_wanted = self.members.iter().any(here) || self.joining.iter().any(|it| here(&it.0));
        self.routes = self.routes.without(Set::of(place));
        if is_wanted {
            self.routes = self.routes.or(Set::of(place));
        }
    }
}

/// Table of all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    table: BTreeMap<Bytes, Group>,
    /// Members of the largest group, if that is known.
    largest: Option<usize>,
}

impl Groups {
    /// Daemons with members of groups.
    pub(crate) fn route(&self, groups: &[&[u8]]) -> Set {
        let known = groups.iter().filter_map(|name| self.table.get(*name));
        known.fold(Set::default(), |to, it| to.or(it.routes))
    }

    pub(crate) fn members(&self, group: &[u8]) -> &[Mate] {
        self.table.get(group).map_or(&[], |it| &it.members)
    }

    /// Members of groups, a client once for each group, by those of the largest group.
    pub(crate) fn reach(&mut self, groups: &[&[u8]]) -> f64 {
        let table = &self.table;
        let len = |it: &Group| it.members.len();
        let largest =
            *self.largest.get_or_insert_with(|| table.values().map(len).max().unwrap_or_default());
        let reached: usize = groups.iter().filter_map(|name| table.get(*name)).map(len).sum();
        reached as f64 / largest.max(1) as f64
    }

    /// True if senders to one of the groups wait for a slow member.
    pub(crate) fn is_held(&self, groups: &[&[u8]]) -> bool {
        let mut known = groups.iter().filter_map(|name| self.table.get(*name));
        known.any(|it| it.holds != Set::default())
    }

    /// Groups of a client whose members ask for senders to wait.
    pub(crate) fn asking(&self, mate: &Mate) -> Vec<Bytes> {
        let asks = |it: &Group| !it.askers.is_empty() && it.members.contains(mate);
        self.table.iter().filter(|(_, it)| asks(it)).map(|(name, _)| name.clone()).collect()
    }

    /// True if a member of a group has asked for senders to wait.
    pub(crate) fn asks(&self, name: &Bytes, mate: &Mate) -> bool {
        self.table.get(name).is_some_and(|it| it.askers.contains(mate))
    }

    /// A daemon has slow members in a group, or has none any more.
    pub(crate) fn hold(&mut self, name: &[u8], place: usize, is_held: bool) {
        let Some(group) = self.table.get_mut(name) else { return };
        group.holds = group.holds.without(Set::of(place));
        if is_held {
            group.holds = group.holds.or(Set::of(place));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &[Mate])> {
        self.table.iter().map(|(name, it)| (name, &*it.members))
    }

    /// A client is about to join.
    pub(crate) fn announce(&mut self, group: Bytes, mate: Mate, place: usize, sequence: u64) {
        let group = self.table.entry(group).or_default();
        group.joining.retain(|it| it.0 != mate);
        group.joining.push((mate, sequence));
        group.routes = group.routes.or(Set::of(place));
    }

    /// A client has joined, and asks for senders to wait or not. Returns true if the client was no
    /// member before.
    pub(crate) fn join(
        &mut self,
        group: Bytes,
        mate: Mate,
        asks: bool,
        (place, sequence): (usize, u64),
    ) -> bool {
        let group = self.table.entry(group).or_default();
        group.askers.retain(|it| *it != mate);
        if asks {
            group.askers.push(mate.clone());
        }
        group.joining.retain(|it| it.0 != mate || it.1 > sequence);
        let is_new = !group.members.contains(&mate);
        if is_new {
            group.members.push(mate.clone());
            self.largest = self.largest.map(|it| it.max(group.members.len()));
        }
        group.route(&mate, place);
        is_new
    }

    /// A client has left, or has given up joining. Returns true if the client was a member.
    pub(crate) fn leave(&mut self, name: &Bytes, mate: &Mate, place: usize, sequence: u64) -> bool {
        let Some(group) = self.table.get_mut(name) else { return false };
        let before = group.members.len();
        group.members.retain(|it| it != mate);
        group.askers.retain(|it| it != mate);
        group.joining.retain(|it| it.0 != *mate || it.1 > sequence);
        group.route(mate, place);
        let left = before > group.members.len();
        self.largest = self.largest.filter(|it| *it > before);
        if group.routes == Set::default() {
            self.table.remove(name);
        }
        left
    }

    /// A new configuration begins, whose numbers begin anew.
    pub(crate) fn renumber(&mut self) {
        for group in self.table.values_mut() {
            group.joining.iter_mut().for_each(|it| it.1 = 0);
        }
    }

    /// Groups of which a client is a member, or is about to be.
    pub(crate) fn of(&self, mate: &Mate) -> Vec<Bytes> {
        let has = |it: &Group| {
            it.members.contains(mate) || it.joining.iter().any(|joining| joining.0 == *mate)
        };
        let joined = self.table.iter().filter(|(_, it)| has(it));
        joined.map(|(name, _)| name.clone()).collect()
    }
}
