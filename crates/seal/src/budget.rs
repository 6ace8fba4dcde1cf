//! Token bucket for key derivations of unknown parties.

use std::time::{Duration, Instant};

/// Limit of key derivations for unknown parties: [`PER_SECOND`] on average, [`BURST`] at once. Only
/// the derived key reveals a forged datagram of an unknown party. A derivation takes about 1 µs: a
/// flood takes a few per cent of a core. Meanwhile some newcomers retry, as after a loss.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: f64,
    filled_at: Instant,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled_at: now }
    }

    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled_at).min(FULL_AFTER);
        // A clock that goes back must not stop the refill until it catches up.
        self.filled_at = now;
        self.tokens = (self.tokens + passed.as_secs_f64() * PER_SECOND).min(BURST);
        let has_token = self.tokens >= 1.0;
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }
}

/// Average derivations per second: a group of 65 536 parties is known after four seconds.
pub(crate) const PER_SECOND: f64 = 16_384.0;
pub(crate) const BURST: f64 = 4096.0;
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
        // A clock that goes back adds no tokens; then the refill continues.
        assert_eq!(taken(&mut budget, 0), 0);
        assert_eq!(taken(&mut budget, 125), 2048);
    }
}
