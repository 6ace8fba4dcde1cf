//! Shortest paths by delay, and the next link towards each destination.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use faircast_base::NodeId;
use faircast_scenario::LinkSpec;

use crate::forest::Forest;

pub(crate) const NONE: u32 = u32::MAX;

pub(crate) struct Topology {
    /// By link: from, to, delay in nanoseconds at the start of the run.
    links: Vec<(u32, u32, u64)>,
    ports: Vec<Vec<u32>>,
    links_in: Vec<Vec<u32>>,
    port_of: Vec<u32>,
    /// By link: port at its end that leads back, or [`NONE`].
    back: Vec<u32>,
    /// By node with a single incoming link: the neighbour and that link; else itself and [`NONE`].
    gateways: Vec<(NodeId, u32)>,
    forest: Option<Forest>,
    /// By destination that was asked for: next link from every node.
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
        let port_of = places(&ports, links.len());
        let back = ports_back(&links, &port_of);
        let gateway = |(node, links_in): (usize, &Vec<u32>)| match links_in[..] {
            [only] => (NodeId(links[only as usize].0), only),
            _ => (NodeId(node as u32), NONE),
        };
        let gateways = links_in.iter().enumerate().map(gateway).collect();
        let forest = Forest::new(&links, &ports);
        let routes = vec![None; nodes];
        Self { links, ports, links_in, port_of, back, gateways, forest, routes }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn link_start(&self, link: u32) -> NodeId {
        NodeId(self.links[link as usize].0)
    }

    pub(crate) fn link_end(&self, link: u32) -> NodeId {
        NodeId(self.links[link as usize].1)
    }

    pub(crate) fn ports(&self, node: NodeId) -> &[u32] {
        &self.ports[node.index()]
    }

    #[inline]
    pub(crate) fn port_back(&self, link: u32) -> Option<u32> {
        let port = self.back[link as usize];
        (port != NONE).then_some(port)
    }

    pub(crate) fn link_back(&self, link: u32) -> u32 {
        self.port_back(link).map_or(NONE, |port| self.ports(self.link_end(link))[port as usize])
    }

    #[inline]
    pub(crate) fn port_of(&self, link: u32) -> u32 {
        self.port_of[link as usize]
    }

    #[inline]
    pub(crate) fn next_link(&mut self, node: NodeId, destination: NodeId) -> u32 {
        if node == destination {
            return NONE;
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
        if self.routes[destination.index()].is_none() {
            self.routes[destination.index()] = Some(self.paths_to(destination));
        }
        self.routes[destination.index()].as_deref().expect("just made")
    }

    /// Returns the next links of all nodes towards `destination`: Dijkstra over the reversed links.
    /// Among paths of equal delay, fewer hops win, then the link that the scenario names first.
    fn paths_to(&self, destination: NodeId) -> Box<[u32]> {
        let forward = |link: u32| (self.links[link as usize].0, link);
        self.shortest_paths(destination, |node| {
            self.links_in[node as usize].iter().map(|link| forward(*link))
        })
    }

    /// Returns by node the link over which a source-rooted shortest-path tree enters it.
    pub(crate) fn tree_from(&self, source: NodeId) -> Box<[u32]> {
        let forward = |link: u32| (self.links[link as usize].1, link);
        self.shortest_paths(source, |node| {
            self.ports[node as usize].iter().map(|link| forward(*link))
        })
    }

    /// Returns by node the last link of its path from `root`, given (neighbour, link) edges.
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

fn places(ports: &[Vec<u32>], links: usize) -> Vec<u32> {
    let mut places = vec![NONE; links];
    for of_node in ports {
        for (place, link) in of_node.iter().enumerate() {
            places[*link as usize] = place as u32;
        }
    }
    places
}

/// Returns by link the port at its end that leads back. Parallel links pair up in order.
fn ports_back(links: &[(u32, u32, u64)], port_of: &[u32]) -> Vec<u32> {
    let mut sorted: Vec<_> = links.iter().zip(0u32..).map(|(l, index)| (l.0, l.1, index)).collect();
    sorted.sort_unstable();
    let parallel = |from: u32, to: u32| {
        let start = sorted.partition_point(|link| (link.0, link.1) < (from, to));
        let end = sorted.partition_point(|link| (link.0, link.1) <= (from, to));
        &sorted[start..end]
    };
    let back = |(index, link): (usize, &(u32, u32, u64))| {
        let alike = parallel(link.0, link.1);
        let place = alike.partition_point(|other| (other.2 as usize) < index);
        let reverse = parallel(link.1, link.0);
        let chosen = reverse.get(place).or(reverse.last());
        chosen.map_or(NONE, |other| port_of[other.2 as usize])
    };
    links.iter().enumerate().map(back).collect()
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
        assert_eq!(topology.next_link(NodeId(1), NodeId(1)), NONE);
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
                    proptest::prop_assert_eq!(next, topology.paths_to(to)[from.index()]);
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
        assert_eq!(topology.next_link(NodeId(0), NodeId(2)), NONE);
    }
}
