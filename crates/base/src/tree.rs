//! Validation of trees that are given by the head of each node.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Limit of the levels of a tree of repair heads; a tree has fewer.
pub const TREE_LEVELS_MAX: usize = 64;

/// Fault of a node's position in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeFault<K> {
    /// The node is its own ancestor: the node, its head, the head's head, and so on up to the node.
    Cycle(Vec<K>),
    /// The node has [`TREE_LEVELS_MAX`] or more ancestors.
    Deep,
}

/// Checks that a node is not its own ancestor and has not too many; `heads` gives nodes' heads.
pub fn check_heads<K: Ord + Clone>(heads: &BTreeMap<K, K>, node: &K) -> Result<(), TreeFault<K>> {
    let mut path = Vec::from([node.clone()]);
    while let Some(head) = path.last().and_then(|last| heads.get(last)) {
        path.push(head.clone());
        if head == node {
            return Err(TreeFault::Cycle(path));
        }
        if path.len() > TREE_LEVELS_MAX {
            return Err(TreeFault::Deep);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(heads: &[(u32, u32)], node: u32) -> Result<(), TreeFault<u32>> {
        check_heads(&heads.iter().copied().collect(), &node)
    }

    #[test]
    fn cycles_are_told_whole() {
        let tree = [(2, 1), (3, 2), (4, 2)];
        assert_eq!((check(&tree, 1), check(&tree, 4)), (Ok(()), Ok(())));
        assert_eq!(check(&[(1, 1)], 1), Err(TreeFault::Cycle([1, 1].into())));
        let cycle = [(1, 2), (2, 3), (3, 1), (4, 1)];
        assert_eq!(check(&cycle, 3), Err(TreeFault::Cycle([3, 1, 2, 3].into())));
        assert_eq!(check(&cycle, 4), Err(TreeFault::Deep), "it is not in it, and has no end above");
    }

    #[test]
    fn trees_are_not_as_deep_as_one_likes() {
        let chain: BTreeMap<usize, usize> = (1..100).map(|node| (node, node - 1)).collect();
        assert_eq!(check_heads(&chain, &(TREE_LEVELS_MAX - 1)), Ok(()));
        assert_eq!(check_heads(&chain, &TREE_LEVELS_MAX), Err(TreeFault::Deep));
    }
}
