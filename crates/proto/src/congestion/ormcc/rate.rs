//! The sending rate: its growth, its cuts, and the interval I that follows from them.

use faircast_base::{Duration, Time};

use super::RTT0;
use super::config::OrmccConfig;
use super::values::RATE_MAX;

/// Relative growth per round trip that doubles the rate: the logarithm of 2.
const LN_2: f64 = core::f64::consts::LN_2;

/// Least share of the rate that one cut leaves, with the guard; chosen. Where that is too much the representative tells
/// of congestion again within a round trip.
const LEFT_MIN: f64 = 0.25;

/// Weight of a new value in the throughput (src: ormcc s2.2).
const GAMMA: f64 = 0.5;

/// Deviations by which the throughput is taken higher for the interval I (src: ormcc s2.1).
const INTERVAL_SIGMAS: f64 = 3.0;

/// Least interval I in packets, after which a representative without congestion is replaced; open
/// in the paper. After a first cut at a low rate the formula gives a packet or two.
const INTERVAL_MIN: f64 = 100.0;

/// The floor: one packet in this time.
pub(super) const FLOOR_INTERVAL: Duration = Duration::from_secs(2);

/// After so many halvings nothing is left of any rate.
const HALVINGS_MAX: u64 = 64;

/// The rate and what is known of its past. Bytes per second, bytes, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    now: f64,
    after_cut: f64,
    /// The average throughput and its deviation; `None` before the first cut.
    throughput: Option<(f64, f64)>,
    /// The interval I in packets; infinite before the first cut.
    pub(super) interval: f64,
    cut_at: Option<Time>,
    /// Up to which rate it doubles; `None` where growth is linear.
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

    /// So many packets as before in a time, where each is larger by `factor`: nothing is known of the
    /// network yet.
    pub(super) fn scale(&mut self, factor: f64) {
        self.now = (self.now * factor).min(RATE_MAX);
        self.after_cut *= factor;
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.now
    }

    /// A packet of `bytes` leaves: s per round trip in each round trip (src: ormcc s2.1), spread
    /// over the packets that are sent meanwhile. Before the first sign of congestion it doubles
    /// instead. Not beyond `most`; and no packet more than doubles it, however short the round trip.
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

    /// At least this rate, where nothing is known against it.
    pub(super) fn raise(&mut self, bytes_per_s: f64) {
        self.now = self.now.max(bytes_per_s.min(RATE_MAX));
    }

    pub(super) fn end_doubling(&mut self, most: f64) {
        if self.doubling.take().is_some() {
            self.now = self.now.min(most.max(self.least));
        }
    }

    /// The representative tells the output rate `output` with a loss (CutRate, src: ormcc s2.2).
    /// Returns whether the rate was cut.
    ///
    /// deviates: the paper has no least share. A damaged or forged packet after a silence shows a receiver both a loss
    /// and next to no output, and growth from there is linear.
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
        // Open in the paper: where the averages begin.
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

    /// No more than `most`, from which it does not double. Returns whether it was more.
    pub(super) fn lower(&mut self, most: f64) -> bool {
        let most = most.max(self.least);
        self.doubling = None;
        let lower = self.now > most;
        self.now = self.now.min(most);
        lower
    }

    /// Halves the rate, since no receiver reports.
    pub(super) fn halve(&mut self) {
        self.now = (self.now / 2.0).max(self.least);
        self.doubling = None;
    }

    /// Reports come again after silence: it doubles up to `limit`.
    pub(super) fn restart(&mut self, limit: f64) {
        if self.now < limit {
            self.doubling = Some(limit);
        }
    }

    /// It was not used, and halves so many `times`, as far as `least`. With `doubles` it doubles
    /// up to what it was once it is used again.
    pub(super) fn age(&mut self, times: u64, least: f64, doubles: bool) {
        let before = self.now;
        for _ in 0..times.min(HALVINGS_MAX) {
            self.now = (self.now / 2.0).max(least.min(before)).max(self.least);
        }
        if doubles && self.doubling.is_none() && self.now < before {
            self.doubling = Some(before);
        }
    }

    /// Whether it doubles as it does at the start of a session, without any bound.
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
