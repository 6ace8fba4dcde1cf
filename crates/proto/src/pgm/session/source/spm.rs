//! When a source sends SPMs.

use faircast_base::{Duration, Time};

/// The independent timers of ambient and heartbeat SPMs, and requests (src: RFC 3208 s5.1.6).
#[derive(Debug)]
pub(super) struct SpmSchedule {
    ambient_interval: Duration,
    heartbeat_min: Duration,
    heartbeat_max: Duration,
    /// When the next ambient SPM is due.
    ambient_at: Time,
    /// When the next heartbeat is due, and the interval that ends there.
    heartbeat: Option<(Time, Duration)>,
    /// When an SPM was last sent because of a request, and when to answer the next.
    answered_at: Option<Time>,
    answer_at: Option<Time>,
    /// Whether one is to be sent now.
    due: bool,
}

impl SpmSchedule {
    /// The first SPM is due at `start`.
    pub(super) fn new(start: Time, ambient: Duration, min: Duration, max: Duration) -> Self {
        Self {
            ambient_interval: ambient,
            heartbeat_min: min,
            heartbeat_max: max,
            ambient_at: start,
            heartbeat: None,
            answered_at: None,
            answer_at: None,
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
    pub(super) fn on_data(&mut self, now: Time, pause: Duration) {
        let interval = self.heartbeat_min.max(pause);
        self.heartbeat = Some((now + interval, interval));
    }

    /// Something that receivers must know at once has changed, such as the end of data. The
    /// heartbeats that follow need not wait for a pause.
    pub(super) fn on_change(&mut self, now: Time) {
        self.due = true;
        self.on_data(now, Duration::ZERO);
    }

    /// A receiver asked for an SPM. It gets one at once, or as soon as the shortest heartbeat
    /// interval after the last answer is over.
    pub(super) fn on_request(&mut self, now: Time) {
        let free_at = self.answered_at.map_or(now, |at| at + self.heartbeat_min);
        self.answer_at.get_or_insert(free_at.max(now));
        self.answer(now);
    }

    fn answer(&mut self, now: Time) {
        if self.answer_at.is_some_and(|at| at <= now) {
            (self.answer_at, self.answered_at) = (None, Some(now));
            self.due = true;
        }
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        self.answer(now);
        if self.ambient_at <= now {
            self.due = true;
            self.ambient_at = now + self.ambient_interval;
        }
        if let Some((at, interval)) = self.heartbeat
            && at <= now
        {
            self.due = true;
            let next = (interval * 2).min(self.heartbeat_max);
            self.heartbeat = Some((now + next, next));
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

    pub(super) fn next_timeout(&self) -> Time {
        let heartbeat = self.heartbeat.map(|(at, _)| at);
        [heartbeat, self.answer_at].into_iter().flatten().fold(self.ambient_at, Time::min)
    }
}
