//! Tests of the policies: the branch that each chooses, and the branches left behind.

use super::*;

/// Relay with branches of packets forwarded, packets queued, and receivers below.
struct Relay<'a> {
    branches: &'a [(i64, u32, u32)],
    waited_ms: u32,
}

impl View for Relay<'_> {
    fn branches(&self) -> u32 {
        self.branches.len() as u32
    }
    fn forwarded(&self, branch: u32) -> i64 {
        self.branches[branch as usize].0
    }
    fn reported(&self) -> i64 {
        0
    }
    fn queued(&self, branch: u32) -> u32 {
        self.branches[branch as usize].1
    }
    fn buffer(&self) -> u32 {
        5
    }
    fn weight(&self, branch: u32) -> u32 {
        self.branches[branch as usize].2
    }
    fn waited_ms(&self, _branch: u32) -> u32 {
        self.waited_ms
    }
    fn unit(&self) -> u32 {
        2
    }
}

#[test]
fn each_policy_has_its_own_branch_set_the_pace() {
    let four = [(1, 5, 1), (4, 3, 1), (2, 5, 10), (9, 0, 1)];
    let relay = Relay { branches: &four, waited_ms: 0 };
    assert_eq!(WorstPath.credit(&relay), None);
    assert_eq!(BestPath.credit(&relay), Some(3));
    for (percent, want) in
        [(1, None), (25, None), (26, Some(2)), (50, Some(2)), (75, Some(1)), (100, Some(3))]
    {
        assert_eq!(Quantile { percent }.credit(&relay), want, "{percent} %");
    }
    // Only the last branch is near the fastest; with a longer lag the others count, too.
    for (packets, want) in [(0, Some(3)), (5, Some(1)), (7, Some(2)), (8, None)] {
        assert_eq!(BoundedLag { packets }.credit(&relay), want, "{packets} packets");
    }
    assert_eq!(Deadline { ms: 100 }.credit(&relay), None);
    assert_eq!(LayeredDrop.credit(&relay), None);
    // With room for 5 more: 6 * 13, 9 * 2, 7 * 12, 14 * 1.
    assert_eq!(WeightedUtility.credit(&relay), Some(2));
    let later = four.map(|(forwarded, queued, weight)| (forwarded + 1, queued, weight));
    assert_eq!(WorstPath.credit(&Relay { branches: &later, waited_ms: 0 }), Some(0));
}

#[test]
fn who_cannot_follow_does_without() {
    let relay = Relay { branches: &[(1, 3, 1), (9, 2, 1), (0, 0, 1)], waited_ms: 100 };
    let mut lag = BoundedLag { packets: 4 };
    assert_eq!([0, 1, 2].map(|branch| lag.accepts(&relay, branch, 0)), [false, true, true]);
    let layered = |branch, layer| LayeredDrop.accepts(&relay, branch, layer);
    assert_eq!([layered(0, 0), layered(0, 1), layered(1, 1)], [true, false, true]);
    assert_eq!([99, 100, 101].map(|ms| Deadline { ms }.discards(&relay, 0)), [1, 1, 0]);
    assert_eq!(Deadline { ms: 2 }.interval_ms(), Some(1));
    assert!(WorstPath.accepts(&relay, 0, 3) && WorstPath.discards(&relay, 0) == 0);
}
