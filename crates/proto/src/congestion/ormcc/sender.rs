//! Sender half of ORMCC.

use alloc::collections::VecDeque;

use faircast_base::{BadInput, CutReason, Cx, Duration, Event, NodeId, Seq, SwitchReason, Time};

use super::config::OrmccConfig;
use super::cr::{Choice, Representative};
use super::rate::{CutUndo, DelayIncrease, Rate, Recent};
use super::silence::{Pauses, Silence};
use super::{OrmccAnnounce, OrmccReport, RTT0, cost};
use crate::congestion::common::average::MovingAverage;
use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::stamp::{RTT_MAX, echoed_us, microseconds};
use crate::congestion::{Carrier, Gauges, Pace, Permit, Regime, SenderControl};

/// Tolerance for echoes from the future, in microseconds, since clocks differ in speed.
const CLOCK_TOLERANCE_US: i32 = 1000;

/// Minimum round trip in seconds: shorter ones are below the error of clocks.
const RTT_MIN_S: f64 = 1e-4;

/// Weight of a new round trip (src: ormcc s2.1).
const RTT_GAIN: f64 = 0.125;

/// Probability that a far lower rate changes the representative at once; open in the paper.
const Q: f64 = 0.1;

/// Packets per round trip at which doubling ends.
const DOUBLING_MAX: f64 = 100_000.0;

/// Lead of the rate over the reported output, with the guard: packets per round trip, plus a share.
const LEAD_PACKETS: f64 = 1.0;
const LEAD_SHARE: f64 = 0.05;

/// Lead of the rate while doubling, as a multiple of the last reported output.
const DOUBLING_LEAD: f64 = 2.0;

/// ORMCC sender. Its size is independent of the number of receivers.
#[derive(Debug, Default)]
pub struct OrmccSender {
    pub(super) config: OrmccConfig,
    pub(super) cr: Representative,
    pub(super) rate: Rate,
    pub(super) pace: Pace,
    recent: Recent,
    /// Size of the largest packet so far, in bytes (s).
    pub(super) packet_bytes: f64,
    /// Round trip in seconds, smoothed; none before a sample.
    pub(super) rtt_s: MovingAverage,
    latest_rtt_s: Option<f64>,
    delay: DelayIncrease,
    output: Option<f64>,
    has_output: bool,
    last_sent_at: Option<Time>,
    repairs: Repairs,
    pub(super) pauses: Pauses,
    pub(super) silence: Silence,
    undo: CutUndo,
}

impl OrmccSender {
    /// Creates a sender without known receivers.
    pub fn new(config: OrmccConfig) -> Self {
        Self { rate: Rate::new(&config, 0.0), config, ..Self::default() }
    }

    pub(super) fn rtt_s(&self) -> f64 {
        self.rtt_s.get().unwrap_or(RTT0.as_secs_f64())
    }

    fn rtt(&self) -> Duration {
        Duration::from_secs_f64(self.rtt_s())
    }

    /// Adapts to the size of a packet to send. Rates count packets of the largest size so far.
    fn note_size(&mut self, now: Time, len: u32) {
        let bytes = f64::from(cost(len));
        let before = self.packet_bytes;
        if bytes <= before {
            return;
        }
        self.packet_bytes = bytes;
        if before == 0.0 {
            self.rate = Rate::new(&self.config, bytes);
            self.pace = Pace::new(8.0 * self.rate.bytes_per_s(), Pace::BURST);
            return;
        }
        self.rate.resize(bytes);
        if !self.has_output {
            self.rate.scale(bytes / before);
        }
        self.follow(now);
    }

    pub(super) fn follow(&mut self, now: Time) {
        self.pace.set(now, 8.0 * self.rate.bytes_per_s());
    }

    fn note_rate(&mut self, now: Time) {
        self.recent.note(now, self.rate.bytes_per_s(), self.rtt());
    }

    /// Returns the reported output, at most the recent sending rate: false claims must not matter.
    fn bounded_output(&mut self, now: Time, report: &OrmccReport) -> Option<f64> {
        self.note_rate(now);
        let reported = f64::from(report.rate?);
        self.has_output = true;
        Some(match self.config.output_bound {
            true => reported.min(self.recent.largest()),
            false => reported,
        })
    }

    fn note_kind(&mut self, cx: &mut Cx<'_>, repair: bool) {
        if !repair {
            (self.repairs.alone_since, self.repairs.has_lowered_rate) = (None, false);
            return;
        }
        let falls = self.repairs.on_repair(cx.now, self.rtt());
        if let Some(output) = self.output.filter(|_| falls)
            && self.rate.lower(self.config.beta * output)
        {
            cx.emit(Event::Cut { reason: CutReason::NoFeedback, window_milli: 0 });
            self.follow(cx.now);
        }
    }

    fn charge(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) {
        let now = cx.now;
        self.note_size(now, len);
        self.note_pause(now);
        let bytes = cost(len);
        let is_first = self.last_sent_at.is_none();
        let two_rtts = Duration::from_secs_f64(2.0 * self.rtt_s());
        let pause_min = two_rtts.max(self.pace.cost(self.packet_bytes as u32) * 4);
        let is_pause_over = self.last_sent_at.is_some_and(|at| now.since(at) > pause_min);
        // The rate grows only if it is the limit and a representative is alive.
        let late = now.since(self.pace.ready_at().min(now));
        let is_limited = late <= Pace::BURST.max(self.pace.cost(bytes)) && !is_first;
        if !repair || is_limited {
            self.note_kind(cx, repair);
        }
        if is_limited && !self.repairs.has_lowered_rate && self.is_trusted(now) {
            self.grow(now, bytes);
        }
        self.note_rate(now);
        // At the floor of a silent session, any packet costs as much as a full one.
        let is_silent = self.silence.decay.is_some();
        let bytes = if is_silent { self.packet_bytes as u32 } else { bytes };
        if is_first || is_pause_over {
            self.pace.restart(now, bytes);
        } else {
            self.pace.spend(now, bytes);
        }
        if is_pause_over {
            self.pauses.count = self.pauses.count.wrapping_add(1);
        }
        self.silence.all.sent(now);
        self.silence.of_cr.sent(now);
        self.last_sent_at = Some(now);
        self.cr.sent += 1;
    }

    fn grow(&mut self, now: Time, bytes: u32) {
        // The queue may have grown since the last report; random losses do not show that.
        let rtt_s = self.latest_rtt_s.map_or(self.rtt_s(), |latest_s| latest_s.max(self.rtt_s()));
        let most = self.growth_limit(rtt_s);
        self.rate.grow(f64::from(bytes), rtt_s, most);
        self.follow(now);
    }

    /// Returns the rate at which growth stops: near the output, since losses show late.
    fn growth_limit(&self, rtt_s: f64) -> f64 {
        let doubling = self.rate.doubling.is_some();
        let packet = self.packet_bytes / self.latest_rtt_s.unwrap_or(rtt_s);
        let most = if doubling { DOUBLING_MAX * packet } else { f64::INFINITY };
        if !self.config.is_improved() {
            return most;
        }
        let initial = self.config.initial_packets() * packet;
        match self.output {
            None => initial,
            Some(output) if doubling => most.min((DOUBLING_LEAD * output).max(initial)),
            Some(output) => output * (1.0 + LEAD_SHARE) + LEAD_PACKETS * packet,
        }
    }

    /// Returns the time since a report's echo, at least 0; `None` if it is impossible.
    fn echoed(now: Time, report: &OrmccReport) -> Option<Duration> {
        echoed_us(now, report.echo_us, CLOCK_TOLERANCE_US, RTT_MAX)
    }

    fn sample_rtt(&mut self, cx: &mut Cx<'_>, from: NodeId, sample_s: f64) {
        let rtt_ns = Duration::from_secs_f64(sample_s).as_nanos();
        cx.emit(Event::RttSample { node: from, rtt_ns });
        if self.rtt_s.get().is_none() {
            if self.config.is_improved() {
                return self.begin_path(cx.now, sample_s);
            }
            self.rtt_s = MovingAverage::of(RTT0.as_secs_f64());
        }
        self.rtt_s.add(sample_s, RTT_GAIN);
    }

    /// Starts the round trip anew for another path, since an average of two paths fits neither.
    fn begin_path(&mut self, now: Time, sample_s: f64) {
        let is_first = self.rtt_s.get().is_none();
        self.rtt_s = MovingAverage::of(sample_s);
        if is_first && self.rate.doubling.is_some() {
            // The initial rate assumed an unmeasured round trip.
            self.rate.raise(self.config.initial_packets() * self.packet_bytes / sample_s);
            self.follow(now);
        }
    }

    /// Forgets the output rate and the least round trip, which belong to another path or time.
    pub(super) fn forget_output(&mut self) {
        (self.delay, self.output) = (DelayIncrease::default(), None);
    }

    pub(super) fn dismiss(&mut self, cx: &mut Cx<'_>, reason: SwitchReason) {
        (self.cr.id, self.cr.average) = Default::default();
        self.silence.of_cr.clear();
        cx.emit(Event::Representative { node: None, reason });
    }

    fn appoint(
        &mut self,
        cx: &mut Cx<'_>,
        id: NodeId,
        reason: SwitchReason,
        sample_s: Option<f64>,
    ) {
        if self.config.is_improved() {
            match sample_s {
                Some(sample_s) => self.begin_path(cx.now, sample_s),
                None => self.rtt_s = MovingAverage::default(),
            }
        }
        self.cr.id = Some(id);
        self.cr.restart_interval();
        self.silence.of_cr.clear();
        self.forget_output();
        self.latest_rtt_s = None;
        cx.emit(Event::Representative { node: Some(id), reason });
    }

    fn on_indication(&mut self, cx: &mut Cx<'_>, from: NodeId, output: f64, sample_s: Option<f64>) {
        let choice = self.cr.judge(from, output, self.rate.interval, || cx.rng.chance(Q));
        match choice {
            Choice::Other => return,
            Choice::Cr => {}
            Choice::Switch(reason) => self.appoint(cx, from, reason, sample_s),
        }
        self.cr.restart_interval();
        self.remember_rate(cx.now);
        let (rtt_s, bytes) = (self.rtt_s(), self.packet_bytes);
        if self.rate.cut(&self.config, cx.now, output, rtt_s, bytes) {
            self.undo.on_cut();
            cx.emit(Event::Cut { reason: CutReason::Report, window_milli: 0 });
        }
        self.follow(cx.now);
    }

    fn remember_rate(&mut self, now: Time) {
        self.undo.remember(now, self.rate, self.rtt() + BOUND_MAX);
    }

    fn announce(&self, now: Time) -> OrmccAnnounce {
        let rtt_us = |rtt_s: f64| (rtt_s * 1e6 + 0.5).clamp(1.0, 4e9) as u32;
        // An overdue representative suppresses no receiver.
        let is_overdue = self.cr.is_overdue(self.rate.interval);
        let rate = self.cr.average.get().filter(|_| !is_overdue).map(|rate| rate as f32);
        OrmccAnnounce {
            sent_us: microseconds(now),
            rtt_us: self.rtt_s.get().map_or(0, rtt_us),
            representative: self.cr.id,
            rate: rate.filter(|rate| rate.is_normal()),
            feedback: self.config.feedback,
            alive: self.config.is_improved(),
            pauses: self.pauses.count,
        }
    }
}

impl SenderControl for OrmccSender {
    type Announce = OrmccAnnounce;
    type Report = OrmccReport;

    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, _repair: bool) -> Permit {
        self.note_size(cx.now, len);
        self.note_pause(cx.now);
        self.watch_silence(cx);
        // Silence matters only when a packet could leave: it needs no timer.
        self.pace.permit(cx.now)
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, _seq: Seq, len: u32) -> OrmccAnnounce {
        self.charge(cx, len, false);
        self.announce(cx.now)
    }

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Option<OrmccAnnounce> {
        // Repairs carry no announcement: routers may repeat them much later.
        self.charge(cx, len, true);
        self.repairs.sent(seq, cx.now);
        None
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier, report: &OrmccReport) {
        let Some(echoed) = Self::echoed(cx.now, report) else {
            return cx.emit(Event::BadInput { reason: BadInput::Absurd });
        };
        let sample_s = (echoed > Duration::ZERO).then(|| echoed.as_secs_f64().max(RTT_MIN_S));
        let output = self.bounded_output(cx.now, report);
        self.silence.all.clear();
        let decay = self.silence.decay.take();
        if self.config.is_improved() && self.cr.id.is_none() {
            self.appoint(cx, from, SwitchReason::First, sample_s);
        }
        if let Some(decay) = decay {
            self.resume(cx.now, decay.resume_to);
        }
        let is_cr = self.cr.id == Some(from);
        if is_cr {
            self.silence.of_cr.clear();
            self.output = output.or(self.output);
            let latest_s = sample_s.filter(|_| self.config.is_improved());
            self.latest_rtt_s = latest_s.or(self.latest_rtt_s);
        }
        let counts = match self.config.is_improved() {
            // All indications count (src: ormcc s2.1).
            false => report.congestion,
            // Growth needs the round trip of a full queue, as at a loss (src: ormcc s2.1).
            true => is_cr && (report.congestion || self.cr.average.get().is_none()),
        };
        if let Some(sample_s) = sample_s.filter(|_| counts) {
            self.sample_rtt(cx, from, sample_s);
        }
        // The packets of the last cut were only late.
        if report.withdraws
            && is_cr
            && let Some(before) =
                self.undo.take(cx.now, self.rtt() + BOUND_MAX, self.config.is_improved())
            && before.bytes_per_s() >= self.rate.bytes_per_s()
        {
            self.rate = before;
            self.follow(cx.now);
        }
        // Indications cover lost originals only, but the rest of a session may be repairs.
        let repair_rtt = echoed.max(self.rtt());
        let lost = |seq: Seq| self.repairs.was_lost(seq, cx.now, repair_rtt);
        if report.congestion || matches!(carrier, Carrier::Nak { first } if lost(first)) {
            match output {
                Some(output) => self.on_indication(cx, from, output, sample_s),
                // Fewer than n packets came, so there is no rate to compare or cut to.
                None if is_cr => {
                    self.remember_rate(cx.now);
                    self.rate.end_doubling(self.config.beta * self.rate.bytes_per_s());
                    self.follow(cx.now);
                }
                None => {}
            }
        } else if let Some(sample_s) = sample_s.filter(|_| is_cr)
            && self.packet_bytes > 0.0
            && self.rate.doubling.is_some()
            && self.delay.sample(sample_s)
        {
            // The output while the queue grew is the path's capacity.
            self.rate.end_doubling(output.unwrap_or(self.rate.bytes_per_s()));
            self.follow(cx.now);
        }
    }

    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        if self.cr.id == Some(from) {
            self.dismiss(cx, SwitchReason::Left);
        }
    }

    fn round_trip(&self, now: Time, report: &OrmccReport) -> Option<Duration> {
        Self::echoed(now, report).filter(|time| *time > Duration::ZERO)
    }

    fn reporter(report: &OrmccReport) -> Option<NodeId> {
        report.receiver
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            rate_bits_per_s: (self.packet_bytes > 0.0).then_some(8.0 * self.rate.bytes_per_s()),
            representative: self.cr.id,
            rtt: self.rtt_s.get().map(Duration::from_secs_f64),
            regime: match self.rate {
                _ if self.packet_bytes == 0.0 => Regime::Path,
                rate if rate.is_least() => Regime::Floor,
                rate if rate.is_starting() => Regime::Start,
                _ => Regime::Path,
            },
            ..Gauges::default()
        }
    }
}

/// Most repairs remembered, and for at most 4 s: repeated requests come within seconds.
const REPAIRS_MAX: usize = 1024;
const REMEMBERED: Duration = Duration::from_secs(4);

/// Recent repairs. A repeated request that cannot have crossed its repair shows the repair's loss.
#[derive(Clone, Debug, Default)]
pub(super) struct Repairs {
    sent: VecDeque<(Seq, Time)>,
    /// Start of the time in which only repairs leave; `None` while originals leave.
    alone_since: Option<Time>,
    /// True once the rate was lowered because only repairs leave. It must not grow then.
    pub(super) has_lowered_rate: bool,
}

impl Repairs {
    /// Notes a repair that waited for the rate. Returns true if the rate must fall: once, after a
    /// round trip in which only repairs left, because losses of repairs are reported rarely.
    pub(super) fn on_repair(&mut self, now: Time, rtt: Duration) -> bool {
        let since = *self.alone_since.get_or_insert(now);
        let falls = !self.has_lowered_rate && now.since(since) >= rtt;
        self.has_lowered_rate |= falls;
        falls
    }

    pub(super) fn sent(&mut self, seq: Seq, now: Time) {
        let old = |at: Time| now.since(at) >= REMEMBERED;
        while self.sent.len() >= REPAIRS_MAX || self.sent.front().is_some_and(|&(_, at)| old(at)) {
            self.sent.pop_front();
        }
        self.sent.push_back((seq, now));
    }

    pub(super) fn was_lost(&self, seq: Seq, now: Time, rtt: Duration) -> bool {
        // The queue may have grown since the round trip was measured.
        let crossing = rtt + rtt / 8;
        let latest = self.sent.iter().rev().find(|(other, _)| *other == seq);
        latest.is_some_and(|&(_, at)| (crossing..REMEMBERED).contains(&now.since(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;

    #[test]
    fn a_repair_that_is_asked_for_again_after_a_round_trip_was_lost() {
        let rtt = Duration::from_millis(80);
        let mut repairs = Repairs::default();
        repairs.sent(Seq::new(5), at(0));
        repairs.sent(Seq::new(6), at(10));
        for (seq, ms, want) in
            [(5, 89, false), (5, 90, true), (6, 99, false), (6, 100, true), (7, 100, false)]
        {
            assert_eq!(repairs.was_lost(Seq::new(seq), at(ms), rtt), want, "{seq} at {ms} ms");
        }
        repairs.sent(Seq::new(5), at(100));
        assert!(!repairs.was_lost(Seq::new(5), at(150), rtt), "the request crossed this one");
        assert!(repairs.was_lost(Seq::new(5), at(190), rtt));
        assert!(!repairs.was_lost(Seq::new(5), at(4100), rtt), "somebody may have come since");
    }

    #[test]
    fn any_number_of_repairs_takes_little_memory() {
        let mut repairs = Repairs::default();
        for n in 0..10_000 {
            repairs.sent(Seq::new(n), at(1));
            assert!(repairs.sent.len() <= REPAIRS_MAX);
        }
        repairs.sent(Seq::new(0), at(5000));
        assert_eq!(repairs.sent.len(), 1);
    }
}
