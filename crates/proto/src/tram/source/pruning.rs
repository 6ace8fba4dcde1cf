//! Decisions of a source to prune slow members, and the time for which heads are told.

use faircast_base::{Duration, Time};

/// Time below the minimum rate before a member is pruned: the loss of a head is no reason.
const DECIDE_AFTER: Duration = Duration::from_secs(5);

/// Shortest time between two decisions to prune: the effect of one shows first.
const DECISION_INTERVAL: Duration = Duration::from_secs(2);

/// Duration and interval of requests to heads to prune: a single packet could be anybody's.
const REQUESTED_FOR: Duration = Duration::from_millis(1800);
pub(super) const REQUEST_INTERVAL: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
pub(super) struct PruneDecisions {
    /// End of the requests to heads to prune.
    requested_until: Time,
    decided_at: Option<Time>,
    /// Time of the latest bind request: a member that has just come back did not lower the rate.
    pub(super) bound_at: Time,
}

impl PruneDecisions {
    pub(super) fn is_requested(&self, now: Time) -> bool {
        now < self.requested_until
    }

    /// Returns true if a member is to be pruned, with a rate below the minimum since `below_since`.
    pub(super) fn decide(&mut self, now: Time, below_since: Option<Time>) -> bool {
        let lately = self.decided_at.is_some_and(|at| now.since(at) < DECISION_INTERVAL);
        let since = below_since.map(|since| since.max(self.bound_at));
        let decides = !lately && since.is_some_and(|since| now.since(since) >= DECIDE_AFTER);
        if decides {
            self.decided_at = Some(now);
            self.requested_until = now + REQUESTED_FOR;
        }
        decides
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, s};

    #[test]
    fn a_low_rate_of_five_seconds_decides_every_two_seconds() {
        let mut decisions = PruneDecisions { bound_at: s(1), ..PruneDecisions::default() };
        let mut decide = |second| decisions.decide(s(second), Some(at(0)));
        assert_eq!([5, 6, 7, 8, 9].map(&mut decide), [false, true, false, true, false]);
        assert!(!decisions.decide(s(20), None));
        assert!(decisions.is_requested(s(9)) && !decisions.is_requested(s(10)));
    }
}
