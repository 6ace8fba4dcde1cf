//! TFMCC's sending rate: the response to reports, slow start, and the decrease by pauses and
//! silence.

use faircast_base::{CutReason, Cx, Duration, Event, SwitchReason, Time, TimeoutKind};

use super::{Clr, TfmccSender};
use crate::congestion::tfmcc::SLOWEST_INTERVAL_S;

/// No faster than this, in bits per second (src: RFC 4654 s2.2.1: 400 Gb/s).
const RATE_MAX: f64 = 4e11;

/// Least share of the rate that one report leaves; chosen.
const LEFT_MIN: f64 = 0.25;

/// Largest round trips without a packet after which a sender begins anew (src: RFC 4654 s3.6).
const IDLE_AFTER: u64 = 10;

/// Largest round trips for which the rate of a sender that began anew stands, whatever receivers say
/// that have lost nothing: their receive rates are those of the few packets before.
const NEW_IDLE: u64 = 2;
const NEW_UNHEARD: u64 = 6;

/// Round trips count as at least this where the sender judges by silence: hosts may be busy for
/// longer than a LAN's round trip.
const SILENCE_MIN: Duration = Duration::from_millis(25);

/// An even rise of the rate.
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

    /// Where a climb has brought the rate.
    pub(super) fn settle(&mut self, now: Time) {
        let Some(Climb { start, span, from, to }) = self.climb else { return };
        let share = now.since(start).as_secs_f64() / span.as_secs_f64();
        if share >= 1.0 {
            self.climb = None;
        }
        self.set_rate(now, from + (to - from) * share.min(1.0));
    }

    /// The CLR could take `rate`: the sender falls to it at once and rises to it by at most one packet
    /// per largest round trip each, in slow start within one round trip (src: RFC 4654 s3.3, s3.6).
    /// A rate that follows from losses bounds slow start too.
    pub(super) fn follow(&mut self, cx: &mut Cx<'_>, (rate, lossy): (f64, bool), rtt: Duration) {
        let now = cx.now;
        let since = now.since(self.adjusted_at).as_secs_f64();
        self.adjusted_at = now;
        if self.idle && self.slow_start {
            // Small messages now and then say nothing of the network; full packets after them need
            // not wait for each other longer than at the beginning.
            return self.set_rate(now, self.rate.max(self.first_rate()));
        }
        if rate <= self.rate {
            // deviates: the RFC has no least share. A damaged or forged report is contradicted by the next one; a path
            // that is slower is reported again within a round trip.
            return self.cut(cx, rate.max(self.rate * LEFT_MIN), CutReason::Report);
        }
        if now < self.held_until || self.idle {
            return;
        }
        let rtt_max = self.rtt_max().as_secs_f64();
        let limited = self.rate + self.packet_bits() / rtt_max * (since / rtt_max).min(1.0);
        if self.slow_start {
            // Twice what was received cannot be more than twice what was sent; a false report may
            // claim it.
            let limited = if lossy { limited.min(rate) } else { limited };
            let to = rate.min(2.0 * self.rate).max(limited).min(self.ceiling.max(limited));
            self.slow_start = to < self.ceiling;
            self.climb = Some(Climb { start: now, span: rtt, from: self.rate, to });
        } else {
            self.set_rate(now, rate.min(limited));
        }
    }

    /// After a silence of all, which took the rate towards the floor, it begins where a new session
    /// would. Returns whether there was such a silence.
    ///
    /// deviates: one packet more per 8 s each 8 s would take minutes.
    pub(super) fn resume(&mut self, now: Time, rate: f64, have_loss: bool) -> bool {
        let unheard = core::mem::take(&mut self.unheard);
        if unheard {
            self.adjusted_at = now;
            // Without a loss they say twice what they got, which was next to nothing.
            let rate = if have_loss { rate } else { f64::INFINITY };
            self.set_rate(now, rate.min(self.first_rate()).max(self.rate));
            self.begin_anew(now, f64::INFINITY, NEW_UNHEARD);
        }
        unheard
    }

    /// Slow start begins at the present rate.
    pub(super) fn begin_anew(&mut self, now: Time, ceiling: f64, new_for: u64) {
        self.ceiling = if self.slow_start { self.ceiling.max(ceiling) } else { ceiling };
        (self.slow_start, self.climb) = (true, None);
        self.new_until = now + self.rtt_max() * new_for;
    }

    /// A rate that a report asks for, while the sender is new.
    pub(super) fn at_least(&self, now: Time, rate: f64, have_loss: bool) -> f64 {
        if !have_loss && now < self.new_until { rate.max(self.rate) } else { rate }
    }

    /// A packet leaves after so long without one, though the rate would have let one go: that is no
    /// silence of receivers, and what the rate was worth then is not known any more. It is halved for
    /// each ten of the largest round trips, and slow start leads back to it.
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

/// Round trips without a report of the CLR after which the rate is halved (src: RFC 4654 s3.3).
const HALVE_AFTER: u64 = 4;

/// Round trips without one after which the CLR counts as gone, or without any from anybody after
/// which the rate is halved (src: RFC 4654 s3.3).
const GONE_AFTER: u64 = 10;

impl TfmccSender {
    /// The round trip by which the CLR's silence is judged. At slow rates it has nothing to report on
    /// for the time between two packets.
    ///
    /// The RFC says "RTTs" and not whose. What a report shows falls at once when a queue has drained,
    /// to a fifteenth where 50 packets stood in it, while the receiver reports once in its smoothed
    /// round trip still: by the latest alone it would be silent, and the rate halved and halved again
    /// after each full queue.
    pub(super) fn silence_rtt(&self, clr: &Clr) -> Duration {
        clr.rtt.max(clr.rtt_smoothed).max(self.gap()).max(SILENCE_MIN)
    }

    /// When silence of the CLR has its next consequence.
    pub(super) fn clr_deadline(&self) -> Option<Time> {
        let clr = self.clr.filter(|_| self.vacant.is_none())?;
        let rtt = self.silence_rtt(&clr);
        let gone = self.clr_asked.after(GONE_AFTER, rtt);
        if clr.halved {
            return gone;
        }
        // src: RFC 4654 s3.3: a young one may not know yet that it is the CLR.
        let halve = self.clr_asked.after(HALVE_AFTER, rtt)?.max(clr.since + rtt * GONE_AFTER);
        Some(gone.map_or(halve, |gone| gone.min(halve)))
    }

    /// When silence of all has its next consequence.
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
        // It begins again with the next packet.
        self.asked.clear();
        self.unheard = true;
        self.cut(cx, self.rate / 2.0, CutReason::NoFeedback);
    }
}
