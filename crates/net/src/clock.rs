//! Clock of a driver and its machines.

use std::time::{Duration, Instant};

use faircast_base::Time;

/// Monotonic time since the clock's creation. A step (stopped process, suspended machine) counts up
/// to [`STEP_MAX`]: a sender that wakes up after an hour handles its receivers' packets before
/// their timeouts. If the system's clock goes back, this clock pauses.
#[derive(Debug)]
pub(crate) struct Clock {
    read_at: Instant,
    elapsed: Time,
    /// Latest time returned or set, behind which no later time falls.
    latest: Time,
    /// Time beyond [`STEP_MAX`] of each step, since it was last taken.
    skipped: Duration,
    step_max: Duration,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { step_max: STEP_MAX, ..Self::since(Instant::now()) }
    }

    pub(crate) fn since(zero: Instant) -> Self {
        let (elapsed, latest, skipped) = (Time::ZERO, Time::ZERO, Duration::ZERO);
        Self { read_at: zero, elapsed, latest, skipped, step_max: Duration::MAX }
    }

    /// Returns the current time; never before a time already returned or set.
    pub(crate) fn now(&mut self) -> Time {
        self.latest = self.latest.max(self.real());
        self.latest
    }

    /// Returns the elapsed time; [`advance_to`](Self::advance_to) may have set a later one.
    pub(crate) fn real(&mut self) -> Time {
        self.step_to(Instant::now())
    }

    fn step_to(&mut self, system: Instant) -> Time {
        let step = system.saturating_duration_since(self.read_at);
        self.read_at = system;
        if step > self.step_max {
            let seconds = step.as_secs();
            tracing::info!(
                "the clock went ahead by {seconds} s: this process did not run, or it was set"
            );
        }
        self.skipped += step.saturating_sub(self.step_max);
        let step = step.min(self.step_max).as_nanos() as u64;
        self.elapsed += faircast_base::Duration::from_nanos(step);
        self.elapsed
    }

    pub(crate) fn take_skipped(&mut self) -> faircast_base::Duration {
        let skipped = std::mem::take(&mut self.skipped).min(SKIPPED_MAX);
        faircast_base::Duration::from_nanos(skipped.as_nanos() as u64)
    }

    pub(crate) fn advance_to(&mut self, moment: Time) -> Time {
        self.latest = self.latest.max(moment);
        self.latest
    }
}

/// Longest step that counts in full: 1 s, ten ticks. Beyond it, the driver did not run.
const STEP_MAX: Duration = Duration::from_secs(1);

/// Longest reported skipped time: 100 years, which fits 64 bits of nanoseconds.
const SKIPPED_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_evenly_whatever_the_system_clock_jumps_to() {
        let mut clock = Clock::new();
        let hour = Duration::from_secs(3600);
        let ms = Duration::from_millis;
        let mut system = clock.read_at + hour;
        clock.read_at = system;
        for (jump, back, step, want_ms) in [
            (Duration::ZERO, false, ms(200), 200),
            (hour, false, ms(200), 1200),
            (Duration::ZERO, false, ms(200), 1400),
            (hour, true, ms(200), 1400),
            (Duration::ZERO, false, ms(200), 1600),
            (Duration::ZERO, false, ms(1), 1601),
        ] {
            system = if back { system - jump } else { system + jump };
            system += step;
            assert_eq!(clock.step_to(system), Time::from_nanos(want_ms * 1_000_000));
        }
        // An hour and 200 ms, of which one second counted.
        let skipped = faircast_base::Duration::from_millis(3_599_200);
        assert_eq!(clock.take_skipped(), skipped);
        assert_eq!(clock.take_skipped(), faircast_base::Duration::ZERO);
    }
}
