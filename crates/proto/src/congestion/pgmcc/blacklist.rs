//! Receivers that are temporarily excluded from becoming the acker.

use alloc::vec::Vec;

use faircast_base::{NodeId, Time};

/// Most excluded receivers. Beyond it the earliest exclusion ends.
const BLACKLIST_MAX: usize = 16;

/// Excluded receivers, each with the end of its exclusion.
#[derive(Debug, Default)]
pub(super) struct Blacklist(Vec<(NodeId, Time)>);

impl Blacklist {
    pub(super) fn add(&mut self, node: NodeId, until: Time) {
        self.0.retain(|entry| entry.0 != node);
        if self.0.len() == BLACKLIST_MAX {
            let soonest = (0..self.0.len()).min_by_key(|&index| self.0[index].1);
            self.0.swap_remove(soonest.expect("a full list has entries"));
        }
        self.0.push((node, until));
    }

    pub(super) fn excludes(&mut self, node: NodeId, now: Time) -> bool {
        self.0.retain(|entry| entry.1 > now);
        self.0.iter().any(|entry| entry.0 == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::Duration;

    #[test]
    fn exclusion_ends_and_the_list_is_bounded() {
        let at = |s| Time::ZERO + Duration::from_secs(s);
        let mut list = Blacklist::default();
        for i in 0..100 {
            list.add(NodeId(i), at(10 + u64::from(i)));
        }
        assert!(list.excludes(NodeId(99), at(5)));
        assert!(!list.excludes(NodeId(0), at(5)), "the first made room");
        assert_eq!(list.0.len(), BLACKLIST_MAX);
        assert!(!list.excludes(NodeId(99), at(109)));
        assert!(list.0.is_empty());
    }
}
