//! Value of the stall timer.

use faircast_base::Duration;

use super::config::{PgmccConfig, TimeoutMode};
use crate::congestion::common::average::RttEstimator;

/// Maximum timeout after backing off (src: RFC 6298 s2.4).
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(60);

const DOUBLINGS_MAX: u32 = 16;

/// TCP's estimate of the retransmission timeout (src: RFC 6298 s2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rto {
    rtt: RttEstimator,
    doublings: u32,
}

impl Rto {
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.rtt.sample(rtt);
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// Returns the present timeout. With `searching` for an acker, a fixed one backs off too.
    pub(super) fn value(&self, config: &PgmccConfig, searching: bool) -> Duration {
        let base = self.value_without_back_off(config);
        let is_fixed = config.timeout_mode == TimeoutMode::Fixed;
        let doublings = if is_fixed && !searching { 0 } else { self.doublings };
        (base * (1 << doublings)).min(TIMEOUT_MAX.max(base))
    }

    pub(super) fn value_without_back_off(&self, config: &PgmccConfig) -> Duration {
        match self.rtt.rto() {
            Some(rto) if config.timeout_mode != TimeoutMode::Fixed => rto.max(config.timeout_min),
            _ => config.timeout,
        }
    }

    pub(super) fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
    }

    pub(super) fn answered(&mut self) {
        self.doublings = 0;
    }

    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::pgmcc::Profile;

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let config = PgmccConfig::default();
        let mut rto = Rto::default();
        assert_eq!(rto.value(&config, false), Duration::from_secs(3));
        rto.sample(Duration::from_millis(100));
        assert_eq!(rto.value(&config, false), Duration::from_millis(300));
        for _ in 0..200 {
            rto.sample(Duration::from_millis(100));
        }
        assert_eq!(rto.value(&config, false), config.timeout_min);
        rto.back_off();
        rto.back_off();
        assert_eq!(rto.value(&config, false), config.timeout_min * 4);
        for _ in 0..100 {
            rto.back_off();
        }
        assert_eq!(rto.value(&config, false), TIMEOUT_MAX);
        rto.answered();
        assert_eq!(rto.value(&config, false), config.timeout_min);
    }

    #[test]
    fn a_fixed_timeout_stays_fixed_except_in_search_of_an_acker() {
        let config = PgmccConfig::profile(Profile::Paper);
        let mut rto = Rto::default();
        rto.sample(Duration::from_millis(100));
        rto.back_off();
        assert_eq!(rto.value(&config, false), Duration::from_secs(4));
        assert_eq!(rto.value(&config, true), Duration::from_secs(8));
    }
}
