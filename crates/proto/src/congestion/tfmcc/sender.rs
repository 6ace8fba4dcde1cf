//! Sender half of TFMCC. A report's cost does not depend on the group: the only state of receivers
//! is the CLR and queued echoes.

use faircast_base::{BadInput, Cx, Duration, Event, NodeId, Seq, SwitchReason, Time};

use super::rounds::{Echoes, Rounds, Waiting};
use super::{
    CLOCK_TOLERANCE_US, Echo, RTT_ABSURD, RTT_MAX_INITIAL, RTT_MIN, RTT_WEIGHT_CLR, TfmccAnnounce,
    TfmccReport, USUAL_BYTES,
};
use crate::congestion::common::silence::Unanswered;
use crate::congestion::common::stamp::{echoed_us, microseconds};
use crate::congestion::{Carrier, Gauges, Pace, Permit, Regime, SenderControl};

mod rate;

use rate::{PacketSize, SlowStart};

/// Most packets at one moment: hosts lose bursts longer than their queues, whatever the rate.
const MOMENT_PACKETS_MAX: u32 = 256;

const MOMENT: Duration = Duration::from_micros(50);

/// Minimum time between two wake-ups of an idle sender by receivers without reports: 3 s.
const WAKE_INTERVAL: Duration = Duration::from_secs(3);

/// TFMCC sender: see the module's documentation.
#[derive(Debug, Default)]
pub struct TfmccSender {
    pace: Pace,
    /// X in bits per second, with headers.
    pub(super) rate: f64,
    size: PacketSize,
    slow_start: SlowStart,
    sent_at: Time,
    burst: u32,
    rounds: Rounds,
    echoes: Echoes,
    /// Current limiting receiver. It is kept while it is silent, unless it left.
    clr: Option<Clr>,
    /// Reason for which the CLR is gone, until another receiver takes its place.
    vacancy: Option<SwitchReason>,
    /// Time until which the rate must not rise, after a CLR left.
    held_until: Time,
    /// Latest time at which the CLR's report changed the rate or confirmed it.
    adjusted_at: Time,
    silence: Silence,
    /// True while the application or an upper bound, not this rate, limits sending.
    is_app_limited: bool,
}

#[derive(Debug, Default)]
struct Silence {
    of_clr: Unanswered,
    of_all: Unanswered,
    /// True if all receivers were silent until the next report.
    is_total: bool,
    /// Departure of the latest packet that asked for reports.
    asked_at: Time,
    /// Time at which a receiver without reports last woke the sender.
    woken_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Clr {
    latest: Waiting,
    rtt: Duration,
    /// Round trip, smoothed as the receiver smooths its own.
    rtt_smoothed: Duration,
    since: Time,
    /// True if the latest timestamp was echoed, and the time of the latest echo.
    echoed: bool,
    echoed_at: Option<Time>,
    /// True if the CLR's silence has halved the rate.
    halved: bool,
}

impl TfmccSender {
    /// Creates a sender that starts with one packet per guessed round trip.
    pub fn new() -> Self {
        let rate = USUAL_BYTES * 8.0 / RTT_MAX_INITIAL.as_secs_f64();
        Self {
            pace: Pace::new(rate, Pace::BURST),
            rate,
            slow_start: SlowStart::new(),
            rounds: Rounds::new(),
            ..Self::default()
        }
    }

    fn gap(&self) -> Duration {
        Duration::from_secs_f64(self.size.bits() / self.rate)
    }

    fn rtt_max(&self) -> Duration {
        self.rounds.rtt_max(self.gap())
    }

    fn announced_rtt_max(&self) -> Duration {
        self.rounds.announced_rtt_max(self.gap())
    }

    fn first_rate(&self) -> f64 {
        self.size.largest_bits() / self.rounds.measured_rtt_max().as_secs_f64()
    }

    fn appoint(
        &mut self,
        cx: &mut Cx<'_>,
        id: NodeId,
        rtt: Duration,
        report: &TfmccReport,
        reason: SwitchReason,
    ) {
        self.echoes.forget(id);
        self.clr = Some(Clr {
            latest: Waiting { receiver: id, at: cx.now, report: *report },
            rtt,
            rtt_smoothed: rtt,
            since: cx.now,
            echoed: false,
            echoed_at: None,
            halved: false,
        });
        self.vacancy = None;
        self.silence.of_clr.clear();
        cx.emit(Event::Representative { node: Some(id), reason });
    }

    fn vacate(&mut self, cx: &mut Cx<'_>, reason: SwitchReason) {
        if self.vacancy.is_none() && self.clr.is_some() {
            self.vacancy = Some(reason);
            self.silence.of_clr.clear();
            self.slow_start.climb = None;
            if reason == SwitchReason::Left {
                self.clr = None;
            }
            cx.emit(Event::Representative { node: None, reason });
            // deviates: a new round starts, so that other receivers answer now.
            self.rounds.begin(cx.now, self.gap());
        }
    }

    fn on_clr_report(&mut self, cx: &mut Cx<'_>, rate: f64, rtt: Duration, report: &TfmccReport) {
        let Some(clr) = &mut self.clr else { return };
        clr.rtt_smoothed =
            clr.rtt_smoothed.mul_f64(RTT_WEIGHT_CLR) + rtt.mul_f64(1.0 - RTT_WEIGHT_CLR);
        clr.latest = Waiting { receiver: clr.latest.receiver, at: cx.now, report: *report };
        (clr.rtt, clr.halved, clr.echoed) = (rtt, false, false);
        self.silence.of_clr.clear();
        self.follow(cx, (rate, report.have_loss), rtt);
    }

    /// Processes a report of a receiver other than the CLR: cases 1 to 3 (src: RFC 4654 s3.3).
    fn on_other_report(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (rate, rtt): (f64, Duration),
        report: &TfmccReport,
        resumed: bool,
    ) {
        // Suppression uses the rate as reported.
        self.rounds.on_other_report(report.bits_per_s);
        if let Some(reason) = self.vacancy {
            let back = self.clr.is_some_and(|clr| clr.latest.receiver == from);
            self.appoint(cx, from, rtt, report, reason);
            if !resumed && rate > self.rate && !back {
                self.held_until = cx.now + self.rounds.span;
            }
        } else if self.clr.is_none() {
            self.adjusted_at = cx.now - self.rtt_max().min(cx.now.since(Time::ZERO));
            self.appoint(cx, from, rtt, report, SwitchReason::First);
        } else if rate < self.rate {
            self.appoint(cx, from, rtt, report, SwitchReason::Slower);
        } else {
            return self.echoes.push(Waiting { receiver: from, at: cx.now, report: *report });
        }
        self.follow(cx, (rate, report.have_loss), rtt);
    }

    /// Returns the echo for the packet that leaves now (src: RFC 4654 s3.5).
    fn next_echo(&mut self, now: Time) -> Option<Echo> {
        let round = self.rounds.span;
        let urgent = |clr: &Clr| {
            let due = clr.echoed_at.is_none_or(|at| now.since(at) >= round);
            due || !clr.latest.report.have_rtt && !clr.echoed
        };
        if !self.clr.as_ref().is_some_and(urgent)
            && let Some(waiting) = self.echoes.0.pop_front()
        {
            return Some(waiting.echo(now, false));
        }
        let clr = self.clr.as_mut()?;
        (clr.echoed, clr.echoed_at) = (true, Some(now));
        Some(clr.latest.echo(now, true))
    }

    fn charge(&mut self, now: Time, len: u32) {
        let bytes = len + self.size.header_bytes;
        let size = f64::from(bytes);
        self.size.largest = self.size.largest.max(size);
        let idle = now.since(self.pace.ready_at().max(self.sent_at));
        if self.size.size.get().is_some() && idle > Pace::BURST {
            self.on_pause(now, idle);
        }
        self.burst = if self.sent_at == now { self.burst + 1 } else { 1 };
        self.sent_at = now;
        if self.size.is_replaced_by(size) {
            self.set_rate(now, self.rate * size / self.size.bytes());
        }
        self.size.add(size);
        self.pace.spend(now, bytes);
    }
}

impl SenderControl for TfmccSender {
    type Announce = TfmccAnnounce;
    type Report = TfmccReport;

    fn set_header(&mut self, bytes: u32) {
        self.size.header_bytes = bytes;
    }

    fn permit(&mut self, cx: &mut Cx<'_>, _len: u32, _repair: bool) -> Permit {
        self.settle(cx.now);
        let ready = self.pace.ready_at();
        if ready <= cx.now {
            let is_full = self.sent_at == cx.now && self.burst >= MOMENT_PACKETS_MAX;
            return if is_full { Permit::At(cx.now + MOMENT) } else { Permit::Now };
        }
        self.is_app_limited = false;
        let top = self.slow_start.climb.map_or(ready, |climb| climb.start + climb.span);
        Permit::At(ready.min(top))
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, _seq: Seq, len: u32) -> TfmccAnnounce {
        self.settle(cx.now);
        self.charge(cx.now, len);
        self.silence.asked_at = cx.now;
        self.silence.of_all.sent(cx.now);
        self.silence.of_clr.sent(cx.now);
        self.rounds.advance(cx.now, self.gap());
        let rtt_max_us = self.announced_rtt_max().as_nanos() / 1000;
        TfmccAnnounce {
            sent_us: microseconds(cx.now),
            echo: self.next_echo(cx.now),
            round: self.rounds.number,
            rtt_max_us: rtt_max_us.clamp(1, u64::from(u32::MAX)) as u32,
            suppress_above: self.rounds.suppress_above,
        }
    }

    /// Charges a repair to the rate. It asks for reports if no packet did for a round trip.
    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Option<TfmccAnnounce> {
        if cx.now.since(self.silence.asked_at) >= self.rtt_max() {
            return Some(self.on_sent(cx, seq, len));
        }
        self.settle(cx.now);
        self.charge(cx.now, len);
        None
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, _: Carrier, report: &TfmccReport) {
        let from_the_future = (self.rounds.number.wrapping_sub(report.round) as i8) < 0;
        let sound = report.bits_per_s.is_finite() && report.bits_per_s > 0.0 && !from_the_future;
        let Some(rtt) = self.round_trip(cx.now, report).filter(|_| sound) else {
            return cx.emit(Event::BadInput { reason: BadInput::Absurd });
        };
        self.settle(cx.now);
        cx.emit(Event::RttSample { node: from, rtt_ns: rtt.as_nanos() });
        let clr = self.clr.filter(|_| self.vacancy.is_none()).map(|clr| clr.latest.receiver)
            == Some(from);
        if report.leaving {
            if clr {
                self.vacate(cx, SwitchReason::Left);
            }
            return;
        }
        self.rounds.measured(cx.now, from, rtt, self.gap());
        if report.on_nak {
            return self.on_unreached_receiver(cx);
        }
        self.silence.of_all.clear();
        self.size.is_mean = true;
        let mut rate = f64::from(report.bits_per_s);
        if report.have_loss && !report.have_rtt {
            // The receiver assumed R_max; the true round trip is known here (src: RFC 4654 s3.3).
            rate *= self.announced_rtt_max().as_secs_f64() / rtt.as_secs_f64();
        }
        // deviates: old losses do not count after a pause; slow start goes to the receiver's rate.
        let may_be_old = self.slow_start.ceiling.is_finite() && rate > self.rate;
        if report.have_loss && self.slow_start.is_active && !may_be_old {
            self.slow_start.end();
        }
        let resumed = self.resume(cx.now, rate, report.have_loss);
        if !report.have_loss && cx.now < self.slow_start.lossless_until {
            rate = rate.max(self.rate);
        }
        if clr {
            self.on_clr_report(cx, rate, rtt, report);
        } else {
            self.on_other_report(cx, from, (rate, rtt), report, resumed);
        }
    }

    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        self.echoes.forget(from);
        if self.clr.is_some_and(|clr| clr.latest.receiver == from) {
            self.vacate(cx, SwitchReason::Left);
        }
    }

    /// Wakes a sender slow for lack of reports: joiners need not wait for a slow feedback round.
    fn on_unreached_receiver(&mut self, cx: &mut Cx<'_>) {
        let alone = self.clr.is_none() || self.vacancy.is_some();
        let rested = self.silence.woken_at.is_none_or(|at| cx.now.since(at) >= WAKE_INTERVAL);
        // The distance of a receiver that comes after all others left is unknown.
        let first_rate =
            self.first_rate().min(self.size.largest_bits() / RTT_MAX_INITIAL.as_secs_f64());
        if alone && rested && self.rate < first_rate {
            self.silence.woken_at = Some(cx.now);
            self.silence.of_all.clear();
            self.set_rate(cx.now, first_rate);
            self.rounds.begin(cx.now, self.gap());
        }
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {
        self.is_app_limited = true;
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.settle(cx.now);
        if self.clr_deadline().is_some_and(|at| at <= cx.now) {
            self.on_clr_silence(cx);
        }
        if self.deadline().is_some_and(|at| at <= cx.now) {
            self.on_silence(cx);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.clr_deadline(), self.deadline()].into_iter().flatten().min()
    }

    fn round_trip(&self, now: Time, report: &TfmccReport) -> Option<Duration> {
        let elapsed = echoed_us(now, report.echo_us, CLOCK_TOLERANCE_US, RTT_ABSURD)?;
        Some(elapsed.max(RTT_MIN))
    }

    fn reporter(report: &TfmccReport) -> Option<NodeId> {
        report.receiver
    }

    fn gauges(&self) -> Gauges {
        let header = f64::from(self.size.header_bytes) / self.size.bytes();
        let clr = self.clr.filter(|_| self.vacancy.is_none());
        Gauges {
            rate_bits_per_s: Some(self.rate * (1.0 - header)),
            representative: clr.map(|clr| clr.latest.receiver),
            rtt: clr.map(|clr| clr.rtt),
            regime: if self.slow_start.is_active { Regime::Start } else { Regime::Path },
            ..Gauges::default()
        }
    }
}
