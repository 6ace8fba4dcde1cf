//! Networks without loops: a single path between any two nodes, the same for all sources. Next
//! links follow from node numbers, without tables, and all senders to a group share a tree.

use std::ops::Range;

use faircast_base::NodeId;

use crate::topology::{Edge, NO_LINK};

const NO_NUMBER: u32 = u32::MAX;

/// Network without loops; nodes are numbered in depth-first order.
pub(crate) struct Forest {
    /// By node: its number, and one past the last number of its subtree.
    spans: Vec<Range<u32>>,
    /// By node: number of the root of its component.
    parts: Vec<u32>,
    /// By node: link towards the root, [`NO_LINK`] at the root.
    up: Vec<u32>,
    /// Links away from the root, by node and port.
    down: Vec<u32>,
    /// By node: its part of `down`.
    down_of: Vec<Range<u32>>,
}

impl Forest {
    /// Returns `None` with loops or one-way links. `ports` has the links out of each node.
    pub(crate) fn new(edges: &[Edge], ports: &[Vec<u32>]) -> Option<Self> {
        let nodes = ports.len();
        let mut forest = Self {
            spans: vec![NO_NUMBER..NO_NUMBER; nodes],
            parts: vec![NO_NUMBER; nodes],
            up: vec![NO_LINK; nodes],
            down: Vec::with_capacity(edges.len() / 2),
            down_of: vec![0..0; nodes],
        };
        let mut next = 0;
        let mut open: Vec<(u32, usize)> = Vec::new();
        let mut back = 0;
        for root in 0..nodes {
            if forest.parts[root] != NO_NUMBER {
                continue;
            }
            let part = next;
            open.push((root as u32, 0));
            while let Some((node, port)) = open.pop() {
                let at = node as usize;
                if port == 0 {
                    forest.spans[at].start = next;
                    forest.parts[at] = part;
                    next += 1;
                }
                let Some(link) = ports[at].get(port) else {
                    forest.spans[at].end = next;
                    continue;
                };
                open.push((node, port + 1));
                let to = edges[*link as usize].to;
                let above = open.len().checked_sub(2).map(|above| open[above].0);
                if above == Some(to) {
                    // A second link back would be a loop.
                    if std::mem::replace(&mut forest.up[at], *link) != NO_LINK {
                        return None;
                    }
                    back += 1;
                } else if forest.parts[to as usize] == NO_NUMBER {
                    open.push((to, 0));
                } else {
                    return None;
                }
            }
        }
        if 2 * back != edges.len() {
            return None;
        }
        for (node, ports) in ports.iter().enumerate() {
            let first = forest.down.len() as u32;
            forest.down.extend(ports.iter().filter(|link| **link != forest.up[node]));
            forest.down_of[node] = first..forest.down.len() as u32;
            let number = |link: &u32| forest.spans[edges[*link as usize].to as usize].start;
            debug_assert!(forest.down[first as usize..].is_sorted_by_key(number));
        }
        Some(forest)
    }

    /// Returns the link from `node` towards `destination`, another node, or [`NO_LINK`].
    #[inline]
    pub(crate) fn next_link(
        &self,
        node: NodeId,
        destination: NodeId,
        end_of: impl Fn(u32) -> NodeId,
    ) -> u32 {
        let number = self.spans[destination.index()].start;
        if self.spans[node.index()].contains(&number) {
            let down = self.down_of[node.index()].clone();
            let down = &self.down[down.start as usize..down.end as usize];
            let begins = |link: &u32| self.spans[end_of(*link).index()].start <= number;
            return match down.partition_point(begins) {
                0 => NO_LINK,
                after => down[after - 1],
            };
        }
        match self.parts[node.index()] == self.parts[destination.index()] {
            true => self.up[node.index()],
            false => NO_LINK,
        }
    }
}
