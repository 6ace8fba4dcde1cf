//! Neighbours below a relay, each at its own port.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Duration, NodeId, Time};
use faircast_proto::relay::PortId;

use crate::endpoint::ConnectionHandle;
use crate::message::Hello;
use crate::status::NodeLimits;

pub(crate) const PARENT: PortId = PortId(0);
/// Longest time from an established connection to the peer's hello: 5 s.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Time for which a host that stalled on a multicast link is served by unicast: 60 s.
const UNICAST: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Neighbour {
    pub(crate) connection: ConnectionHandle,
    pub(crate) hello: Hello,
    pub(crate) groups: BTreeSet<u64>,
    /// Groups of the previous connection that the neighbour has not joined again.
    pub(crate) unconfirmed_groups: BTreeSet<u64>,
    /// Network on which the neighbour receives multicast.
    pub(crate) network: Option<u16>,
    /// Time at which the neighbour stalled on a multicast link.
    pub(crate) stalled_at: Option<Time>,
}

impl Neighbour {
    pub(crate) fn is_on_unicast(&self, now: Time) -> bool {
        self.stalled_at.is_some_and(|at| now < at + UNICAST)
    }

    pub(crate) fn may_use_multicast(&self, now: Time) -> bool {
        !self.is_on_unicast(now) && !self.hello.is_relay && self.network.is_none()
    }
}

/// Number of connections from each host.
#[derive(Debug)]
struct Hosts {
    /// Function that maps an address to its host.
    of: fn(NodeId) -> u32,
    by_connection: BTreeMap<ConnectionHandle, u32>,
    counts: BTreeMap<u32, usize>,
}

impl Hosts {
    fn add(&mut self, connection: ConnectionHandle, at: NodeId, max: usize) -> bool {
        let host = (self.of)(at);
        let count = self.counts.entry(host).or_default();
        let has_room = *count < max;
        if has_room {
            *count += 1;
            self.by_connection.insert(connection, host);
        }
        has_room
    }

    fn remove(&mut self, connection: ConnectionHandle) {
        let Some(host) = self.by_connection.remove(&connection) else { return };
        if let Some(count) = self.counts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&host);
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    pub(crate) limits: NodeLimits,
    /// Connections without a hello, with their deadlines.
    unnamed: BTreeMap<ConnectionHandle, (NodeId, Time)>,
    hosts: Hosts,
    by_port: BTreeMap<PortId, Neighbour>,
    ports: BTreeMap<ConnectionHandle, PortId>,
    last: PortId,
}

impl Neighbours {
    pub(crate) fn new(limits: NodeLimits) -> Self {
        let (by_connection, counts) = (BTreeMap::new(), BTreeMap::new());
        Self {
            limits,
            hosts: Hosts { of: |at| at.0, by_connection, counts },
            unnamed: BTreeMap::new(),
            by_port: BTreeMap::new(),
            ports: BTreeMap::new(),
            last: PARENT,
        }
    }

    pub(crate) fn get(&self, port: PortId) -> Option<&Neighbour> {
        self.by_port.get(&port)
    }

    pub(crate) fn get_mut(&mut self, port: PortId) -> Option<&mut Neighbour> {
        self.by_port.get_mut(&port)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PortId, &Neighbour)> {
        self.by_port.iter().map(|(port, of)| (*port, of))
    }

    pub(crate) fn port(&self, connection: ConnectionHandle) -> Option<PortId> {
        self.ports.get(&connection).copied()
    }

    pub(crate) const fn next_port(&mut self) -> PortId {
        self.last.0 += 1;
        self.last
    }

    pub(crate) const fn set_hosts(&mut self, of: fn(NodeId) -> u32) {
        self.hosts.of = of;
    }

    /// Waits for the hello of a peer. False if the relay or the peer's host is at its limit.
    pub(crate) fn welcome(&mut self, now: Time, connection: ConnectionHandle, at: NodeId) -> bool {
        let NodeLimits { neighbours, at_host, .. } = self.limits;
        let has_room = self.unnamed.len() + self.by_port.len() < neighbours
            && self.hosts.add(connection, at, at_host);
        if has_room {
            self.unnamed.insert(connection, (at, now + HELLO_MAX));
        }
        has_room
    }

    pub(crate) fn present(&mut self, connection: ConnectionHandle) -> Option<NodeId> {
        self.unnamed.remove(&connection).map(|(at, _)| at)
    }

    pub(crate) fn refuse(&mut self, connection: ConnectionHandle) {
        self.hosts.remove(connection);
    }

    /// Returns the port, which a reconnected neighbour keeps, and its previous connection, if any.
    pub(crate) fn add(
        &mut self,
        connection: ConnectionHandle,
        hello: Hello,
    ) -> (PortId, Option<ConnectionHandle>) {
        let mut known = self.by_port.iter_mut();
        let known = known.find(|(_, of)| (of.hello.node, of.hello.run) == (hello.node, hello.run));
        if let Some((port, of)) = known {
            let (port, before) = (*port, std::mem::replace(&mut of.connection, connection));
            of.unconfirmed_groups = of.groups.clone();
            self.ports.remove(&before);
            self.hosts.remove(before);
            self.ports.insert(connection, port);
            return (port, Some(before));
        }
        let port = self.next_port();
        self.ports.insert(connection, port);
        let of = Neighbour {
            connection,
            hello,
            groups: BTreeSet::new(),
            unconfirmed_groups: BTreeSet::new(),
            network: None,
            stalled_at: None,
        };
        self.by_port.insert(port, of);
        (port, None)
    }

    pub(crate) fn remove(&mut self, connection: ConnectionHandle) -> Option<Neighbour> {
        self.unnamed.remove(&connection);
        self.hosts.remove(connection);
        let port = self.ports.remove(&connection)?;
        self.by_port.remove(&port)
    }

    pub(crate) fn expire(&mut self, now: Time) -> Vec<ConnectionHandle> {
        let late = self.unnamed.iter().filter(|(_, (_, until))| *until <= now);
        let late: Vec<_> = late.map(|(connection, _)| *connection).collect();
        for connection in &late {
            self.unnamed.remove(connection);
            self.hosts.remove(*connection);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::ConnectionHandle;

    #[test]
    fn a_host_has_a_limited_number_of_connections() {
        let limits = NodeLimits { at_host: 2, ..NodeLimits::default() };
        let mut neighbours = Neighbours::new(limits);
        neighbours.set_hosts(|at| at.0 / 10);
        let mut welcome = |number: u64, at: u32, ms: u64| {
            let now = Time::ZERO + Duration::from_millis(ms);
            neighbours.expire(now);
            neighbours.welcome(now, ConnectionHandle::new(number), NodeId(at))
        };
        let first = [(1, 11), (2, 12), (3, 13), (4, 21)];
        assert_eq!(first.map(|(number, at)| welcome(number, at, 0)), [true, true, false, true]);
        assert!(welcome(5, 13, 5000));
        neighbours.remove(ConnectionHandle::new(5));
        assert!(neighbours.hosts.counts.is_empty());
    }
}
