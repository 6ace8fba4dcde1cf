//! Recent maximum of ORMCC's sending rate.

use faircast_base::{Duration, Time};

/// Largest rates of the latest spans, in bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    /// Start of the present span.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_counts_for_two_spans_at_least_and_three_at_most() {
        let span = Duration::from_millis(100);
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut recent = Recent::default();
        recent.note(at(1000), 50.0, span);
        recent.note(at(1090), 70.0, span);
        for ms in (1100..1280).step_by(20) {
            recent.note(at(ms), 10.0, span);
            assert_eq!(recent.largest(), 70.0, "{ms}");
        }
        recent.note(at(1320), 10.0, span);
        recent.note(at(1400), 10.0, span);
        assert_eq!(recent.largest(), 10.0);
        recent.note(at(1401), 30.0, span);
        recent.note(at(9000), 20.0, span);
        assert_eq!(recent.largest(), 20.0, "nothing was faster for long");
    }
}
