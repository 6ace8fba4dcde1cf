//! Neighbours below a relay, each at its own port; the groups with their receivers behind each; and
//! routes to nodes: the port at which packets of a node of a group arrive.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Duration, FlowId, NodeId, Time};
use faircast_proto::relay::PortId;

use crate::endpoint::ConnectionHandle;
use crate::message::Hello;
use crate::status::{NodeLimits, SlowLink};

pub(crate) const PARENT: PortId = PortId(0);
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

#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) receivers: u32,
    pub(crate) link: Option<PortId>,
    /// Link below the member that sets the pace of a session.
    pub(crate) slow: Option<SlowLink>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) flow: FlowId,
    pub(crate) members: BTreeMap<PortId, Member>,
    /// Sum over all members, which 64 bits can hold, and number of members with receivers.
    receivers: u64,
    active: usize,
}

impl Group {
    /// Returns a member's receivers through this relay, `above` of them at the parent.
    pub(crate) fn elsewhere(&self, port: PortId, above: u32) -> u32 {
        let own = self.members.get(&port).map_or(0, |member| member.receivers);
        saturated(self.receivers - u64::from(own) + u64::from(above))
    }
}

fn saturated(receivers: u64) -> u32 {
    u32::try_from(receivers).unwrap_or(u32::MAX)
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) by_id: BTreeMap<u64, Group>,
    pub(crate) by_flow: BTreeMap<FlowId, u64>,
    last_flow: u32,
}

pub(crate) struct Change {
    pub(crate) flow: FlowId,
    pub(crate) receivers: Option<u32>,
    /// True if receivers elsewhere may have appeared or vanished for some member.
    pub(crate) concerns_all: bool,
}

impl Groups {
    pub(crate) fn member_mut(&mut self, group: u64, port: PortId) -> Option<&mut Member> {
        self.by_id.get_mut(&group)?.members.get_mut(&port)
    }

    /// Sets the receivers behind a neighbour, `None` after the last; `above`: those at the parent.
    pub(crate) fn set(
        &mut self,
        group: u64,
        port: PortId,
        receivers: Option<u32>,
        above: u32,
    ) -> Change {
        let of = self.by_id.entry(group).or_insert_with(|| {
            self.last_flow = self.last_flow.wrapping_add(1);
            let flow = FlowId(self.last_flow);
            self.by_flow.insert(flow, group);
            Group { flow, members: BTreeMap::new(), receivers: 0, active: 0 }
        });
        let kind = |of: &Group| (of.active + usize::from(above > 0)).min(2);
        let (before, flow) = (kind(of), of.flow);
        let was = match receivers {
            Some(receivers) => {
                let member = of.members.entry(port).or_default();
                member.slow = None;
                std::mem::replace(&mut member.receivers, receivers)
            }
            None => of.members.remove(&port).map_or(0, |member| member.receivers),
        };
        let is = receivers.unwrap_or(0);
        of.receivers = of.receivers - u64::from(was) + u64::from(is);
        of.active = of.active + usize::from(is > 0) - usize::from(was > 0);
        let concerns_all = before != kind(of);
        let receivers = (!of.members.is_empty()).then_some(saturated(of.receivers));
        if receivers.is_none() {
            self.by_id.remove(&group);
            self.by_flow.remove(&flow);
        }
        Change { flow, receivers, concerns_all }
    }
}

/// Time since its last packet for which a node stays at its port, if another port claims it: 3 s.
const STAYS: Duration = Duration::from_secs(3);
/// Silence after which the route to a node is removed: 60 s.
const KEPT: Duration = Duration::from_secs(60);
/// Maximum number of routes, in total and per port, so that no neighbour can use all.
const ROUTES_MAX: usize = 1 << 16;
const ROUTES_AT_PORT_MAX: usize = ROUTES_MAX / 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Right,
    Elsewhere,
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct Routes {
    by_node: BTreeMap<(u64, NodeId), (PortId, Time)>,
    at_port: BTreeMap<PortId, usize>,
}

impl Routes {
    pub(crate) fn port(&self, group: u64, node: NodeId) -> Option<PortId> {
        self.by_node.get(&(group, node)).map(|(port, _)| *port)
    }

    /// With `moves` the claim succeeds: the neighbour is the node, or the old port is silent.
    pub(crate) fn claim(
        &mut self,
        now: Time,
        (group, node): (u64, NodeId),
        port: PortId,
        moves: bool,
    ) -> Claim {
        let known = self.by_node.get_mut(&(group, node));
        match known {
            Some((at, heard_at)) if *at == port => {
                *heard_at = now;
                return Claim::Right;
            }
            Some((_, heard_at)) if !moves && now.since(*heard_at) < STAYS => {
                return Claim::Elsewhere;
            }
            _ => {}
        }
        let was_known = known.is_some();
        let at_port = self.at_port.get(&port).copied().unwrap_or(0);
        if at_port >= ROUTES_AT_PORT_MAX || !was_known && self.by_node.len() >= ROUTES_MAX {
            return Claim::Full;
        }
        if let Some((before, _)) = self.by_node.insert((group, node), (port, now)) {
            self.leave(before);
        }
        *self.at_port.entry(port).or_default() += 1;
        Claim::Right
    }

    fn leave(&mut self, port: PortId) {
        if let Some(count) = self.at_port.get_mut(&port) {
            *count -= 1;
            if *count == 0 {
                self.at_port.remove(&port);
            }
        }
    }

    pub(crate) fn forget_port(&mut self, port: PortId) {
        if self.at_port.remove(&port).is_some() {
            self.by_node.retain(|_, (at, _)| *at != port);
        }
    }

    pub(crate) fn expire(&mut self, now: Time) {
        let Self { by_node, at_port } = self;
        by_node.retain(|_, (_, heard_at)| now.since(*heard_at) < KEPT);
        at_port.clear();
        for (port, _) in by_node.values() {
            *at_port.entry(*port).or_default() += 1;
        }
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

    #[test]
    fn neighbours_that_claim_too_many_receivers_break_no_sum() {
        let (mut groups, [a, b, most]) = (Groups::default(), [1, 2, u32::MAX]);
        let mut set = |port, receivers| {
            let change = groups.set(7, PortId(port), receivers, 0);
            let elsewhere = groups.by_id.get(&7).map(|of| of.elsewhere(PortId(b), most));
            (change.receivers, elsewhere, groups.by_flow.get(&change.flow).copied())
        };
        assert_eq!(set(a, Some(most)), (Some(most), Some(most), Some(7)));
        assert_eq!(set(b, Some(most)), (Some(most), Some(most), Some(7)));
        assert_eq!(set(a, None), (Some(most), Some(most), Some(7)));
        assert_eq!(set(b, Some(3)), (Some(3), Some(most), Some(7)));
        assert_eq!(set(b, None), (None, None, None));
    }

    #[test]
    fn a_node_stays_where_it_was_heard_for_a_while_unless_it_moves() {
        let (node, [first, second]) = (NodeId(7), [PortId(1), PortId(2)]);
        let mut routes = Routes::default();
        let mut claim = |ms, port, moves| {
            routes.claim(Time::ZERO + Duration::from_millis(ms), (1, node), port, moves)
        };
        for (ms, port, moves, expected) in [
            (0, first, false, Claim::Right),
            (2999, second, false, Claim::Elsewhere),
            (2999, second, true, Claim::Right),
            (3000, first, false, Claim::Elsewhere),
            (5999, first, false, Claim::Right),
        ] {
            assert_eq!(claim(ms, port, moves), expected, "{ms} ms, {port:?}");
        }
    }
}
