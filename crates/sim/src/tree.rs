//! Multicast trees.

use faircast_base::NodeId;

use crate::topology::{NO_AGENT, NO_LINK, Topology};

const NO_PLACE: u32 = u32::MAX;

/// Multicast tree: shortest paths from its root, pruned to the members. Membership takes effect at
/// once, without delays of IGMP and routing. Holds only the nodes between the root and possible
/// members: memory grows with a flow's paths, not with the network.
pub(crate) struct Tree {
    root: NodeId,
    places: Places,
    branches: Vec<Branch>,
    members: u32,
}

enum Places {
    /// Node number: most nodes are in the tree.
    Same,
    /// Rank among the numbers of the nodes in the tree, ascending.
    Sorted(Box<[u32]>),
}

#[derive(Clone)]
struct Branch {
    children: Vec<u32>,
    member: u32,
    /// Number of members at this node and below.
    below: u32,
    /// Link over which packets enter, or [`NO_LINK`] at the source and off the tree.
    entry: u32,
    parent: u32,
    back: u32,
    /// True if no possible member is below this node.
    leaf: bool,
}

impl Tree {
    pub(crate) fn new(topology: &mut Topology, source: NodeId, receivers: &[NodeId]) -> Self {
        let entries = match receivers {
            // The unicast route to a single receiver avoids a tree over the whole network.
            [only] => path(topology, source, *only),
            _ => paths(topology, source, receivers),
        };
        Self::from_entries(topology, source, entries)
    }

    fn from_entries(topology: &Topology, source: NodeId, entries: Vec<(u32, u32)>) -> Self {
        let mut nodes: Vec<u32> = entries.iter().map(|(node, _)| *node).collect();
        nodes.push(source.0);
        nodes.sort_unstable();
        let off = Branch {
            children: Vec::new(),
            member: NO_AGENT,
            below: 0,
            entry: NO_LINK,
            parent: NO_PLACE,
            back: NO_LINK,
            leaf: true,
        };
        let (branches, places) = if nodes.len() * SORTED_SHARE > topology.nodes() {
            (vec![off; topology.nodes()], Places::Same)
        } else {
            (vec![off; nodes.len()], Places::Sorted(nodes.into()))
        };
        let mut tree = Self { root: source, places, branches, members: 0 };
        let place =
            |tree: &Self, node| tree.place(node).expect("every node of the tree has a place");
        for (node, link) in entries {
            let parent = place(&tree, topology.link_start(link)) as u32;
            let at = place(&tree, NodeId(node));
            (tree.branches[at].entry, tree.branches[at].parent) = (link, parent);
            tree.branches[at].back = topology.link_back(link);
            tree.branches[parent as usize].leaf = false;
        }
        tree
    }

    #[inline]
    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    #[inline]
    fn place(&self, node: NodeId) -> Option<usize> {
        match &self.places {
            Places::Same => Some(node.index()),
            Places::Sorted(nodes) => nodes.binary_search(&node.0).ok(),
        }
    }

    #[inline]
    pub(crate) fn children(&self, node: NodeId) -> &[u32] {
        self.place(node).map_or(&[], |place| &self.branches[place].children)
    }

    #[inline]
    pub(crate) fn member(&self, node: NodeId) -> (u32, bool) {
        let Some(place) = self.place(node) else { return (NO_AGENT, true) };
        let branch = &self.branches[place];
        (branch.member, branch.children.is_empty())
    }

    /// Returns the link from `node` towards the root if members are there, or [`NO_LINK`].
    #[inline]
    pub(crate) fn above(&self, node: NodeId) -> u32 {
        let Some(place) = self.place(node) else { return NO_LINK };
        let branch = &self.branches[place];
        if self.members > branch.below { branch.back } else { NO_LINK }
    }

    #[inline]
    pub(crate) fn member_bidirectional(&self, node: NodeId) -> (u32, bool) {
        let Some(place) = self.place(node) else { return (NO_AGENT, true) };
        (self.branches[place].member, self.branches[place].leaf)
    }

    pub(crate) fn join(&mut self, node: NodeId, agent: u32) -> bool {
        let Some(at) = self.place(node) else { return false };
        if self.branches[at].member != NO_AGENT || self.branches[at].entry == NO_LINK {
            return false;
        }
        self.branches[at].member = agent;
        self.members += 1;
        self.count(at, true);
        true
    }

    /// Counts a member more or less from a place up to the root; adds or prunes links.
    fn count(&mut self, mut at: usize, joins: bool) {
        while self.branches[at].entry != NO_LINK {
            let branch = &mut self.branches[at];
            let Branch { entry, parent, .. } = *branch;
            branch.below = if joins { branch.below + 1 } else { branch.below - 1 };
            let changes_link = branch.below == u32::from(joins);
            at = parent as usize;
            if changes_link {
                let siblings = &mut self.branches[at].children;
                let place = siblings.partition_point(|other| *other < entry);
                siblings.splice(place..place + usize::from(!joins), joins.then_some(entry));
            }
        }
    }

    /// Adds the agent at `node`, which may be the root: in a tree that others send along.
    pub(crate) fn join_anywhere(&mut self, node: NodeId, agent: u32) {
        if node != self.root {
            self.join(node, agent);
        } else if let Some(place) = self.place(node) {
            self.members += u32::from(self.branches[place].member == NO_AGENT);
            self.branches[place].member = agent;
        }
    }

    pub(crate) fn leave(&mut self, node: NodeId) -> bool {
        let Some(at) = self.place(node) else { return false };
        if self.branches[at].member == NO_AGENT {
            return false;
        }
        self.branches[at].member = NO_AGENT;
        self.members -= 1;
        self.count(at, false);
        true
    }
}

const SORTED_SHARE: usize = 8;

fn path(topology: &mut Topology, source: NodeId, receiver: NodeId) -> Vec<(u32, u32)> {
    let mut entries = Vec::new();
    let mut at = source;
    while at != receiver {
        let link = topology.next_link(at, receiver);
        if link == NO_LINK {
            return Vec::new();
        }
        at = topology.link_end(link);
        entries.push((at.0, link));
    }
    entries
}

fn paths(topology: &Topology, source: NodeId, receivers: &[NodeId]) -> Vec<(u32, u32)> {
    let mut entry = topology.tree_from(source);
    let mut entries = Vec::new();
    for receiver in receivers {
        let mut at = *receiver;
        while entry[at.index()] != NO_LINK {
            let link = std::mem::replace(&mut entry[at.index()], NO_LINK);
            entries.push((at.0, link));
            at = topology.link_start(link);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::topology;
    use proptest::prelude::*;

    /// Chain 0 - 1 - 2 ... with a leaf at each node, and `others` unconnected nodes.
    fn comb(teeth: u32, others: u32) -> Topology {
        let mut links = Vec::new();
        for i in 0..teeth {
            if i > 0 {
                links.extend([(i - 1, i), (i, i - 1)]);
            }
            links.extend([(i, teeth + i), (teeth + i, i)]);
        }
        topology((2 * teeth + others) as usize, &links)
    }

    fn reached(tree: &Tree, topology: &Topology) -> Vec<u32> {
        let (mut open, mut found) = (vec![NodeId(0)], Vec::new());
        while let Some(node) = open.pop() {
            assert_eq!(tree.member(node).1, tree.children(node).is_empty(), "it ends there");
            if tree.member(node).0 != NO_AGENT {
                found.push(node.0);
            }
            let children = tree.children(node);
            assert!(children.is_sorted(), "{children:?}");
            open.extend(children.iter().map(|link| topology.link_end(*link)));
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn who_is_off_the_tree_neither_joins_nor_leaves() {
        let mut topology = comb(3, 1);
        let mut tree = Tree::new(&mut topology, NodeId(0), &[NodeId(5), NodeId(4)]);
        assert!(!tree.join(NodeId(6), 1), "no link leads there");
        assert!(!tree.join(NodeId(0), 1), "the source is no member of its own group");
        assert!(!tree.leave(NodeId(4)), "it has not joined");
        assert!(tree.join(NodeId(4), 1) && !tree.join(NodeId(4), 2), "one agent a node");
        assert!(tree.leave(NodeId(4)) && !tree.leave(NodeId(4)));
    }

    proptest! {
        #[test]
        fn a_tree_reaches_its_members_and_nobody_else(
            receivers in prop::collection::btree_set(1u32..20, 1..20),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..60),
            large in any::<bool>(),
        ) {
            let mut topology = comb(10, if large { 1000 } else { 0 });
            let receivers: Vec<_> = receivers.into_iter().map(NodeId).collect();
            let mut tree = Tree::new(&mut topology, NodeId(0), &receivers);
            let mut members = std::collections::BTreeSet::new();
            for (index, joins) in changes {
                let node = *index.get(&receivers);
                if joins {
                    prop_assert_eq!(tree.join(node, node.0), members.insert(node.0));
                } else {
                    prop_assert_eq!(tree.leave(node), members.remove(&node.0));
                }
                let expected: Vec<_> = members.iter().copied().collect();
                prop_assert_eq!(reached(&tree, &topology), expected);
            }
            for node in &members {
                tree.leave(NodeId(*node));
            }
            prop_assert!(tree.children(NodeId(0)).is_empty(), "all branches are pruned");
        }
    }
}
