//! Nodes as addresses in the values of schemes, and the words that these are made of.

use faircast_base::NodeId;

/// The address that stands for nobody.
const NOBODY: u32 = 0;

/// Node 0 travels as the broadcast address, which no host has, because its own number would mean
/// nobody.
const NODE_ZERO: u32 = u32::MAX;

/// The four bytes from `at` on, which are there, as a number.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// How a node travels: as the IPv4 address that is its number.
pub(crate) fn address(node: Option<NodeId>) -> u32 {
    match node {
        None => NOBODY,
        Some(NodeId(0)) => NODE_ZERO,
        Some(NodeId(id)) => id,
    }
}

/// The node of an address.
pub(crate) fn node(address: u32) -> Option<NodeId> {
    match address {
        NOBODY => None,
        NODE_ZERO => Some(NodeId(0)),
        id => Some(NodeId(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_zero_is_not_nobody() {
        for (one, number) in [
            (None, 0),
            (Some(NodeId(0)), u32::MAX),
            (Some(NodeId(1)), 1),
            (Some(NodeId(0x0a4d_0003)), 0x0a4d_0003),
        ] {
            assert_eq!((address(one), node(number)), (number, one));
        }
    }

    #[test]
    fn words_are_big_endian() {
        assert_eq!(word(&[9, 1, 2, 3, 4, 9], 1), 0x0102_0304);
    }
}
