//! Receiver half of ORMCC: loss detection, the output rate, at which packets leave the network, and
//! reports.

use alloc::collections::VecDeque;

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use super::config::{Feedback, OrmccConfig};
use super::{ALPHA, OrmccAnnounce, OrmccReport, RTT0, cost};
use crate::congestion::common::average::MovingAverage;
use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::reorder::{AT_ONCE, Evidence, Reorder, Settled};
use crate::congestion::{Arrival, Audience, ReceiverFeedback};

/// Longest random wait before the answer to a call for a representative.
const ANSWER_BACKOFF: Duration = Duration::from_millis(50);

/// Minimum time between a report and the answer to a call for a representative.
const ANSWER_INTERVAL: Duration = Duration::from_millis(200);

/// Bounds of the representative's keep-alive interval, which is normally one round trip.
const ALIVE_MIN: Duration = Duration::from_millis(10);
const ALIVE_MAX: Duration = Duration::from_secs(1);

/// Minimum packets of an output rate measurement (n; src: ormcc s2.1).
const OUTPUT_PACKETS: u32 = 4;

/// Bounds of the time of a rate measurement, normally a round trip: kernels deliver batches.
const SPAN_MIN: Duration = Duration::from_millis(5);
const SPAN_MAX: Duration = Duration::from_secs(2);

/// Minimum time between two congestion indications; none in profile `paper`.
const CI_SPACING: Duration = Duration::from_millis(1);

/// Later packets after which a missing one is lost; one in profile `paper` (src: ormcc s2.1).
const LOSS_THRESHOLD: u32 = 3;

/// ORMCC receiver: reports its output rate at each loss. The representative sends keep-alives too.
#[derive(Debug, Default)]
pub struct OrmccReceiver {
    config: OrmccConfig,
    node: NodeId,
    meter: OutputMeter,
    detector: LossDetector,
    indications: Indications,
    /// Average output rate at congestion (TRAC), in bytes per second.
    trac: MovingAverage,
    latest: Option<Latest>,
    alive_due: bool,
    answer_at: Option<Time>,
    reported_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Latest {
    seq: Seq,
    at: Time,
    announce: OrmccAnnounce,
}

impl OrmccReceiver {
    /// Creates the receiver at `node`.
    pub fn new(config: OrmccConfig, node: NodeId) -> Self {
        Self { meter: OutputMeter::new(OUTPUT_PACKETS), config, node, ..Self::default() }
    }

    /// Returns the output rate in bytes per second, once known.
    pub fn output_rate(&self) -> Option<f64> {
        self.meter.rate(self.span())
    }

    fn round_trip(&self) -> Duration {
        match self.latest.map_or(0, |latest| latest.announce.rtt_us) {
            0 => RTT0,
            rtt_us => Duration::from_micros(u64::from(rtt_us)),
        }
    }

    fn span(&self) -> Duration {
        let span = self.round_trip().clamp(SPAN_MIN, SPAN_MAX);
        if self.config.is_improved() { span } else { Duration::ZERO }
    }

    fn report(&self, now: Time, congestion: bool) -> Option<OrmccReport> {
        let latest = self.latest?;
        // The holding time is not part of the round trip.
        let held_us = (now.since(latest.at).as_nanos() / 1000) as u32;
        let rate = self.output_rate().map(|rate| rate as f32);
        Some(OrmccReport {
            echo_us: latest.announce.sent_us.wrapping_add(held_us),
            rate: rate.filter(|rate| rate.is_normal()),
            receiver: Some(self.node),
            congestion,
            withdraws: false,
        })
    }

    /// Indicates congestion after `lost` packets, or after a congestion mark (`None`).
    fn congested(&mut self, now: Time, lost: Option<u64>) {
        self.indications.note(now, lost);
        if let Some(rate) = self.output_rate() {
            self.trac.add(rate, ALPHA);
        }
        let Some(Latest { announce, .. }) = self.latest else { return };
        let least = if self.config.is_improved() { CI_SPACING } else { Duration::ZERO };
        let spacing = match announce.feedback {
            Feedback::CiPerRtt => self.round_trip().max(least),
            Feedback::Ci | Feedback::Trac => least,
        };
        if self.indications.is_too_early(now, spacing) {
            return;
        }
        // src: ormcc-trac: only the representative and slower receivers report.
        let chosen = announce.representative == Some(self.node);
        if announce.feedback == Feedback::Trac
            && !chosen
            && let (Some(limit), Some(trac)) = (announce.rate, self.trac.get())
            && trac >= f64::from(limit)
        {
            return;
        }
        self.indications.indicate(now);
    }

    /// Returns true if a repair came after a silence as long as a pause, whose number repairs lack.
    fn is_late(&self, now: Time, bytes: u32) -> bool {
        let Some(last) = self.meter.last() else { return false };
        let gap = self.output_rate().map_or(0.0, |rate| f64::from(bytes) / rate);
        let long = (self.round_trip() * 2).max(Duration::from_secs_f64(4.0 * gap));
        now.since(last) > long
    }

    fn on_announce(&mut self, cx: &mut Cx<'_>, seq: Seq, announce: &OrmccAnnounce) {
        if self.latest.is_some_and(|latest| !seq.after(latest.seq)) {
            return;
        }
        self.latest = Some(Latest { seq, at: cx.now, announce: *announce });
        if !announce.alive {
            self.answer_at = None;
            return;
        }
        let since = |at: Option<Time>| at.map_or(Duration::MAX, |at| cx.now.since(at));
        match announce.representative {
            Some(node) => {
                self.answer_at = None;
                let interval = self.round_trip().clamp(ALIVE_MIN, ALIVE_MAX);
                self.alive_due |= node == self.node && since(self.reported_at) >= interval;
            }
            None if self.answer_at.is_none() && since(self.reported_at) >= ANSWER_INTERVAL => {
                self.answer_at = Some(cx.now + cx.rng.up_to(ANSWER_BACKOFF));
            }
            None => {}
        }
    }
}

impl ReceiverFeedback for OrmccReceiver {
    type Announce = OrmccAnnounce;
    type Report = OrmccReport;

    #[inline]
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&OrmccAnnounce>) {
        // The sending rate pays for repairs, and they leave the network as data does.
        if arrival.duplicate && !arrival.repair {
            return;
        }
        let bytes = cost(arrival.len);
        let after_pause = match announce.filter(|_| !arrival.repair) {
            Some(announce) => self.latest.is_some_and(|latest| {
                arrival.seq.after(latest.seq) && latest.announce.pauses != announce.pauses
            }),
            None => arrival.repair && self.is_late(cx.now, bytes),
        };
        if after_pause {
            self.meter.restart();
        }
        self.meter.arrived(cx.now, bytes, self.span());
        if arrival.repair {
            return;
        }
        if let Some(announce) = announce {
            self.on_announce(cx, arrival.seq, announce);
        }
        if self.detector.order.passes(arrival.seq) {
            if arrival.congestion_experienced {
                self.congested(cx.now, None);
            }
            return;
        }
        let is_improved = self.config.is_improved();
        if is_improved && self.detector.order.next.is_some_and(|next| arrival.seq.before(next)) {
            // The original has counted as lost, or is a duplicate.
            self.indications.came_late(cx.now);
        }
        let threshold = if is_improved { LOSS_THRESHOLD } else { 1 };
        let (seq, reordering) = (arrival.seq, arrival.reordering);
        let lost = self.detector.arrived(cx.now, seq, reordering, threshold);
        if lost > 0 || arrival.congestion_experienced {
            self.congested(cx.now, (!arrival.congestion_experienced).then_some(lost));
        }
    }

    fn on_rewind(&mut self, cx: &mut Cx<'_>, newest: Seq) {
        self.latest = self.latest.filter(|latest| !latest.seq.after(newest));
        self.detector.rewind(cx.now, newest);
    }

    fn reports_directly(&self) -> bool {
        self.latest.and_then(|latest| latest.announce.representative) == Some(self.node)
    }

    #[inline]
    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, OrmccReport)> {
        let indications = &self.indications;
        let congestion = indications.is_due;
        if !congestion && !self.alive_due && !indications.is_withdrawal_due {
            return None;
        }
        let mut report = self.report(cx.now, congestion)?;
        report.withdraws = self.indications.is_withdrawal_due && !congestion;
        (self.indications.is_due, self.indications.is_withdrawal_due) = (false, false);
        (self.alive_due, self.reported_at) = (false, Some(cx.now));
        Some((if congestion { Audience::SenderNak } else { Audience::SenderAck }, report))
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>) -> Option<OrmccReport> {
        self.report(cx.now, false)
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some(lost) = self.detector.time_out(cx.now) {
            self.congested(cx.now, Some(lost));
        }
        self.alive_due |= self.answer_at.take_if(|at| *at <= cx.now).is_some();
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        let gap = self.detector.gap.map(|(_, at)| at);
        gap.into_iter().chain(self.answer_at).min()
    }
}

/// Longest wait for a missing packet, however few later packets came.
const REORDER_DELAY: Duration = Duration::from_millis(10);

/// Minimum timer: a timer of zero would expire again and again at one moment.
const TICK: Duration = Duration::from_micros(1);

#[derive(Debug, Default)]
pub(super) struct LossDetector {
    pub(super) order: Reorder<()>,
    reordering: Option<Duration>,
    /// Start of the first gap, and when it counts as a loss even with few later packets.
    pub(super) gap: Option<(Seq, Time)>,
}

impl LossDetector {
    /// Adds an original. Returns the known losses: missing packets before `later` later ones.
    pub(super) fn arrived(
        &mut self,
        now: Time,
        seq: Seq,
        reordering: Option<Duration>,
        later: u32,
    ) -> u64 {
        self.order.arrived(now, seq, ());
        self.reordering = reordering;
        let lost = self.settle(now, Evidence::of(later, reordering));
        self.watch_gap(now);
        lost
    }

    /// Returns the losses found by time; `None` if no timer is due.
    pub(super) fn time_out(&mut self, now: Time) -> Option<u64> {
        self.gap.filter(|(_, at)| *at <= now)?;
        let first = self.order.settle(now, AT_ONCE).map_or(0, count);
        let lost = first + self.settle(now, Evidence::of(u32::MAX, self.reordering));
        self.watch_gap(now);
        Some(lost)
    }

    pub(super) fn rewind(&mut self, now: Time, newest: Seq) {
        self.order.rewind(newest);
        self.watch_gap(now);
    }

    fn settle(&mut self, now: Time, evidence: Evidence) -> u64 {
        core::iter::from_fn(|| self.order.settle(now, evidence)).map(count).sum()
    }

    /// Sets the timeout of the first gap. On a path that reorders, each gap has its own time.
    fn watch_gap(&mut self, now: Time) {
        let until = now + REORDER_DELAY;
        self.gap =
            self.order.first_gap().map(|(first, noticed)| match (self.reordering, self.gap) {
                (Some(tolerance), _) => (first, (noticed + tolerance).max(now + TICK)),
                (None, Some(same)) if same.0 == first => same,
                (None, _) => (first, until),
            });
    }
}

fn count(settled: Settled<()>) -> u64 {
    match settled {
        Settled::Came(()) => 0,
        Settled::Lost { first, end, .. } => u64::from(end.distance(first).unsigned_abs()),
    }
}

/// Congestion indications (CIs), and their withdrawal when the packets come late.
#[derive(Debug, Default)]
pub(super) struct Indications {
    pub(super) is_due: bool,
    /// True if the last CI is to be withdrawn: all its packets came late.
    pub(super) is_withdrawal_due: bool,
    indicated_at: Option<Time>,
    /// Packets that counted as lost since the last CI and have not come late.
    missing: u64,
}

impl Indications {
    /// Notes `lost` packets, or a congestion mark (`None`), which no late packet withdraws.
    pub(super) fn note(&mut self, now: Time, lost: Option<u64>) {
        let before = if self.is_recent(now) { self.missing } else { 0 };
        self.missing = before.saturating_add(lost.unwrap_or(u64::MAX));
    }

    pub(super) fn is_too_early(&self, now: Time, spacing: Duration) -> bool {
        self.indicated_at.is_some_and(|at| now.since(at) < spacing)
    }

    pub(super) fn indicate(&mut self, now: Time) {
        self.indicated_at = Some(now);
        (self.is_due, self.is_withdrawal_due) = (true, false);
    }

    pub(super) fn came_late(&mut self, now: Time) {
        if !self.is_recent(now) || self.missing == 0 {
            return;
        }
        self.missing -= 1;
        if self.missing == 0 {
            self.is_withdrawal_due = !core::mem::take(&mut self.is_due);
        }
    }

    fn is_recent(&self, now: Time) -> bool {
        self.indicated_at.is_some_and(|at| now.since(at) <= BOUND_MAX)
    }
}

/// Most marks. Close ones are merged.
const MARKS_MAX: usize = 128;

/// Meter of `n s / t`: bytes of the latest packets over their time (src: ormcc s2.1). Time t starts
/// at the packet before them: else the rate would be too high by n/(n-1).
#[derive(Clone, Debug, Default)]
pub(super) struct OutputMeter {
    packets: u64,
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    packets: u64,
    bytes: u64,
}

impl OutputMeter {
    pub(super) fn new(n: u32) -> Self {
        Self { packets: u64::from(n.clamp(1, 64)), marks: VecDeque::new() }
    }

    pub(super) fn arrived(&mut self, now: Time, bytes: u32, span: Duration) {
        let (packets, sum) = self.marks.back().map_or((0, 0), |last| (last.packets, last.bytes));
        let mark = Mark { at: now, packets: packets + 1, bytes: sum + u64::from(bytes) };
        // Merges a mark that is close to the last but one: half of the marks suffice for the span.
        let step = span / (MARKS_MAX as u64 / 2);
        let before = self.marks.len().checked_sub(2).map(|index| self.marks[index]);
        let merges = before.is_some_and(|before| now.since(before.at) < step);
        if self.marks.back().is_some_and(|last| merges || last.at == now && last.packets > 1) {
            self.marks.pop_back();
        }
        self.marks.push_back(mark);
        // Keeps at most twice the span: ten thousand receivers need compact state.
        let old = |next: Option<&Mark>| {
            next.is_some_and(|next| {
                next.packets + self.packets <= packets && now.since(next.at) >= span * 2
            })
        };
        while self.marks.len() > MARKS_MAX || old(self.marks.get(1)) {
            self.marks.pop_front();
        }
    }

    pub(super) fn restart(&mut self) {
        self.marks.clear();
    }

    pub(super) fn last(&self) -> Option<Time> {
        self.marks.back().map(|mark| mark.at)
    }

    /// Returns bytes per second over at least n packets and `span` if known; `None` with fewer.
    pub(super) fn rate(&self, span: Duration) -> Option<f64> {
        let last = self.marks.back()?;
        let enough =
            |mark: &&Mark| mark.packets + self.packets <= last.packets && mark.at < last.at;
        let wide = |mark: &&Mark| enough(mark) && last.at.since(mark.at) >= span;
        let from = self.marks.iter().rev().find(wide);
        let from = from.or_else(|| self.marks.iter().find(enough))?;
        Some((last.bytes - from.bytes) as f64 / last.at.since(from.at).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{at, ms};

    #[test]
    fn an_indication_is_withdrawn_once_all_its_packets_came_late() {
        for (lost, late, sent, want) in [
            (Some(2), 1, true, (false, false)),
            (Some(2), 2, true, (false, true)),
            (Some(2), 2, false, (false, false)),
            (None, 2, true, (false, false)),
        ] {
            let mut indications = Indications::default();
            indications.note(at(0), lost);
            indications.indicate(at(0));
            indications.is_due = !sent;
            (0..late).for_each(|_| indications.came_late(at(10)));
            let got = (indications.is_due, indications.is_withdrawal_due);
            assert_eq!(got, want, "{late} of {lost:?} came, indication sent: {sent}");
            assert!(indications.is_too_early(at(10), ms(11)));
        }
    }

    fn at_us(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    fn meter(n: u32, arrivals: &[u64], span: Duration) -> OutputMeter {
        let mut meter = OutputMeter::new(n);
        for &us in arrivals {
            meter.arrived(at_us(us), 1000, span);
        }
        meter
    }

    #[test]
    fn n_packets_over_the_n_gaps_before_them() {
        let none = Duration::ZERO;
        assert_eq!(meter(4, &[0, 1000, 2000, 3000], none).rate(none), None);
        assert_eq!(meter(4, &[0, 1000, 2000, 3000, 4000], none).rate(none), Some(1e6));
        let slow_then_fast = [0, 100_000, 101_000, 102_000, 103_000, 104_000];
        assert_eq!(meter(4, &slow_then_fast, none).rate(none), Some(1e6));
        let stalled = meter(4, &[0, 1000, 2000, 3000, 103_000], none).rate(none);
        assert!((stalled.unwrap() - 4000.0 / 0.103).abs() < 1e-6);
        assert_eq!(meter(1, &[0, 4000], none).rate(none), Some(250_000.0));
    }

    #[test]
    fn a_span_makes_it_longer_and_bunches_do_not_deceive_it() {
        let span = Duration::from_millis(10);
        let bunches: Vec<_> = (0..200).map(|i| i / 10 * 10_000).collect();
        let rate = meter(4, &bunches, span).rate(span).unwrap();
        assert!((rate - 1e6).abs() < 1e-6, "{rate}");
        assert_eq!(meter(4, &[0, 0, 0, 0, 0, 0], span).rate(span), None, "no time has passed");
        let short = meter(4, &[0, 1000, 2000, 3000, 4000, 5000], span).rate(span);
        assert_eq!(short, Some(1e6));
    }

    #[test]
    fn any_number_of_packets_takes_little_memory() {
        let span = Duration::from_millis(100);
        let mut meter = OutputMeter::new(64);
        for us in 0..1_000_000u64 {
            meter.arrived(at_us(us), 1000, span);
            assert!(meter.marks.len() <= MARKS_MAX);
        }
        let rate = meter.rate(span).unwrap();
        assert!((rate - 1e9).abs() < 1e6, "{rate}");
    }

    #[test]
    fn after_silence_it_begins_anew() {
        let none = Duration::ZERO;
        let mut meter = meter(2, &[0, 1000, 2000], none);
        meter.restart();
        meter.arrived(at_us(900_000), 1000, none);
        meter.arrived(at_us(901_000), 1000, none);
        assert_eq!(meter.rate(none), None);
        meter.arrived(at_us(902_000), 1000, none);
        assert_eq!(meter.rate(none), Some(1e6));
    }

    use alloc::vec::Vec;
}
