//! Detection of lost originals at a receiver: by later packets, or by time on a path that reorders.

use faircast_base::{Duration, Seq, Time};

use crate::congestion::common::reorder::{AT_ONCE, Evidence, Reorder, Settled};

/// Longest wait for a missing packet, however few later packets came.
const REORDER_DELAY: Duration = Duration::from_millis(10);

/// Minimum timer: a timer of zero would expire again and again at one moment.
const TICK: Duration = Duration::from_micros(1);

#[derive(Debug, Default)]
pub(super) struct LossDetector {
    order: Reorder<()>,
    /// Time to wait for a missing packet, on a path known to reorder.
    reordering: Option<Duration>,
    /// Start of the first gap, and when it counts as a loss even with few later packets.
    gap: Option<(Seq, Time)>,
}

impl LossDetector {
    /// Takes the next original of a stream without gaps. False if the original is another one.
    pub(super) fn passes(&mut self, seq: Seq) -> bool {
        self.order.passes(seq)
    }

    /// Returns true for an original that has counted as lost, or for a duplicate.
    pub(super) fn is_settled(&self, seq: Seq) -> bool {
        self.order.next.is_some_and(|next| seq.before(next))
    }

    /// Adds an original and returns the losses that are known by now. Missing packets are lost
    /// after `later` later ones.
    pub(super) fn arrived(
        &mut self,
        now: Time,
        seq: Seq,
        reordering: Option<Duration>,
        later: u32,
    ) -> u64 {
        self.order.arrived(now, seq, ());
        self.reordering = reordering;
        let lost = self.settle(now, Evidence::of(later, reordering));
        self.watch_gap(now);
        lost
    }

    /// Returns the losses found by time; `None` if no timer is due.
    pub(super) fn time_out(&mut self, now: Time) -> Option<u64> {
        self.gap.filter(|(_, at)| *at <= now)?;
        let first = self.order.settle(now, AT_ONCE).map_or(0, count);
        let lost = first + self.settle(now, Evidence::of(u32::MAX, self.reordering));
        self.watch_gap(now);
        Some(lost)
    }

    pub(super) fn timeout(&self) -> Option<Time> {
        self.gap.map(|(_, at)| at)
    }

    pub(super) fn rewind(&mut self, now: Time, newest: Seq) {
        self.order.rewind(newest);
        self.watch_gap(now);
    }

    fn settle(&mut self, now: Time, evidence: Evidence) -> u64 {
        let mut lost = 0;
        while let Some(settled) = self.order.settle(now, evidence) {
            lost += count(settled);
        }
        lost
    }

    /// Sets the timeout of the first gap, from the time at which it became the first. On a path
    /// that reorders, each gap has its own time.
    fn watch_gap(&mut self, now: Time) {
        let until = now + REORDER_DELAY;
        self.gap =
            self.order.first_gap().map(|(first, noticed)| match (self.reordering, self.gap) {
                (Some(tolerance), _) => (first, (noticed + tolerance).max(now + TICK)),
                (None, Some(same)) if same.0 == first => same,
                (None, _) => (first, until),
            });
    }
}

fn count(settled: Settled<()>) -> u64 {
    match settled {
        Settled::Came(()) => 0,
        Settled::Lost { first, end, .. } => u64::from(end.distance(first).unsigned_abs()),
    }
}
