//! The window and its tokens.
//!
//! The window is W packets. How much of it is free is either kept as the draft's tokens T, or
//! computed from the number of packets in flight, F: T = W - F. Fractions of packets are binary
//! floating point, and only `+ - * /` touch them, so they are the same on every platform.

use super::config::{Accounting, PgmccConfig};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// W in packets.
    pub(super) size: f64,
    /// Not used where flight is counted.
    tokens: f64,
    accounting: Accounting,
    /// Up to this size each acknowledged packet adds one.
    threshold: f64,
    threshold_min: f64,
    slow_start_open: bool,
    max: f64,
}

impl Window {
    /// One packet and the token for it (src: pgmcc-draft s2.2).
    pub(super) fn new(config: &PgmccConfig) -> Self {
        Self {
            size: 1.0,
            tokens: 1.0,
            accounting: config.accounting,
            threshold: match config.slow_start_open {
                false => config.slow_start_threshold,
                true => config.window_max,
            },
            threshold_min: config.slow_start_threshold,
            slow_start_open: config.slow_start_open,
            max: config.window_max,
        }
    }

    /// W in thousandths of a packet, for the trace.
    pub(super) fn size_milli(&self) -> u64 {
        (self.size * 1000.0 + 0.5) as u64
    }

    /// T, with `flight` packets out.
    pub(super) fn tokens(&self, flight: u32) -> f64 {
        match self.accounting {
            Accounting::Flight => self.size - f64::from(flight),
            Accounting::Tokens | Accounting::Realign => self.tokens,
        }
    }

    pub(super) fn spend(&mut self) {
        self.tokens -= 1.0;
    }

    /// `count` packets were acknowledged while the window may not grow.
    ///
    /// deviates: the draft does not say that tokens come back while W is suspended; without it the
    /// session would stop, because the cut has just taken them.
    pub(super) fn refund(&mut self, count: u32) {
        self.tokens = (self.tokens + f64::from(count)).min(self.size);
    }

    /// `count` packets were acknowledged (src: pgmcc-draft s2.2).
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

    /// A loss is answered (src: pgmcc-draft s2.2).
    ///
    /// deviates: W never falls below 1, and T never below -W; the draft sets no floor, and W < 1
    /// could never send.
    pub(super) fn cut(&mut self) {
        let before = self.size;
        self.size = (before / 2.0).max(1.0);
        self.leave_slow_start(self.size);
        if self.accounting == Accounting::Tokens {
            self.tokens = (self.tokens - self.size).max(-before);
        }
    }

    /// The cut before which the window was `before` had no reason.
    pub(super) fn take_back(&mut self, before: &Self) {
        self.tokens += (before.size - self.size).max(0.0);
        self.size = self.size.max(before.size);
        self.threshold = self.threshold.max(before.threshold);
    }

    /// A loss was found, answered or not, with `flight` packets still out: the window is realigned
    /// to the number of packets in flight (src: seada-helmy s4.4, which has no formula; this is
    /// the plainest reading). After a switch of ackers that number can be far too low. Whether the window
    /// shrank.
    pub(super) fn realign(&mut self, flight: u32) -> bool {
        if self.accounting != Accounting::Realign {
            return false;
        }
        let before = self.size;
        self.size = before.min(f64::from(flight)).max(1.0);
        self.tokens = self.size - f64::from(flight);
        self.size < before
    }

    /// Whether each acknowledged packet adds one.
    pub(super) fn is_opening(&self) -> bool {
        self.size < self.threshold
    }

    /// Whether it opens as it does at the start of a session, without any bound.
    pub(super) fn has_met_no_limit(&self) -> bool {
        self.slow_start_open && self.threshold >= self.max && self.is_opening()
    }

    /// From now on the window opens exponentially up to `size` only.
    pub(super) fn leave_slow_start(&mut self, size: f64) {
        if self.slow_start_open {
            self.threshold = size.max(self.threshold_min);
        }
    }

    /// A stall, or the first acker: one packet, and the token for it (src: pgmcc-draft s2.2).
    pub(super) fn restart(&mut self) {
        (self.size, self.tokens) = (1.0, 1.0);
    }
}
