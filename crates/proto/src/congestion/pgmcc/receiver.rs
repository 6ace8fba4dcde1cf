//! Receiver half of pgmcc.

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use super::config::PgmccConfig;
use super::loss::LossMeter;
use super::{PgmccAnnounce, PgmccReport};
use crate::congestion::{AckVector, Arrival, Audience, ReceiverFeedback};

/// Time for late originals to fill a hole at the tail: a usual round trip.
const TAIL_TIMEOUT: Duration = Duration::from_millis(100);

/// Source silence after which an idle acker reports: a backed-off timer (src: RFC 6298 s2.4).
const INTERRUPTION: Duration = Duration::from_secs(1);

/// Longest random wait before the answer to a call for an election (src: openpgm samples).
const ELECTION_BACKOFF: Duration = Duration::from_millis(50);

/// Minimum time between unsolicited reports because others report far less loss.
const SPEAK_UP_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between unsolicited reports without a way for NAKs, or of marked packets.
const URGENT_INTERVAL: Duration = Duration::from_millis(200);

/// Most pending acknowledgements; the latest bitmap covers all of them.
const ACKS_MAX: u32 = 32;

/// pgmcc receiver: measures loss, acknowledges packets that name it, and reports with each NAK.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PgmccReceiver {
    pub(super) meter: LossMeter,
    node: NodeId,
    acks_due: u32,
    null_nak_due: bool,
    is_acker: bool,
    stamp: Option<Stamp>,
    data_at: Time,
    /// Time until which an acknowledgement waits for packets of the same moment.
    ack_held_until: Option<Time>,
    answer_at: Option<Time>,
    report_at: Option<Time>,
    /// Last packet known to be missing at the tail, and when it counts as lost.
    tail: Option<(Seq, Time)>,
    marks: Option<AckVector>,
    /// Time of the latest report without a packet that named this receiver.
    reported_at: Option<Time>,
    config: PgmccConfig,
}

#[derive(Clone, Copy, Debug)]
struct Stamp {
    seq: Seq,
    sent_ms: u32,
    at: Time,
}

impl PgmccReceiver {
    /// Creates the receiver at `node`.
    pub fn new(config: PgmccConfig, node: NodeId) -> Self {
        Self { meter: LossMeter::new(&config), config, node, ..Self::default() }
    }

    fn report(&self, now: Time, loss: f64) -> Option<PgmccReport> {
        let stamp = self.stamp?;
        // The holding time is not part of the round trip (src: pgmcc-draft s2.5.1).
        let held_ms = now.since(stamp.at).as_millis() as u32;
        Some(PgmccReport {
            echo_ms: stamp.sent_ms.wrapping_add(held_ms),
            loss: (loss * 65535.0 + 0.5) as u16,
            receiver: Some(self.node),
        })
    }

    fn on_announce(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: &PgmccAnnounce) {
        // A repair may carry its original's timestamp, which gives no round trip.
        let newer = self.stamp.is_none_or(|stamp| arrival.seq.after(stamp.seq));
        if !arrival.repair && newer {
            let (seq, sent_ms) = (arrival.seq, announce.sent_ms);
            self.stamp = Some(Stamp { seq, sent_ms, at: cx.now });
        }
        self.is_acker = announce.acker == Some(self.node);
        match announce.acker {
            Some(node) => {
                // A named acker ends the election: the draft's suppression.
                self.answer_at = None;
                if node == self.node {
                    self.acks_due = (self.acks_due + 1).min(ACKS_MAX);
                    if self.config.ack_every > 1 {
                        // A timer for this moment expires once its packets are processed.
                        self.ack_held_until.get_or_insert(cx.now);
                    }
                }
            }
            None if self.answer_at.is_none() && !arrival.repair => {
                self.answer_at = Some(cx.now + cx.rng.up_to(ELECTION_BACKOFF));
            }
            None => {}
        }
    }

    fn note_mark(&mut self, seq: Seq, marked: bool) {
        if self.marks.is_none() && !marked {
            return; // Most networks never mark.
        }
        let marks = self.marks.get_or_insert(AckVector { highest: seq, bitmap: 0 });
        let ahead = seq.distance(marks.highest);
        if ahead > 0 {
            marks.highest = seq;
            marks.bitmap = marks.bitmap.checked_shl(ahead as u32).unwrap_or(0);
        }
        let behind = marks.highest.distance(seq);
        if marked && (0..32).contains(&behind) {
            marks.bitmap |= 1 << behind;
        }
    }

    fn plan_report(&mut self, cx: &mut Cx<'_>, interval: Duration) {
        if self.report_at.is_none() {
            let earliest = self.reported_at.map_or(cx.now, |at| (at + interval).max(cx.now));
            self.report_at = Some(earliest + cx.rng.up_to(ELECTION_BACKOFF));
        }
    }
}

impl ReceiverFeedback for PgmccReceiver {
    type Announce = PgmccAnnounce;
    type Report = PgmccReport;

    #[inline]
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&PgmccAnnounce>) {
        self.data_at = cx.now;
        if !arrival.repair {
            // For the meter, an original after its repair is no duplicate.
            let packet = (arrival.seq, arrival.congestion_experienced);
            self.meter.received(cx.now, packet, arrival.reordering);
            self.note_mark(arrival.seq, arrival.congestion_experienced);
            // An acker's bitmaps show marks. Others without losses have no NAK to report on.
            let acks = announce.is_some_and(|announce| announce.acker == Some(self.node));
            if arrival.congestion_experienced && self.config.is_improved() && !acks {
                self.plan_report(cx, URGENT_INTERVAL);
            }
        }
        if arrival.duplicate {
            return;
        }
        if let Some(announce) = announce {
            self.on_announce(cx, arrival, announce);
        }
    }

    fn on_missing(&mut self, cx: &mut Cx<'_>, _first: Seq, last: Seq) {
        if self.tail.is_none_or(|(seq, _)| last.after(seq)) {
            self.tail = Some((last, cx.now + TAIL_TIMEOUT));
        }
    }

    fn on_rewind(&mut self, _cx: &mut Cx<'_>, newest: Seq) {
        self.stamp = self.stamp.filter(|stamp| !stamp.seq.after(newest));
        self.marks = self.marks.filter(|marks| !marks.highest.after(newest));
        self.tail = self.tail.filter(|(last, _)| !last.after(newest));
        self.meter.rewind(newest);
    }

    fn on_naks_blocked(&mut self, cx: &mut Cx<'_>) {
        // Heavy loss hits SPMs too, without which no NAK leaves. The source's address is known.
        if self.config.is_improved() && self.meter.estimate.loss() > 0.0 {
            self.plan_report(cx, URGENT_INTERVAL);
        }
    }

    fn shape_vector(&self, vector: AckVector) -> AckVector {
        // src: pgmcc-draft s2.9: marked packets are reported as not received.
        let Some(marks) = self.marks else { return vector };
        let distance = vector.highest.distance(marks.highest);
        let marked = match u32::try_from(distance) {
            Ok(above) => marks.bitmap.checked_shl(above).unwrap_or(0),
            Err(_) => marks.bitmap.checked_shr(distance.unsigned_abs()).unwrap_or(0),
        };
        AckVector { bitmap: vector.bitmap & !marked, ..vector }
    }

    fn on_overheard(&mut self, cx: &mut Cx<'_>, _from: NodeId, report: &PgmccReport) {
        if !self.config.is_improved() || report.receiver == Some(self.node) {
            return;
        }
        // This receiver may be the slowest, with its NAKs suppressed (src: seada-helmy s4.3).
        let reported_loss = f64::from(report.loss) / 65535.0;
        if 2.0 * reported_loss < self.meter.estimate.loss() {
            self.plan_report(cx, SPEAK_UP_INTERVAL);
        } else {
            self.report_at = None;
        }
    }

    fn reports_directly(&self) -> bool {
        self.is_acker
    }

    #[inline]
    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, PgmccReport)> {
        let held = self.ack_held_until.is_some() && self.acks_due < self.config.ack_every;
        if (self.acks_due == 0 || held) && !self.null_nak_due {
            return None;
        }
        let report = self.report(cx.now, self.meter.estimate.loss())?;
        if self.acks_due > 0 && !held {
            self.acks_due = if self.config.ack_every > 1 { 0 } else { self.acks_due - 1 };
            self.ack_held_until = None;
            return Some((Audience::SenderAck, report));
        }
        self.null_nak_due = false;
        Some((Audience::SenderNak, report))
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>) -> Option<PgmccReport> {
        let report = self.report(cx.now, self.meter.loss_with_holes(cx.now))?;
        (self.report_at, self.reported_at) = (None, Some(cx.now));
        Some(report)
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.ack_held_until.take_if(|at| *at <= cx.now);
        if self.answer_at.take_if(|at| *at <= cx.now).is_some() {
            // An ACK, as in OpenPGM. deviates: the draft has a NAK that requests no repair.
            self.acks_due = (self.acks_due + 1).min(ACKS_MAX);
        }
        if self.report_at.take_if(|at| *at <= cx.now).is_some() {
            (self.reported_at, self.null_nak_due) = (Some(cx.now), true);
        }
        if let Some((last, _)) = self.tail.take_if(|(_, at)| *at <= cx.now) {
            self.meter.give_up(cx.now, last);
            let is_interrupted = cx.now.since(self.data_at) >= INTERRUPTION
                && self.stamp.is_some_and(|stamp| stamp.seq.before(last));
            if is_interrupted && self.is_acker && self.config.is_improved() {
                self.null_nak_due = true;
            }
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        let tail = self.tail.map(|(_, at)| at);
        [self.answer_at, self.ack_held_until, self.report_at, tail].into_iter().flatten().min()
    }
}
