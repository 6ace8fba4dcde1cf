//! Sending rate: growth, cuts, and the resulting interval I.

use faircast_base::{Duration, Time};

use super::RTT0;
use super::config::OrmccConfig;
use super::values::RATE_MAX;

const LN_2: f64 = core::f64::consts::LN_2;

/// Lowest share of the rate after one cut, with the guard; chosen. Congestion is reported again.
const LEFT_MIN: f64 = 0.25;

/// Weight of a new value in the throughput (src: ormcc s2.2).
const GAMMA: f64 = 0.5;

/// Deviations added to the throughput for the interval I (src: ormcc s2.1).
const INTERVAL_SIGMAS: f64 = 3.0;

/// Minimum interval I in packets, before a representative is replaced; open in the paper.
const INTERVAL_MIN: f64 = 100.0;

/// Interval of packets at the floor: 2 s.
pub(super) const FLOOR_INTERVAL: Duration = Duration::from_secs(2);

const HALVINGS_MAX: u64 = 64;

/// Rate and its history, in bytes per second, bytes and seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    now: f64,
    after_cut: f64,
    throughput: Option<(f64, f64)>,
    /// Interval I in packets; infinite before the first cut.
    pub(super) interval: f64,
    cut_at: Option<Time>,
    /// Rate at which doubling ends; `None` during linear growth.
    pub(super) doubling: Option<f64>,
    least: f64,
}

impl Rate {
    pub(super) fn new(config: &OrmccConfig, bytes: f64) -> Self {
        let now = config.initial_packets * bytes / RTT0.as_secs_f64();
        let least = least(bytes);
        Self {
            now: now.max(least),
            after_cut: now,
            throughput: None,
            interval: f64::INFINITY,
            cut_at: None,
            doubling: config.initial_doubling.then_some(RATE_MAX),
            least,
        }
    }

    pub(super) fn resize(&mut self, bytes: f64) {
        self.least = least(bytes);
        self.now = self.now.max(self.least);
    }

    pub(super) fn scale(&mut self, factor: f64) {
        self.now = (self.now * factor).min(RATE_MAX);
        self.after_cut *= factor;
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.now
    }

    /// Grows the rate by s per round trip each round trip (src: ormcc s2.1). Before the first
    /// congestion it doubles instead. It stays below `most`, and at most doubles per packet.
    pub(super) fn grow(&mut self, bytes: f64, rtt: f64, most: f64) {
        let linear = bytes * bytes / (self.now * rtt * rtt);
        let step = match self.doubling {
            Some(limit) => (LN_2 * bytes / rtt).min(limit - self.now),
            None => linear,
        };
        let step = step.min(most - self.now);
        self.now = (self.now + step.clamp(0.0, self.now)).min(RATE_MAX);
        if self.doubling.is_some_and(|limit| self.now >= limit) {
            self.doubling = None;
        }
    }

    pub(super) fn raise(&mut self, bytes_per_s: f64) {
        self.now = self.now.max(bytes_per_s.min(RATE_MAX));
    }

    pub(super) fn end_doubling(&mut self, most: f64) {
        if self.doubling.take().is_some() {
            self.now = self.now.min(most.max(self.least));
        }
    }

    /// Cuts the rate after the representative reported `output` with a loss (CutRate, src: ormcc
    /// s2.2). True if the rate fell. deviates: the paper has no lowest share. After a silence, a
    /// forged packet looks like a loss at near-zero output.
    pub(super) fn cut(
        &mut self,
        config: &OrmccConfig,
        now: Time,
        output: f64,
        rtt: f64,
        bytes: f64,
    ) -> bool {
        self.doubling = None;
        let left = if config.guard { LEFT_MIN * self.now } else { 0.0 };
        let target = (config.beta * output).max(left).max(self.least);
        let recent = self.cut_at.is_some_and(|at| now.since(at).as_secs_f64() < rtt);
        if recent || self.now <= target {
            return false;
        }
        let between = (self.now + self.after_cut) / 2.0;
        // Open in the paper: initial values of the averages.
        let start = if config.throughput_first { between } else { self.after_cut };
        let (mean, deviation) = self.throughput.unwrap_or((start, 0.0));
        let error = between - mean;
        let off = if error < 0.0 { -error } else { error };
        let mean = mean + GAMMA * error;
        let deviation = deviation + GAMMA * (off - deviation);
        self.throughput = Some((mean, deviation));
        let packets = (mean + INTERVAL_SIGMAS * deviation) * rtt / bytes;
        self.interval = (packets * packets).max(INTERVAL_MIN);
        self.now = target;
        self.after_cut = target;
        self.cut_at = Some(now);
        true
    }

    pub(super) fn lower(&mut self, most: f64) -> bool {
        let most = most.max(self.least);
        self.doubling = None;
        let lower = self.now > most;
        self.now = self.now.min(most);
        lower
    }

    pub(super) fn halve(&mut self) {
        self.now = (self.now / 2.0).max(self.least);
        self.doubling = None;
    }

    pub(super) fn restart(&mut self, limit: f64) {
        if self.now < limit {
            self.doubling = Some(limit);
        }
    }

    /// Halves an unused rate `times` times, down to `least`; with `doubles` it doubles back in use.
    pub(super) fn age(&mut self, times: u64, least: f64, doubles: bool) {
        let before = self.now;
        for _ in 0..times.min(HALVINGS_MAX) {
            self.now = (self.now / 2.0).max(least.min(before)).max(self.least);
        }
        if doubles && self.doubling.is_none() && self.now < before {
            self.doubling = Some(before);
        }
    }

    pub(super) fn is_starting(&self) -> bool {
        self.doubling.is_some_and(|to| to >= RATE_MAX)
    }

    pub(super) fn is_least(&self) -> bool {
        self.now <= self.least
    }
}

fn least(bytes: f64) -> f64 {
    bytes / FLOOR_INTERVAL.as_secs_f64()
}
