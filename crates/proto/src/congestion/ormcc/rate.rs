//! Sending rate: growth, cuts, and the resulting interval I.

use faircast_base::{Duration, Time};

use super::RTT0;
use super::config::OrmccConfig;
use super::values::RATE_MAX;
use crate::congestion::common::average::MeanDeviation;

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

/// Rate (lambda) and its history, in bytes per second, bytes and seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    bytes_per_s: f64,
    /// Rate after the last cut; at first the initial rate (lambda^o).
    after_cut: f64,
    /// Average of the throughput between cuts (Lambda, sigma_Lambda).
    throughput: Option<MeanDeviation>,
    /// Interval I in packets; infinite before the first cut.
    pub(super) interval: f64,
    cut_at: Option<Time>,
    /// Rate at which doubling ends; `None` during linear growth.
    pub(super) doubling: Option<f64>,
    /// Lowest rate: one packet per [`FLOOR_INTERVAL`].
    floor: f64,
}

impl Rate {
    pub(super) fn new(config: &OrmccConfig, bytes: f64) -> Self {
        let initial = config.initial_packets() * bytes / RTT0.as_secs_f64();
        let floor = floor(bytes);
        Self {
            bytes_per_s: initial.max(floor),
            after_cut: initial,
            throughput: None,
            interval: f64::INFINITY,
            cut_at: None,
            doubling: config.is_improved().then_some(RATE_MAX),
            floor,
        }
    }

    /// Adapts the floor to packets of `bytes`.
    pub(super) fn resize(&mut self, bytes: f64) {
        self.floor = floor(bytes);
        self.bytes_per_s = self.bytes_per_s.max(self.floor);
    }

    pub(super) fn scale(&mut self, factor: f64) {
        self.bytes_per_s = (self.bytes_per_s * factor).min(RATE_MAX);
        self.after_cut *= factor;
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Grows the rate for a packet of `bytes`: by s per round trip each round trip (src: ormcc
    /// s2.1), or doubles it each round trip. The rate stays below `most`, and at most doubles per
    /// packet.
    pub(super) fn grow(&mut self, bytes: f64, rtt: f64, most: f64) {
        let linear = bytes * bytes / (self.bytes_per_s * rtt * rtt);
        let step = match self.doubling {
            Some(limit) => (LN_2 * bytes / rtt).min(limit - self.bytes_per_s),
            None => linear,
        };
        let step = step.min(most - self.bytes_per_s);
        self.bytes_per_s = (self.bytes_per_s + step.clamp(0.0, self.bytes_per_s)).min(RATE_MAX);
        if self.doubling.is_some_and(|limit| self.bytes_per_s >= limit) {
            self.doubling = None;
        }
    }

    pub(super) fn raise(&mut self, bytes_per_s: f64) {
        self.bytes_per_s = self.bytes_per_s.max(bytes_per_s.min(RATE_MAX));
    }

    pub(super) fn end_doubling(&mut self, most: f64) {
        if self.doubling.take().is_some() {
            self.bytes_per_s = self.bytes_per_s.min(most.max(self.floor));
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
        let least = if config.is_improved() { LEFT_MIN * self.bytes_per_s } else { 0.0 };
        let target = (config.beta * output).max(least).max(self.floor);
        let recent = self.cut_at.is_some_and(|at| now.since(at).as_secs_f64() < rtt);
        if recent || self.bytes_per_s <= target {
            return false;
        }
        let between = (self.bytes_per_s + self.after_cut) / 2.0;
        // Open in the paper: initial values of the averages.
        let start = if config.throughput_first { between } else { self.after_cut };
        let initial = MeanDeviation { mean: start, deviation: 0.0 };
        let throughput = self.throughput.get_or_insert(initial);
        throughput.add(between, GAMMA, GAMMA);
        let packets = (throughput.mean + INTERVAL_SIGMAS * throughput.deviation) * rtt / bytes;
        self.interval = (packets * packets).max(INTERVAL_MIN);
        self.bytes_per_s = target;
        self.after_cut = target;
        self.cut_at = Some(now);
        true
    }

    pub(super) fn lower(&mut self, most: f64) -> bool {
        let most = most.max(self.floor);
        self.doubling = None;
        let lower = self.bytes_per_s > most;
        self.bytes_per_s = self.bytes_per_s.min(most);
        lower
    }

    pub(super) fn halve(&mut self) {
        self.bytes_per_s = (self.bytes_per_s / 2.0).max(self.floor);
        self.doubling = None;
    }

    /// Doubles the rate each round trip up to `limit`.
    pub(super) fn restart(&mut self, limit: f64) {
        if self.bytes_per_s < limit {
            self.doubling = Some(limit);
        }
    }

    /// Halves an unused rate `times` times, down to `least`; with `doubles` it doubles back in use.
    pub(super) fn age(&mut self, times: u64, least: f64, doubles: bool) {
        let before = self.bytes_per_s;
        for _ in 0..times.min(HALVINGS_MAX) {
            self.bytes_per_s = (self.bytes_per_s / 2.0).max(least.min(before)).max(self.floor);
        }
        if doubles && self.doubling.is_none() && self.bytes_per_s < before {
            self.doubling = Some(before);
        }
    }

    pub(super) fn is_starting(&self) -> bool {
        self.doubling.is_some_and(|to| to >= RATE_MAX)
    }

    pub(super) fn is_least(&self) -> bool {
        self.bytes_per_s <= self.floor
    }
}

fn floor(bytes: f64) -> f64 {
    bytes / FLOOR_INTERVAL.as_secs_f64()
}
