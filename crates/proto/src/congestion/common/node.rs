//! Encoding of nodes and 32-bit words in option values.

use faircast_base::NodeId;

const NOBODY: u32 = 0;

/// Encoding of node 0: the broadcast address, which no host has. The number 0 means no node.
const NODE_ZERO: u32 = u32::MAX;

pub(crate) fn words<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (words, []) = bytes.as_chunks() else { return None };
    let words: &[[u8; 4]; N] = words.try_into().ok()?;
    Some(words.map(u32::from_be_bytes))
}

pub(crate) fn address(node: Option<NodeId>) -> u32 {
    match node {
        None => NOBODY,
        Some(NodeId(0)) => NODE_ZERO,
        Some(NodeId(id)) => id,
    }
}

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
        let bytes = [9, 1, 2, 3, 4, 0, 0, 0, 5];
        assert_eq!(words(&bytes[1..]), Some([0x0102_0304, 5]));
        assert_eq!((words::<2>(&bytes), words::<1>(&bytes[1..])), (None, None));
    }
}
