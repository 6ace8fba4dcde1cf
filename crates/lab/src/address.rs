//! Address plan, fixed because the hosts' networks reach nothing outside.

use std::net::Ipv4Addr;

use faircast_base::{FlowId, GroupId, NodeId};
use faircast_proto::Destination;

const NODES: u32 = 0x0a00_0001;
/// First session group: 239.192.0.1 (organisation-local, RFC 2365), as PGM sessions name it.
const GROUPS: u32 = 0xefc0_0001;
/// First other group: 239.128.0.0, where RFC 2365 lets the block grow; 256 for each of 2^14 flows.
const OTHER_GROUPS: u32 = 0xef80_0000;
pub(crate) const OTHER_GROUPS_MAX: u32 = 256;
const FLOW_BITS: u32 = 14;
const FLOW_MASK: u32 = (1 << FLOW_BITS) - 1;
/// Most nodes with an address: a block of /8 without its ends.
pub(crate) const NODES_MAX: u32 = (1 << 24) - 2;

/// UDP port of every flow of a scheme, the default port of real sessions.
pub(crate) const UDP_PORT: u16 = 3056;
pub(crate) const TCP_PORT: u16 = 5001;

pub(crate) fn of_node(node: NodeId) -> Ipv4Addr {
    Ipv4Addr::from_bits(NODES + node.0)
}

pub(crate) fn to_node(address: Ipv4Addr) -> Option<NodeId> {
    let node = address.to_bits().checked_sub(NODES)?;
    (node < NODES_MAX).then_some(NodeId(node))
}

/// Bit set in the addresses of moved nodes, which use half of the nodes' block.
const MOVED: u32 = 0x0080_0000;

pub(crate) fn of_moved(node: NodeId) -> Ipv4Addr {
    Ipv4Addr::from_bits(of_node(node).to_bits() ^ MOVED)
}

pub(crate) fn group(flow: FlowId, group: GroupId) -> Ipv4Addr {
    let others = group.0.checked_sub(GroupId::SESSION.0 + 1);
    Ipv4Addr::from_bits(match others {
        None => GROUPS + (flow.0 & 0x1_ffff),
        Some(place) => {
            OTHER_GROUPS + ((place % OTHER_GROUPS_MAX) << FLOW_BITS) + (flow.0 & FLOW_MASK)
        }
    })
}

pub(crate) fn to_group(flow: FlowId, address: Ipv4Addr) -> Option<GroupId> {
    let other = address.to_bits().checked_sub(OTHER_GROUPS).map(|place| place >> FLOW_BITS);
    let other = other.filter(|place| *place < OTHER_GROUPS_MAX);
    let found = GroupId(other.map_or(GroupId::SESSION.0, |place| place + 1));
    (group(flow, found) == address).then_some(found)
}

pub(crate) fn of(flow: FlowId, to: Destination) -> Ipv4Addr {
    match to {
        Destination::Group(to) => group(flow, to),
        Destination::Node(node) => of_node(node),
    }
}

pub(crate) fn to(flow: FlowId, address: Ipv4Addr, nodes: usize) -> Option<Destination> {
    let node = to_node(address).filter(|node| node.index() < nodes);
    to_group(flow, address).map(Destination::Group).or(node.map(Destination::Node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_addresses_are_the_same_thing() {
        for node in [0, 1, 254, 255, 256, 70_000, NODES_MAX - 1].map(NodeId) {
            assert_eq!(to_node(of_node(node)), Some(node));
        }
        for outside in ["9.255.255.255", "10.0.0.0", "11.0.0.1", "239.192.0.1", "127.0.0.1"] {
            assert_eq!(to_node(outside.parse().unwrap()), None, "{outside}");
        }
        assert_ne!(of_moved(NodeId(6)), of_node(NodeId(6)));
        assert_eq!(group(FlowId(2), GroupId::SESSION).to_string(), "239.192.0.3");
        for flow in [0, 2, 9000].map(FlowId) {
            for id in [0, 1, 2, 256].map(GroupId) {
                assert_eq!(to_group(flow, group(flow, id)), Some(id), "{flow:?} {id:?}");
                assert_eq!(to_group(FlowId(1), group(flow, id)), None, "{flow:?} {id:?}");
            }
            assert_eq!(to_group(flow, Ipv4Addr::new(224, 0, 0, 22)), None);
        }
    }
}
