//! Sending rate of TFMCC: response to reports, slow start, decrease after pauses and silence.

use faircast_base::{CutReason, Cx, Duration, Event, SwitchReason, Time, TimeoutKind};

use super::{Clr, TfmccSender};
use crate::congestion::tfmcc::SLOWEST_INTERVAL_S;

/// Maximum rate in bits per second (src: RFC 4654 s2.2.1: 400 Gb/s).
const RATE_MAX: f64 = 4e11;

/// Lowest share of the rate that remains after one report; chosen.
const LEFT_MIN: f64 = 0.25;

/// Pause after which the sender restarts, in largest round trips (src: RFC 4654 s3.6).
const IDLE_AFTER: u64 = 10;

/// Largest round trips after a restart in which receivers without losses do not lower the rate: it
/// stems from few packets.
const NEW_IDLE: u64 = 2;
const NEW_UNHEARD: u64 = 6;

/// Minimum round trip for judging silence: hosts may be busy for longer than a LAN's round trip.
const SILENCE_MIN: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    pub(super) start: Time,
    pub(super) span: Duration,
    from: f64,
    to: f64,
}

impl TfmccSender {
    pub(super) fn set_rate(&mut self, now: Time, rate: f64) {
        let slowest = self.packet_bits() / SLOWEST_INTERVAL_S;
        self.rate = rate.clamp(slowest, RATE_MAX);
        self.pace.set(now, self.rate);
    }

    pub(super) fn cut(&mut self, cx: &mut Cx<'_>, rate: f64, reason: CutReason) {
        self.climb = None;
        if rate < self.rate {
            self.set_rate(cx.now, rate);
            cx.emit(Event::Cut { reason, window_milli: 0 });
        }
    }

    pub(super) fn settle(&mut self, now: Time) {
        let Some(Climb { start, span, from, to }) = self.climb else { return };
        let share = now.since(start).as_secs_f64() / span.as_secs_f64();
        if share >= 1.0 {
            self.climb = None;
        }
        self.set_rate(now, from + (to - from) * share.min(1.0));
    }

    /// Follows the CLR's `rate`. A fall is immediate. A rise is at most one packet per R_max each
    /// R_max, in slow start spread over one round trip (src: RFC 4654 s3.3, s3.6).
    pub(super) fn follow(&mut self, cx: &mut Cx<'_>, (rate, lossy): (f64, bool), rtt: Duration) {
        let now = cx.now;
        let since = now.since(self.adjusted_at).as_secs_f64();
        self.adjusted_at = now;
        if self.idle && self.slow_start {
            // Rare small messages do not measure the network; full packets start as in a new
            // session.
            return self.set_rate(now, self.rate.max(self.first_rate()));
        }
        if rate <= self.rate {
            // deviates: the RFC has no lowest share. The next report corrects a forged one.
            return self.cut(cx, rate.max(self.rate * LEFT_MIN), CutReason::Report);
        }
        if now < self.held_until || self.idle {
            return;
        }
        let rtt_max = self.rtt_max().as_secs_f64();
        let limited = self.rate + self.packet_bits() / rtt_max * (since / rtt_max).min(1.0);
        if self.slow_start {
            // Twice the received rate is at most twice the sent rate, whatever a report claims.
            let limited = if lossy { limited.min(rate) } else { limited };
            let to = rate.min(2.0 * self.rate).max(limited).min(self.ceiling.max(limited));
            self.slow_start = to < self.ceiling;
            self.climb = Some(Climb { start: now, span: rtt, from: self.rate, to });
        } else {
            self.set_rate(now, rate.min(limited));
        }
    }

    /// Restarts at a new session's rate after a silence of all receivers. True after such a
    /// silence. deviates: one more packet per 8 s each 8 s would take minutes.
    pub(super) fn resume(&mut self, now: Time, rate: f64, have_loss: bool) -> bool {
        let unheard = core::mem::take(&mut self.unheard);
        if unheard {
            self.adjusted_at = now;
            // Without losses, reports state twice the receive rate, which was near zero.
            let rate = if have_loss { rate } else { f64::INFINITY };
            self.set_rate(now, rate.min(self.first_rate()).max(self.rate));
            self.begin_anew(now, f64::INFINITY, NEW_UNHEARD);
        }
        unheard
    }

    pub(super) fn begin_anew(&mut self, now: Time, ceiling: f64, new_for: u64) {
        self.ceiling = if self.slow_start { self.ceiling.max(ceiling) } else { ceiling };
        (self.slow_start, self.climb) = (true, None);
        self.new_until = now + self.rtt_max() * new_for;
    }

    pub(super) fn at_least(&self, now: Time, rate: f64, have_loss: bool) -> f64 {
        if !have_loss && now < self.new_until { rate.max(self.rate) } else { rate }
    }

    /// Handles a packet after `idle` time: the rate halves per ten R_max; slow start follows.
    pub(super) fn on_pause(&mut self, now: Time, idle: Duration) {
        self.asked.pause(idle);
        self.clr_asked.pause(idle);
        let span = self.rtt_max() * IDLE_AFTER;
        if idle < span {
            return;
        }
        let halvings = (idle.as_nanos() / span.as_nanos().max(1)).min(64) as i32;
        let before = self.rate;
        let slower = (0..halvings).fold(before, |rate, _| rate / 2.0);
        self.set_rate(now, slower.max(self.first_rate()).min(before));
        self.begin_anew(now, before, NEW_IDLE);
    }
}

/// Silence of the CLR that halves the rate, in round trips (src: RFC 4654 s3.3).
const HALVE_AFTER: u64 = 4;

/// Silence after which the CLR is gone, or the rate halves, in round trips (src: RFC 4654 s3.3).
const GONE_AFTER: u64 = 10;

impl TfmccSender {
    /// Returns the round trip for judging the CLR's silence; at slow rates the packet interval. The
    /// RFC does not say whose. The latest sample falls at once when a queue drains, for 50 packets
    /// to a fifteenth, while the receiver still reports once per smoothed round trip.
    pub(super) fn silence_rtt(&self, clr: &Clr) -> Duration {
        clr.rtt.max(clr.rtt_smoothed).max(self.gap()).max(SILENCE_MIN)
    }

    pub(super) fn clr_deadline(&self) -> Option<Time> {
        let clr = self.clr.filter(|_| self.vacant.is_none())?;
        let rtt = self.silence_rtt(&clr);
        let gone = self.clr_asked.after(GONE_AFTER, rtt);
        if clr.halved {
            return gone;
        }
        // src: RFC 4654 s3.3: a new CLR may not know its role yet.
        let halve = self.clr_asked.after(HALVE_AFTER, rtt)?.max(clr.since + rtt * GONE_AFTER);
        Some(gone.map_or(halve, |gone| gone.min(halve)))
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.asked.after(GONE_AFTER, self.announced_rtt_max().max(SILENCE_MIN))
    }

    pub(super) fn on_clr_silence(&mut self, cx: &mut Cx<'_>) {
        let Some(clr) = self.clr else { return };
        let gone = self.clr_asked.after(GONE_AFTER, self.silence_rtt(&clr));
        let after_ns = self.clr_asked.lasts(cx.now).as_nanos();
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns });
        if let Some(clr) = self.clr.as_mut().filter(|clr| !clr.halved) {
            clr.halved = true;
            self.cut(cx, self.rate / 2.0, CutReason::NoFeedback);
        }
        if gone.is_some_and(|at| at <= cx.now) {
            self.vacate(cx, SwitchReason::Silent);
        }
    }

    pub(super) fn on_silence(&mut self, cx: &mut Cx<'_>) {
        let after_ns = self.asked.lasts(cx.now).as_nanos();
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns });
        self.asked.clear();
        self.unheard = true;
        self.cut(cx, self.rate / 2.0, CutReason::NoFeedback);
    }
}
