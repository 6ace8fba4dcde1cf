//! Window of W packets. Its free part T is the draft's tokens, or W - F with F packets in flight.
//! Fractions are binary floating point with only `+ - * /`: equal results on every platform.

use faircast_base::Duration;

use super::config::{PgmccConfig, Profile};

/// Rule by which the window permits a packet.
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
    /// W in packets.
    pub(super) size: f64,
    /// T in packets; unused by `Accounting::Flight`.
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

    /// Returns T, the packets that may leave while `flight` are in flight.
    pub(super) fn tokens(&self, flight: u32) -> f64 {
        match self.accounting {
            Accounting::Flight => self.size - f64::from(flight),
            Accounting::Tokens | Accounting::Realign => self.tokens,
        }
    }

    /// Returns tokens for `count` packets while the window may not grow. deviates: the draft keeps
    /// them while W is suspended, which would stop the session.
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

    /// Halves the window for a loss (src: pgmcc-draft s2.2). deviates: W stays at least 1, and T at
    /// least -W: with W < 1 no packet could leave.
    pub(super) fn cut(&mut self) {
        let before = self.size;
        self.size = (before / 2.0).max(1.0);
        self.leave_slow_start(self.size);
        if self.accounting == Accounting::Tokens {
            self.tokens = (self.tokens - self.size).max(-before);
        }
    }

    /// Reverts a cut.
    pub(super) fn undo_cut(&mut self, before: &Self) {
        self.tokens += (before.size - self.size).max(0.0);
        self.size = self.size.max(before.size);
        self.threshold = self.threshold.max(before.threshold);
    }

    /// Realigns the window to `flight` after a loss. True if it shrank (src: seada-helmy s4.4,
    /// plainest reading). After a switch of ackers `flight` can be far too low.
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

/// HyStart's delay increase: ends slow start before a loss (src: RFC 9406 s4.2). deviates: RFC 9406
/// compares the first samples of two rounds, because TCP sends each as a burst. Here packets are
/// spread, so the latest samples are compared with the minimum of all. Slow start then ends for
/// good, without a phase that could withdraw a false alarm.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    least: Option<Duration>,
    grown: usize,
}

impl HyStart {
    /// Adds a sample. Returns true if the queue grows.
    pub(super) fn sample(&mut self, rtt: Duration) -> bool {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let growth = (least / 8).max(GROWTH_MIN).min(GROWTH_MAX);
        self.grown = if rtt >= least + growth { self.grown + 1 } else { 0 };
        self.grown >= SAMPLES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
