//! Shortest paths by delay, and the next link towards each destination.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use faircast_base::NodeId;
use faircast_scenario::LinkSpec;

use crate::forest::Forest;

pub(crate) const NO_LINK: u32 = u32::MAX;
pub(crate) const NO_AGENT: u32 = u32::MAX;
const NO_PORT: u32 = u32::MAX;

pub(crate) struct Edge {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Delay at the start of the run.
    delay_ns: u64,
}

/// Nodes and links. A port is the number of a link among those that leave its node.
pub(crate) struct Topology {
    edges: Vec<Edge>,
    ports: Vec<Vec<u32>>,
    links_in: Vec<Vec<u32>>,
    /// By link: its port at the node that it leaves.
    port_of: Vec<u32>,
    /// By link: port at its end that leads back to its start, or [`NO_PORT`].
    port_back: Vec<u32>,
    /// By node with one incoming link: the neighbour and that link; else itself and [`NO_LINK`].
    gateways: Vec<(NodeId, u32)>,
    /// Routes of a network without loops, which needs no tables.
    forest: Option<Forest>,
    /// By destination: its routing table, the next link from every node; made at its first use.
    tables: Vec<Option<Box<[u32]>>>,
}

impl Topology {
    pub(crate) fn new(nodes: usize, links: &[LinkSpec]) -> Self {
        let edge = |link: &LinkSpec| Edge {
            from: link.from.0,
            to: link.to.0,
            delay_ns: link.config.delay.as_nanos(),
        };
        let edges: Vec<Edge> = links.iter().map(edge).collect();
        let (mut ports, mut links_in) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        let mut port_of = Vec::with_capacity(edges.len());
        for (index, edge) in edges.iter().enumerate() {
            let ports = &mut ports[edge.from as usize];
            port_of.push(ports.len() as u32);
            ports.push(index as u32);
            links_in[edge.to as usize].push(index as u32);
        }
        let port_back = ports_back(&edges, &port_of);
        let gateway = |(node, links_in): (usize, &Vec<u32>)| match links_in[..] {
            [only] => (NodeId(edges[only as usize].from), only),
            _ => (NodeId(node as u32), NO_LINK),
        };
        let gateways = links_in.iter().enumerate().map(gateway).collect();
        let forest = Forest::new(&edges, &ports);
        let tables = vec![None; nodes];
        Self { edges, ports, links_in, port_of, port_back, gateways, forest, tables }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn link_start(&self, link: u32) -> NodeId {
        NodeId(self.edges[link as usize].from)
    }

    pub(crate) fn link_end(&self, link: u32) -> NodeId {
        NodeId(self.edges[link as usize].to)
    }

    pub(crate) fn ports(&self, node: NodeId) -> &[u32] {
        &self.ports[node.index()]
    }

    /// Returns the port at the end of `link` that leads back to its start, if any.
    #[inline]
    pub(crate) fn port_back(&self, link: u32) -> Option<u32> {
        let port = self.port_back[link as usize];
        (port != NO_PORT).then_some(port)
    }

    /// Returns the link that leads back from the end of `link`, or [`NO_LINK`].
    pub(crate) fn link_back(&self, link: u32) -> u32 {
        self.port_back(link).map_or(NO_LINK, |port| self.ports(self.link_end(link))[port as usize])
    }

    #[inline]
    pub(crate) fn port_of(&self, link: u32) -> u32 {
        self.port_of[link as usize]
    }

    /// Returns the first link of the shortest path, or [`NO_LINK`] without one or to `node` itself.
    #[inline]
    pub(crate) fn next_link(&mut self, node: NodeId, destination: NodeId) -> u32 {
        if node == destination {
            return NO_LINK;
        }
        // A host with one link is reached through its neighbour and needs no table.
        let (gateway, last) = self.gateways[destination.index()];
        if gateway == node {
            return last;
        }
        match &self.forest {
            Some(forest) => forest.next_link(node, destination, |link| self.link_end(link)),
            None => self.table(gateway)[node.index()],
        }
    }

    pub(crate) fn is_forest(&self) -> bool {
        self.forest.is_some()
    }

    #[inline]
    fn table(&mut self, destination: NodeId) -> &[u32] {
        if self.tables[destination.index()].is_none() {
            self.tables[destination.index()] = Some(self.new_table(destination));
        }
        self.tables[destination.index()].as_deref().expect("just made")
    }

    /// Computes the routing table of `destination`: Dijkstra over the reversed links. Among paths
    /// of equal delay, fewer hops win, then the link that the scenario names first.
    fn new_table(&self, destination: NodeId) -> Box<[u32]> {
        let backward = |link: &u32| (self.edges[*link as usize].from, *link);
        self.shortest_paths(destination, |node| self.links_in[node as usize].iter().map(backward))
    }

    /// Returns by node the link over which a source-rooted shortest-path tree enters it.
    pub(crate) fn tree_from(&self, source: NodeId) -> Box<[u32]> {
        let forward = |link: &u32| (self.edges[*link as usize].to, *link);
        self.shortest_paths(source, |node| self.ports[node as usize].iter().map(forward))
    }

    /// Returns by node the last link of its path from `root`, given (neighbour, link) edges.
    fn shortest_paths<'a, I: Iterator<Item = (u32, u32)> + 'a>(
        &'a self,
        root: NodeId,
        edges: impl Fn(u32) -> I,
    ) -> Box<[u32]> {
        // By node: delay in nanoseconds, hops and last link of the best path.
        let mut best = vec![(u64::MAX, u32::MAX, NO_LINK); self.ports.len()];
        let mut heap = BinaryHeap::new();
        best[root.index()] = (0, 0, NO_LINK);
        heap.push(Reverse((0u64, 0u32, root.0)));
        while let Some(Reverse((delay, hops, node))) = heap.pop() {
            let (known_delay, known_hops, _) = best[node as usize];
            if (delay, hops) != (known_delay, known_hops) {
                continue;
            }
            for (neighbour, link) in edges(node) {
                let longer = delay.saturating_add(self.edges[link as usize].delay_ns);
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

/// Returns by link the port at its end that leads back. Parallel links pair up in order.
fn ports_back(edges: &[Edge], port_of: &[u32]) -> Vec<u32> {
    let ends_of = |(edge, link): (&Edge, u32)| (edge.from, edge.to, link);
    let mut sorted: Vec<_> = edges.iter().zip(0u32..).map(ends_of).collect();
    sorted.sort_unstable();
    let parallel = |from: u32, to: u32| {
        let start = sorted.partition_point(|edge| (edge.0, edge.1) < (from, to));
        let end = sorted.partition_point(|edge| (edge.0, edge.1) <= (from, to));
        &sorted[start..end]
    };
    let back = |(edge, link): (&Edge, u32)| {
        let alike = parallel(edge.from, edge.to);
        let rank = alike.partition_point(|other| other.2 < link);
        let reverse = parallel(edge.to, edge.from);
        let chosen = reverse.get(rank).or(reverse.last());
        chosen.map_or(NO_PORT, |other| port_of[other.2 as usize])
    };
    edges.iter().zip(0u32..).map(back).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn topology(nodes: usize, links: &[(u32, u32)]) -> Topology {
        let spec = |(from, to): &(u32, u32)| crate::tests::link(*from, *to, 1);
        Topology::new(nodes, &links.iter().map(spec).collect::<Vec<_>>())
    }

    #[test]
    fn each_parallel_link_leads_back_over_its_own_partner() {
        let topology = topology(3, &[(0, 1), (1, 0), (0, 1), (1, 2), (1, 0), (0, 1)]);
        let back: Vec<_> = (0..6).map(|link| topology.port_back(link)).collect();
        // Node 1 has the ports [1, 3, 4], node 0 has [0, 2, 5], and node 2 has none.
        assert_eq!(back, [Some(0), Some(0), Some(2), None, Some(1), Some(2)]);
        let ports: Vec<_> = (0..6).map(|link| topology.port_of(link)).collect();
        assert_eq!(ports, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn no_link_leads_from_a_node_to_itself() {
        let mut topology = topology(2, &[(0, 1), (1, 0)]);
        assert_eq!(topology.next_link(NodeId(1), NodeId(1)), NO_LINK);
        assert_eq!(topology.next_link(NodeId(0), NodeId(1)), 0);
    }

    proptest::proptest! {
        #[test]
        fn a_network_without_loops_needs_no_tables(
            towards in proptest::collection::vec((0u32..30, 0u8..10), 1..30),
        ) {
            let mut links = Vec::new();
            for (i, (towards, apart)) in (1..).zip(&towards) {
                if *apart > 0 {
                    let other = towards % i;
                    links.extend([(i, other), (other, i)]);
                }
            }
            let nodes = towards.len() + 1;
            let mut topology = topology(nodes, &links);
            proptest::prop_assert!(topology.is_forest());
            for from in 0..nodes as u32 {
                for to in (0..nodes as u32).filter(|to| *to != from) {
                    let (from, to) = (NodeId(from), NodeId(to));
                    let next = topology.next_link(from, to);
                    proptest::prop_assert_eq!(next, topology.new_table(to)[from.index()]);
                }
            }
        }
    }

    #[test]
    fn a_network_with_a_loop_or_a_way_without_return_has_tables() {
        for links in [
            &[(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)][..],
            &[(0, 1), (1, 0), (1, 2)],
            &[(0, 1), (1, 0), (0, 1), (1, 0), (1, 2), (2, 1)],
            &[(0, 0), (0, 1), (1, 0)],
        ] {
            assert!(!topology(3, links).is_forest(), "{links:?}");
        }
    }

    #[test]
    fn where_no_route_leads_there_is_none() {
        let mut topology = topology(3, &[(0, 1), (1, 0)]);
        assert_eq!(topology.next_link(NodeId(0), NodeId(2)), NO_LINK);
    }
}
