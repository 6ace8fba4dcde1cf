//! Time for machines.

use std::time::Instant;

use faircast_base::Time;

/// Nanoseconds since it was made, of the system's monotonic clock: what people or NTP do to the
/// time of day changes nothing.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// The latest moment that was given out.
    last: Time,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), last: Time::ZERO }
    }

    /// The present moment; never before one that was given out or set.
    pub(crate) fn now(&mut self) -> Time {
        self.last = self.last.max(self.real());
        self.last
    }

    /// The moment as the system has it, which may be before [`now`](Self::now).
    pub(crate) fn real(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Takes `moment`, a little ahead, as the present one.
    pub(crate) fn advance_to(&mut self, moment: Time) -> Time {
        self.last = self.last.max(moment);
        self.last
    }
}
