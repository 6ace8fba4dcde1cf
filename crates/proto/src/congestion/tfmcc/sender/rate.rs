//! Sending rate of TFMCC: response to reports, slow start, decrease after pauses and silence, and
//! the packet size that rates depend on.

use faircast_base::{CutReason, Cx, Duration, Event, SwitchReason, Time, TimeoutKind};

use super::{Clr, TfmccSender};
use crate::congestion::common::average::MovingAverage;
use crate::congestion::tfmcc::{SIZE_GAIN, SLOWEST_INTERVAL_S, USUAL_BYTES};

/// Maximum rate in bits per second (src: RFC 4654 s2.2.1: 400 Gb/s).
const RATE_MAX: f64 = 4e11;

/// Lowest share of the rate that remains after one report; chosen.
const LEFT_MIN: f64 = 0.25;

/// Pause after which the sender restarts, in largest round trips (src: RFC 4654 s3.6).
const IDLE_AFTER: u64 = 10;

/// Largest round trips after a restart in which receivers without losses do not lower the rate.
const NEW_IDLE: u64 = 2;
const NEW_UNHEARD: u64 = 6;

/// Minimum round trip for judging silence: hosts may be busy for longer than a LAN's round trip.
const SILENCE_MIN: Duration = Duration::from_millis(25);

/// Slow start (src: RFC 4654 s3.6).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowStart {
    pub(super) is_active: bool,
    /// Rate at which slow start ends: the rate before a pause (X').
    pub(super) ceiling: f64,
    /// Present rise of the rate, spread over a round trip.
    pub(super) climb: Option<Climb>,
    /// Time until which receivers without losses do not lower the rate.
    pub(super) lossless_until: Time,
}

impl SlowStart {
    pub(super) fn new() -> Self {
        Self { is_active: true, ceiling: f64::INFINITY, ..Self::default() }
    }

    pub(super) fn end(&mut self) {
        (self.is_active, self.climb) = (false, None);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    pub(super) start: Time,
    pub(super) span: Duration,
    from: f64,
    to: f64,
}

impl TfmccSender {
    pub(super) fn set_rate(&mut self, now: Time, rate: f64) {
        let slowest = self.size.bits() / SLOWEST_INTERVAL_S;
        self.rate = rate.clamp(slowest, RATE_MAX);
        self.pace.set(now, self.rate);
    }

    pub(super) fn cut(&mut self, cx: &mut Cx<'_>, rate: f64, reason: CutReason) {
        self.slow_start.climb = None;
        if rate < self.rate {
            self.set_rate(cx.now, rate);
            cx.emit(Event::Cut { reason, window_milli: 0 });
        }
    }

    pub(super) fn settle(&mut self, now: Time) {
        let Some(Climb { start, span, from, to }) = self.slow_start.climb else { return };
        let share = now.since(start).as_secs_f64() / span.as_secs_f64();
        if share >= 1.0 {
            self.slow_start.climb = None;
        }
        self.set_rate(now, from + (to - from) * share.min(1.0));
    }

    /// Follows the CLR's `rate`. A fall is immediate. A rise is at most one packet per R_max each
    /// R_max, in slow start spread over one round trip (src: RFC 4654 s3.3, s3.6).
    pub(super) fn follow(&mut self, cx: &mut Cx<'_>, (rate, lossy): (f64, bool), rtt: Duration) {
        let now = cx.now;
        let since = now.since(self.adjusted_at).as_secs_f64();
        self.adjusted_at = now;
        if self.is_app_limited && self.slow_start.is_active {
            // Rare small messages do not measure the network.
            return self.set_rate(now, self.rate.max(self.first_rate()));
        }
        if rate <= self.rate {
            // deviates: the RFC has no lowest share. The next report corrects a forged one.
            return self.cut(cx, rate.max(self.rate * LEFT_MIN), CutReason::Report);
        }
        if now < self.held_until || self.is_app_limited {
            return;
        }
        let rtt_max = self.rtt_max().as_secs_f64();
        let limited = self.rate + self.size.bits() / rtt_max * (since / rtt_max).min(1.0);
        if self.slow_start.is_active {
            // Twice the received rate is at most twice the sent rate, whatever a report claims.
            let limited = if lossy { limited.min(rate) } else { limited };
            let to =
                rate.min(2.0 * self.rate).max(limited).min(self.slow_start.ceiling.max(limited));
            self.slow_start.is_active = to < self.slow_start.ceiling;
            self.slow_start.climb = Some(Climb { start: now, span: rtt, from: self.rate, to });
        } else {
            self.set_rate(now, rate.min(limited));
        }
    }

    /// Restarts at a new session's rate after a silence of all (deviates). True after such one.
    pub(super) fn resume(&mut self, now: Time, rate: f64, have_loss: bool) -> bool {
        let was_total = core::mem::take(&mut self.silence.is_total);
        if was_total {
            self.adjusted_at = now;
            // Without losses, reports state twice the receive rate, which was near zero.
            let rate = if have_loss { rate } else { f64::INFINITY };
            self.set_rate(now, rate.min(self.first_rate()).max(self.rate));
            self.begin_slow_start(now, f64::INFINITY, NEW_UNHEARD);
        }
        was_total
    }

    /// Starts slow start up to `ceiling`, which lossless receivers do not end for some round trips.
    fn begin_slow_start(&mut self, now: Time, ceiling: f64, lossless_for: u64) {
        let before = self.slow_start;
        self.slow_start = SlowStart {
            is_active: true,
            ceiling: if before.is_active { before.ceiling.max(ceiling) } else { ceiling },
            climb: None,
            lossless_until: now + self.rtt_max() * lossless_for,
        };
    }

    /// Handles a packet after `idle` time: the rate halves per ten R_max; slow start follows.
    pub(super) fn on_pause(&mut self, now: Time, idle: Duration) {
        self.silence.of_all.pause(idle);
        self.silence.of_clr.pause(idle);
        let span = self.rtt_max() * IDLE_AFTER;
        if idle < span {
            return;
        }
        let halvings = (idle.as_nanos() / span.as_nanos().max(1)).min(64) as i32;
        let before = self.rate;
        let slower = (0..halvings).fold(before, |rate, _| rate / 2.0);
        self.set_rate(now, slower.max(self.first_rate()).min(before));
        self.begin_slow_start(now, before, NEW_IDLE);
    }
}

/// Silence of the CLR that halves the rate, in round trips (src: RFC 4654 s3.3).
const HALVE_AFTER: u64 = 4;

/// Silence after which the CLR is gone, or the rate halves, in round trips (src: RFC 4654 s3.3).
const GONE_AFTER: u64 = 10;

impl TfmccSender {
    /// Returns the round trip for judging the CLR's silence; at slow rates the packet interval. The
    /// latest sample falls too fast when a queue drains, before reports become more frequent.
    pub(super) fn silence_rtt(&self, clr: &Clr) -> Duration {
        clr.rtt.max(clr.rtt_smoothed).max(self.gap()).max(SILENCE_MIN)
    }

    pub(super) fn clr_deadline(&self) -> Option<Time> {
        let clr = self.clr.filter(|_| self.vacancy.is_none())?;
        let rtt = self.silence_rtt(&clr);
        let gone_at = self.silence.of_clr.after(GONE_AFTER, rtt);
        if clr.halved {
            return gone_at;
        }
        // src: RFC 4654 s3.3: a new CLR may not know its role yet.
        let halve = self.silence.of_clr.after(HALVE_AFTER, rtt)?.max(clr.since + rtt * GONE_AFTER);
        Some(gone_at.map_or(halve, |gone_at| gone_at.min(halve)))
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.silence.of_all.after(GONE_AFTER, self.announced_rtt_max().max(SILENCE_MIN))
    }

    pub(super) fn on_clr_silence(&mut self, cx: &mut Cx<'_>) {
        let Some(clr) = self.clr else { return };
        let gone_at = self.silence.of_clr.after(GONE_AFTER, self.silence_rtt(&clr));
        let after_ns = self.silence.of_clr.lasts(cx.now).as_nanos();
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns });
        if let Some(clr) = self.clr.as_mut().filter(|clr| !clr.halved) {
            clr.halved = true;
            self.cut(cx, self.rate / 2.0, CutReason::NoFeedback);
        }
        if gone_at.is_some_and(|at| at <= cx.now) {
            self.vacate(cx, SwitchReason::Silent);
        }
    }

    pub(super) fn on_silence(&mut self, cx: &mut Cx<'_>) {
        let after_ns = self.silence.of_all.lasts(cx.now).as_nanos();
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns });
        self.silence.of_all.clear();
        self.silence.is_total = true;
        self.cut(cx, self.rate / 2.0, CutReason::NoFeedback);
    }
}

/// Packet size of the sender, with headers, in bytes.
#[derive(Debug, Default)]
pub(super) struct PacketSize {
    /// Bytes of a data packet beside its payload, part of all rates (src: RFC 4654 s4.3.4).
    pub(super) header_bytes: u32,
    /// Packet size (s): the mean, or before any report the largest.
    pub(super) size: MovingAverage,
    pub(super) largest: f64,
    pub(super) is_mean: bool,
}

impl PacketSize {
    pub(super) fn bytes(&self) -> f64 {
        self.size.get().unwrap_or(USUAL_BYTES)
    }

    pub(super) fn bits(&self) -> f64 {
        self.bytes() * 8.0
    }

    pub(super) fn largest_bits(&self) -> f64 {
        8.0 * if self.largest > 0.0 { self.largest } else { USUAL_BYTES }
    }

    /// Returns true if a packet of `bytes` will replace the size: the first may have been short.
    pub(super) fn is_replaced_by(&self, bytes: f64) -> bool {
        self.size.get().is_none_or(|largest| !self.is_mean && bytes > largest)
    }

    pub(super) fn add(&mut self, bytes: f64) {
        if self.is_replaced_by(bytes) {
            self.size = MovingAverage::of(bytes);
        } else if self.is_mean {
            self.size.add(bytes, SIZE_GAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts_until_a_report_and_then_the_mean() {
        let mut size = PacketSize::default();
        assert_eq!((size.bytes(), size.largest_bits()), (USUAL_BYTES, 8.0 * USUAL_BYTES));
        for (bytes, replaced, want) in
            [(100.0, true, 100.0), (900.0, true, 900.0), (50.0, false, 900.0)]
        {
            assert_eq!(size.is_replaced_by(bytes), replaced, "{bytes}");
            size.largest = size.largest.max(bytes);
            size.add(bytes);
            assert_eq!(size.bytes(), want, "{bytes}");
        }
        size.is_mean = true;
        assert!(!size.is_replaced_by(1860.0));
        size.largest = 1860.0;
        size.add(1860.0);
        assert_eq!((size.bytes(), size.largest_bits()), (960.0, 8.0 * 1860.0));
    }
}
