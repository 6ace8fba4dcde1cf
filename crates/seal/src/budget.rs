//! A token bucket for the keys that may be derived for unknown parties.

use std::time::{Duration, Instant};

/// So many keys may be derived for parties that are not known yet: [`PER_SECOND`] on average,
/// [`BURST`] at once.
///
/// To tell a forged datagram of an unknown party from a true one its key must be derived, which
/// takes about a microsecond: this bounds what a flood of them costs to a few per cent of one core.
/// While it lasts newcomers get through in proportion, and try again as after any loss; parties
/// that are known are not touched by it.
#[derive(Debug)]
pub(crate) struct Budget {
    left: f64,
    filled: Instant,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now }
    }

    /// Takes the price of one derivation, or says that there is none left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).min(FULL_AFTER);
        // A clock that goes back must not keep it empty until it has caught up.
        self.filled = now;
        self.left = (self.left + passed.as_secs_f64() * PER_SECOND).min(BURST);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

/// Enough for a group of 65 536 to introduce itself in four seconds.
const PER_SECOND: f64 = 16_384.0;
const BURST: f64 = 4096.0;
const FULL_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_a_burst_and_then_its_share_of_time() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let taken = |budget: &mut Budget, ms: u64| {
            let now = start + Duration::from_millis(ms);
            (0..100_000).filter(|_| budget.take(now)).count()
        };
        assert_eq!(taken(&mut budget, 0), 4096);
        assert_eq!(taken(&mut budget, 0), 0);
        assert_eq!(taken(&mut budget, 125), 2048);
        assert_eq!(taken(&mut budget, 3_600_000), 4096);
        // A clock that goes back gives nothing, and then as before.
        assert_eq!(taken(&mut budget, 0), 0);
        assert_eq!(taken(&mut budget, 125), 2048);
    }
}
