//! Trees that are given as "who has whom for its head": no one may be above itself.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A tree of repair heads has fewer levels than this.
pub const TREE_LEVELS_MAX: usize = 64;

/// What is wrong with a node's place in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeFault<K> {
    /// It is above itself: the node, its head, the head of that, and so on until the node again.
    Cycle(Vec<K>),
    /// As many as [`TREE_LEVELS_MAX`] are above it.
    Deep,
}

/// Looks at a node of a tree that `heads` describes: the head of each node that has one.
///
/// # Errors
/// The node is above itself, or too many are above it.
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
