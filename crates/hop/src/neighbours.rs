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
    pub(crate) network: Option<u16>,
    pub(crate) stalled_at: Option<Time>,
}

impl Neighbour {
    pub(crate) fn may_use_multicast(&self, now: Time) -> bool {
        let is_on_unicast = self.stalled_at.is_some_and(|at| now < at + UNICAST);
        !is_on_unicast && !self.hello.is_relay && self.network.is_none()
    }
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    pub(crate) limits: NodeLimits,
    /// Connections without a hello, with their deadlines.
    pub(crate) unnamed: BTreeMap<ConnectionHandle, (NodeId, Time)>,
    /// Hosts of the connections, and function that maps an address to its host.
    pub(crate) hosts: BTreeMap<ConnectionHandle, u32>,
    pub(crate) host_of: fn(NodeId) -> u32,
    pub(crate) by_port: BTreeMap<PortId, Neighbour>,
    ports: BTreeMap<ConnectionHandle, PortId>,
    last: PortId,
}

impl Neighbours {
    pub(crate) fn new(limits: NodeLimits) -> Self {
        fresh! { Self { limits, host_of: |at| at.0, last: PARENT, } unnamed, hosts, by_port, ports }
    }

    pub(crate) fn port(&self, connection: ConnectionHandle) -> Option<PortId> {
        self.ports.get(&connection).copied()
    }

    pub(crate) const fn next_port(&mut self) -> PortId {
        self.last.0 += 1;
        self.last
    }

    /// Waits for the hello of a peer. False if the relay or the peer's host is at its limit.
    pub(crate) fn welcome(&mut self, now: Time, connection: ConnectionHandle, at: NodeId) -> bool {
        let NodeLimits { neighbours, at_host, .. } = self.limits;
        let host = (self.host_of)(at);
        let has_room = self.unnamed.len() + self.by_port.len() < neighbours
            && self.hosts.values().filter(|it| **it == host).count() < at_host;
        if has_room {
            self.hosts.insert(connection, host);
            self.unnamed.insert(connection, (at, now + HELLO_MAX));
        }
        has_room
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
            self.hosts.remove(&before);
            self.ports.insert(connection, port);
            return (port, Some(before));
        }
        let port = self.next_port();
        self.ports.insert(connection, port);
        let of = fresh! {
            Neighbour { connection, hello, } groups, unconfirmed_groups, network, stalled_at
        };
        self.by_port.insert(port, of);
        (port, None)
    }

    pub(crate) fn remove(&mut self, connection: ConnectionHandle) -> Option<Neighbour> {
        self.unnamed.remove(&connection);
        self.hosts.remove(&connection);
        let port = self.ports.remove(&connection)?;
        self.by_port.remove(&port)
    }

    pub(crate) fn expire(&mut self, now: Time) -> Vec<ConnectionHandle> {
        let late = self.unnamed.iter().filter(|(_, (_, until))| *until <= now);
        let late: Vec<_> = late.map(|(connection, _)| *connection).collect();
        for connection in &late {
            self.unnamed.remove(connection);
            self.hosts.remove(connection);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_limited_number_of_connections() {
        let limits = NodeLimits { at_host: 2, ..NodeLimits::default() };
        let mut neighbours = Neighbours::new(limits);
        neighbours.host_of = |at| at.0 / 10;
        let mut welcome = |number: u64, at: u32, ms: u64| {
            let now = Time::ZERO + Duration::from_millis(ms);
            neighbours.expire(now);
            neighbours.welcome(now, ConnectionHandle::new(number), NodeId(at))
        };
        let first = [(1, 11), (2, 12), (3, 13), (4, 21)];
        assert_eq!(first.map(|(number, at)| welcome(number, at, 0)), [true, true, false, true]);
        assert!(welcome(5, 13, 5000));
        neighbours.remove(ConnectionHandle::new(5));
        assert!(neighbours.hosts.is_empty());
    }
}
