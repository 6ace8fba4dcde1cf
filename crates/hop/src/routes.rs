//! Positions of nodes: the port at which packets of a node of a group arrive.

use std::collections::BTreeMap;

use faircast_base::{Duration, NodeId, Time};
use faircast_proto::relay::PortId;

/// Time for which a node stays where it was heard, although another port claims to have it.
const STAYS: Duration = Duration::from_secs(3);
/// Silence after which the position of a node is forgotten.
const KEPT: Duration = Duration::from_secs(60);
/// Most positions, and most of one port, so that no neighbour takes all.
const ROUTES_MAX: usize = 1 << 16;
const ROUTES_AT_PORT_MAX: usize = ROUTES_MAX / 4;

/// Outcome of a packet's claim to come from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Right,
    /// The node was heard elsewhere within 3 s.
    Elsewhere,
    Full,
}

/// Positions of nodes, by group and node, and their number at each port.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    by_node: BTreeMap<(u64, NodeId), (PortId, Time)>,
    at_port: BTreeMap<PortId, usize>,
}

impl Routes {
    pub(crate) fn port(&self, group: u64, node: NodeId) -> Option<PortId> {
        self.by_node.get(&(group, node)).map(|(port, _)| *port)
    }

    /// A packet of `node` has come through `port`. With `moves` the claim is right at once: the
    /// neighbour there is the node itself, or the port where the node was heard is silent.
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

    /// A port exists no longer: its nodes may be elsewhere at once.
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
