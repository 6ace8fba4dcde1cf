//! Sender half of pgmcc: acker, window and stall timer.

use faircast_base::{
    BadInput, CutReason, Cx, Duration, Event, NodeId, Seq, SwitchReason, Time, TimeoutKind,
};

use super::config::{PgmccConfig, Profile};
use super::ledger::{Ledger, TimedFlight};
use super::window::{HyStart, StallTimer, Window};
use super::{PgmccAnnounce, PgmccReport};
use crate::congestion::common::stamp::milliseconds;
use crate::congestion::{Carrier, Gauges, Permit, Regime, SenderControl};

mod acks;
mod election;
mod spread;

use acks::{Late, LossResponse, echoed_round_trip};
use election::{Acker, Election, Honesty};
use spread::Spread;

/// Exclusion of an acker that reported false loss: 600 s.
const FALSE_REPORT_EXCLUSION: Duration = Duration::from_secs(600);

/// Consecutive stall timeouts that drop the acker (src: pgmcc-draft s2.7).
const RETRY_MAX: u32 = 2;

/// Weight of a round trip in the model. The draft smooths none.
const RTT_GAIN: f64 = 0.125;

/// pgmcc sender: see the module's documentation.
#[derive(Debug, Default)]
pub struct PgmccSender {
    config: PgmccConfig,
    window: Window,
    ledger: Ledger,
    election: Election,
    stall: StallTimer,
    response: LossResponse,
    timed: TimedFlight,
    /// True while the application or an upper bound, not the window, limits sending.
    is_app_limited: bool,
    spread: Spread,
    hystart: HyStart,
    late: Late,
}

impl PgmccSender {
    /// Creates a sender with a window of one packet and no acker.
    pub fn new(config: PgmccConfig) -> Self {
        Self { window: Window::new(&config), config, ..Self::default() }
    }

    /// Returns the packets that may leave (T, without repairs in flight).
    fn room(&self) -> f64 {
        self.window.tokens(self.ledger.flight) - self.timed.repairs.len() as f64
    }

    fn round_trip(&self) -> Duration {
        let reported = || self.election.rtt(self.election.acker_id()?);
        self.stall.rtt.srtt().or_else(reported).unwrap_or(self.config.timeout_min)
    }

    fn stall_timeout(&self) -> Duration {
        let timeout = self.stall.timeout(&self.config, self.election.acker.is_none());
        // Without any acknowledgement, the receiver's round trip is a claim, not a sample.
        if self.is_claim() { timeout.min(self.config.initial_timeout()) } else { timeout }
    }

    fn is_claim(&self) -> bool {
        self.config.is_improved() && self.election.is_acker_a_claim()
    }

    fn arm_stall(&mut self, now: Time) {
        let timeout = self.stall_timeout();
        self.stall.arm(now, timeout);
    }

    fn settle_by_time(&mut self, now: Time) {
        while let Some(end) = self.timed.pop_due(now) {
            self.release_former(end);
        }
    }

    fn release_former(&mut self, end: Seq) {
        let acker = self.election.acker_id();
        let released = self.ledger.release(end, |sent| sent.acker != acker);
        self.window.refund(released);
    }

    /// Restarts with a window of one packet after a stall, and drops a silent acker.
    fn on_stall(&mut self, cx: &mut Cx<'_>, after: Duration) {
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns: after.as_nanos() });
        if self.election.acker.is_some() && self.stall.expiries == 0 {
            // src: RFC 5681 s3.1; once per stall, and only if an acker could answer.
            self.window.leave_slow_start(self.window.size / 2.0);
        }
        self.window.restart();
        self.spread.together = 0;
        self.late.cut = None;
        let unknown = self.ledger.release(self.ledger.next(), |_| true);
        if let Some(acker) = &mut self.election.acker {
            // All of them may be lost, and the acker may truthfully report that later.
            acker.honesty.saw(cx.now, 0, unknown);
        }
        self.stall.armed = None;
        self.election.is_called = false;
        self.response =
            LossResponse { suspended_until: None, answered_end: Some(self.ledger.next()) };
        self.trace_cut(cx, CutReason::Timeout);
        self.stall.expiries += 1;
        self.stall.expired_at = cx.now;
        self.stall.back_off();
        let is_claim = self.is_claim();
        let on_trial = self.election.acker.as_ref().is_some_and(|acker| acker.on_trial.is_some());
        let retry_max = if on_trial { 1 } else { RETRY_MAX };
        if let Some(id) = self.election.acker_id()
            && self.stall.expiries >= retry_max
        {
            if self.config.is_improved() {
                self.election.blacklist.add(id, cx.now + self.stall_timeout() * 2);
            }
            self.drop_acker(cx, SwitchReason::Silent);
            if is_claim {
                (self.stall.rtt, self.stall.doublings) = Default::default();
            }
        }
    }

    /// True for a round trip that predicts the next one. A longer one than the timeout has an
    /// interruption, unless the packet left after the last timeout (src: RFC 6298 s3), or no round
    /// trip or back-off of at least 1 s (s2.4) is known.
    fn is_timely(&self, now: Time, rtt: Duration) -> bool {
        let base = self.stall.timeout_without_back_off(&self.config);
        let is_first = self.stall.rtt.srtt().is_none();
        let least = Duration::from_secs(1);
        let is_fresh = now - rtt >= self.stall.expired_at;
        rtt <= base.max(least) || is_fresh && (is_first || rtt <= self.stall_timeout())
    }

    /// Shrinks a backed-off wait after the acker's NAK with a round trip (src: RFC 6298 s5, s3):
    /// if an interruption took the whole window, only NAKs show its end.
    fn end_back_off(&mut self, now: Time) {
        self.stall.doublings = 0;
        let timeout = self.stall_timeout();
        self.stall.shorten(now, timeout);
    }

    fn on_acker_rtt(&mut self, now: Time, carrier: Carrier, rtt: Duration) {
        let is_ack = matches!(carrier, Carrier::Ack(_));
        if self.is_timely(now, rtt) {
            self.stall.rtt.sample(rtt);
            if !is_ack {
                self.end_back_off(now);
            }
        }
        // Slow start ends once the round trip grows.
        if is_ack && self.window.is_opening() && self.hystart.sample(rtt) {
            self.window.leave_slow_start(self.window.size);
        }
    }

    fn drop_acker(&mut self, cx: &mut Cx<'_>, reason: SwitchReason) {
        if let Some(acker) = self.election.acker.take() {
            self.election.receivers.forget(acker.id);
            self.election.is_called = false;
            self.stall.expiries = 0;
            // An election call must not wait for the old acker's acknowledgements.
            self.stall.armed = None;
            cx.emit(Event::Representative { node: None, reason });
        }
    }

    /// Makes `id` the acker: the first reporter, or a slower receiver that won the election.
    fn appoint(&mut self, cx: &mut Cx<'_>, id: NodeId, reason: SwitchReason, nak: Option<Seq>) {
        let next = self.ledger.next();
        let old = self.election.acker_id();
        let new_rtt = self.election.rtt(id).unwrap_or(Duration::ZERO);
        let old_rtt = old.and_then(|old| self.election.rtt(old)).unwrap_or(Duration::ZERO);
        let is_shown = self.election.receivers.is_shown(id);
        let is_on_trial = self.config.is_improved() && old.is_some() && !is_shown;
        self.election.acker = Some(Acker {
            id,
            held_until: cx.now + new_rtt * u64::from(self.config.holding_time),
            joined: None,
            rx_max: None,
            on_trial: is_on_trial.then_some(cx.now + new_rtt),
            honesty: Honesty::new(&self.config),
        });
        self.election.is_called = false;
        self.stall.begin_acker();
        self.hystart = HyStart::default();
        cx.emit(Event::Representative { node: Some(id), reason });
        if old.is_none() {
            // src: pgmcc-draft s3: the first report brings one token.
            self.window.refund(1);
            if self.config.switch_recover {
                self.response.answered_end = Some(next);
            }
        } else if self.config.switch_recover {
            self.close_account(cx, nak, next);
        }
        if self.config.switch_ageing {
            let until = cx.now + old_rtt.max(new_rtt) * 2;
            if let Some(end) = self.timed.add_former(until, next) {
                self.release_former(end);
            }
        }
        if self.stall.armed.is_some() || self.ledger.flight > 0 {
            self.arm_stall(cx.now);
        }
    }

    /// Marks losses of the old acker as answered. deviates: a loss known from a NAK and not from a
    /// bitmap still counts: else two receivers that alternate would prevent every cut.
    fn close_account(&mut self, cx: &mut Cx<'_>, nak: Option<Seq>, next: Seq) {
        if nak.is_some_and(|seq| self.response.is_open(seq)) && !self.response.is_suspended() {
            self.cut();
            self.trace_cut(cx, CutReason::Loss);
        }
        self.response.suspend(next);
    }

    fn cut(&mut self) {
        self.late.cut = None;
        self.window.cut();
        self.spread.together = 0;
        self.response.suspend(self.ledger.next());
    }

    fn trace_cut(&self, cx: &mut Cx<'_>, reason: CutReason) {
        let window_milli = (self.window.size * 1000.0 + 0.5) as u64;
        cx.emit(Event::Cut { reason, window_milli });
    }
}

impl SenderControl for PgmccSender {
    type Announce = PgmccAnnounce;
    type Report = PgmccReport;

    fn permit(&mut self, cx: &mut Cx<'_>, _len: u32, repair: bool) -> Permit {
        self.settle_by_time(cx.now);
        if repair && !self.config.charge_repairs {
            return Permit::Now;
        }
        let free = match (&self.election.acker, repair) {
            (None, false) => !self.election.is_called,
            (None, true) => self.timed.repairs.is_empty(),
            (Some(_), _) => self.room() >= 1.0,
        };
        if free {
            if repair || self.election.acker.is_none() {
                return Permit::Now;
            }
            return self.spread.permit(cx.now);
        }
        self.is_app_limited = false;
        self.spread.waiting = false;
        let by_repairs_alone =
            !self.timed.repairs.is_empty() && self.window.tokens(self.ledger.flight) >= 1.0;
        if self.stall.armed.is_none() && !by_repairs_alone {
            // Every report may be lost. Repairs have their own timer.
            self.arm_stall(cx.now);
        }
        Permit::Blocked
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, _len: u32) -> PgmccAnnounce {
        let acker = self.election.acker_id();
        self.ledger.push(seq, cx.now, acker);
        self.window.tokens -= 1.0;
        if let Some(rtt) = self.stall.rtt.srtt().filter(|_| self.config.spread) {
            self.spread.sent(cx, rtt, &self.window);
        }
        self.election.is_called = acker.is_none();
        if self.stall.armed.is_none() {
            self.arm_stall(cx.now);
        }
        PgmccAnnounce { sent_ms: milliseconds(cx.now), acker }
    }

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, _len: u32) -> Option<PgmccAnnounce> {
        if let Some(sent) = self.ledger.get_mut(seq) {
            sent.repaired = true;
        }
        if self.config.charge_repairs {
            // No acknowledgement shows when a repair has left the network; a round trip is assumed.
            self.timed.add_repair(cx.now + self.round_trip());
        }
        // deviates: OpenPGM repeats the stale timestamp. By inference, repairs name the acker in
        // the paper, whose timer may wait for a complete bitmap (src: seada-helmy s4.1).
        let names_acker = self.config.profile == Profile::Paper;
        let acker = self.election.acker_id().filter(|_| names_acker);
        acker.map(|id| PgmccAnnounce { sent_ms: milliseconds(cx.now), acker: Some(id) })
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier, report: &PgmccReport) {
        if let Err(reason) = self.check_reach(carrier) {
            return cx.emit(Event::BadInput { reason });
        }
        let Ok(sample) = self.measure(cx.now, carrier, report) else {
            return cx.emit(Event::BadInput { reason: BadInput::Absurd });
        };
        self.settle_by_time(cx.now);
        if let Carrier::Ack(vector) = carrier
            && self.ledger.get(vector.highest).is_some_and(|sent| sent.acker == Some(from))
        {
            self.election.receivers.show(cx.now, from, self.election.acker_id());
        }
        // An unanswered call admits excluded receivers: a false pace is better than none.
        let choosy = self.election.acker.is_some() || self.stall.expiries == 0;
        let chosen = self.election.acker_id() == Some(from);
        if choosy && !chosen && self.election.blacklist.excludes(from, cx.now) {
            return;
        }
        let loss = f64::from(report.loss) / 65535.0;
        let gain = if self.config.is_improved() { RTT_GAIN } else { 1.0 };
        let acker = self.election.acker_id();
        self.election.receivers.report(cx.now, from, loss, sample, gain, acker);
        if let Some(sample) = sample {
            cx.emit(Event::RttSample { node: from, rtt_ns: sample.time.as_nanos() });
        }
        let nak = match carrier {
            Carrier::Nak { first: seq } | Carrier::NullNak { latest: seq } => Some(seq),
            Carrier::Ack(_) => None,
        };
        if acker.is_none() {
            self.appoint(cx, from, SwitchReason::First, None);
        } else if acker != Some(from)
            && self.can_compare(cx.now, from, nak, sample)
            && self.election.beats_acker(&self.config, cx.now, from)
        {
            self.appoint(cx, from, SwitchReason::Slower, nak);
        }
        if self.election.acker_id() == Some(from) {
            if let Some(sample) = sample {
                self.on_acker_rtt(cx.now, carrier, sample.time);
                if acker != Some(from) && self.stall.armed.is_some() {
                    self.arm_stall(cx.now);
                }
            }
            if let Some(acker) = &mut self.election.acker {
                acker.honesty.reported = loss;
            }
        }
        if let Carrier::Ack(vector) = carrier {
            self.on_ack(cx, from, vector);
            if let Some(acker) = self.election.acker.as_mut().filter(|acker| acker.id == from) {
                let before = acker.rx_max.unwrap_or(vector.highest);
                acker.rx_max = Some(before.max(vector.highest));
                acker.on_trial.take_if(|_| self.election.receivers.is_shown(from));
                self.compare_candidates(cx);
            }
        }
        if acker.is_none() {
            self.ledger.release(self.ledger.next(), |sent| sent.acker.is_none());
        }
    }

    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        self.election.receivers.forget(from);
        if self.election.acker_id() == Some(from) {
            self.drop_acker(cx, SwitchReason::Left);
        }
    }

    /// Calls a new receiver at once during a long search, at most once per undoubled timeout.
    fn on_unreached_receiver(&mut self, cx: &mut Cx<'_>) {
        let initial = self.config.initial_timeout();
        let is_long = self.stall.armed.is_some_and(|(_, timeout)| timeout > initial);
        if self.election.acker.is_none() && is_long {
            self.stall.doublings = 0;
            self.election.is_called = false;
            self.arm_stall(cx.now);
        }
    }

    /// Back-off belongs to the old path (src: RFC 9000 s9.4).
    fn on_new_path(&mut self, cx: &mut Cx<'_>) {
        self.end_back_off(cx.now);
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {
        self.is_app_limited = true;
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.settle_by_time(cx.now);
        if let Some((_, timeout)) = self.stall.armed.filter(|(at, _)| *at <= cx.now) {
            self.on_stall(cx, timeout);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let stall = self.stall.armed.map(|(at, _)| at);
        stall.into_iter().chain(self.timed.next_timeout()).min()
    }

    fn round_trip(&self, now: Time, report: &PgmccReport) -> Option<Duration> {
        echoed_round_trip(now, report)
    }

    fn reporter(report: &PgmccReport) -> Option<NodeId> {
        report.receiver
    }

    fn gauges(&self) -> Gauges {
        let repairs = self.timed.repairs.len() as u32;
        Gauges {
            window: Some(self.window.size),
            flight: Some(self.ledger.flight + repairs),
            representative: self.election.acker_id(),
            rtt: self.stall.rtt.srtt(),
            rate_bits_per_s: None,
            regime: match () {
                () if self.stall.expiries > 0 => Regime::Floor,
                () if self.window.has_met_no_limit() => Regime::Start,
                () => Regime::Path,
            },
        }
    }
}
