//! The run's own clock.

use std::time::{Duration as WallDuration, Instant};

use faircast_base::{Duration, Time};

/// The clock of a run. It stands at zero until the run begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) zero: Instant,
}

impl Clock {
    pub(crate) fn starting_in(wait: WallDuration) -> Self {
        Self { zero: Instant::now() + wait }
    }

    pub(crate) fn now(&self) -> Time {
        let since = Instant::now().saturating_duration_since(self.zero);
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long it is until a moment; zero where it has passed.
    pub(crate) fn until(&self, at: Time) -> WallDuration {
        let at = self.zero + WallDuration::from_nanos(at.as_nanos());
        at.saturating_duration_since(Instant::now())
    }
}

pub(crate) const fn wall(span: Duration) -> WallDuration {
    WallDuration::from_nanos(span.as_nanos())
}

/// Asks for exact timers and, with `priority`, for the processor. True if that is permitted.
pub(crate) fn be_exact(priority: u8) -> bool {
    use thread_priority::unix::{
        RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    // Without it timers of ordinary threads are up to 50 us late; a refusal leaves that.
    let _ = nix::sys::prctl::set_timerslack(1);
    let priority = thread_priority::ThreadPriorityValue::try_from(priority);
    let Ok(priority) = priority else { return false };
    set_thread_priority_and_policy(
        thread_native_id(),
        thread_priority::ThreadPriority::Crossplatform(priority),
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
    )
    .is_ok()
}

/// How urgent the emulator is among threads of real-time priority (1 to 99).
pub(crate) const EMULATOR_PRIORITY: u8 = 50;
/// How urgent senders are: after the emulator, before everything else.
pub(crate) const HOST_PRIORITY: u8 = 20;
/// Priority of receivers: above senders, which may have something to send at any time.
pub(crate) const RECEIVER_PRIORITY: u8 = 30;
