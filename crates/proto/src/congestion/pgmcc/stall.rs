//! Stall timer: a timeout without acknowledgements (src: pgmcc-draft s2.7).

use faircast_base::{Duration, Seq, Time};

use super::config::{PgmccConfig, TimeoutMode};
use crate::congestion::common::average::RttEstimator;

/// Maximum timeout after backing off (src: RFC 6298 s2.4).
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(60);

const DOUBLINGS_MAX: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallTimer {
    /// Round trips of the acker.
    pub(super) rtt: RttEstimator,
    pub(super) doublings: u32,
    /// Expiry of the armed timer, and the timeout by which it was armed.
    pub(super) armed: Option<(Time, Duration)>,
    /// Consecutive timeouts of the present acker, or of the search for one.
    pub(super) expiries: u32,
    pub(super) expired_at: Time,
    /// First packet that the acker lacked at the last restart (`TimeoutMode::Cumulative`).
    first_hole: Option<Seq>,
}

impl StallTimer {
    /// Returns the present timeout. With `searching` for an acker, a fixed one backs off too.
    pub(super) fn timeout(&self, config: &PgmccConfig, searching: bool) -> Duration {
        let base = self.timeout_without_back_off(config);
        let is_fixed = config.timeout_mode == TimeoutMode::Fixed;
        let doublings = if is_fixed && !searching { 0 } else { self.doublings };
        (base * (1 << doublings)).min(TIMEOUT_MAX.max(base))
    }

    pub(super) fn timeout_without_back_off(&self, config: &PgmccConfig) -> Duration {
        match self.rtt.rto() {
            Some(rto) if config.timeout_mode != TimeoutMode::Fixed => rto.max(config.timeout_min),
            _ => config.initial_timeout(),
        }
    }

    pub(super) fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
    }

    /// Begins with a new acker, whose path is unknown. The timer stays armed.
    pub(super) fn begin_acker(&mut self) {
        *self = Self { armed: self.armed, expired_at: self.expired_at, ..Self::default() };
    }

    pub(super) fn arm(&mut self, now: Time, timeout: Duration) {
        self.armed = Some((now + timeout, timeout));
    }

    /// Shortens a wait that was backed off to `timeout`, counted from its start.
    pub(super) fn shorten(&mut self, now: Time, timeout: Duration) {
        if let Some((at, armed)) = self.armed
            && timeout < armed
            && self.expiries > 0
        {
            self.armed = Some(((at - armed + timeout).max(now), timeout));
        }
    }

    /// Notes the first packet that the acker lacks. Returns true if it is a later one than before.
    pub(super) fn advances(&mut self, first_hole: Seq) -> bool {
        let advances = self.first_hole.is_none_or(|before| first_hole.after(before));
        if advances {
            self.first_hole = Some(first_hole);
        }
        advances
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{at, ms};
    use crate::congestion::pgmcc::Profile;

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let config = PgmccConfig::default();
        let mut stall = StallTimer::default();
        assert_eq!(stall.timeout(&config, false), Duration::from_secs(3));
        stall.rtt.sample(ms(100));
        assert_eq!(stall.timeout(&config, false), ms(300));
        for _ in 0..200 {
            stall.rtt.sample(ms(100));
        }
        for (doublings, want) in [(0, ms(200)), (2, ms(800)), (100, TIMEOUT_MAX)] {
            (0..doublings).for_each(|_| stall.back_off());
            assert_eq!(stall.timeout(&config, false), want, "{doublings} doublings");
            stall.doublings = 0;
        }
        assert_eq!(stall.timeout(&config, false), config.timeout_min);
    }

    #[test]
    fn a_fixed_timeout_stays_fixed_except_in_search_of_an_acker() {
        let config = PgmccConfig::profile(Profile::Paper);
        let mut stall = StallTimer::default();
        stall.rtt.sample(ms(100));
        stall.back_off();
        assert_eq!(stall.timeout(&config, false), Duration::from_secs(4));
        assert_eq!(stall.timeout(&config, true), Duration::from_secs(8));
    }

    #[test]
    fn a_backed_off_wait_is_shortened_from_its_start() {
        for (expiries, now, want) in [(0, 1500, 5000), (1, 1500, 2000), (1, 2500, 2500)] {
            let mut stall = StallTimer { expiries, ..StallTimer::default() };
            stall.arm(at(1000), ms(4000));
            stall.shorten(at(now), ms(1000));
            assert_eq!(stall.armed.map(|(at, _)| at), Some(at(want)), "{expiries} at {now} ms");
        }
    }
}
