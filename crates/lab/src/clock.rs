//! Clock of a run.

use std::time::{Duration as WallDuration, Instant};

use faircast_base::{Duration, Time};

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

    pub(crate) fn until(&self, at: Time) -> WallDuration {
        let at = self.zero + WallDuration::from_nanos(at.as_nanos());
        at.saturating_duration_since(Instant::now())
    }
}

pub(crate) const fn wall(span: Duration) -> WallDuration {
    WallDuration::from_nanos(span.as_nanos())
}

pub(crate) fn be_exact(priority: u8) -> bool {
    use thread_priority::unix::{
        RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    // By default the kernel delays timers by up to 50 us; a refusal has no further effect.
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

pub(crate) const EMULATOR_PRIORITY: u8 = 50;
/// Real-time priority of senders: below the emulator, above all other programs.
pub(crate) const HOST_PRIORITY: u8 = 20;
/// Real-time priority of receivers: above senders, which may have packets to send at any time.
pub(crate) const RECEIVER_PRIORITY: u8 = 30;
