//! Receiver half of ORMCC.

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use super::config::{Feedback, OrmccConfig};
use super::losses::{Indications, LossDetector};
use super::output::OutputMeter;
use super::{ALPHA, OrmccAnnounce, OrmccReport, RTT0, cost};
use crate::congestion::common::average::MovingAverage;
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

/// Bounds of the time over which the output rate is measured, which is normally a round trip:
/// kernels deliver packets in batches. Profile `paper` measures over n packets alone.
const SPAN_MIN: Duration = Duration::from_millis(5);
const SPAN_MAX: Duration = Duration::from_secs(2);

/// Minimum time between two congestion indications; none in profile `paper`.
const CI_SPACING: Duration = Duration::from_millis(1);

/// Later packets after which a missing one is lost. In profile `paper` each later packet shows the
/// loss (src: ormcc s2.1).
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
    /// Latest original.
    latest: Option<Latest>,
    /// True if a keep-alive, or the answer to a call, waits to be sent.
    alive_due: bool,
    /// Due time of the answer to a call for a representative.
    answer_at: Option<Time>,
    reported_at: Option<Time>,
}

/// Latest original received, by its number.
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
