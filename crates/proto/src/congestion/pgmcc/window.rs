//! Window of W packets. Its free part T is the draft's tokens, or W - F with F packets in flight.
//! Fractions are binary floating point with only `+ - * /`: equal results on every platform.

use faircast_base::{Duration, Seq, Time};

use super::config::{PgmccConfig, Profile, TimeoutMode};
use crate::congestion::common::average::RttEstimator;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Accounting {
    /// Tokens as in the draft; each unrepaired loss leaks one.
    Tokens,
    /// Tokens realigned at each loss, as in the original code (src: seada-helmy s4.4).
    Realign,
    /// Count of the packets in flight; there are no tokens to lose.
    #[default]
    Flight,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) size: f64,
    pub(super) tokens: f64,
    accounting: Accounting,
    /// W up to which each acknowledged packet adds one (SSTHRESH).
    threshold: f64,
    threshold_min: f64,
    /// True if the threshold follows losses and stalls, as TCP's does.
    slow_start_open: bool,
    max: f64,
}

impl Window {
    /// Creates a window of one packet, with its token (src: pgmcc-draft s2.2).
    pub(super) fn new(config: &PgmccConfig) -> Self {
        Self {
            size: 1.0,
            tokens: 1.0,
            accounting: match config.profile {
                Profile::Draft => Accounting::Tokens,
                Profile::Paper => Accounting::Realign,
                Profile::Improved => Accounting::Flight,
            },
            threshold: match config.slow_start_open {
                false => config.slow_start_threshold,
                true => config.window_max,
            },
            threshold_min: config.slow_start_threshold,
            slow_start_open: config.slow_start_open,
            max: config.window_max,
        }
    }

    pub(super) fn tokens(&self, flight: u32) -> f64 {
        match self.accounting {
            Accounting::Flight => self.size - f64::from(flight),
            Accounting::Tokens | Accounting::Realign => self.tokens,
        }
    }

    /// Returns tokens while the window may not grow. deviates: the draft keeps them, and stops.
    pub(super) fn refund(&mut self, count: u32) {
        self.tokens = (self.tokens + f64::from(count)).min(self.size);
    }

    /// Grows the window for `count` acknowledged packets (src: pgmcc-draft s2.2).
    pub(super) fn grow(&mut self, count: u32) {
        let mut count = f64::from(count);
        if self.is_opening() {
            let opening = count.min(self.threshold - self.size);
            self.tokens += 2.0 * opening;
            self.size += opening;
            count -= opening;
        }
        if count > 0.0 {
            self.tokens += count * (1.0 + 1.0 / self.size);
            self.size += count / self.size;
        }
        self.size = self.size.min(self.max);
        self.tokens = self.tokens.min(self.size);
    }

    /// Halves the window for a loss (src: pgmcc-draft s2.2). deviates: below 1 none could leave.
    pub(super) fn cut(&mut self) {
        let before = self.size;
        self.size = (before / 2.0).max(1.0);
        self.leave_slow_start(self.size);
        if self.accounting == Accounting::Tokens {
            self.tokens = (self.tokens - self.size).max(-before);
        }
    }

    pub(super) fn undo_cut(&mut self, before: &Self) {
        self.tokens += (before.size - self.size).max(0.0);
        self.size = self.size.max(before.size);
        self.threshold = self.threshold.max(before.threshold);
    }

    /// Realigns the window to `flight` after a loss. True if it shrank (src: seada-helmy s4.4).
    pub(super) fn realign(&mut self, flight: u32) -> bool {
        if self.accounting != Accounting::Realign {
            return false;
        }
        let before = self.size;
        self.size = before.min(f64::from(flight)).max(1.0);
        self.tokens = self.size - f64::from(flight);
        self.size < before
    }

    pub(super) fn is_opening(&self) -> bool {
        self.size < self.threshold
    }

    /// True in open slow start before the first loss.
    pub(super) fn has_met_no_limit(&self) -> bool {
        self.slow_start_open && self.threshold >= self.max && self.is_opening()
    }

    pub(super) fn leave_slow_start(&mut self, size: f64) {
        if self.slow_start_open {
            self.threshold = size.max(self.threshold_min);
        }
    }

    /// Restarts at one packet with its token (src: pgmcc-draft s2.2).
    pub(super) fn restart(&mut self) {
        (self.size, self.tokens) = (1.0, 1.0);
    }
}

/// Latest samples in a row with significant growth that end slow start.
const SAMPLES: usize = 8;

/// Bounds of the significant growth, normally an eighth of the minimum.
const GROWTH_MIN: Duration = Duration::from_millis(4);
const GROWTH_MAX: Duration = Duration::from_millis(16);

/// HyStart's delay increase: ends slow start before a loss (src: RFC 9406 s4.2). deviates: packets
/// are spread, so the latest samples are compared with the minimum of all.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    least: Option<Duration>,
    grown: usize,
}

impl HyStart {
    pub(super) fn sample(&mut self, rtt: Duration) -> bool {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let growth = (least / 8).max(GROWTH_MIN).min(GROWTH_MAX);
        self.grown = if rtt >= least + growth { self.grown + 1 } else { 0 };
        self.grown >= SAMPLES
    }
}

/// Maximum timeout after backing off (src: RFC 6298 s2.4).
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(60);

const DOUBLINGS_MAX: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallTimer {
    pub(super) rtt: RttEstimator,
    pub(super) doublings: u32,
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
    fn growth_by_an_eighth_within_the_bounds_ends_slow_start_after_eight_samples() {
        for (before, after, ends) in [
            (50, 56, false),
            (50, 57, true),
            (1, 4, false),
            (1, 5, true),
            (400, 415, false),
            (400, 416, true),
            (50, 30, false),
        ] {
            let mut hystart = HyStart::default();
            assert!(!hystart.sample(Duration::from_millis(before)));
            let at = (1..100).find(|_| hystart.sample(Duration::from_millis(after)));
            assert_eq!(at, ends.then_some(8), "from {before} ms to {after} ms");
        }
    }

    #[test]
    fn late_packets_among_others_do_not() {
        let mut hystart = HyStart::default();
        for i in 0..200 {
            let rtt = Duration::from_millis(if i % 5 == 0 { 20 } else { 90 });
            assert!(!hystart.sample(rtt));
        }
    }

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
