//! Decrease and resumption of ORMCC's rate: pauses of the source and silence of receivers.

use faircast_base::{CutReason, Cx, Duration, Event, SwitchReason, Time, TimeoutKind};

use super::OrmccSender;

const GONE_MIN: Duration = Duration::from_secs(1);

/// Round trips of silence after which the representative counts as gone, or the rate falls.
const SILENT_RTTS: f64 = 8.0;

const SILENCE: Duration = Duration::from_secs(5);

const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Largest share of a silence limit that one pause uses up. The packet before a pause may stay
/// unanswered; eight in a row cannot.
const PAUSES: u64 = 8;

/// Bounds of the interval at which the rate halves: normally one round trip.
const HALVE_MIN: Duration = Duration::from_millis(10);
const HALVE_MAX: Duration = Duration::from_secs(1);

impl OrmccSender {
    /// Returns true if the rate may grow. The guard requires recent reports of a representative.
    pub(super) fn is_trusted(&self, now: Time) -> bool {
        if !self.config.guard {
            return true;
        }
        let wait = self.gone_after() / 2;
        self.representative.is_some() && self.unheard_own.lasts(now) <= wait
    }

    pub(super) fn gone_after(&self) -> Duration {
        let span = Duration::from_secs_f64(SILENT_RTTS * self.round_trip_s());
        span.max(GONE_MIN).max(self.pace.cost(self.bytes as u32) * 4)
    }

    pub(super) fn silence(&self) -> Duration {
        let span = Duration::from_secs_f64(SILENT_RTTS * self.round_trip_s());
        span.max(SILENCE).min(SILENCE_MAX)
    }

    /// Notes that a packet is ready. Unused time before it is a pause: nothing to answer or test.
    pub(super) fn note_pause(&mut self, now: Time) {
        let Some(busy) = self.busy.replace(now) else { return };
        let idle = now.since(busy.max(self.pace.ready_at()));
        let (gone_after, silence) = (self.gone_after(), self.silence());
        self.unheard_own.pause(idle.saturating_sub(gone_after / PAUSES));
        self.unheard.pause(idle.saturating_sub(silence / PAUSES));
        if let Some((at, _)) = &mut self.silent {
            *at += idle;
        } else if idle > gone_after {
            self.age_rate(now, idle.as_nanos() / gone_after.as_nanos());
        }
    }

    /// Halves the rate after a pause, down to the initial rate: other flows have come and gone.
    /// With the guard it doubles back.
    pub(super) fn age_rate(&mut self, now: Time, times: u64) {
        let few = self.config.initial_packets * self.bytes / self.round_trip_s();
        self.rate.age(times, few, self.config.guard);
        (self.least, self.delayed, self.output) = (None, 0, None);
        self.follow(now);
    }

    pub(super) fn watch(&mut self, cx: &mut Cx<'_>) {
        if !self.config.guard {
            return;
        }
        let gone_after = self.gone_after();
        if self.representative.is_some() && self.unheard_own.lasts(cx.now) > gone_after {
            cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns: gone_after.as_nanos() });
            self.dismiss(cx, SwitchReason::Silent);
        }
        let (silence, halving) = (self.silence(), self.round_trip_s());
        let halving = Duration::from_secs_f64(halving).clamp(HALVE_MIN, HALVE_MAX);
        if self.silent.is_none() && self.unheard.lasts(cx.now) > silence {
            cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns: silence.as_nanos() });
            self.silent = Some((cx.now, self.rate.bytes_per_s() / 2.0));
        }
        let Some((at, _)) = &mut self.silent else { return };
        let before = self.rate.bytes_per_s();
        while *at <= cx.now && !self.rate.is_least() {
            self.rate.halve();
            *at += halving;
        }
        if self.rate.bytes_per_s() < before {
            cx.emit(Event::Cut { reason: CutReason::NoFeedback, window_milli: 0 });
            self.follow(cx.now);
        }
    }

    /// Resumes after silence: as TCP's, the rate doubles from one packet per round trip to `limit`.
    pub(super) fn resume(&mut self, now: Time, limit: f64) {
        (self.least, self.delayed, self.output) = (None, 0, None);
        let one = self.bytes / self.round_trip_s();
        self.rate.raise(one.min(limit));
        self.rate.restart(limit);
        self.follow(now);
    }
}
