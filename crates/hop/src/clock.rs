//! Conversion between [`Time`] and the time type of `quinn-proto`.

#![expect(
    clippy::disallowed_types,
    reason = "quinn-proto counts in the system's moments: only their distances reach it, from virtual time"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use faircast_base::Time;

/// Instant of [`Time::ZERO`]. Any instant works, since only differences are used.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn instant(time: Time) -> Instant {
    *EPOCH + Duration::from_nanos(time.as_nanos())
}

pub(crate) fn time(instant: Instant) -> Time {
    let passed = instant.saturating_duration_since(*EPOCH).as_nanos();
    Time::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX))
}

/// Clock of address validation tokens, set to the current time before each use.
#[derive(Clone, Default)]
pub(crate) struct TokenClock(Arc<AtomicU64>);

impl TokenClock {
    pub(crate) fn set(&self, now: Time) {
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl quinn_proto::TimeSource for TokenClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
