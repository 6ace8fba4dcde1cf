//! Routes to nodes: the port at which packets of a node of a group arrive.

use std::collections::BTreeMap;

use faircast_base::{Duration, NodeId, Time};
use faircast_proto::relay::PortId;

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
    /// A packet of the node arrived at another port within the last 3 s.
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
