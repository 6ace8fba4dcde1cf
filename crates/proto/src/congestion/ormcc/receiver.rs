//! Receiver half of ORMCC.

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use super::config::{Feedback, OrmccConfig};
use super::output::OutputMeter;
use super::{ALPHA, OrmccAnnounce, OrmccReport, RTT0, cost};
use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::reorder::{AT_ONCE, Evidence, Reorder, Settled};
use crate::congestion::{Arrival, Audience, ReceiverFeedback};

/// Longest random wait before the answer to a call for a representative.
const ANSWER_BACKOFF: Duration = Duration::from_millis(50);

const ANSWER_INTERVAL: Duration = Duration::from_millis(200);

/// Bounds of the representative's keep-alive interval, which is normally one round trip.
const ALIVE_MIN: Duration = Duration::from_millis(10);
const ALIVE_MAX: Duration = Duration::from_secs(1);

/// Minimum packets of an output rate measurement (src: ormcc s2.1).
const OUTPUT_PACKETS: u32 = 4;

/// Longest wait for a missing packet, however few later packets came.
const CI_REORDER_DELAY: Duration = Duration::from_millis(10);

const SPAN_MAX: Duration = Duration::from_secs(2);

/// ORMCC receiver: reports its output rate at each loss. The representative sends keep-alives too.
#[derive(Debug, Default)]
pub struct OrmccReceiver {
    config: OrmccConfig,
    node: NodeId,
    meter: OutputMeter,
    order: Reorder<()>,
    reordering: Option<Duration>,
    /// Start of the first gap, and when it counts as a loss even with few later packets.
    gap: Option<(Seq, Time)>,
    latest: Option<(Seq, Time, OrmccAnnounce)>,
    trac: Option<f64>,
    congestion_due: bool,
    /// Lost packets since the last indication that have not come late, and true if all have.
    alleged: u64,
    take_back_due: bool,
    indicated: Option<Time>,
    alive_due: bool,
    answer: Option<Time>,
    reported: Option<Time>,
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
        match &self.latest {
            Some((_, _, announce)) if announce.rtt_us > 0 => {
                Duration::from_micros(u64::from(announce.rtt_us))
            }
            _ => RTT0,
        }
    }

    fn span(&self) -> Duration {
        let span = self.round_trip() * u64::from(self.config.output_rtts);
        span.max(self.config.output_time).min(SPAN_MAX)
    }

    fn report(&self, now: Time, congestion: bool) -> Option<OrmccReport> {
        let (_, at, announce) = self.latest.as_ref()?;
        // The holding time is not part of the round trip.
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

    fn congested(&mut self, now: Time, lost: Option<u64>) {
        let recently = self.indicated.is_some_and(|at| now.since(at) <= BOUND_MAX);
        let before = if recently { self.alleged } else { 0 };
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
        // src: ormcc-trac: only the representative and slower receivers report.
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

    /// True if the source paused since the latest original. All packets carry the pauses' number.
    fn is_other_pause(&self, seq: Seq, announce: &OrmccAnnounce) -> bool {
        let newer = |&&(latest, ..): &&(Seq, Time, OrmccAnnounce)| seq.after(latest);
        self.latest.as_ref().filter(newer).is_some_and(|(.., last)| last.pauses != announce.pauses)
    }

    /// Returns true if a repair came after a silence as long as a pause, whose number repairs lack.
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

    /// Sets the timeout of the first gap, from the time at which it became the first. On a path
    /// that reorders, each gap has its own time.
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
        // The sending rate pays for repairs, and they leave the network as data does.
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
        // Losses shown by an SPM or a NAK wait, because an indication names a received packet.
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
        self.alive_due = false;
        let congestion = core::mem::take(&mut self.congestion_due);
        Some((if congestion { Audience::SenderNak } else { Audience::SenderAck }, report))
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>) -> Option<OrmccReport> {
        self.report(cx.now, false)
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.gap.is_some_and(|(_, at)| at <= cx.now) {
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

/// Minimum timer: a timer of zero would expire again and again at one moment.
const TICK: Duration = Duration::from_micros(1);
