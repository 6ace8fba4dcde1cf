//! Reachability between nodes.

use std::collections::BTreeMap;

use faircast_base::NodeId;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::LinkSpec;

pub(crate) struct Reach {
    graph: DiGraph<(), (), u32>,
    /// Number of the strongly connected component of each node.
    component: Vec<u32>,
    /// Nodes that a source reaches: a cache.
    reached: BTreeMap<NodeId, Vec<bool>>,
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
        let mut component = vec![0; nodes];
        // Kosaraju's algorithm is the one in petgraph without recursion.
        for (number, members) in (0..).zip(petgraph::algo::kosaraju_scc(&graph)) {
            for node in members {
                component[node.index()] = number;
            }
        }
        Self { graph, component, reached: BTreeMap::new() }
    }

    pub(crate) fn one_way(&mut self, a: NodeId, b: NodeId) -> bool {
        if self.both_ways(a, b) {
            return true;
        }
        if self.reached.len() == SOURCES_KEPT_MAX && !self.reached.contains_key(&a) {
            self.reached.clear();
        }
        let graph = &self.graph;
        let reached = self.reached.entry(a).or_insert_with(|| {
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
        self.component[a.index()] == self.component[b.index()]
    }
}

/// Most sources to cache: 13 MB for the largest scenario.
const SOURCES_KEPT_MAX: usize = 64;
