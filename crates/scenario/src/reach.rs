//! Reachability: which nodes can reach which.

use std::collections::BTreeMap;

use faircast_base::NodeId;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::LinkSpec;

/// The links as a graph, prepared for many questions.
pub(crate) struct Reach {
    graph: DiGraph<(), (), u32>,
    /// For each node its set of nodes that all reach each other.
    circle: Vec<u32>,
    /// For a source that was asked for: all nodes that it reaches.
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
        // Kosaraju's algorithm is the one that petgraph has without recursion.
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

/// Sources whose reach is remembered; with all nodes of the largest scenario that is 13 MB.
const SOURCES_KEPT_MAX: usize = 64;
