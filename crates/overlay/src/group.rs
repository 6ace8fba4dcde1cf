//! Groups: members by their place in the common order, and daemons that get a group's messages.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::cell::Cell;
use crate::ids::{DaemonId, DaemonRun, Set};

/// A client of the overlay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mate {
    /// The daemon that serves the client.
    pub daemon: DaemonId,
    /// Name of the client at its daemon.
    pub name: Bytes,
}

#[derive(Debug, Default)]
struct Group {
    /// Members, in the order in which they have joined.
    members: Vec<Mate>,
    /// Daemons with members, or with clients that are about to join: by place.
    routes: Set,
}

/// Table of all groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    table: BTreeMap<Bytes, Group>,
}

impl Groups {
    /// Daemons that get a message.
    pub(crate) fn route(&self, cell: &Cell) -> Set {
        cell.groups()
            .filter_map(|name| self.table.get(&name))
            .fold(Set::default(), |to, it| to.or(it.routes))
    }

    pub(crate) fn members(&self, group: &Bytes) -> &[Mate] {
        self.table.get(group).map_or(&[], |it| &it.members)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &[Mate])> {
        self.table.iter().map(|(name, it)| (name, &*it.members))
    }

    /// A daemon's client is about to join.
    pub(crate) fn announce(&mut self, group: Bytes, place: usize) {
        let group = self.table.entry(group).or_default();
        group.routes = group.routes.or(Set::of(place));
    }

    /// Returns true if the client was no member before.
    pub(crate) fn join(&mut self, group: Bytes, mate: Mate, place: usize) -> bool {
        self.announce(group.clone(), place);
        let members = &mut self.table.entry(group).or_default().members;
        let is_new = !members.contains(&mate);
        if is_new {
            members.push(mate);
        }
        is_new
    }

    /// Returns true if the client was a member. A daemon stays in the routes as long as another
    /// client of it is a member or `joining`.
    pub(crate) fn leave(&mut self, name: &Bytes, mate: &Mate, place: usize, joining: bool) -> bool {
        let Some(group) = self.table.get_mut(name) else { return false };
        let before = group.members.len();
        group.members.retain(|it| it != mate);
        let left = before > group.members.len();
        if !joining && !group.members.iter().any(|it| it.daemon == mate.daemon) {
            group.routes.0 &= !Set::of(place).0;
        }
        if group.members.is_empty() && group.routes == Set::default() {
            self.table.remove(name);
        }
        left
    }

    /// Groups of a client.
    pub(crate) fn of(&self, mate: &Mate) -> Vec<Bytes> {
        let joined = self.table.iter().filter(|(_, it)| it.members.contains(mate));
        joined.map(|(name, _)| name.clone()).collect()
    }

    /// Leaves the members of these daemons alone, and routes to them by their new places. Returns
    /// the groups that have lost members.
    pub(crate) fn restrict(
        &mut self,
        members: &[DaemonRun],
        keep: impl Fn(DaemonId) -> bool,
    ) -> Vec<Bytes> {
        let mut changed = Vec::new();
        self.table.retain(|name, group| {
            let before = group.members.len();
            group.members.retain(|it| keep(it.daemon));
            if group.members.len() < before {
                changed.push(name.clone());
            }
            let place = |it: &Mate| members.iter().position(|member| member.id == it.daemon);
            group.routes = group.members.iter().filter_map(place).collect();
            !group.members.is_empty()
        });
        changed
    }
}
