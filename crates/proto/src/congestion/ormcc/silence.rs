//! Silence at ORMCC's sender: of the source, whose unused rate decays, and of receivers.

use faircast_base::{CutReason, Cx, Duration, Event, SwitchReason, Time, TimeoutKind};

use super::OrmccSender;
use crate::congestion::common::silence::Unanswered;

/// Round trips of silence after which the representative counts as gone, or the rate falls.
const SILENT_RTTS: f64 = 8.0;

/// Shortest silence after which the representative counts as gone.
const CR_SILENCE_MIN: Duration = Duration::from_secs(1);

/// Bounds of the silence of all receivers after which the rate falls.
const SILENCE_MIN: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Largest share of a silence limit that one pause uses up: the packet before it may be unanswered.
const PAUSES: u64 = 8;

/// Bounds of the interval at which the rate halves: normally one round trip.
const HALVE_MIN: Duration = Duration::from_millis(10);
const HALVE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Silence {
    pub(super) all: Unanswered,
    pub(super) of_cr: Unanswered,
    pub(super) decay: Option<Decay>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Decay {
    halve_at: Time,
    /// Rate in bytes per second up to which the rate doubles once a receiver reports.
    pub(super) resume_to: f64,
}

/// Pauses of the source: times without a packet to send.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Number of pauses modulo 2^8. Receivers do not measure across them.
    pub(super) count: u8,
    /// Latest time at which a packet was ready to be sent.
    ready_at: Option<Time>,
}

impl OrmccSender {
    /// Returns true if the rate may grow. The guard requires recent reports of a representative.
    pub(super) fn is_trusted(&self, now: Time) -> bool {
        if !self.config.is_improved() {
            return true;
        }
        let wait = self.cr_silence_max() / 2;
        self.cr.id.is_some() && self.silence.of_cr.lasts(now) <= wait
    }

    fn silent_rtts(&self) -> Duration {
        Duration::from_secs_f64(SILENT_RTTS * self.rtt_s())
    }

    fn cr_silence_max(&self) -> Duration {
        self.silent_rtts().max(CR_SILENCE_MIN).max(self.pace.cost(self.packet_bytes as u32) * 4)
    }

    fn silence_max(&self) -> Duration {
        self.silent_rtts().clamp(SILENCE_MIN, SILENCE_MAX)
    }

    /// Notes that a packet is ready. Unused time before it is a pause: nothing to answer or test.
    pub(super) fn note_pause(&mut self, now: Time) {
        let Some(ready_at) = self.pauses.ready_at.replace(now) else { return };
        let idle = now.since(ready_at.max(self.pace.ready_at()));
        let (cr_silence, silence) = (self.cr_silence_max(), self.silence_max());
        self.silence.of_cr.pause(idle.saturating_sub(cr_silence / PAUSES));
        self.silence.all.pause(idle.saturating_sub(silence / PAUSES));
        if let Some(decay) = &mut self.silence.decay {
            decay.halve_at += idle;
        } else if idle > cr_silence {
            // Other flows have come and gone: the rate halves, but not below the initial rate.
            let times = idle.as_nanos() / cr_silence.as_nanos();
            let initial = self.config.initial_packets() * self.packet_bytes / self.rtt_s();
            self.rate.age(times, initial, self.config.is_improved());
            self.forget_output();
            self.follow(now);
        }
    }

    /// Dismisses a silent representative, and halves the rate while all receivers are silent.
    pub(super) fn watch_silence(&mut self, cx: &mut Cx<'_>) {
        if !self.config.is_improved() {
            return;
        }
        let cr_silence = self.cr_silence_max();
        if self.cr.id.is_some() && self.silence.of_cr.lasts(cx.now) > cr_silence {
            cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns: cr_silence.as_nanos() });
            self.dismiss(cx, SwitchReason::Silent);
        }
        let silence = self.silence_max();
        let halving = Duration::from_secs_f64(self.rtt_s()).clamp(HALVE_MIN, HALVE_MAX);
        if self.silence.decay.is_none() && self.silence.all.lasts(cx.now) > silence {
            cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns: silence.as_nanos() });
            let resume_to = self.rate.bytes_per_s() / 2.0;
            self.silence.decay = Some(Decay { halve_at: cx.now, resume_to });
        }
        let Some(decay) = &mut self.silence.decay else { return };
        let before = self.rate.bytes_per_s();
        while decay.halve_at <= cx.now && !self.rate.is_least() {
            self.rate.halve();
            decay.halve_at += halving;
        }
        if self.rate.bytes_per_s() < before {
            cx.emit(Event::Cut { reason: CutReason::NoFeedback, window_milli: 0 });
            self.follow(cx.now);
        }
    }

    /// Resumes after silence: as TCP's, the rate doubles from one packet per round trip.
    pub(super) fn resume(&mut self, now: Time, limit: f64) {
        self.forget_output();
        let one = self.packet_bytes / self.rtt_s();
        self.rate.raise(one.min(limit));
        self.rate.restart(limit);
        self.follow(now);
    }
}
