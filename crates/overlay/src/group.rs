//! Groups: members in the common order, and daemons that receive a group's messages.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::ids::{DaemonId, Set};

/// Client of the overlay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mate {
    /// Daemon that serves the client.
    pub daemon: DaemonId,
    /// Name of the client at its daemon.
    pub name: Bytes,
    /// Number of the client's run; grows with each start.
    pub incarnation: u64,
}

impl Mate {
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
    members: Vec<Mate>,
    /// Clients that have announced a join, with the cell number of the announcement.
    joining: Vec<(Mate, u64)>,
    /// Places of the daemons with members or joining clients.
    routes: Set,
    /// Members that ask senders to wait while a member is slow.
    askers: Vec<Mate>,
    /// Places of the daemons with slow members, for which senders wait.
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

#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    table: BTreeMap<Bytes, Group>,
    largest: Option<usize>,
}

impl Groups {
    pub(crate) fn route(&self, groups: &[&[u8]]) -> Set {
        let known = groups.iter().filter_map(|name| self.table.get(*name));
        known.fold(Set::default(), |to, it| to.or(it.routes))
    }

    pub(crate) fn members(&self, group: &[u8]) -> &[Mate] {
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
        known.any(|it| it.holds != Set::default())
    }

    pub(crate) fn asking(&self, mate: &Mate) -> Vec<Bytes> {
        let asks = |it: &Group| !it.askers.is_empty() && it.members.contains(mate);
        self.table.iter().filter(|(_, it)| asks(it)).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn asks(&self, name: &Bytes, mate: &Mate) -> bool {
        self.table.get(name).is_some_and(|it| it.askers.contains(mate))
    }

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

    pub(crate) fn announce(&mut self, group: Bytes, mate: Mate, place: usize, sequence: u64) {
        let group = self.table.entry(group).or_default();
        group.joining.retain(|it| it.0 != mate);
        group.joining.push((mate, sequence));
        group.routes = group.routes.or(Set::of(place));
    }

    /// Adds a client. Returns true if the client was no member before.
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

    pub(crate) fn renumber(&mut self) {
        for group in self.table.values_mut() {
            group.joining.iter_mut().for_each(|it| it.1 = 0);
        }
    }

    pub(crate) fn of(&self, mate: &Mate) -> Vec<Bytes> {
        let has = |it: &Group| {
            it.members.contains(mate) || it.joining.iter().any(|joining| joining.0 == *mate)
        };
        let joined = self.table.iter().filter(|(_, it)| has(it));
        joined.map(|(name, _)| name.clone()).collect()
    }
}
