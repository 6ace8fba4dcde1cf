//! The neighbours of a relay: who is attached to it, and with receivers of which groups.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use faircast_base::{Duration, NodeId, Time};

use super::link::HopLink;
use crate::relay::PortId;

/// After how long without a word a neighbour is gone, and its membership of a group is over.
const SILENCE: Duration = Duration::from_secs(10);

/// The port to the relay above.
pub(super) const PARENT: PortId = PortId(0);

/// A neighbour below.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) address: SocketAddr,
    pub(super) node: NodeId,
    pub(super) is_relay: bool,
    /// The counter of its last frame that was no data.
    pub(super) newest: u64,
    pub(super) link: HopLink,
    pub(super) groups: BTreeMap<u64, Member>,
}

/// Its membership of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) receivers: u32,
    heard_at: Time,
    /// The port by which its packets go by multicast, where it hears that.
    pub(super) lan: Option<PortId>,
}

/// A membership that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub(super) port: PortId,
    pub(super) node: NodeId,
    pub(super) group: u64,
    pub(super) lan: Option<PortId>,
}

impl Member {
    const fn gone(self, port: PortId, node: NodeId, group: u64) -> Gone {
        Gone { port, node, group, lan: self.lan }
    }
}

/// All neighbours below, by their ports.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    by_port: BTreeMap<PortId, Neighbour>,
    ports: BTreeMap<SocketAddr, PortId>,
    at_host: BTreeMap<IpAddr, u32>,
    /// Departures to report.
    pub(super) gone: Vec<Gone>,
    last_port: u32,
    /// The number of a link, halved: those to several hosts have even numbers.
    last_link: u16,
}

/// Most neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) neighbours: usize,
    pub(super) at_host: u32,
    pub(super) groups: usize,
}

impl Neighbours {
    pub(super) fn port(&self, address: SocketAddr) -> Option<PortId> {
        self.ports.get(&address).copied()
    }

    pub(super) fn get(&self, port: PortId) -> Option<&Neighbour> {
        self.by_port.get(&port)
    }

    pub(super) fn get_mut(&mut self, port: PortId) -> Option<&mut Neighbour> {
        self.by_port.get_mut(&port)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PortId, &Neighbour)> {
        self.by_port.iter().map(|(port, of)| (*port, of))
    }

    /// Somebody that is where it says wants to be, or to stay, a member of a group. `None` where there is no room.
    pub(super) fn join(
        &mut self,
        now: Time,
        (address, node, is_relay, begins): (SocketAddr, NodeId, bool, bool),
        (group, receivers): (u64, u32),
        limits: Limits,
    ) -> Option<PortId> {
        let port = match self.port(address) {
            Some(port) => port,
            None => {
                let at_host = self.at_host.get(&address.ip()).copied().unwrap_or(0);
                if self.by_port.len() >= limits.neighbours || at_host >= limits.at_host {
                    return None;
                }
                let port = self.next_port();
                let (newest, groups) = (0, BTreeMap::new());
                let link = self.next_link();
                let new = Neighbour { address, node, is_relay, newest, link, groups };
                self.by_port.insert(port, new);
                self.ports.insert(address, port);
                *self.at_host.entry(address.ip()).or_default() += 1;
                port
            }
        };
        let of = self.by_port.get(&port)?;
        let is_other = of.node != node;
        // Another program at the same address, or one that knows of no link any more.
        if is_other || begins && !of.link.is_unused() {
            let link = self.next_link();
            let Self { by_port, gone, .. } = self;
            let of = by_port.get_mut(&port)?;
            of.link = link;
            if is_other {
                let left = core::mem::take(&mut of.groups).into_iter();
                gone.extend(left.map(|(group, member)| member.gone(port, of.node, group)));
                (of.node, of.newest) = (node, 0);
            }
        }
        let of = self.by_port.get_mut(&port)?;
        of.is_relay = is_relay;
        if of.groups.len() >= limits.groups && !of.groups.contains_key(&group) {
            return None;
        }
        let new = Member { receivers, heard_at: now, lan: None };
        let member = of.groups.entry(group).or_insert(new);
        (member.receivers, member.heard_at) = (receivers, now);
        Some(port)
    }

    /// A port that nobody has had.
    pub(super) const fn next_port(&mut self) -> PortId {
        self.last_port += 1;
        PortId(self.last_port)
    }

    fn next_link(&mut self) -> HopLink {
        self.last_link = self.last_link.wrapping_add(1);
        HopLink::new(self.last_link << 1 | 1)
    }

    pub(super) fn member_mut(&mut self, port: PortId, group: u64) -> Option<&mut Member> {
        self.by_port.get_mut(&port)?.groups.get_mut(&group)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Neighbour)> {
        self.by_port.iter_mut().map(|(port, of)| (*port, of))
    }

    /// Ends a membership.
    pub(super) fn leave(&mut self, port: PortId, group: u64) {
        if let Some(of) = self.by_port.get_mut(&port) {
            let left = of.groups.remove(&group);
            self.gone.extend(left.map(|member| member.gone(port, of.node, group)));
        }
        self.tidy();
    }

    /// Lets go of those that are silent. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let before = self.gone.len();
        for (port, of) in &mut self.by_port {
            of.groups.retain(|group, member| {
                let stays = now.since(member.heard_at) < SILENCE;
                if !stays {
                    self.gone.push(member.gone(*port, of.node, *group));
                }
                stays
            });
        }
        self.tidy();
        self.gone.len() > before
    }

    fn tidy(&mut self) {
        let Self { by_port, ports, at_host, .. } = self;
        by_port.retain(|_, of| {
            let stays = !of.groups.is_empty();
            if !stays {
                ports.remove(&of.address);
                if let Some(count) = at_host.get_mut(&of.address.ip()) {
                    *count -= 1;
                }
            }
            stays
        });
        at_host.retain(|_, count| *count > 0);
    }

    /// Receivers of a group behind all ports but one.
    pub(super) fn receivers(&self, group: u64, but: PortId) -> u32 {
        let members = self.iter().filter(|(port, _)| *port != but);
        let members = members.filter_map(|(_, of)| of.groups.get(&group));
        members.fold(0, |sum, member| sum.saturating_add(member.receivers))
    }

    /// All groups that anybody is a member of.
    pub(super) fn groups(&self) -> Vec<u64> {
        let mut all: Vec<u64> =
            self.by_port.values().flat_map(|of| of.groups.keys().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
