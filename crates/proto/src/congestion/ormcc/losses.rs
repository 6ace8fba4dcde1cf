//! Lost originals at a receiver: detection by later packets, or by time on a path that reorders, and
//! congestion indications.

use faircast_base::{Duration, Seq, Time};

use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::reorder::{AT_ONCE, Evidence, Reorder, Settled};

/// Longest wait for a missing packet, however few later packets came.
const REORDER_DELAY: Duration = Duration::from_millis(10);

/// Minimum timer: a timer of zero would expire again and again at one moment.
const TICK: Duration = Duration::from_micros(1);

#[derive(Debug, Default)]
pub(super) struct LossDetector {
    pub(super) order: Reorder<()>,
    /// Time to wait for a missing packet, on a path known to reorder.
    reordering: Option<Duration>,
    /// Start of the first gap, and when it counts as a loss even with few later packets.
    pub(super) gap: Option<(Seq, Time)>,
}

impl LossDetector {
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

    pub(super) fn rewind(&mut self, now: Time, newest: Seq) {
        self.order.rewind(newest);
        self.watch_gap(now);
    }

    fn settle(&mut self, now: Time, evidence: Evidence) -> u64 {
        core::iter::from_fn(|| self.order.settle(now, evidence)).map(count).sum()
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

/// Congestion indications (CIs), and their withdrawal when the packets come late.
#[derive(Debug, Default)]
pub(super) struct Indications {
    /// True if a CI waits to be sent.
    pub(super) is_due: bool,
    /// True if the last CI is to be withdrawn: all its packets came late.
    pub(super) is_withdrawal_due: bool,
    indicated_at: Option<Time>,
    /// Packets that counted as lost since the last CI and have not come late.
    missing: u64,
}

impl Indications {
    /// Notes `lost` packets, or a congestion mark (`None`), which no late packet withdraws.
    pub(super) fn note(&mut self, now: Time, lost: Option<u64>) {
        let before = if self.is_recent(now) { self.missing } else { 0 };
        self.missing = before.saturating_add(lost.unwrap_or(u64::MAX));
    }

    /// Returns true if the last CI is less than `spacing` ago.
    pub(super) fn is_too_early(&self, now: Time, spacing: Duration) -> bool {
        self.indicated_at.is_some_and(|at| now.since(at) < spacing)
    }

    pub(super) fn indicate(&mut self, now: Time) {
        self.indicated_at = Some(now);
        (self.is_due, self.is_withdrawal_due) = (true, false);
    }

    /// Notes that a packet that counted as lost came late.
    pub(super) fn came_late(&mut self, now: Time) {
        if !self.is_recent(now) || self.missing == 0 {
            return;
        }
        self.missing -= 1;
        if self.missing == 0 {
            self.is_withdrawal_due = !core::mem::take(&mut self.is_due);
        }
    }

    fn is_recent(&self, now: Time) -> bool {
        self.indicated_at.is_some_and(|at| now.since(at) <= BOUND_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{at, ms};

    #[test]
    fn an_indication_is_withdrawn_once_all_its_packets_came_late() {
        for (lost, late, sent, want) in [
            (Some(2), 1, true, (false, false)),
            (Some(2), 2, true, (false, true)),
            (Some(2), 2, false, (false, false)),
            (None, 2, true, (false, false)),
        ] {
            let mut indications = Indications::default();
            indications.note(at(0), lost);
            indications.indicate(at(0));
            indications.is_due = !sent;
            (0..late).for_each(|_| indications.came_late(at(10)));
            let got = (indications.is_due, indications.is_withdrawal_due);
            assert_eq!(got, want, "{late} of {lost:?} came, indication sent: {sent}");
            assert!(indications.is_too_early(at(10), ms(11)));
        }
    }
}
