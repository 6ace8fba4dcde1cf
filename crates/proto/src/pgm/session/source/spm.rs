//! When a source sends SPMs.

use faircast_base::{Duration, Time};

use super::{SourceTimers, Timer};
use crate::pgm::SourceConfig;

/// The independent schedules of ambient and heartbeat SPMs, and requests (src: RFC 3208 s5.1.6).
#[derive(Debug)]
pub(super) struct SpmSchedule {
    ambient_interval: Duration,
    heartbeat_min: Duration,
    heartbeat_max: Duration,
    /// The interval that the next heartbeat ends.
    heartbeat: Duration,
    /// When an SPM was last sent because of a request.
    answered_at: Option<Time>,
    /// Whether one is to be sent now.
    due: bool,
}

impl SpmSchedule {
    pub(super) fn new(config: &SourceConfig) -> Self {
        Self {
            ambient_interval: config.ambient_interval,
            heartbeat_min: config.heartbeat_min,
            heartbeat_max: config.heartbeat_max,
            heartbeat: config.heartbeat_min,
            answered_at: None,
            due: false,
        }
    }

    /// New data has been sent: heartbeats begin anew, the first when `pause` has shown that no more
    /// is to come for now. A window that waits for acknowledgements is no such pause: whoever lost
    /// the last packet learns it from the next one.
    ///
    /// deviates: repairs do not begin them anew, as RFC 3208 s5.1.5 has it, because heartbeats show
    /// the lead, which repairs do not: a receiver that lost the last packet must not have to wait
    /// until others have their repairs.
    pub(super) fn on_data(&mut self, timers: &mut SourceTimers, now: Time, pause: Duration) {
        self.heartbeat = self.heartbeat_min.max(pause);
        timers.arm(Timer::Heartbeat, now + self.heartbeat);
    }

    /// Something that receivers must know at once has changed, such as the end of data. The
    /// heartbeats that follow need not wait for a pause.
    pub(super) fn on_change(&mut self, timers: &mut SourceTimers, now: Time) {
        self.due = true;
        self.on_data(timers, now, Duration::ZERO);
    }

    /// A receiver asked for an SPM. It gets one at once, or as soon as the shortest heartbeat
    /// interval after the last answer is over.
    pub(super) fn on_request(&mut self, timers: &mut SourceTimers, now: Time) {
        if !timers.is_armed(Timer::SpmAnswer) {
            let free_at = self.answered_at.map_or(now, |at| at + self.heartbeat_min);
            timers.arm(Timer::SpmAnswer, free_at.max(now));
        }
        self.answer(timers, now);
    }

    fn answer(&mut self, timers: &mut SourceTimers, now: Time) {
        if timers.take_due(Timer::SpmAnswer, now) {
            self.answered_at = Some(now);
            self.due = true;
        }
    }

    pub(super) fn on_timeout(&mut self, timers: &mut SourceTimers, now: Time) {
        self.answer(timers, now);
        if timers.take_due(Timer::AmbientSpm, now) {
            self.due = true;
            timers.arm(Timer::AmbientSpm, now + self.ambient_interval);
        }
        if timers.take_due(Timer::Heartbeat, now) {
            self.due = true;
            self.heartbeat = (self.heartbeat * 2).min(self.heartbeat_max);
            timers.arm(Timer::Heartbeat, now + self.heartbeat);
        }
    }

    /// Whether one is to be sent now.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Whether to send one now; the answer is yes once.
    pub(super) fn take(&mut self) -> bool {
        core::mem::take(&mut self.due)
    }
}
