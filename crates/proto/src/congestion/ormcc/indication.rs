//! Congestion indications (CIs) of a receiver, and their withdrawal when the packets come late.

use faircast_base::{Duration, Time};

use crate::congestion::common::lateness::BOUND_MAX;

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
