//! Implementations of the seven policies.

use crate::{Policy, View, once_due};

/// Slowest branch sets the pace: no packet is lost for lack of buffer (src: credits s3.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct WorstPath;

impl Policy for WorstPath {
    const DROPS: bool = false;

    fn credit(&mut self, view: &impl View) -> Option<u32> {
        once_due(view, (0..view.branches()).min_by_key(|branch| view.forwarded(*branch)))
    }
}

/// Fastest branch sets the pace: others miss the packets for which they have no buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestPath;

impl Policy for BestPath {
    const DROPS: bool = false;

    fn credit(&mut self, view: &impl View) -> Option<u32> {
        once_due(view, (0..view.branches()).min_by_key(|branch| -view.forwarded(*branch)))
    }
}

/// Branch of a rank sets the pace: `percent` of all, rounded up, are not faster. 50: the median.
#[derive(Clone, Copy, Debug)]
pub struct Quantile {
    /// Rank in percent, 1 to 100.
    pub percent: u32,
}

impl Policy for Quantile {
    const DROPS: bool = false;

    fn credit(&mut self, view: &impl View) -> Option<u32> {
        let branches = view.branches();
        let rank = (u64::from(self.percent) * u64::from(branches)).div_ceil(100).max(1);
        // For few branches, a pass for each costs less than a sorted list.
        let place = |branch: u32| {
            let own = (view.forwarded(branch), branch);
            (0..branches).filter(|other| (view.forwarded(*other), *other) <= own).count() as u64
        };
        once_due(view, (0..branches).find(|branch| place(*branch) == rank.min(branches.into())))
    }
}

/// As [`WorstPath`], but a branch too far behind misses packets until its queue is empty.
#[derive(Clone, Copy, Debug)]
pub struct BoundedLag {
    /// Largest lag, in packets.
    pub packets: u32,
}

impl BoundedLag {
    fn is_near(&self, view: &impl View, branch: u32) -> bool {
        let foremost = (0..view.branches()).map(|it| view.forwarded(it)).max().unwrap_or(0);
        foremost - view.forwarded(branch) <= i64::from(self.packets)
    }
}

impl Policy for BoundedLag {
    fn credit(&mut self, view: &impl View) -> Option<u32> {
        let near = (0..view.branches()).filter(|branch| self.is_near(view, *branch));
        once_due(view, near.min_by_key(|branch| view.forwarded(*branch)))
    }

    fn accepts(&mut self, view: &impl View, branch: u32, _layer: u8) -> bool {
        view.queued(branch) == 0 || self.is_near(view, branch)
    }
}

/// As [`WorstPath`], but packets that have waited longer than `ms` are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// Longest wait of a packet in milliseconds, at least 1.
    pub ms: u32,
}

impl Policy for Deadline {
    fn credit(&mut self, view: &impl View) -> Option<u32> {
        WorstPath.credit(view)
    }

    fn discards(&mut self, view: &impl View, branch: u32) -> u32 {
        u32::from(view.waited_ms(branch) >= self.ms)
    }

    fn interval_ms(&self) -> Option<u32> {
        Some((self.ms / 4).max(1))
    }
}

/// As [`WorstPath`], but upper layers are queued only if half of a branch's buffer is free.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayeredDrop;

impl Policy for LayeredDrop {
    fn credit(&mut self, view: &impl View) -> Option<u32> {
        WorstPath.credit(view)
    }

    fn accepts(&mut self, view: &impl View, branch: u32, layer: u8) -> bool {
        layer == 0 || view.queued(branch) <= view.buffer() / 2
    }
}

/// Branch with the highest total delivery sets the pace: the packets for which the branch has room
/// since the last credit, times the receivers below branches with at least that room.
#[derive(Clone, Copy, Debug, Default)]
pub struct WeightedUtility;

impl Policy for WeightedUtility {
    const DROPS: bool = false;

    fn credit(&mut self, view: &impl View) -> Option<u32> {
        let gain = |branch: u32| {
            let own = view.forwarded(branch);
            let as_far = (0..view.branches()).filter(|it| view.forwarded(*it) >= own);
            let receivers: i64 = as_far.map(|it| i64::from(view.weight(it))).sum();
            receivers * (own - view.reported() + i64::from(view.buffer())).max(0)
        };
        once_due(view, (0..view.branches()).min_by_key(|branch| -gain(*branch)))
    }
}
