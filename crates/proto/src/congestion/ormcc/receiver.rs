//! The receiver's half of ORMCC.

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use super::config::{Feedback, OrmccConfig};
use super::output::OutputMeter;
use super::{ALPHA, OrmccAnnounce, OrmccReport, RTT0, cost};
use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::reorder::{AT_ONCE, Evidence, Reorder, Settled};
use crate::congestion::{Arrival, Audience, ReceiverFeedback};

/// The longest wait before a call for a representative is answered, so that not all speak at once.
const ANSWER_BACKOFF: Duration = Duration::from_millis(50);

/// The least time between two answers of a receiver.
const ANSWER_INTERVAL: Duration = Duration::from_millis(200);

/// How often the representative shows that it is alive: once in a round trip, within these.
const ALIVE_MIN: Duration = Duration::from_millis(10);
const ALIVE_MAX: Duration = Duration::from_secs(1);

/// Packets over which the output rate is measured at least (src: ormcc s2.1).
const OUTPUT_PACKETS: u32 = 4;

/// Longest wait for a missing packet, however few later ones have arrived.
const CI_REORDER_DELAY: Duration = Duration::from_millis(10);

/// The longest time over which the output rate is measured.
const SPAN_MAX: Duration = Duration::from_secs(2);

/// A receiver: it measures its output rate, tells it when a loss is found, and where it is the
/// representative shows that it is alive.
#[derive(Debug, Default)]
pub struct OrmccReceiver {
    config: OrmccConfig,
    node: NodeId,
    meter: OutputMeter,
    order: Reorder<()>,
    /// Time for which the endpoint waits for a missing packet, as it said last.
    reordering: Option<Duration>,
    /// Where the first gap begins, and when it counts as a loss though too few packets have shown it.
    gap: Option<(Seq, Time)>,
    /// The latest announcement with its packet's number and when it came.
    latest: Option<(Seq, Time, OrmccAnnounce)>,
    /// The average of the rates at which it was congested.
    trac: Option<f64>,
    congestion_due: bool,
    /// Packets that count as lost since the last indication, and whether all of them have come late.
    alleged: u64,
    take_back_due: bool,
    indicated: Option<Time>,
    alive_due: bool,
    answer: Option<Time>,
    /// When it last sent anything to the source.
    reported: Option<Time>,
}

impl OrmccReceiver {
    /// The receiver at `node`.
    pub fn new(config: OrmccConfig, node: NodeId) -> Self {
        Self { meter: OutputMeter::new(OUTPUT_PACKETS), config, node, ..Self::default() }
    }

    /// The output rate in bytes per second, once it is known.
    pub fn output_rate(&self) -> Option<f64> {
        self.meter.rate(self.span())
    }

    fn round_trip(&self) -> Duration {
        match &self.latest {
            Some((_, _, announce)) if announce.rtt_us > 0 => {
                Duration::from_micros(u64::from(announce.rtt_us))
            }
            _ => RTT0,
        }
    }

    /// The time over which the output rate is measured at least.
    fn span(&self) -> Duration {
        let span = self.round_trip() * u64::from(self.config.output_rtts);
        span.max(self.config.output_time).min(SPAN_MAX)
    }

    fn report(&self, now: Time, congestion: bool) -> Option<OrmccReport> {
        let (_, at, announce) = self.latest.as_ref()?;
        // A round trip must not contain the time for which the timestamp was held.
        let held_us = (now.since(*at).as_nanos() / 1000) as u32;
        let rate = self.output_rate().map(|rate| rate as f32);
        Some(OrmccReport {
            echo_us: announce.sent_us.wrapping_add(held_us),
            rate: rate.filter(|rate| rate.is_normal()),
            receiver: Some(self.node),
            congestion,
            takes_back: false,
        })
    }

    /// Packets count as lost with one that came now; `None` where the network marked it.
    fn congested(&mut self, now: Time, lost: Option<u64>) {
        let recently = self.indicated.is_some_and(|at| now.since(at) <= BOUND_MAX);
        let before = if recently { self.alleged } else { 0 };
        // A mark cannot be taken back.
        self.alleged = before.saturating_add(lost.unwrap_or(u64::MAX));

        let rate = self.output_rate();
        if let Some(rate) = rate {
            self.trac = Some(self.trac.map_or(rate, |trac| trac + ALPHA * (rate - trac)));
        }
        let Some((_, _, announce)) = &self.latest else { return };
        let spacing = match announce.feedback {
            Feedback::CiPerRtt => self.round_trip().max(self.config.ci_spacing),
            Feedback::Ci | Feedback::Trac => self.config.ci_spacing,
        };
        if self.indicated.is_some_and(|at| now.since(at) < spacing) {
            return;
        }
        // src: ormcc-trac: besides the representative only who is slower has something to say.
        let chosen = announce.representative == Some(self.node);
        if announce.feedback == Feedback::Trac
            && !chosen
            && let (Some(limit), Some(trac)) = (announce.rate, self.trac)
            && trac >= f64::from(limit)
        {
            return;
        }
        self.indicated = Some(now);
        (self.congestion_due, self.take_back_due) = (true, false);
    }

    /// Whether the source paused between the latest original and this one, or between that and a
    /// repair that came meanwhile. All packets say how often it did: the first after a pause may be
    /// lost.
    fn is_other_pause(&self, seq: Seq, announce: &OrmccAnnounce) -> bool {
        let newer = |&&(latest, ..): &&(Seq, Time, OrmccAnnounce)| seq.after(latest);
        self.latest.as_ref().filter(newer).is_some_and(|(.., last)| last.pauses != announce.pauses)
    }

    /// Whether nothing came for so long before a repair that the source may have paused: repairs do
    /// not say. That long is what the source itself calls a pause.
    fn is_late(&self, now: Time, bytes: u32) -> bool {
        let Some(last) = self.meter.last() else { return false };
        let gap = self.output_rate().map_or(0.0, |rate| f64::from(bytes) / rate);
        let long = (self.round_trip() * 2).max(Duration::from_secs_f64(4.0 * gap));
        now.since(last) > long
    }

    fn find_lost(&mut self, now: Time, evidence: Evidence) -> u64 {
        let mut lost = 0;
        while let Some(settled) = self.order.settle(now, evidence) {
            lost += count(settled);
        }
        lost
    }

    /// A packet that counted as lost has come after all. Where all have that were lost at the last indication,
    /// there was no congestion.
    fn came_late(&mut self, now: Time) {
        let lately = self.indicated.is_some_and(|at| now.since(at) <= BOUND_MAX);
        if !self.config.guard || !lately || self.alleged == 0 {
            return;
        }
        self.alleged -= 1;
        if self.alleged == 0 {
            self.take_back_due = !core::mem::take(&mut self.congestion_due);
        }
    }

    /// The first gap has its time from when it became the first: what was late for an earlier one has
    /// come. Where packets are reordered it has its own.
    fn watch_gap(&mut self, now: Time) {
        let until = now + CI_REORDER_DELAY;
        self.gap =
            self.order.first_gap().map(|(first, noticed)| match (self.reordering, self.gap) {
                (Some(tolerance), _) => (first, (noticed + tolerance).max(now + TICK)),
                (None, Some(same)) if same.0 == first => same,
                (None, _) => (first, until),
            });
    }

    fn on_announce(&mut self, cx: &mut Cx<'_>, seq: Seq, announce: &OrmccAnnounce) {
        if self.latest.as_ref().is_some_and(|(latest, ..)| !seq.after(*latest)) {
            return;
        }
        self.latest = Some((seq, cx.now, *announce));
        if !announce.alive {
            self.answer = None;
            return;
        }
        let since = |at: Option<Time>| at.map_or(Duration::MAX, |at| cx.now.since(at));
        match announce.representative {
            Some(node) => {
                self.answer = None;
                let interval = self.round_trip().clamp(ALIVE_MIN, ALIVE_MAX);
                self.alive_due |= node == self.node && since(self.reported) >= interval;
            }
            None if self.answer.is_none() && since(self.reported) >= ANSWER_INTERVAL => {
                self.answer = Some(cx.now + cx.rng.up_to(ANSWER_BACKOFF));
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
        // Repairs are paid for by the sending rate, and come out of the network as data does, whoever
        // lacked them.
        if arrival.duplicate && !arrival.repair {
            return;
        }
        let bytes = cost(arrival.len);
        let after_pause = match announce.filter(|_| !arrival.repair) {
            Some(announce) => self.is_other_pause(arrival.seq, announce),
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
        if self.order.passes(arrival.seq) {
            if arrival.congestion_experienced {
                self.congested(cx.now, None);
            }
            return;
        }
        if self.order.next.is_some_and(|next| arrival.seq.before(next)) {
            self.came_late(cx.now);
        }
        self.order.arrived(cx.now, arrival.seq, ());
        self.reordering = arrival.reordering;
        let evidence = Evidence::of(self.config.ci_reorder, self.reordering);
        let lost = self.find_lost(cx.now, evidence);
        self.watch_gap(cx.now);
        if lost > 0 || arrival.congestion_experienced {
            self.congested(cx.now, (!arrival.congestion_experienced).then_some(lost));
        }
    }

    fn on_missing(&mut self, _cx: &mut Cx<'_>, _first: Seq, _last: Seq) {
        // What an SPM or another's NAK tells of is reported with the next packet, if that shows it
        // too: an indication names a packet that came.
    }

    fn on_rewind(&mut self, cx: &mut Cx<'_>, newest: Seq) {
        self.latest = self.latest.filter(|(seq, ..)| !seq.after(newest));
        self.order.rewind(newest);
        self.watch_gap(cx.now);
    }

    fn reports_directly(&self) -> bool {
        let representative = |(.., announce): &(Seq, Time, OrmccAnnounce)| announce.representative;
        self.latest.as_ref().and_then(representative) == Some(self.node)
    }

    #[inline]
    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, OrmccReport)> {
        if !self.congestion_due && !self.alive_due && !self.take_back_due {
            return None;
        }
        let mut report = self.report(cx.now, self.congestion_due)?;
        report.takes_back = core::mem::take(&mut self.take_back_due) && !self.congestion_due;
        self.reported = Some(cx.now);
        // An indication is a sign of life too.
        self.alive_due = false;
        let congestion = core::mem::take(&mut self.congestion_due);
        Some((if congestion { Audience::SenderNak } else { Audience::SenderAck }, report))
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>) -> Option<OrmccReport> {
        self.report(cx.now, false)
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.gap.is_some_and(|(_, at)| at <= cx.now) {
            // Packets of the first gap are lost, though too few later packets have come.
            let first = self.order.settle(cx.now, AT_ONCE).map_or(0, count);
            let lost = first + self.find_lost(cx.now, Evidence::of(u32::MAX, self.reordering));
            self.watch_gap(cx.now);
            self.congested(cx.now, Some(lost));
        }
        if self.answer.is_some_and(|at| at <= cx.now) {
            self.answer = None;
            self.alive_due = true;
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        match (self.gap.map(|(_, at)| at), self.answer) {
            (Some(gap), Some(answer)) => Some(gap.min(answer)),
            (gap, answer) => gap.or(answer),
        }
    }
}

fn count(settled: Settled<()>) -> u64 {
    match settled {
        Settled::Came(()) => 0,
        Settled::Lost { first, end, .. } => u64::from(end.distance(first).unsigned_abs()),
    }
}

/// A timer of no length would run out again and again in one moment.
const TICK: Duration = Duration::from_micros(1);
