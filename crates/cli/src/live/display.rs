//! Rates from counters that are sampled at irregular times.

use std::time::{Duration as WallDuration, Instant};

use faircast_base::Duration;

use super::words::time;

#[derive(Debug)]
pub(crate) struct Meter {
    window_s: f64,
    last: Option<(Instant, u64)>,
    grown_at: Option<Instant>,
    per_s: Option<f64>,
    observed_s: f64,
}

impl Meter {
    pub(crate) const fn short_term() -> Self {
        Self { window_s: 2.0, last: None, grown_at: None, per_s: None, observed_s: 0.0 }
    }

    pub(crate) const fn long_term() -> Self {
        Self { window_s: 10.0, ..Self::short_term() }
    }

    pub(crate) fn observe(&mut self, now: Instant, count: u64) {
        let Some((then, before)) = self.last else {
            (self.last, self.grown_at) = (Some((now, count)), Some(now));
            return;
        };
        let passed = now.duration_since(then).as_secs_f64();
        if passed < SAMPLE_S {
            return;
        }
        self.last = Some((now, count));
        if count > before {
            self.grown_at = Some(now);
        }
        let rate = count.saturating_sub(before) as f64 / passed;
        self.observed_s += passed;
        let weight = (passed / self.window_s.min(self.observed_s)).min(1.0);
        self.per_s = Some(self.per_s.map_or(rate, |old| old + weight * (rate - old)));
    }

    /// Returns the time until `missing` more are counted. Without growth for `stall` it is stalled.
    pub(crate) fn left(&self, now: Instant, missing: u64, stall: WallDuration) -> Option<Left> {
        let still = self.grown_at.is_some_and(|grown| now.duration_since(grown) > stall);
        if still && missing > 0 {
            return Some(Left::Stalled);
        }
        let seconds = missing as f64 / self.per_s();
        seconds.is_finite().then(|| Left::Time(Duration::from_secs_f64(seconds)))
    }

    pub(crate) fn per_s(&self) -> f64 {
        self.per_s.unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Left {
    Time(Duration),
    Stalled,
}

impl Left {
    pub(crate) fn words(self) -> String {
        match self {
            Self::Time(left) => format!("{} left", time(left)),
            Self::Stalled => "stalled".to_string(),
        }
    }

    pub(crate) fn seconds(self) -> Option<f64> {
        match self {
            Self::Time(left) => Some(left.as_secs_f64()),
            Self::Stalled => None,
        }
    }
}

/// Times of repeated hints during a wait, with growing intervals.
#[derive(Debug)]
pub(crate) struct Hints {
    at: Duration,
    interval: Duration,
}

impl Default for Hints {
    fn default() -> Self {
        Self { at: HINT_FIRST, interval: HINT_FIRST }
    }
}

impl Hints {
    pub(crate) fn at_once() -> Self {
        Self { at: Duration::ZERO, interval: HINT_FIRST / 2 }
    }

    pub(crate) fn is_due(&mut self, waited: Duration) -> bool {
        let due = waited >= self.at;
        if due {
            self.interval = (self.interval * 2).min(HINT_INTERVAL_MAX);
            self.at = waited + self.interval;
        }
        due
    }
}

const HINT_FIRST: Duration = Duration::from_secs(10);
const HINT_INTERVAL_MAX: Duration = Duration::from_secs(600);

const SAMPLE_S: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_counter_has_its_rate() {
        let start = Instant::now();
        let mut meter = Meter::short_term();
        for step in 0..100u64 {
            meter.observe(start + WallDuration::from_millis(100 * step), step * 50);
        }
        assert!((meter.per_s() - 500.0).abs() < 1.0, "{}", meter.per_s());
    }

    #[test]
    fn hints_come_again_and_again_and_ever_less_often() {
        let mut hints = Hints::default();
        let seconds = 0..3600u64;
        let due: Vec<u64> = seconds.filter(|s| hints.is_due(Duration::from_secs(*s))).collect();
        assert_eq!(due, [10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
    }

    #[test]
    fn what_does_not_move_is_stalled_and_has_no_absurd_end() {
        let (start, stall) = (Instant::now(), WallDuration::from_secs(5));
        let mut meter = Meter::long_term();
        let at = |s: u64| start + WallDuration::from_secs(s);
        assert_eq!(meter.left(at(0), 1000, stall), None);
        for s in 0..=10 {
            meter.observe(at(s), s * 100);
        }
        let Some(Left::Time(left)) = meter.left(at(10), 1000, stall) else { panic!() };
        assert!((left.as_secs_f64() - 10.0).abs() < 0.1, "{left}");
        for s in 11..60 {
            meter.observe(at(s), 1000);
            let left = meter.left(at(s), 1000, stall).unwrap();
            match left {
                Left::Time(left) => assert!(s <= 15 && left.as_secs_f64() < 20.0, "{s}: {left}"),
                Left::Stalled => assert!(s > 15, "{s}"),
            }
        }
        assert_eq!(meter.left(at(60), 0, stall).unwrap().words(), "0.0 s left");
        meter.observe(at(60), 1100);
        assert!(matches!(meter.left(at(60), 1000, stall), Some(Left::Time(_))), "it goes on");
    }
}
