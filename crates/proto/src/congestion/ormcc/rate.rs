//! Sending rate: growth, cuts and their reversal, the resulting interval I, and the recent maximum.

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

    /// Grows the rate by a packet per round trip each round trip (src: ormcc s2.1), or doubles it.
    /// The rate stays below `most`, and at most doubles per packet.
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

    /// Cuts the rate after the representative reported `output` (CutRate, src: ormcc s2.2). True if
    /// it fell. deviates: the paper has no lowest share, which bounds forged losses.
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

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    span_start: Time,
    /// Largest rate of each span, the present one first.
    largest: [f64; SPANS],
}

/// Spans whose rates count: two whole ones and the present one.
const SPANS: usize = 3;

impl Recent {
    /// Notes the rate in bytes per second since the last call, for spans of length `span`.
    pub(super) fn note(&mut self, now: Time, rate: f64, span: Duration) {
        let passed = now.since(self.span_start).as_nanos() / span.as_nanos().max(1);
        if passed > 0 {
            self.span_start = now;
        }
        for _ in 0..passed.min(SPANS as u64) {
            self.largest.rotate_right(1);
            self.largest[0] = 0.0;
        }
        self.largest[0] = self.largest[0].max(rate);
    }

    pub(super) fn largest(&self) -> f64 {
        self.largest.iter().fold(0.0, |most, &rate| most.max(rate))
    }
}

/// Most consecutive cuts that can be reverted, and the allowance gained with each cut; chosen.
const ALLOWANCE_MAX: f64 = 4.0;
const ALLOWANCE_PER_CUT: f64 = 1.0 / 16.0;

/// Reversal of a cut whose packets were only late.
#[derive(Debug)]
pub(super) struct CutUndo {
    /// Time of the last indication, and the rate before it, while the cut can be reverted.
    before: Option<(Time, Rate)>,
    /// Cuts that may still be reverted: any host can send a withdrawal in the CR's name.
    allowance: f64,
}

impl Default for CutUndo {
    fn default() -> Self {
        Self { before: None, allowance: ALLOWANCE_MAX }
    }
}

impl CutUndo {
    /// Remembers the rate before an indication, unless one of the last `span` is remembered.
    pub(super) fn remember(&mut self, now: Time, rate: Rate, span: Duration) {
        if self.before.is_none_or(|(at, _)| now.since(at) > span) {
            self.before = Some((now, rate));
        }
    }

    pub(super) fn on_cut(&mut self) {
        self.allowance = (self.allowance + ALLOWANCE_PER_CUT).min(ALLOWANCE_MAX);
    }

    /// Forgets the rate before a cut. Returns that rate if the cut may be reverted.
    pub(super) fn take(&mut self, now: Time, span: Duration, may_revert: bool) -> Option<Rate> {
        let (at, rate) = self.before.take()?;
        if !may_revert || self.allowance < 1.0 || now.since(at) > span {
            return None;
        }
        self.allowance -= 1.0;
        Some(rate)
    }
}

/// Consecutive delayed round trips that end doubling.
const DELAYED_MAX: u32 = 3;

/// Permitted increase: a share of the least round trip, within bounds (src: RFC 9406 s4.2).
const INCREASE_SHARE: f64 = 1.0 / 8.0;
const INCREASE_MIN_S: f64 = 0.004;
const INCREASE_MAX_S: f64 = 0.016;

/// Detector of a queue that grows before the first loss, by round trips (src: RFC 9406 s4.2).
#[derive(Debug, Default)]
pub(super) struct DelayIncrease {
    least_s: Option<f64>,
    delayed: u32,
}

impl DelayIncrease {
    pub(super) fn sample(&mut self, rtt_s: f64) -> bool {
        let least_s = self.least_s.map_or(rtt_s, |least_s| least_s.min(rtt_s));
        self.least_s = Some(least_s);
        let permitted_s = (least_s * INCREASE_SHARE).clamp(INCREASE_MIN_S, INCREASE_MAX_S);
        self.delayed = if rtt_s > least_s + permitted_s { self.delayed + 1 } else { 0 };
        self.delayed >= DELAYED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{at, ms};

    #[test]
    fn a_rate_counts_for_two_spans_at_least_and_three_at_most() {
        let span = ms(100);
        let mut recent = Recent::default();
        recent.note(at(1000), 50.0, span);
        recent.note(at(1090), 70.0, span);
        for now in (1100..1280).step_by(20) {
            recent.note(at(now), 10.0, span);
            assert_eq!(recent.largest(), 70.0, "{now}");
        }
        recent.note(at(1320), 10.0, span);
        recent.note(at(1400), 10.0, span);
        assert_eq!(recent.largest(), 10.0);
        recent.note(at(1401), 30.0, span);
        recent.note(at(9000), 20.0, span);
        assert_eq!(recent.largest(), 20.0, "nothing was faster for long");
    }

    #[test]
    fn a_recent_cut_is_reverted_four_times_in_a_row() {
        let mut undo = CutUndo::default();
        let mut reverts = |cut_ms: u64, withdrawn_ms: u64| {
            undo.remember(at(cut_ms), Rate::default(), ms(100));
            undo.take(at(withdrawn_ms), ms(100), true).is_some()
        };
        assert!(!reverts(1000, 1101), "too late");
        for round in 2..6 {
            assert!(reverts(1000 * round, 1000 * round + 100), "{round}");
        }
        assert!(!reverts(7000, 7000), "the allowance is used up");
        (0..16).for_each(|_| undo.on_cut());
        undo.remember(at(8000), Rate::default(), ms(100));
        assert!(undo.take(at(8000), ms(100), true).is_some(), "sixteen cuts allow another");
    }

    #[test]
    fn three_samples_in_a_row_above_the_permitted_increase_show_a_queue() {
        for (least_ms, then_ms, want) in [
            (50, &[57, 57, 57][..], true),
            (50, &[57, 57, 56, 57, 57], false),
            (50, &[56, 56, 56], false),
            (10, &[15, 15, 15], true),
            (10, &[14, 14, 14], false),
            (400, &[417, 417, 417], true),
            (400, &[416, 416, 416], false),
            (50, &[30, 30, 30], false),
        ] {
            let mut delay = DelayIncrease::default();
            assert!(!delay.sample(f64::from(least_ms) / 1e3));
            let grows = then_ms.iter().map(|ms| delay.sample(f64::from(*ms) / 1e3));
            assert_eq!(grows.last(), Some(want), "{then_ms:?} after {least_ms} ms");
        }
    }
}
