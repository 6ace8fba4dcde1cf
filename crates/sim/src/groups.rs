//! Members of the groups of all flows, and the multicast trees that lead to them.

use std::collections::BTreeMap;

use faircast_base::{FlowId, GroupId, NodeId};
use faircast_scenario::Flow;

use crate::packets::Route;
use crate::topology::{NO_AGENT, NO_LINK, Topology};
use crate::tree::Tree;

#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeKind {
    /// Tree of a flow's first sender to the receivers of the session.
    Session,
    /// Tree down from its root, which is a sender or the router of several senders.
    Directed,
    /// Tree that packets of all senders take in both directions, as in bidirectional PIM.
    Bidirectional,
}

pub(crate) struct Groups {
    /// Kind of the trees in `later_trees`: bidirectional in a network without loops or relays.
    later_kind: TreeKind,
    /// Session trees by flow, then trees made at their first packet.
    trees: Vec<Tree>,
    flows: usize,
    /// Trees made at their first packet by flow, group and root: index in `trees`.
    later_trees: BTreeMap<(FlowId, GroupId, NodeId), u32>,
    /// Group of each of these trees, in the order of their indexes.
    later_tree_groups: Vec<GroupId>,
    /// Agent of each member by flow, group and host.
    members: BTreeMap<(FlowId, GroupId, NodeId), u32>,
}

impl Groups {
    /// Makes groups without members. `relayed` is true if relays depend on the forwarding path.
    pub(crate) fn new(topology: &mut Topology, flows: &[Flow], relayed: bool) -> Self {
        let mut reaches = |flow: &Flow| {
            let sender = flow.sender();
            let mut others = flow.ends().filter(|node| *node != sender);
            others.all(|node| topology.next_link(sender, node) != NO_LINK)
        };
        let is_bidirectional = !relayed && flows.iter().all(&mut reaches) && topology.is_forest();
        let later_kind =
            if is_bidirectional { TreeKind::Bidirectional } else { TreeKind::Directed };
        let tree = |flow: &Flow| Tree::new(topology, flow.sender(), &flow.to);
        Self {
            later_kind,
            trees: flows.iter().map(tree).collect(),
            flows: flows.len(),
            later_trees: BTreeMap::new(),
            later_tree_groups: Vec::new(),
            members: BTreeMap::new(),
        }
    }

    /// Adds a member. False if it is one already, or if the session's tree does not reach it.
    pub(crate) fn join(&mut self, flow: FlowId, group: GroupId, node: NodeId, agent: u32) -> bool {
        if self.members.contains_key(&(flow, group, node)) {
            return false;
        }
        let own = &mut self.trees[flow.index()];
        if group == GroupId::SESSION && node != own.root() && !own.join(node, agent) {
            return false;
        }
        self.members.insert((flow, group, node), agent);
        for (_, tree) in later_trees_for(&self.later_trees, flow, group) {
            self.trees[*tree as usize].join_anywhere(node, agent);
        }
        true
    }

    pub(crate) fn leave(&mut self, flow: FlowId, group: GroupId, node: NodeId) -> bool {
        if self.members.remove(&(flow, group, node)).is_none() {
            return false;
        }
        if group == GroupId::SESSION {
            self.trees[flow.index()].leave(node);
        }
        for (_, tree) in later_trees_for(&self.later_trees, flow, group) {
            self.trees[*tree as usize].leave(node);
        }
        true
    }

    pub(crate) fn leave_others(&mut self, flow: FlowId, node: NodeId) {
        let first = (flow, GroupId(GroupId::SESSION.0 + 1), NodeId(0));
        let all = self.members.range(first..=(flow, GroupId(u32::MAX), NodeId(u32::MAX)));
        let own: Vec<_> = all.filter(|(key, _)| key.2 == node).map(|(key, _)| key.1).collect();
        own.into_iter().for_each(|group| _ = self.leave(flow, group, node));
    }

    /// Returns a packet's route to a group, of which only the flow's `ends` can be members.
    pub(crate) fn route(
        &mut self,
        topology: &mut Topology,
        (flow, group): (FlowId, GroupId),
        (from, time_to_live): (NodeId, u8),
        ends: impl Iterator<Item = NodeId>,
    ) -> Route {
        if group == GroupId::SESSION && self.trees[flow.index()].root() == from {
            return Route::Tree(flow.0);
        }
        if time_to_live <= 1 {
            return Route::Neighbours(group);
        }
        // All hosts share a bidirectional tree, and all hosts behind a router a directed one.
        let root = match (self.later_kind, topology.ports(from)) {
            (TreeKind::Bidirectional, _) => self.trees[flow.index()].root(),
            (_, [only]) => topology.link_end(*only),
            _ => from,
        };
        if let Some(tree) = self.later_trees.get(&(flow, group, root)) {
            return Route::Tree(*tree);
        }
        let others: Vec<NodeId> = ends.filter(|node| *node != root).collect();
        let mut tree = Tree::new(topology, root, &others);
        let first = (flow, group, NodeId(0));
        for ((.., node), agent) in self.members.range(first..=(flow, group, NodeId(u32::MAX))) {
            tree.join_anywhere(*node, *agent);
        }
        let index = self.trees.len() as u32;
        self.trees.push(tree);
        self.later_tree_groups.push(group);
        self.later_trees.insert((flow, group, root), index);
        Route::Tree(index)
    }

    pub(crate) fn group(&self, tree: u32) -> GroupId {
        let place = (tree as usize).checked_sub(self.flows);
        place.map_or(GroupId::SESSION, |place| self.later_tree_groups[place])
    }

    #[inline]
    fn kind(&self, tree: u32) -> TreeKind {
        if (tree as usize) < self.flows { TreeKind::Session } else { self.later_kind }
    }

    /// Returns the link from sender `from` to its tree; [`NO_LINK`] if `from` is on the tree.
    pub(crate) fn link_to_tree(&self, topology: &Topology, tree: u32, from: NodeId) -> u32 {
        let is_outside = match self.kind(tree) {
            TreeKind::Session => false,
            TreeKind::Directed => self.trees[tree as usize].root() != from,
            TreeKind::Bidirectional => topology.ports(from).len() == 1,
        };
        if is_outside { topology.ports(from)[0] } else { NO_LINK }
    }

    #[inline]
    pub(crate) fn children(&self, tree: u32, node: NodeId) -> &[u32] {
        self.trees[tree as usize].children(node)
    }

    /// Returns the link at `node` towards the root of a bidirectional tree, or [`NO_LINK`].
    #[inline]
    pub(crate) fn above(&self, tree: u32, node: NodeId) -> u32 {
        match self.kind(tree) {
            TreeKind::Bidirectional => self.trees[tree as usize].above(node),
            TreeKind::Session | TreeKind::Directed => NO_LINK,
        }
    }

    /// Returns the link at `node` towards the sender `from`, closed to its packets, or [`NO_LINK`].
    #[inline]
    pub(crate) fn back(
        &self,
        topology: &mut Topology,
        tree: u32,
        (node, from): (NodeId, NodeId),
    ) -> u32 {
        match self.kind(tree) {
            TreeKind::Session => NO_LINK,
            TreeKind::Directed => {
                let mut children = self.children(tree, node).iter();
                children.find(|link| topology.link_end(**link) == from).copied().unwrap_or(NO_LINK)
            }
            TreeKind::Bidirectional => topology.next_link(node, from),
        }
    }

    /// Returns the agent at `node` that is a member, or [`NO_AGENT`]; true if the tree ends there.
    #[inline]
    pub(crate) fn member(&self, tree: u32, node: NodeId) -> (u32, bool) {
        match self.kind(tree) {
            TreeKind::Bidirectional => self.trees[tree as usize].member_bidirectional(node),
            TreeKind::Session | TreeKind::Directed => self.trees[tree as usize].member(node),
        }
    }

    pub(crate) fn member_of(&self, flow: FlowId, group: GroupId, node: NodeId) -> u32 {
        self.members.get(&(flow, group, node)).copied().unwrap_or(NO_AGENT)
    }
}

fn later_trees_for(
    later_trees: &BTreeMap<(FlowId, GroupId, NodeId), u32>,
    flow: FlowId,
    group: GroupId,
) -> impl Iterator<Item = (&(FlowId, GroupId, NodeId), &u32)> {
    later_trees.range((flow, group, NodeId(0))..=(flow, group, NodeId(u32::MAX)))
}
