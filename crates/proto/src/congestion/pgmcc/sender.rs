//! The sender's half of pgmcc: acker, window and stall timer.

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

/// How long an acker that reported false loss may not be acker again.
const FALSE_REPORT_EXCLUSION: Duration = Duration::from_secs(600);

/// Stall timeouts in a row after which the acker is dropped (src: pgmcc-draft s2.7).
const RETRY_MAX: u32 = 2;

/// Factor by which another receiver must be slower than a new acker to replace it at once.
const HOLDING_FACTOR: f64 = 4.0;

/// Repairs that can take room in the window at a time. Beyond it the oldest makes room.
const REPAIRS_MAX: usize = 4096;

/// Switches whose packets can wait to be aged. Beyond it the oldest packets are aged at once.
const AGEING_MAX: usize = 8;

/// The sender: see the module's documentation.
#[derive(Debug, Default)]
pub struct PgmccSender {
    config: PgmccConfig,
    window: Window,
    ledger: Ledger,
    receivers: Receivers,
    candidates: Candidates,
    blacklist: Blacklist,
    acker: Option<Acker>,
    /// Without an acker: whether a packet that calls for an election is out.
    call_out: bool,
    rto: Rto,
    /// When the stall timer expires, and the value that it was given.
    stall: Option<(Time, Duration)>,
    /// Stall timeouts in a row.
    expiries: u32,
    /// When the last stall timeout was.
    stalled_at: Time,
    /// The first packet that the acker lacked when the timer last started anew, where that counts.
    cumulative: Option<Seq>,
    /// W stands still until feedback for this packet comes.
    suspended: Option<Seq>,
    /// Losses of packets before this one have been answered.
    answered: Option<Seq>,
    /// When each charged repair leaves the window; ascending.
    repairs: VecDeque<Time>,
    /// When packets that named a former acker leave flight, and before which number they are.
    ageing: VecDeque<(Time, Seq)>,
    /// The application had nothing to send or was held back by a ceiling, and the window has not been
    /// the limit since.
    idle: bool,
    spread: Spread,
    /// The round trips of slow start.
    hystart: HyStart,
    late: Late,
}

#[derive(Debug)]
struct Acker {
    id: NodeId,
    /// Others must be far slower to replace it before this moment.
    held_until: Time,
    /// The oldest packet that it has shown to have; holes before it are none.
    joined: Option<Seq>,
    /// The latest packet that it has shown to have.
    reported: Option<Seq>,
    /// Where it replaced another, and until it acknowledges a packet that named it: when that is due. A receiver of this
    /// name may not be there.
    on_trial: Option<Time>,
    honesty: Honesty,
}

impl PgmccSender {
    /// A sender with a window of one packet and without an acker.
    pub fn new(config: PgmccConfig) -> Self {
        Self { window: Window::new(&config), config, ..Self::default() }
    }

    fn acker_id(&self) -> Option<NodeId> {
        self.acker.as_ref().map(|acker| acker.id)
    }

    /// Room in the window for data and charged repairs.
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

    /// Ends slow start where the round trip to the acker grows.
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
        // The round trip of a receiver that has acknowledged nothing is a claim and no sample.
        if self.is_claim() { value.min(self.config.timeout) } else { value }
    }

    /// Whether all that is known of the acker is what somebody has said.
    fn is_claim(&self) -> bool {
        self.config.trial && self.acker_id().is_some_and(|id| !self.receivers.is_shown(id))
    }

    fn arm_stall(&mut self, now: Time) {
        let value = self.timeout_value();
        self.stall = Some((now + value, value));
    }

    /// Lets go what time has settled: charged repairs, and packets to former ackers.
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
            // src: RFC 5681 s3.1; not again while the same stall lasts, and not where nobody was
            // there to answer.
            self.window.leave_slow_start(self.window.size / 2.0);
        }
        self.window.restart();
        self.spread.restart();
        self.late.settle();
        let unknown = self.ledger.release(self.ledger.next(), |_| true);
        if let Some(acker) = &mut self.acker {
            // All of them may be lost, and an acker that says so later reports true loss.
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

    /// True for a round trip that says how long to wait for the next packet. A round trip of more
    /// than the timeout contains an interruption, which later packets do not meet; unless the
    /// timeout has backed off that far, or no round trip is known, and the packet left after the
    /// last timeout.
    ///
    /// src: RFC 6298 s3: TCP takes no sample from a segment that was acknowledged after its
    /// timeout, and keeps the back-off until there is one; s2.4: a timeout is 1 s at least. Shorter
    /// ones are no interruptions: every packet here has a number of its own, and queues grow.
    fn is_timely(&self, now: Time, rtt: Duration) -> bool {
        let (value, base) = (self.timeout_value(), self.rto.value_without_back_off(&self.config));
        let is_first = self.rto.smoothed().is_none();
        let least = Duration::from_secs(1);
        let is_fresh = now - rtt >= self.stalled_at;
        rtt <= base.max(least) || is_fresh && (is_first || rtt <= value)
    }

    /// The acker has sent a NAK with a round trip: a wait that is backed off becomes as long as one
    /// that is not, from where it began. Acknowledgements have rules of their own.
    ///
    /// src: RFC 6298 s5 (a new measurement ends the back-off), s3 (timestamps make a measurement
    /// unambiguous). Where an interruption took all packets of the window, NAKs alone tell that the
    /// interruption is over.
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

    /// Leaves the session without an acker: the next packet calls for an election.
    fn drop_acker(&mut self, cx: &mut Cx<'_>, reason: SwitchReason) {
        if let Some(acker) = self.acker.take() {
            self.receivers.forget(acker.id);
            self.call_out = false;
            self.expiries = 0;
            // A call for an election must not wait for what the old acker owes.
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

    /// Earlier losses were the old acker's and are answered, except the one that the new acker's
    /// NAK is about, where that has not been.
    ///
    /// deviates: the fact that the loss is learnt from a NAK and not from a bitmap makes it no
    /// less a loss of the representative; were it forgotten, two receivers that take turns would
    /// keep the window from ever being cut.
    fn close_account(&mut self, cx: &mut Cx<'_>, nak: Option<Seq>, next: Seq) {
        let open = |seq: Seq| self.answered.is_none_or(|answered| !seq.before(answered));
        if nak.is_some_and(open) && self.suspended.is_none() {
            self.cut();
            self.trace_cut(cx, CutReason::Loss);
        }
        (self.suspended, self.answered) = (Some(next), Some(next));
    }

    /// Halves the window; until feedback for the next packet it stands still.
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
            // Trials of one receiver after the other would add up.
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
            // Without an acker one packet at a time calls for an election.
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
            // Every report may be lost. Repairs have a timer of their own.
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
            // No acknowledgement tells when a repair has left the network; a round trip does.
            let until = cx.now + self.round_trip();
            let place = self.repairs.partition_point(|&at| at <= until);
            self.repairs.insert(place, until);
        }
        // deviates: OpenPGM repeats the option of the original with its stale timestamp; a fresh one
        // can mislead nobody.
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
        // A call that nobody answered shows that there is no better: where losses are many all may
        // have fallen silent in turn, and the pace of a false reporter is better than none.
        // Whoever was taken then is heard as every acker is, or the search would begin again.
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
                    // The wait that began with the appointment did not know this yet.
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
            // Nobody was asked to acknowledge the packets that called for an acker.
            self.ledger.release(self.ledger.next(), |sent| sent.acker.is_none());
        }
    }

    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        self.receivers.forget(from);
        if self.acker_id() == Some(from) {
            self.drop_acker(cx, SwitchReason::Left);
        }
    }

    /// In a search that has been in vain, whoever is heard is called at once; at most once in a
    /// timeout that has not been doubled.
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
