//! Rates from counters that are looked at now and then.

use std::time::Instant;

/// How fast a counter grows, smoothed over a few seconds.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    last: Option<(Instant, u64)>,
    per_s: Option<f64>,
}

impl Meter {
    /// The counter stands at `count` now.
    pub(crate) fn observe(&mut self, now: Instant, count: u64) {
        let Some((then, before)) = self.last else {
            self.last = Some((now, count));
            return;
        };
        let passed = now.duration_since(then).as_secs_f64();
        if passed < STEP_S {
            return;
        }
        self.last = Some((now, count));
        let rate = count.saturating_sub(before) as f64 / passed;
        let weight = (passed / SMOOTH_S).min(1.0);
        self.per_s = Some(self.per_s.map_or(rate, |old| old + weight * (rate - old)));
    }

    /// How much it grows in a second; zero before it is known.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s.unwrap_or_default()
    }
}

const STEP_S: f64 = 0.2;
const SMOOTH_S: f64 = 2.0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_steady_counter_has_its_rate() {
        let start = Instant::now();
        let mut meter = Meter::default();
        for step in 0..100u64 {
            meter.observe(start + Duration::from_millis(100 * step), step * 50);
        }
        assert!((meter.per_s() - 500.0).abs() < 1.0, "{}", meter.per_s());
    }
}
