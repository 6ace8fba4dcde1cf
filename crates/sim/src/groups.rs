//! The groups of all flows: who is in them, and the multicast trees that lead to them.

use std::collections::BTreeMap;

use faircast_base::{FlowId, GroupId, NodeId};
use faircast_scenario::Flow;

use crate::packets::Route;
use crate::topology::{NONE, Topology};
use crate::tree::Tree;

/// Members and trees. Membership takes effect at once.
pub(crate) struct Groups {
    /// Whether packets go along the latter in both directions, so that all senders to a group share one.
    two_way: bool,
    /// For each flow the tree from its first sender to the group of the session; then those that other
    /// senders and other groups have needed, which are made when the first packet goes there.
    trees: Vec<Tree>,
    flows: usize,
    /// Of the latter: which they are, by flow, group and root.
    made: BTreeMap<(FlowId, GroupId, NodeId), u32>,
    /// Of the latter: the groups.
    groups: Vec<GroupId>,
    /// The agent that is a member.
    members: BTreeMap<(FlowId, GroupId, NodeId), u32>,
}

impl Groups {
    /// Groups without members. `relayed` says that relays look at what is forwarded where.
    pub(crate) fn new(topology: &mut Topology, flows: &[Flow], relayed: bool) -> Self {
        let mut reaches = |flow: &Flow| {
            let sender = flow.sender();
            let mut others = flow.ends().filter(|node| *node != sender);
            others.all(|node| topology.next_link(sender, node) != NONE)
        };
        let two_way = !relayed && flows.iter().all(&mut reaches) && topology.is_forest();
        let tree = |flow: &Flow| Tree::new(topology, flow.sender(), &flow.to);
        Self {
            two_way,
            trees: flows.iter().map(tree).collect(),
            flows: flows.len(),
            made: BTreeMap::new(),
            groups: Vec::new(),
            members: BTreeMap::new(),
        }
    }

    /// Makes the agent at `node` a member. False where it is one already, or no path leads there
    /// from the session's first sender.
    pub(crate) fn join(&mut self, flow: FlowId, group: GroupId, node: NodeId, agent: u32) -> bool {
        if self.members.contains_key(&(flow, group, node)) {
            return false;
        }
        let own = &mut self.trees[flow.index()];
        if group == GroupId::SESSION && node != own.root() && !own.join(node, agent) {
            return false;
        }
        self.members.insert((flow, group, node), agent);
        for (_, tree) in made_for(&self.made, flow, group) {
            self.trees[*tree as usize].join_anywhere(node, agent);
        }
        true
    }

    /// Ends a membership. False where there is none.
    pub(crate) fn leave(&mut self, flow: FlowId, group: GroupId, node: NodeId) -> bool {
        if self.members.remove(&(flow, group, node)).is_none() {
            return false;
        }
        if group == GroupId::SESSION {
            self.trees[flow.index()].leave(node);
        }
        for (_, tree) in made_for(&self.made, flow, group) {
            self.trees[*tree as usize].leave(node);
        }
        true
    }

    /// Ends all memberships of a flow's end in groups that it has joined by itself.
    pub(crate) fn leave_others(&mut self, flow: FlowId, node: NodeId) {
        let first = (flow, GroupId(GroupId::SESSION.0 + 1), NodeId(0));
        let all = self.members.range(first..=(flow, GroupId(u32::MAX), NodeId(u32::MAX)));
        let own: Vec<_> = all.filter(|(key, _)| key.2 == node).map(|(key, _)| key.1).collect();
        own.into_iter().for_each(|group| _ = self.leave(flow, group, node));
    }

    /// How a packet from `from` gets to a group, of which only the `ends` of the flow can be members.
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
        // All hosts behind a router share its tree; in a network without loops all hosts share one.
        let root = match topology.ports(from) {
            _ if self.two_way => self.trees[flow.index()].root(),
            [only] => topology.link_end(*only),
            _ => from,
        };
        if let Some(tree) = self.made.get(&(flow, group, root)) {
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
        self.groups.push(group);
        self.made.insert((flow, group, root), index);
        Route::Tree(index)
    }

    pub(crate) fn group(&self, tree: u32) -> GroupId {
        let place = (tree as usize).checked_sub(self.flows);
        place.map_or(GroupId::SESSION, |place| self.groups[place])
    }

    /// The link over which the packets of `from` get to a tree that it shares, or [`NONE`] where they are there.
    pub(crate) fn link_to_tree(&self, topology: &Topology, tree: u32, from: NodeId) -> u32 {
        let shares = match self.two_way {
            true => self.is_shared(tree) && topology.ports(from).len() == 1,
            false => self.trees[tree as usize].root() != from,
        };
        if shares { topology.ports(from)[0] } else { NONE }
    }

    /// The links over which a packet leaves `node` along a tree.
    #[inline]
    pub(crate) fn children(&self, tree: u32, node: NodeId) -> &[u32] {
        self.trees[tree as usize].children(node)
    }

    /// The link over which it leaves `node` towards the root of its tree, or [`NONE`].
    #[inline]
    pub(crate) fn above(&self, tree: u32, node: NodeId) -> u32 {
        let goes_back = self.two_way && self.is_shared(tree);
        if goes_back { self.trees[tree as usize].above(node) } else { NONE }
    }

    /// The link over which a packet of `from`, which must not come back, would leave `node` towards it, or
    /// [`NONE`].
    #[inline]
    pub(crate) fn back(
        &self,
        topology: &mut Topology,
        tree: u32,
        (node, from): (NodeId, NodeId),
    ) -> u32 {
        match (self.is_shared(tree), self.two_way) {
            (false, _) => NONE,
            (true, true) => topology.next_link(node, from),
            (true, false) => {
                let mut children = self.children(tree, node).iter();
                children.find(|link| topology.link_end(**link) == from).copied().unwrap_or(NONE)
            }
        }
    }

    /// Whether a tree is shared by several senders, of which none gets its own packets back.
    #[inline]
    fn is_shared(&self, tree: u32) -> bool {
        tree as usize >= self.flows
    }

    /// The agent that listens at `node` to what comes along a tree, or [`NONE`], and whether the tree ends
    /// there.
    #[inline]
    pub(crate) fn member(&self, tree: u32, node: NodeId) -> (u32, bool) {
        match self.two_way && self.is_shared(tree) {
            true => self.trees[tree as usize].member_two_way(node),
            false => self.trees[tree as usize].member(node),
        }
    }

    /// The agent that is a member of a group at `node`, or [`NONE`].
    pub(crate) fn member_of(&self, flow: FlowId, group: GroupId, node: NodeId) -> u32 {
        self.members.get(&(flow, group, node)).copied().unwrap_or(NONE)
    }
}

/// The trees beyond the first of each flow that lead to a group.
fn made_for(
    made: &BTreeMap<(FlowId, GroupId, NodeId), u32>,
    flow: FlowId,
    group: GroupId,
) -> impl Iterator<Item = (&(FlowId, GroupId, NodeId), &u32)> {
    made.range((flow, group, NodeId(0))..=(flow, group, NodeId(u32::MAX)))
}
