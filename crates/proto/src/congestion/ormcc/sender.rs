//! The sender's half of ORMCC.

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

/// Echoes may be from so far in the future: clocks at both ends do not run alike while a receiver holds
/// a timestamp.
const CLOCK_TOLERANCE_US: i32 = 1000;

/// The least round trip that is reckoned with, in seconds: clocks tell no shorter ones apart from their
/// own errors.
const RTT_LEAST: f64 = 1e-4;

/// Weight of a new round trip (src: ormcc s2.1).
const RTT_GAIN: f64 = 0.125;

/// Chance that a far lower rate changes the representative though it is not below its average; open
/// in the paper. Low enough that the representative stays so.
const Q: f64 = 0.1;

/// Packets per round trip up to which the rate doubles.
const DOUBLING_MAX: f64 = 100_000.0;

/// Packets per round trip by which the rate leads the output that the representative reported, and
/// the share of that output by which the rate leads beyond them, with the guard.
const LEAD_PACKETS: f64 = 1.0;
const LEAD_SHARE: f64 = 0.05;

/// While the rate doubles it keeps to this multiple of the output rate last told.
const DOUBLING_LEAD: f64 = 2.0;

/// Round trips in a row that are longer than the least by what hystart allows, after which the rate no
/// longer doubles.
const DELAYED_MAX: u32 = 3;

/// Cuts in a row that can be taken back, and the gain with each cut. The first late packets teach the tolerance,
/// which is forgotten after sixteen losses. Chosen.
const TAKE_BACKS_MAX: f64 = 4.0;
const TAKE_BACKS_PER_CUT: f64 = 1.0 / 16.0;

/// The sender: a rate, the averages that choose the representative, and its round trip. All of it
/// is of a size that does not depend on the number of receivers.
#[derive(Debug, Default)]
pub struct OrmccSender {
    config: OrmccConfig,
    averages: Averages,
    representative: Option<NodeId>,
    /// Of nothing before the first packet.
    rate: Rate,
    pace: Pace,
    /// The rate of late.
    recent: Recent,
    /// Bytes of the largest packet so far.
    bytes: f64,
    /// Smoothed, in seconds.
    pub(super) rtt: Option<f64>,
    /// With the guard, the representative's latest round trip.
    latest: Option<f64>,
    /// The least sample while the rate doubles, and how many in a row were far above it.
    least: Option<f64>,
    delayed: u32,
    /// The output rate that the representative told last.
    output: Option<f64>,
    /// Whether anybody has told one.
    told: bool,
    /// Packets sent, and how many when the representative last told of congestion.
    sent: u64,
    sent_at_congestion: u64,
    last_sent: Option<Time>,
    repairs: Repairs,
    /// Since when repairs alone have left at the rate; `None` while originals do.
    alone: Option<Time>,
    /// Whether that has lasted for a round trip, for which the rate was lowered.
    lowered: bool,
    /// Pauses so far, modulo 2^8.
    pauses: u8,
    /// When the source last had something to send.
    busy: Option<Time>,
    /// For how long nobody reports, and the representative does not.
    unheard: Unanswered,
    unheard_own: Unanswered,
    /// The rate before the last cut and when that was, while it may be taken back; and how often that may happen yet.
    before_cut: Option<(Time, Rate)>,
    take_backs: f64,
    /// In silence: when the rate halves next, and half of what it was before.
    silent: Option<(Time, f64)>,
}

impl OrmccSender {
    /// A sender that has heard of nobody.
    pub fn new(config: OrmccConfig) -> Self {
        Self {
            rate: Rate::new(&config, 0.0),
            take_backs: TAKE_BACKS_MAX,
            config,
            ..Self::default()
        }
    }

    /// The smoothed round trip in seconds, or what stands for it.
    fn round_trip_s(&self) -> f64 {
        self.rtt.unwrap_or(RTT0.as_secs_f64())
    }

    /// A packet of `len` is to leave. Rates are in packets of the largest size so far: what comes first
    /// may be a few words about what follows.
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

    /// Keeps the pace at the rate.
    fn follow(&mut self, now: Time) {
        self.pace.set(now, 8.0 * self.rate.bytes_per_s());
    }

    /// Whether a report with the round trip `rtt` came with a request for a packet whose repair was
    /// lost.
    fn is_repair_lost(&self, now: Time, carrier: Carrier, rtt: Duration) -> bool {
        let Carrier::Nak { first } = carrier else { return false };
        let rtt = rtt.max(Duration::from_secs_f64(self.round_trip_s()));
        self.repairs.was_lost(first, now, rtt)
    }

    fn note_rate(&mut self, now: Time) {
        let span = Duration::from_secs_f64(self.round_trip_s());
        self.recent.note(now, self.rate.bytes_per_s(), span);
    }

    /// The output rate that a report tells. No more comes out than went in: a queue may hand on a few
    /// packets faster than they were sent, but who says so all the time would never be cut for.
    fn output_told(&mut self, now: Time, report: &OrmccReport) -> Option<f64> {
        self.note_rate(now);
        let told = f64::from(report.rate?);
        self.told = true;
        Some(if self.config.output_bound { told.min(self.recent.largest()) } else { told })
    }

    /// An original leaves, or a repair that the rate held back. Of lost repairs little is heard and
    /// late, so while they alone leave nothing shows that the network bears more, or still as much:
    /// after a round trip of them the rate goes where a loss would have brought it, and stays.
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
        // A small packet may have waited for the turn of a large one.
        let long = Duration::from_secs_f64(2.0 * rtt).max(self.pace.cost(self.bytes as u32) * 4);
        let fresh = self.last_sent.is_some_and(|at| now.since(at) > long);
        let begins = self.last_sent.is_none();
        // A rate that something else holds the source below is not tried, so it does not grow; and
        // without a sign that somebody is there it does not either.
        let limited = late <= Pace::BURST.max(gap) && !begins;
        if !repair || limited {
            self.note_kind(cx, repair);
        }
        let grows = limited && !self.lowered && self.is_trusted(now);
        if grows {
            // The queue may have grown since a loss told of it, and by random losses it never does.
            let rtt = self.latest.map_or(rtt, |latest| latest.max(rtt));
            let lead = self.lead(rtt);
            self.rate.grow(f64::from(bytes), rtt, lead);
            self.follow(now);
        }
        self.note_rate(now);
        // At the floor of a silent session any packet costs as much as a full one.
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

    /// Up to where the rate may grow: with the guard not far beyond what the representative lately told
    /// to come out. A queue that fills lets no more through, and takes long to show by a loss.
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

    /// The time since a report's echo; `None` where it is absurd. No time at all is no round trip:
    /// where a timestamp was held for seconds, that is what clocks disagree by.
    fn echoed(now: Time, report: &OrmccReport) -> Option<Duration> {
        echoed_us(now, report.echo_us, CLOCK_TOLERANCE_US, RTT_MAX)
    }

    fn sample(&mut self, cx: &mut Cx<'_>, from: NodeId, sample: f64) {
        let rtt_ns = Duration::from_secs_f64(sample).as_nanos();
        cx.emit(Event::RttSample { node: from, rtt_ns });
        match (self.rtt, self.config.own_round_trips) {
            (Some(rtt), _) => self.rtt = Some(rtt + RTT_GAIN * (sample - rtt)),
            // The paper's average begins at its initial round trip.
            (None, false) => {
                let rtt0 = RTT0.as_secs_f64();
                self.rtt = Some(rtt0 + RTT_GAIN * (sample - rtt0));
            }
            (None, true) => self.begin_path(cx.now, sample),
        }
    }

    /// Round trips are those of another path from now on, and the average of two paths is that of
    /// none.
    fn begin_path(&mut self, now: Time, sample: f64) {
        let is_first = self.rtt.replace(sample).is_none();
        let initial = self.config.initial_packets * self.bytes / sample;
        if is_first && self.rate.doubling.is_some() {
            // The initial rate was for a round trip that nobody had measured.
            self.rate.raise(initial);
            self.follow(now);
        }
    }

    /// The representative's path, as it is while the rate doubles.
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
            // The output while the queue grew is the capacity of the path.
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
                // The new path is unknown.
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
        let chosen = self.representative.is_some();
        let overdue = self.is_overdue();
        let rng = &mut *cx.rng;
        let standing = Standing { chosen, is_own, overdue };
        let choice = self.averages.judge(output, standing, || rng.chance(Q));
        let reason = match choice {
            Choice::Other => return,
            Choice::Own => None,
            Choice::First if chosen => Some(SwitchReason::Slower),
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

    /// Notes the rate before a cut. The first of several related cuts is the one that may be taken back.
    fn remember_rate(&mut self, now: Time) {
        if self.before_cut.is_none_or(|(at, _)| now.since(at) > self.take_back_span()) {
            self.before_cut = Some((now, self.rate));
        }
    }

    /// Longest time from a cut to the report that takes it back.
    fn take_back_span(&self) -> Duration {
        Duration::from_secs_f64(self.round_trip_s()) + BOUND_MAX
    }

    /// Takes the last cut back: the packets that the representative took for lost were only late. A representative
    /// that reports this after each cut is not believed.
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

    /// Whether the representative has not told of congestion for the interval I.
    fn is_overdue(&self) -> bool {
        (self.sent - self.sent_at_congestion) as f64 > self.rate.interval
    }

    fn announce(&self, now: Time) -> OrmccAnnounce {
        let rtt_us = self.rtt.map_or(0, |rtt| (rtt * 1e6 + 0.5).clamp(1.0, 4e9) as u32);
        // One that has told nothing for so long holds nobody back.
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
        // Repairs are paid for but tell nothing: nodes in the network may repeat them much later.
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
            // A queue is full when it loses, and so is the round trip that belongs to growth
            // (src: ormcc s2.1); until a loss is told any will do.
            true => is_own && (report.congestion || self.averages.own.is_none()),
        };
        if let Some(sample) = sample.filter(|_| counts) {
            self.sample(cx, from, sample);
        }
        if report.takes_back && is_own {
            self.take_back(cx.now);
        }
        // Indications tell of lost originals. The rest of a session may be repairs alone.
        if report.congestion || self.is_repair_lost(cx.now, carrier, echoed) {
            match output {
                Some(output) => self.on_indication(cx, from, output, sample),
                // Fewer than n packets have come: nothing to compare or to cut to.
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

    /// Silence matters when a packet could leave, and is looked at then.
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
