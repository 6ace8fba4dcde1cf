//! Sender half of ORMCC.

use faircast_base::{BadInput, CutReason, Cx, Duration, Event, NodeId, Seq, SwitchReason, Time};

use super::choice::{Averages, Choice, Standing};
use super::config::OrmccConfig;
use super::rate::Rate;
use super::recent::Recent;
use super::repairs::Repairs;
use super::{OrmccAnnounce, OrmccReport, RTT0, cost};
use crate::congestion::Pace;
use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::silence::Unanswered;
use crate::congestion::common::stamp::{RTT_MAX, echoed_us, microseconds};
use crate::congestion::{Carrier, Gauges, Permit, Regime, SenderControl};

mod silence;

/// Tolerance for echoes from the future, in microseconds, since clocks differ in speed.
const CLOCK_TOLERANCE_US: i32 = 1000;

/// Minimum round trip in seconds: shorter ones are below the error of clocks.
const RTT_LEAST: f64 = 1e-4;

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

/// Consecutive delayed round trips that end doubling. HyStart defines the permitted delay.
const DELAYED_MAX: u32 = 3;

/// Most consecutive cuts that can be reverted, and the allowance gained with each cut. Chosen: a
/// learnt tolerance is forgotten after sixteen losses.
const TAKE_BACKS_MAX: f64 = 4.0;
const TAKE_BACKS_PER_CUT: f64 = 1.0 / 16.0;

/// ORMCC sender. Its size is independent of the number of receivers.
#[derive(Debug, Default)]
pub struct OrmccSender {
    config: OrmccConfig,
    averages: Averages,
    representative: Option<NodeId>,
    rate: Rate,
    pace: Pace,
    recent: Recent,
    bytes: f64,
    pub(super) rtt: Option<f64>,
    latest: Option<f64>,
    least: Option<f64>,
    delayed: u32,
    output: Option<f64>,
    told: bool,
    /// Packets sent in all, and up to the representative's latest report of congestion.
    sent: u64,
    sent_at_congestion: u64,
    last_sent: Option<Time>,
    repairs: Repairs,
    /// Start of the time in which only repairs leave; `None` while originals leave.
    alone: Option<Time>,
    lowered: bool,
    pauses: u8,
    busy: Option<Time>,
    unheard: Unanswered,
    unheard_own: Unanswered,
    /// Time and rate of the last cut while it can be reverted, and the remaining allowance.
    before_cut: Option<(Time, Rate)>,
    take_backs: f64,
    silent: Option<(Time, f64)>,
}

impl OrmccSender {
    /// Creates a sender without known receivers.
    pub fn new(config: OrmccConfig) -> Self {
        Self {
            rate: Rate::new(&config, 0.0),
            take_backs: TAKE_BACKS_MAX,
            config,
            ..Self::default()
        }
    }

    fn round_trip_s(&self) -> f64 {
        self.rtt.unwrap_or(RTT0.as_secs_f64())
    }

    /// Adapts to the size of a packet to send. Rates count packets of the largest size so far.
    fn meet(&mut self, now: Time, len: u32) {
        let bytes = f64::from(cost(len));
        let before = self.bytes;
        if bytes <= before {
            return;
        }
        self.bytes = bytes;
        if before == 0.0 {
            self.rate = Rate::new(&self.config, bytes);
            self.pace = Pace::new(8.0 * self.rate.bytes_per_s(), Pace::BURST);
            return;
        }
        self.rate.resize(bytes);
        if !self.told {
            self.rate.scale(bytes / before);
        }
        self.follow(now);
    }

    fn follow(&mut self, now: Time) {
        self.pace.set(now, 8.0 * self.rate.bytes_per_s());
    }

    fn is_repair_lost(&self, now: Time, carrier: Carrier, rtt: Duration) -> bool {
        let Carrier::Nak { first } = carrier else { return false };
        let rtt = rtt.max(Duration::from_secs_f64(self.round_trip_s()));
        self.repairs.was_lost(first, now, rtt)
    }

    fn note_rate(&mut self, now: Time) {
        let span = Duration::from_secs_f64(self.round_trip_s());
        self.recent.note(now, self.rate.bytes_per_s(), span);
    }

    /// Returns the reported output, at most the recent sending rate: false claims must not matter.
    fn output_told(&mut self, now: Time, report: &OrmccReport) -> Option<f64> {
        self.note_rate(now);
        let told = f64::from(report.rate?);
        self.told = true;
        Some(if self.config.output_bound { told.min(self.recent.largest()) } else { told })
    }

    /// Notes an original or a delayed repair. Losses of repairs are reported rarely, so while only
    /// repairs leave, the rate falls after a round trip as after a loss.
    fn note_kind(&mut self, cx: &mut Cx<'_>, repair: bool) {
        if !repair {
            (self.alone, self.lowered) = (None, false);
            return;
        }
        let since = *self.alone.get_or_insert(cx.now);
        let rtt = Duration::from_secs_f64(self.round_trip_s());
        if self.lowered || cx.now.since(since) < rtt {
            return;
        }
        self.lowered = true;
        if let Some(output) = self.output
            && self.rate.lower(self.config.beta * output)
        {
            cx.emit(Event::Cut { reason: CutReason::NoFeedback, window_milli: 0 });
            self.follow(cx.now);
        }
    }

    fn charge(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) {
        let now = cx.now;
        self.meet(now, len);
        self.note_pause(now);
        let bytes = cost(len);
        let gap = self.pace.cost(bytes);
        let late = now.since(self.pace.ready_at().min(now));
        let rtt = self.round_trip_s();
        let long = Duration::from_secs_f64(2.0 * rtt).max(self.pace.cost(self.bytes as u32) * 4);
        let fresh = self.last_sent.is_some_and(|at| now.since(at) > long);
        let begins = self.last_sent.is_none();
        // The rate grows only if it is the limit and a representative is alive.
        let limited = late <= Pace::BURST.max(gap) && !begins;
        if !repair || limited {
            self.note_kind(cx, repair);
        }
        let grows = limited && !self.lowered && self.is_trusted(now);
        if grows {
            // The queue may have grown since the last report; random losses do not show that.
            let rtt = self.latest.map_or(rtt, |latest| latest.max(rtt));
            let lead = self.lead(rtt);
            self.rate.grow(f64::from(bytes), rtt, lead);
            self.follow(now);
        }
        self.note_rate(now);
        // At the floor of a silent session, any packet costs as much as a full one.
        let bytes = if self.silent.is_some() { self.bytes as u32 } else { bytes };
        if begins || fresh {
            self.pace.restart(now, bytes)
        } else {
            self.pace.spend(now, bytes)
        }
        if fresh {
            self.pauses = self.pauses.wrapping_add(1);
        }
        self.unheard.sent(now);
        self.unheard_own.sent(now);
        self.last_sent = Some(now);
        self.sent += 1;
    }

    /// Returns the rate at which growth stops. With the guard, the rate stays close to the reported
    /// output: while a queue fills, losses show late and the rate would overshoot.
    fn lead(&self, rtt: f64) -> f64 {
        let doubling = self.rate.doubling.is_some();
        let packet = self.bytes / self.latest.unwrap_or(rtt);
        let most = if doubling { DOUBLING_MAX * packet } else { f64::INFINITY };
        if !self.config.guard {
            return most;
        }
        let few = self.config.initial_packets * packet;
        match self.output {
            None => few,
            Some(output) if doubling => most.min((DOUBLING_LEAD * output).max(few)),
            Some(output) => output * (1.0 + LEAD_SHARE) + LEAD_PACKETS * packet,
        }
    }

    /// Returns the time since a report's echo, or `None` if it is impossible. Zero if the echo lies
    /// in the future by no more than [`CLOCK_TOLERANCE_US`].
    fn echoed(now: Time, report: &OrmccReport) -> Option<Duration> {
        echoed_us(now, report.echo_us, CLOCK_TOLERANCE_US, RTT_MAX)
    }

    fn sample(&mut self, cx: &mut Cx<'_>, from: NodeId, sample: f64) {
        let rtt_ns = Duration::from_secs_f64(sample).as_nanos();
        cx.emit(Event::RttSample { node: from, rtt_ns });
        match (self.rtt, self.config.own_round_trips) {
            (Some(rtt), _) => self.rtt = Some(rtt + RTT_GAIN * (sample - rtt)),
            (None, false) => {
                let rtt0 = RTT0.as_secs_f64();
                self.rtt = Some(rtt0 + RTT_GAIN * (sample - rtt0));
            }
            (None, true) => self.begin_path(cx.now, sample),
        }
    }

    /// Starts the round trip anew for another path, since an average of two paths fits neither.
    fn begin_path(&mut self, now: Time, sample: f64) {
        let is_first = self.rtt.replace(sample).is_none();
        let initial = self.config.initial_packets * self.bytes / sample;
        if is_first && self.rate.doubling.is_some() {
            // The initial rate assumed an unmeasured round trip.
            self.rate.raise(initial);
            self.follow(now);
        }
    }

    fn watch_doubling(&mut self, cx: &mut Cx<'_>, sample: f64, output: Option<f64>) {
        if self.bytes == 0.0 || self.rate.doubling.is_none() {
            return;
        }
        let least = self.least.map_or(sample, |least| least.min(sample));
        self.least = Some(least);
        // src: RFC 9406 s4.2.
        let allowed = (least / 8.0).clamp(0.004, 0.016);
        self.delayed = if sample > least + allowed { self.delayed + 1 } else { 0 };
        if self.delayed >= DELAYED_MAX {
            // The output while the queue grew is the path's capacity.
            let most = output.unwrap_or(self.rate.bytes_per_s());
            self.rate.end_doubling(most);
            self.follow(cx.now);
        }
    }

    fn dismiss(&mut self, cx: &mut Cx<'_>, reason: SwitchReason) {
        self.representative = None;
        self.averages.forget_own();
        self.unheard_own.clear();
        cx.emit(Event::Representative { node: None, reason });
    }

    fn appoint(&mut self, cx: &mut Cx<'_>, id: NodeId, reason: SwitchReason, sample: Option<f64>) {
        if self.config.own_round_trips {
            match sample {
                Some(sample) => self.begin_path(cx.now, sample),
                None => self.rtt = None,
            }
        }
        self.representative = Some(id);
        self.sent_at_congestion = self.sent;
        self.unheard_own.clear();
        (self.least, self.delayed, self.output, self.latest) = (None, 0, None, None);
        cx.emit(Event::Representative { node: Some(id), reason });
    }

    fn on_indication(&mut self, cx: &mut Cx<'_>, from: NodeId, output: f64, sample: Option<f64>) {
        let is_own = self.representative == Some(from);
        let has_representative = self.representative.is_some();
        let overdue = self.is_overdue();
        let rng = &mut *cx.rng;
        let standing = Standing { has_representative, is_own, overdue };
        let choice = self.averages.judge(output, standing, || rng.chance(Q));
        let reason = match choice {
            Choice::Other => return,
            Choice::Own => None,
            Choice::First if has_representative => Some(SwitchReason::Slower),
            Choice::First => Some(SwitchReason::First),
            Choice::Recovered => Some(SwitchReason::Recovered),
            Choice::Slower => Some(SwitchReason::Slower),
            Choice::Silent => Some(SwitchReason::Silent),
        };
        if let Some(reason) = reason {
            self.appoint(cx, from, reason, sample);
        }
        self.sent_at_congestion = self.sent;
        let (rtt, bytes) = (self.round_trip_s(), self.bytes);
        self.remember_rate(cx.now);
        if self.rate.cut(&self.config, cx.now, output, rtt, bytes) {
            self.take_backs = (self.take_backs + TAKE_BACKS_PER_CUT).min(TAKE_BACKS_MAX);
            cx.emit(Event::Cut { reason: CutReason::Report, window_milli: 0 });
        }
        self.follow(cx.now);
    }

    fn remember_rate(&mut self, now: Time) {
        if self.before_cut.is_none_or(|(at, _)| now.since(at) > self.take_back_span()) {
            self.before_cut = Some((now, self.rate));
        }
    }

    fn take_back_span(&self) -> Duration {
        Duration::from_secs_f64(self.round_trip_s()) + BOUND_MAX
    }

    /// Reverts the last cut: the lost packets were only late. Repeated withdrawals are ignored.
    fn take_back(&mut self, now: Time) {
        let Some((at, before)) = self.before_cut.take() else { return };
        if self.config.guard && self.take_backs >= 1.0 && now.since(at) <= self.take_back_span() {
            self.take_backs -= 1.0;
            if before.bytes_per_s() >= self.rate.bytes_per_s() {
                self.rate = before;
                self.follow(now);
            }
        }
    }

    fn is_overdue(&self) -> bool {
        (self.sent - self.sent_at_congestion) as f64 > self.rate.interval
    }

    fn announce(&self, now: Time) -> OrmccAnnounce {
        let rtt_us = self.rtt.map_or(0, |rtt| (rtt * 1e6 + 0.5).clamp(1.0, 4e9) as u32);
        // A representative without reports for that time suppresses no receiver.
        let rate = self.averages.own.filter(|_| !self.is_overdue()).map(|rate| rate as f32);
        OrmccAnnounce {
            sent_us: microseconds(now),
            rtt_us,
            representative: self.representative,
            rate: rate.filter(|rate| rate.is_normal()),
            feedback: self.config.feedback,
            alive: self.config.guard,
            pauses: self.pauses,
        }
    }
}

impl SenderControl for OrmccSender {
    type Announce = OrmccAnnounce;
    type Report = OrmccReport;

    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, _repair: bool) -> Permit {
        self.meet(cx.now, len);
        self.note_pause(cx.now);
        self.watch(cx);
        let at = self.pace.ready_at();
        if at <= cx.now { Permit::Now } else { Permit::At(at) }
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
        let sample = (echoed > Duration::ZERO).then(|| echoed.as_secs_f64().max(RTT_LEAST));
        let output = self.output_told(cx.now, report);
        self.unheard.clear();
        let silent = self.silent.take();
        if self.config.guard && self.representative.is_none() {
            self.appoint(cx, from, SwitchReason::First, sample);
        }
        if let Some((_, limit)) = silent {
            self.resume(cx.now, limit);
        }
        let is_own = self.representative == Some(from);
        if is_own {
            self.unheard_own.clear();
            self.output = output.or(self.output);
            self.latest = sample.filter(|_| self.config.guard).or(self.latest);
        }
        let counts = match self.config.own_round_trips {
            false => report.congestion,
            // Growth needs the round trip of a full queue, as at a loss (src: ormcc s2.1).
            true => is_own && (report.congestion || self.averages.own.is_none()),
        };
        if let Some(sample) = sample.filter(|_| counts) {
            self.sample(cx, from, sample);
        }
        if report.takes_back && is_own {
            self.take_back(cx.now);
        }
        // Indications cover lost originals only, but the rest of a session may be repairs.
        if report.congestion || self.is_repair_lost(cx.now, carrier, echoed) {
            match output {
                Some(output) => self.on_indication(cx, from, output, sample),
                // Fewer than n packets came, so there is no rate to compare or cut to.
                None if is_own => {
                    self.remember_rate(cx.now);
                    self.rate.end_doubling(self.config.beta * self.rate.bytes_per_s());
                    self.follow(cx.now);
                }
                None => {}
            }
        } else if let Some(sample) = sample.filter(|_| is_own) {
            self.watch_doubling(cx, sample, output);
        }
    }

    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        if self.representative == Some(from) {
            self.dismiss(cx, SwitchReason::Left);
        }
    }

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    /// Silence matters only when a packet could leave, and is checked then.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn round_trip(&self, now: Time, report: &OrmccReport) -> Option<Duration> {
        Self::echoed(now, report).filter(|time| *time > Duration::ZERO)
    }

    fn reporter(report: &OrmccReport) -> Option<NodeId> {
        report.receiver
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            rate_bits_per_s: (self.bytes > 0.0).then_some(8.0 * self.rate.bytes_per_s()),
            representative: self.representative,
            rtt: self.rtt.map(Duration::from_secs_f64),
            regime: match self.rate {
                _ if self.bytes == 0.0 => Regime::Path,
                rate if rate.is_least() => Regime::Floor,
                rate if rate.is_starting() => Regime::Start,
                _ => Regime::Path,
            },
            ..Gauges::default()
        }
    }
}
