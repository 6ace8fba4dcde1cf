//! Reachability between nodes.

use std::collections::BTreeMap;

use faircast_base::NodeId;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::LinkSpec;

pub(crate) struct Reach {
    graph: DiGraph<(), (), u32>,
    circle: Vec<u32>,
    from: BTreeMap<NodeId, Vec<bool>>,
}

impl Reach {
    pub(crate) fn new(nodes: usize, links: &[LinkSpec]) -> Self {
        let mut graph = DiGraph::with_capacity(nodes, links.len());
        for _ in 0..nodes {
            graph.add_node(());
        }
        for link in links {
            graph.add_edge(NodeIndex::new(link.from.index()), NodeIndex::new(link.to.index()), ());
        }
        let mut circle = vec![0; nodes];
        // Kosaraju's algorithm is the one in petgraph without recursion.
        for (number, members) in (0..).zip(petgraph::algo::kosaraju_scc(&graph)) {
            for node in members {
                circle[node.index()] = number;
            }
        }
        Self { graph, circle, from: BTreeMap::new() }
    }

    pub(crate) fn one_way(&mut self, a: NodeId, b: NodeId) -> bool {
        if self.both_ways(a, b) {
            return true;
        }
        if self.from.len() == SOURCES_KEPT_MAX && !self.from.contains_key(&a) {
            self.from.clear();
        }
        let graph = &self.graph;
        let reached = self.from.entry(a).or_insert_with(|| {
            let mut reached = vec![false; graph.node_count()];
            let mut walk = petgraph::visit::Dfs::new(graph, NodeIndex::new(a.index()));
            while let Some(node) = walk.next(graph) {
                reached[node.index()] = true;
            }
            reached
        });
        reached[b.index()]
    }

    pub(crate) fn both_ways(&self, a: NodeId, b: NodeId) -> bool {
        self.circle[a.index()] == self.circle[b.index()]
    }
}

/// Most sources to cache: 13 MB for the largest scenario.
const SOURCES_KEPT_MAX: usize = 64;
