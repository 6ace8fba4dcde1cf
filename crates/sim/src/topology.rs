//! Who reaches whom over which link: shortest paths by delay, and multicast trees made of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use faircast_base::NodeId;
use faircast_scenario::LinkSpec;

/// No link, no agent.
pub(crate) const NONE: u32 = u32::MAX;

/// The graph of nodes and directed links.
pub(crate) struct Topology {
    /// For each link: from, to, delay in nanoseconds at the start of the run.
    links: Vec<(u32, u32, u64)>,
    /// For each node its links out, in the order of the scenario: its ports.
    ports: Vec<Vec<u32>>,
    /// For each node its links in.
    links_in: Vec<Vec<u32>>,
    /// For each destination that was asked for: the next link from every node.
    routes: Vec<Option<Box<[u32]>>>,
}

impl Topology {
    pub(crate) fn new(nodes: usize, links: &[LinkSpec]) -> Self {
        let links: Vec<_> = links
            .iter()
            .map(|link| (link.from.0, link.to.0, link.config.delay.as_nanos()))
            .collect();
        let (mut ports, mut links_in) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (index, (from, to, _)) in links.iter().enumerate() {
            ports[*from as usize].push(index as u32);
            links_in[*to as usize].push(index as u32);
        }
        Self { links, ports, links_in, routes: vec![None; nodes] }
    }

    /// The links out of a node.
    pub(crate) fn ports(&self, node: NodeId) -> &[u32] {
        &self.ports[node.index()]
    }

    /// The port of `node` that leads back over `link`, on which something came in.
    pub(crate) fn port_back(&self, node: NodeId, link: u32) -> Option<u32> {
        let from = self.links[link as usize].0;
        let is_back = |out: &u32| self.links[*out as usize].1 == from;
        self.ports[node.index()].iter().position(is_back).map(|port| port as u32)
    }

    /// The next link from `node` towards `destination`, [`NONE`] where there is none.
    #[inline]
    pub(crate) fn next_link(&mut self, node: NodeId, destination: NodeId) -> u32 {
        // A host with one link is reached through its neighbour: it needs no table of its own.
        if let [only] = self.links_in[destination.index()][..] {
            let neighbour = NodeId(self.links[only as usize].0);
            return if neighbour == node { only } else { self.table(neighbour)[node.index()] };
        }
        self.table(destination)[node.index()]
    }

    /// The table of next links towards `destination`, made when first asked for.
    #[inline]
    fn table(&mut self, destination: NodeId) -> &[u32] {
        if self.routes[destination.index()].is_none() {
            self.routes[destination.index()] = Some(self.paths_to(destination));
        }
        self.routes[destination.index()].as_deref().expect("just made")
    }

    /// Next links towards `destination` from everywhere: Dijkstra over the reversed links. Paths
    /// of equal delay: fewer hops, then the link that the scenario names first.
    fn paths_to(&self, destination: NodeId) -> Box<[u32]> {
        let forward = |link: u32| (self.links[link as usize].0, link);
        self.shortest_paths(destination, |node| {
            self.links_in[node as usize].iter().map(|link| forward(*link))
        })
    }

    /// For every node the link over which a source-rooted shortest-path tree enters it.
    fn tree_from(&self, source: NodeId) -> Box<[u32]> {
        let forward = |link: u32| (self.links[link as usize].1, link);
        self.shortest_paths(source, |node| {
            self.ports[node as usize].iter().map(|link| forward(*link))
        })
    }

    /// For every node the last link of its shortest path from `root` along `edges`, which gives
    /// each node's (neighbour, link).
    fn shortest_paths<'a, I: Iterator<Item = (u32, u32)> + 'a>(
        &'a self,
        root: NodeId,
        edges: impl Fn(u32) -> I,
    ) -> Box<[u32]> {
        let mut best = vec![(u64::MAX, u32::MAX, NONE); self.ports.len()];
        let mut heap = BinaryHeap::new();
        best[root.index()] = (0, 0, NONE);
        heap.push(Reverse((0u64, 0u32, root.0)));
        while let Some(Reverse((delay, hops, node))) = heap.pop() {
            let (known_delay, known_hops, _) = best[node as usize];
            if (delay, hops) != (known_delay, known_hops) {
                continue;
            }
            for (neighbour, link) in edges(node) {
                let longer = delay.saturating_add(self.links[link as usize].2);
                let candidate = (longer, hops + 1, link);
                let known = &mut best[neighbour as usize];
                if candidate < *known {
                    let moved = (known.0, known.1) != (longer, hops + 1);
                    *known = candidate;
                    if moved {
                        heap.push(Reverse((longer, hops + 1, neighbour)));
                    }
                }
            }
        }
        best.into_iter().map(|(_, _, link)| link).collect()
    }
}

/// The multicast tree of one flow: source-rooted, shortest paths, pruned to the members.
/// Membership takes effect at once: the delays of IGMP and of a routing protocol are not modelled.
pub(crate) struct Tree {
    /// For each node the link over which the unpruned tree enters it.
    entry: Box<[u32]>,
    /// For each link end: the node before it.
    link_from: Vec<u32>,
    /// For each node its links out within the tree, in ascending order.
    children: Vec<Vec<u32>>,
    /// For each node how many members it and the nodes below it have.
    below: Vec<u32>,
    /// For each node the agent that is a member there.
    members: Vec<u32>,
}

impl Tree {
    pub(crate) fn new(topology: &Topology, source: NodeId) -> Self {
        let nodes = topology.ports.len();
        Self {
            entry: topology.tree_from(source),
            link_from: topology.links.iter().map(|link| link.0).collect(),
            children: vec![Vec::new(); nodes],
            below: vec![0; nodes],
            members: vec![NONE; nodes],
        }
    }

    /// The links over which a packet leaves `node`.
    #[inline]
    pub(crate) fn children(&self, node: NodeId) -> &[u32] {
        &self.children[node.index()]
    }

    /// The agent that listens at `node`, or [`NONE`].
    #[inline]
    pub(crate) fn member(&self, node: NodeId) -> u32 {
        self.members[node.index()]
    }

    /// Adds the agent at `node`. False where it is a member already or no path leads there.
    pub(crate) fn join(&mut self, node: NodeId, agent: u32) -> bool {
        if self.members[node.index()] != NONE || self.entry[node.index()] == NONE {
            return false;
        }
        self.members[node.index()] = agent;
        let mut at = node.0;
        while self.entry[at as usize] != NONE {
            self.below[at as usize] += 1;
            let link = self.entry[at as usize];
            let parent = self.link_from[link as usize];
            if self.below[at as usize] == 1 {
                let siblings = &mut self.children[parent as usize];
                let place = siblings.partition_point(|other| *other < link);
                siblings.insert(place, link);
            }
            at = parent;
        }
        true
    }

    /// Removes the member at `node`, and the branches that only led to it.
    pub(crate) fn leave(&mut self, node: NodeId) {
        if self.members[node.index()] == NONE {
            return;
        }
        self.members[node.index()] = NONE;
        let mut at = node.0;
        while self.entry[at as usize] != NONE {
            self.below[at as usize] -= 1;
            let link = self.entry[at as usize];
            let parent = self.link_from[link as usize];
            if self.below[at as usize] == 0 {
                self.children[parent as usize].retain(|other| *other != link);
            }
            at = parent;
        }
    }
}
