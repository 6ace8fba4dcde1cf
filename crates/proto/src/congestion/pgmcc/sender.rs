//! Sender half of pgmcc: acker, window and stall timer.

use alloc::collections::VecDeque;

use faircast_base::{
    BadInput, CutReason, Cx, Duration, Event, NodeId, Seq, SwitchReason, Time, TimeoutKind,
};

use super::blacklist::Blacklist;
use super::config::PgmccConfig;
use super::hystart::HyStart;
use super::ledger::Ledger;
use super::model::is_slower;
use super::receivers::Receivers;
use super::rto::Rto;
use super::window::Window;
use super::{PgmccAnnounce, PgmccReport};
use crate::congestion::common::stamp::milliseconds;
use crate::congestion::{Carrier, Gauges, Permit, Regime, SenderControl};

mod acks;
mod candidates;
mod honesty;
mod judge;
mod late;
mod spread;

use acks::echoed_round_trip;
use candidates::Candidates;
use honesty::Honesty;
use late::Late;
use spread::Spread;

/// Exclusion of an acker that reported false loss: 600 s.
const FALSE_REPORT_EXCLUSION: Duration = Duration::from_secs(600);

/// Consecutive stall timeouts that drop the acker (src: pgmcc-draft s2.7).
const RETRY_MAX: u32 = 2;

/// Factor by which a receiver must be slower to replace a new acker at once.
const HOLDING_FACTOR: f64 = 4.0;

/// Most repairs charged to the window. Beyond it the oldest is released.
const REPAIRS_MAX: usize = 4096;

/// Most switches whose packets wait to be aged. Beyond it the oldest packets are aged at once.
const AGEING_MAX: usize = 8;

/// pgmcc sender: see the module's documentation.
#[derive(Debug, Default)]
pub struct PgmccSender {
    config: PgmccConfig,
    window: Window,
    ledger: Ledger,
    receivers: Receivers,
    candidates: Candidates,
    blacklist: Blacklist,
    acker: Option<Acker>,
    call_out: bool,
    rto: Rto,
    stall: Option<(Time, Duration)>,
    expiries: u32,
    stalled_at: Time,
    /// First packet that the acker lacked at the timer's last restart (`TimeoutMode::Cumulative`).
    cumulative: Option<Seq>,
    suspended: Option<Seq>,
    answered: Option<Seq>,
    repairs: VecDeque<Time>,
    /// Times at which packets of former ackers leave flight, each with the packets' end.
    ageing: VecDeque<(Time, Seq)>,
    /// True while the application or an upper bound, not the window, limits sending.
    idle: bool,
    spread: Spread,
    hystart: HyStart,
    late: Late,
}

#[derive(Debug)]
struct Acker {
    id: NodeId,
    held_until: Time,
    /// Oldest packet that the acker has received; earlier holes do not count.
    joined: Option<Seq>,
    reported: Option<Seq>,
    /// Due time of the first acknowledgement of a replacement acker, which may not exist.
    on_trial: Option<Time>,
    honesty: Honesty,
}

impl PgmccSender {
    /// Creates a sender with a window of one packet and no acker.
    pub fn new(config: PgmccConfig) -> Self {
        Self { window: Window::new(&config), config, ..Self::default() }
    }

    fn acker_id(&self) -> Option<NodeId> {
        self.acker.as_ref().map(|acker| acker.id)
    }

    fn room(&self) -> f64 {
        self.window.tokens(self.ledger.flight) - self.repairs.len() as f64
    }

    fn round_trip(&self) -> Duration {
        let reported = || {
            let acker = self.receivers.get(self.acker_id()?)?;
            acker.rtt()
        };
        self.rto.smoothed().or_else(reported).unwrap_or(self.config.timeout_min)
    }

    fn watch_delay(&mut self, carrier: Carrier, rtt: Duration) {
        if matches!(carrier, Carrier::Ack(_))
            && self.window.is_opening()
            && self.hystart.sample(rtt)
        {
            self.window.leave_slow_start(self.window.size);
        }
    }

    fn timeout_value(&self) -> Duration {
        let value = self.rto.value(&self.config, self.acker.is_none());
        // Without any acknowledgement, the receiver's round trip is a claim, not a sample.
        if self.is_claim() { value.min(self.config.timeout) } else { value }
    }

    fn is_claim(&self) -> bool {
        self.config.trial && self.acker_id().is_some_and(|id| !self.receivers.is_shown(id))
    }

    fn arm_stall(&mut self, now: Time) {
        let value = self.timeout_value();
        self.stall = Some((now + value, value));
    }

    fn settle_by_time(&mut self, now: Time) {
        while self.repairs.front().is_some_and(|&at| at <= now) {
            self.repairs.pop_front();
        }
        while let Some(&(at, end)) = self.ageing.front()
            && at <= now
        {
            self.ageing.pop_front();
            self.age(end);
        }
    }

    fn age(&mut self, end: Seq) {
        let acker = self.acker_id();
        let released = self.ledger.release(end, |sent| sent.acker != acker);
        self.window.refund(released);
    }

    fn stalled(&mut self, cx: &mut Cx<'_>, after: Duration) {
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns: after.as_nanos() });
        if self.acker.is_some() && self.expiries == 0 {
            // src: RFC 5681 s3.1; once per stall, and only if an acker could answer.
            self.window.leave_slow_start(self.window.size / 2.0);
        }
        self.window.restart();
        self.spread.restart();
        self.late.settle();
        let unknown = self.ledger.release(self.ledger.next(), |_| true);
        if let Some(acker) = &mut self.acker {
            // All of them may be lost, and the acker may truthfully report that later.
            acker.honesty.saw(cx.now, 0, unknown);
        }
        (self.stall, self.suspended, self.call_out) = (None, None, false);
        self.answered = Some(self.ledger.next());
        self.trace_cut(cx, CutReason::Timeout);
        self.expiries += 1;
        self.stalled_at = cx.now;
        self.rto.back_off();
        let is_claim = self.is_claim();
        let on_trial = self.acker.as_ref().is_some_and(|acker| acker.on_trial.is_some());
        let retry_max = if on_trial { 1 } else { RETRY_MAX };
        if let Some(id) = self.acker_id()
            && self.expiries >= retry_max
        {
            if self.config.blacklist {
                self.blacklist.add(id, cx.now + self.timeout_value() * 2);
            }
            self.drop_acker(cx, SwitchReason::Silent);
            if is_claim {
                self.rto.restart();
            }
        }
    }

    /// True for a round trip that predicts the next one. Above the timeout it contains an
    /// interruption, unless the packet left after the last timeout, or no round trip or such a
    /// back-off is known. src: RFC 6298 s3: TCP takes no sample from a segment acknowledged after
    /// its timeout, and keeps the back-off until a sample. s2.4: a timeout is at least 1 s. Shorter
    /// ones are no interruptions: every packet has its own number, and queues grow.
    fn is_timely(&self, now: Time, rtt: Duration) -> bool {
        let (value, base) = (self.timeout_value(), self.rto.value_without_back_off(&self.config));
        let is_first = self.rto.smoothed().is_none();
        let least = Duration::from_secs(1);
        let is_fresh = now - rtt >= self.stalled_at;
        rtt <= base.max(least) || is_fresh && (is_first || rtt <= value)
    }

    /// Ends the back-off after a NAK of the acker with a round trip: the wait shrinks to the plain
    /// timeout, counted from its start (src: RFC 6298 s5, s3). If an interruption took the whole
    /// window, only NAKs show its end.
    fn end_back_off(&mut self, now: Time) {
        self.rto.answered();
        let value = self.timeout_value();
        if let Some((at, given)) = self.stall
            && value < given
            && self.expiries > 0
        {
            self.stall = Some(((at - given + value).max(now), value));
        }
    }

    fn drop_acker(&mut self, cx: &mut Cx<'_>, reason: SwitchReason) {
        if let Some(acker) = self.acker.take() {
            self.receivers.forget(acker.id);
            self.call_out = false;
            self.expiries = 0;
            // An election call must not wait for the old acker's acknowledgements.
            self.stall = None;
            cx.emit(Event::Representative { node: None, reason });
        }
    }

    fn appoint(&mut self, cx: &mut Cx<'_>, id: NodeId, reason: SwitchReason, nak: Option<Seq>) {
        let next = self.ledger.next();
        let old = self.acker_id();
        let round_trip = |id: NodeId| self.receivers.get(id).and_then(|receiver| receiver.rtt());
        let new_rtt = round_trip(id).unwrap_or(Duration::ZERO);
        let longest_rtt = old.and_then(round_trip).unwrap_or(Duration::ZERO).max(new_rtt);
        let is_new = self.config.trial && old.is_some() && !self.receivers.is_shown(id);
        self.acker = Some(Acker {
            id,
            held_until: cx.now + new_rtt * u64::from(self.config.holding_time),
            joined: None,
            reported: None,
            on_trial: is_new.then_some(cx.now + new_rtt),
            honesty: Honesty::new(&self.config),
        });
        (self.call_out, self.expiries, self.cumulative) = (false, 0, None);
        cx.emit(Event::Representative { node: Some(id), reason });
        if old.is_none() {
            // src: pgmcc-draft s3: the first report brings one token.
            self.window.refund(1);
            if self.config.switch_recover {
                self.answered = Some(next);
            }
        } else if self.config.switch_recover {
            self.close_account(cx, nak, next);
        }
        if self.config.switch_ageing {
            if self.ageing.len() == AGEING_MAX
                && let Some((_, end)) = self.ageing.pop_front()
            {
                self.age(end);
            }
            self.ageing.push_back((cx.now + longest_rtt * 2, next));
        }
        self.rto.restart();
        self.rto.answered();
        self.hystart.restart();
        if self.stall.is_some() || self.ledger.flight > 0 {
            self.arm_stall(cx.now);
        }
    }

    /// Marks losses of the old acker as answered. deviates: a loss known from a NAK and not from a
    /// bitmap still counts: else two receivers that alternate would prevent every cut.
    fn close_account(&mut self, cx: &mut Cx<'_>, nak: Option<Seq>, next: Seq) {
        let open = |seq: Seq| self.answered.is_none_or(|answered| !seq.before(answered));
        if nak.is_some_and(open) && self.suspended.is_none() {
            self.cut();
            self.trace_cut(cx, CutReason::Loss);
        }
        (self.suspended, self.answered) = (Some(next), Some(next));
    }

    fn cut(&mut self) {
        self.late.settle();
        self.window.cut();
        self.spread.restart();
        let next = self.ledger.next();
        (self.suspended, self.answered) = (Some(next), Some(next));
    }

    fn trace_cut(&self, cx: &mut Cx<'_>, reason: CutReason) {
        cx.emit(Event::Cut { reason, window_milli: self.window.size_milli() });
    }

    fn beats_acker(&self, now: Time, from: NodeId) -> bool {
        let Some(acker) = &self.acker else { return true };
        if acker.on_trial.is_some_and(|due| due <= now) && !self.receivers.is_shown(from) {
            return false;
        }
        let slowness = |id: NodeId| self.receivers.get(id)?.slowness_squared(&self.config);
        let (Some(candidate), Some(present)) = (slowness(from), slowness(acker.id)) else {
            return false;
        };
        let held = now < acker.held_until;
        let handicap = if held { HOLDING_FACTOR } else { 1.0 };
        is_slower(candidate / (handicap * handicap), present, self.config.acker_bias)
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
        let free = match (&self.acker, repair) {
            (None, false) => !self.call_out,
            (None, true) => self.repairs.is_empty(),
            (Some(_), _) => self.room() >= 1.0,
        };
        if free {
            if repair || self.acker.is_none() {
                return Permit::Now;
            }
            return self.spread.permit(cx.now);
        }
        self.idle = false;
        self.spread.blocked();
        let by_repairs_alone =
            !self.repairs.is_empty() && self.window.tokens(self.ledger.flight) >= 1.0;
        if self.stall.is_none() && !by_repairs_alone {
            // Every report may be lost. Repairs have their own timer.
            self.arm_stall(cx.now);
        }
        Permit::Blocked
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, _len: u32) -> PgmccAnnounce {
        let acker = self.acker_id();
        self.ledger.push(seq, cx.now, acker);
        self.window.spend();
        if let Some(rtt) = self.rto.smoothed().filter(|_| self.config.spread) {
            self.spread.sent(cx, rtt, &self.window);
        }
        self.call_out = acker.is_none();
        if self.stall.is_none() {
            self.arm_stall(cx.now);
        }
        PgmccAnnounce { sent_ms: milliseconds(cx.now), acker }
    }

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, _len: u32) -> Option<PgmccAnnounce> {
        if let Some(sent) = self.ledger.get_mut(seq) {
            sent.repaired = true;
        }
        if self.config.charge_repairs {
            if self.repairs.len() == REPAIRS_MAX {
                self.repairs.pop_front();
            }
            // No acknowledgement shows when a repair has left the network; a round trip is assumed.
            let until = cx.now + self.round_trip();
            let place = self.repairs.partition_point(|&at| at <= until);
            self.repairs.insert(place, until);
        }
        // deviates: OpenPGM repeats the stale timestamp; a fresh one misleads no receiver.
        let acker = self.acker_id().filter(|_| self.config.ack_repairs);
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
            self.receivers.show(cx.now, from, self.acker_id());
        }
        // An unanswered call admits even excluded receivers: under heavy loss all may be excluded,
        // and a false reporter's pace is better than none.
        let choosy = self.acker.is_some() || self.expiries == 0;
        let chosen = self.acker_id() == Some(from);
        if choosy && !chosen && self.blacklist.excludes(from, cx.now) {
            return;
        }
        let loss = f64::from(report.loss) / 65535.0;
        let (gain, acker) = (self.config.rtt_gain, self.acker_id());
        self.receivers.report(cx.now, from, loss, sample, gain, acker);
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
            && self.beats_acker(cx.now, from)
        {
            self.appoint(cx, from, SwitchReason::Slower, nak);
        }
        if self.acker_id() == Some(from) {
            if let Some(sample) = sample {
                if self.is_timely(cx.now, sample.time) {
                    self.rto.sample(sample.time);
                    if nak.is_some() {
                        self.end_back_off(cx.now);
                    }
                }
                self.watch_delay(carrier, sample.time);
                if acker != Some(from) && self.stall.is_some() {
                    self.arm_stall(cx.now);
                }
            }
            if let Some(acker) = &mut self.acker {
                acker.honesty.reports(loss);
            }
        }
        if let Carrier::Ack(vector) = carrier {
            self.on_ack(cx, from, vector);
            if let Some(acker) = self.acker.as_mut().filter(|acker| acker.id == from) {
                let before = acker.reported.unwrap_or(vector.highest);
                acker.reported = Some(before.max(vector.highest));
                acker.on_trial.take_if(|_| self.receivers.is_shown(from));
                self.compare_candidates(cx);
            }
        }
        if acker.is_none() {
            self.ledger.release(self.ledger.next(), |sent| sent.acker.is_none());
        }
    }

    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        self.receivers.forget(from);
        if self.acker_id() == Some(from) {
            self.drop_acker(cx, SwitchReason::Left);
        }
    }

    /// Calls a new receiver at once during a long search, at most once per undoubled timeout.
    fn on_heard(&mut self, cx: &mut Cx<'_>) {
        let vain = self.stall.is_some_and(|(_, value)| value > self.config.timeout);
        if self.acker.is_none() && vain {
            self.rto.answered();
            self.call_out = false;
            self.arm_stall(cx.now);
        }
    }

    /// Back-off belongs to the old path (src: RFC 9000 s9.4).
    fn on_new_path(&mut self, cx: &mut Cx<'_>) {
        self.end_back_off(cx.now);
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {
        self.idle = true;
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.settle_by_time(cx.now);
        if let Some((at, value)) = self.stall
            && at <= cx.now
        {
            self.stalled(cx, value);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let stall = self.stall.map(|(at, _)| at);
        let repair = self.repairs.front().copied();
        let age = self.ageing.front().map(|&(at, _)| at);
        [stall, repair, age].into_iter().flatten().min()
    }

    fn round_trip(&self, now: Time, report: &PgmccReport) -> Option<Duration> {
        echoed_round_trip(now, report)
    }

    fn reporter(report: &PgmccReport) -> Option<NodeId> {
        report.receiver
    }

    fn gauges(&self) -> Gauges {
        let repairs = self.repairs.len() as u32;
        Gauges {
            window: Some(self.window.size),
            flight: Some(self.ledger.flight + repairs),
            representative: self.acker_id(),
            rtt: self.rto.smoothed(),
            rate_bits_per_s: None,
            regime: match () {
                () if self.expiries > 0 => Regime::Floor,
                () if self.window.has_met_no_limit() => Regime::Start,
                () => Regime::Path,
            },
        }
    }
}
