//! Earlier members of a name whose receiver was restarted or has moved: they close the window for
//! all until they count as silent. Any receiver can claim a name, so the earlier member is asked,
//! and stays if it answers.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::Members;

/// Interval and number of questions; chosen. At 10 % loss one live member in 4000 binds anew.
const ASKED_EVERY: Duration = Duration::from_millis(250);
const ASKED_TIMES: u32 = 5;

#[derive(Debug)]
struct Earlier {
    node: NodeId,
    id: u64,
    asked: u32,
    due: Time,
}

#[derive(Debug, Default)]
pub(super) struct Namesakes {
    earlier: Vec<Earlier>,
}

impl Namesakes {
    pub(super) fn answers(&mut self, node: NodeId) {
        self.earlier.retain(|earlier| earlier.node != node);
    }
}

impl Members {
    pub(in crate::tram) fn succeed(&mut self, now: Time, node: Option<NodeId>, name: u64) -> bool {
        let is_earlier = |(other, child): &(&NodeId, &super::Child)| {
            name != 0 && child.name == name && Some(**other) != node && child.confirmed
        };
        for (&node, child) in self.children.iter().filter(is_earlier) {
            if self.namesakes.earlier.iter().all(|earlier| earlier.node != node) {
                self.namesakes.earlier.push(Earlier { node, id: child.id, asked: 0, due: now });
            }
        }
        !self.namesakes.earlier.is_empty()
    }

    pub(in crate::tram) fn ask_namesakes(
        &mut self,
        now: Time,
    ) -> (Option<Time>, Vec<(NodeId, u64)>, Vec<NodeId>) {
        let (mut asked, mut gone) = (Vec::new(), Vec::new());
        let children = &self.children;
        let is_here = |it: &Earlier| children.get(&it.node).is_some_and(|child| child.id == it.id);
        self.namesakes.earlier.retain_mut(|earlier| {
            if earlier.due > now || !is_here(earlier) {
                return is_here(earlier);
            }
            if earlier.asked == ASKED_TIMES {
                gone.push(earlier.node);
                return false;
            }
            (earlier.asked, earlier.due) = (earlier.asked + 1, now + ASKED_EVERY);
            asked.push((earlier.node, earlier.id));
            true
        });
        for node in &gone {
            self.lose(now, *node);
        }
        self.forget_found();
        let next = self.namesakes.earlier.iter().map(|earlier| earlier.due).min();
        (next, asked, gone)
    }
}
