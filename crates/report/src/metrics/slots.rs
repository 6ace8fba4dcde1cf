//! Index of a flow's receivers by node.

use faircast_base::NodeId;

/// Index in a flow's list of receivers, by node.
#[derive(Clone, Debug)]
pub(super) enum Slots {
    /// Linear search of few receivers: a thousand TCP flows need no tables.
    Few(Vec<NodeId>),
    /// By node: index of the receiver; `u32::MAX` for other nodes.
    Table(Vec<u32>),
}

const FEW_MAX: usize = 8;

impl Default for Slots {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Slots {
    pub(super) fn new(nodes: &[NodeId]) -> Self {
        if nodes.len() <= FEW_MAX {
            return Self::Few(nodes.to_vec());
        }
        let len = nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0);
        let mut table = vec![u32::MAX; len];
        for (slot, node) in (0..).zip(nodes) {
            table[node.index()] = slot;
        }
        Self::Table(table)
    }

    #[inline]
    pub(super) fn find(&self, node: NodeId) -> Option<usize> {
        match self {
            Self::Few(nodes) => nodes.iter().position(|known| *known == node),
            // A node that is not a receiver has the last slot, which no receiver can have.
            Self::Table(table) => table.get(node.index()).map(|slot| *slot as usize),
        }
    }
}
