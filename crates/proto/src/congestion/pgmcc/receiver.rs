//! The receiver's half of pgmcc.

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use super::config::PgmccConfig;
use super::loss::LossMeter;
use super::{PgmccAnnounce, PgmccReport};
use crate::congestion::{AckVector, Arrival, Audience, ReceiverFeedback};

/// How long a hole that no later packet follows may still be filled by a late original. The
/// receiver does not know its round trip; this is a usual one.
const TAIL_TIMEOUT: Duration = Duration::from_millis(100);

/// Silence of the source after which an acker without packets to acknowledge says what it lost: the
/// source's stall timer has backed off (src: RFC 6298 s2.4).
const INTERRUPTION: Duration = Duration::from_secs(1);

/// Longest wait before the answer to a call for an election (src: openpgm samples).
const ELECTION_BACKOFF: Duration = Duration::from_millis(50);

/// The least time between two reports that a receiver sends because others report far less loss.
const SPEAK_UP_INTERVAL: Duration = Duration::from_secs(1);

/// The same where its NAKs cannot be sent, and where the network marks its packets.
const URGENT_INTERVAL: Duration = Duration::from_millis(200);

/// Acknowledgements that can wait for the endpoint to fetch them; the latest bitmap says all.
const ACKS_MAX: u32 = 32;

/// A receiver: it measures its loss, acknowledges what names it, answers calls for an election,
/// and gives a report to each NAK.
// What every packet needs stands first: see the receiver's session.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PgmccReceiver {
    pub(super) meter: LossMeter,
    node: NodeId,
    acks_due: u32,
    nak_due: bool,
    /// The latest announcement names it.
    is_acker: bool,
    /// The latest original's number and timestamp, and when it came.
    stamp: Option<Stamp>,
    /// When the latest packet came, new or repeated.
    heard_at: Time,
    /// Since when acknowledgements are held back for others of the same moment.
    ack_held: Option<Time>,
    /// When to answer the call for an election.
    election: Option<Time>,
    /// When to report without being asked, and when it last reported.
    own_report: Option<Time>,
    /// Missing packets that nothing followed, and until when they may come.
    tail: Option<(Seq, Time)>,
    /// Which of the last 32 originals up to this one the network marked, as in a bitmap.
    marks: Option<AckVector>,
    own_report_at: Option<Time>,
    config: PgmccConfig,
}

#[derive(Clone, Copy, Debug)]
struct Stamp {
    seq: Seq,
    sent_ms: u32,
    at: Time,
}

impl PgmccReceiver {
    /// The receiver at `node`.
    pub fn new(config: PgmccConfig, node: NodeId) -> Self {
        Self { meter: LossMeter::new(&config), config, node, ..Self::default() }
    }

    /// A report with this loss; `None` before the first timestamp.
    fn report(&self, now: Time, loss: f64) -> Option<PgmccReport> {
        let stamp = self.stamp?;
        // The round trip must not contain the time for which the receiver held the timestamp
        // (src: pgmcc-draft s2.5.1).
        let held_ms = now.since(stamp.at).as_millis() as u32;
        Some(PgmccReport {
            echo_ms: stamp.sent_ms.wrapping_add(held_ms),
            loss: (loss * 65535.0 + 0.5) as u16,
            receiver: Some(self.node),
        })
    }

    fn on_announce(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: &PgmccAnnounce) {
        // A repair may carry the timestamp of its original: no round trip can be had from it.
        let newer = self.stamp.is_none_or(|stamp| arrival.seq.after(stamp.seq));
        if !arrival.repair && newer {
            let (seq, sent_ms) = (arrival.seq, announce.sent_ms);
            self.stamp = Some(Stamp { seq, sent_ms, at: cx.now });
        }
        self.is_acker = announce.acker == Some(self.node);
        match announce.acker {
            Some(node) => {
                // An acker is named, so the election is over: the draft's suppression.
                self.election = None;
                if node == self.node {
                    self.acks_due = (self.acks_due + 1).min(ACKS_MAX);
                    if self.config.ack_every > 1 {
                        // A timer for this moment ends it when the packets of the moment are
                        // handled.
                        self.ack_held.get_or_insert(cx.now);
                    }
                }
            }
            None if self.election.is_none() && !arrival.repair => {
                self.election = Some(cx.now + cx.rng.up_to(ELECTION_BACKOFF));
            }
            None => {}
        }
    }

    fn note_mark(&mut self, seq: Seq, marked: bool) {
        if self.marks.is_none() && !marked {
            return; // Most networks mark nothing, ever.
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

    fn plan_own_report(&mut self, cx: &mut Cx<'_>, interval: Duration) {
        if self.own_report.is_none() {
            let last = self.own_report_at;
            let earliest = last.map_or(cx.now, |at| (at + interval).max(cx.now));
            self.own_report = Some(earliest + cx.rng.up_to(ELECTION_BACKOFF));
        }
    }
}

impl ReceiverFeedback for PgmccReceiver {
    type Announce = PgmccAnnounce;
    type Report = PgmccReport;

    #[inline]
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&PgmccAnnounce>) {
        self.heard_at = cx.now;
        if !arrival.repair {
            // The meter knows what it has seen; for it an original after its repair is no
            // duplicate.
            let packet = (arrival.seq, arrival.congestion_experienced);
            self.meter.received(cx.now, packet, arrival.reordering);
            self.note_mark(arrival.seq, arrival.congestion_experienced);
            // An acker's bitmaps show marks; who is none and lacks nothing has no NAK to tell by.
            let acks = announce.is_some_and(|announce| announce.acker == Some(self.node));
            if arrival.congestion_experienced && self.config.speak_up && !acks {
                self.plan_own_report(cx, URGENT_INTERVAL);
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
        let later = self.tail.is_none_or(|(seq, _)| last.after(seq));
        if later {
            self.tail = Some((last, cx.now + TAIL_TIMEOUT));
        }
    }

    fn on_rewind(&mut self, _cx: &mut Cx<'_>, newest: Seq) {
        self.stamp = self.stamp.filter(|stamp| !stamp.seq.after(newest));
        self.marks = self.marks.filter(|marks| !marks.highest.after(newest));
        self.tail = self.tail.filter(|(last, _)| !last.after(newest));
        self.meter.rewind(newest);
    }

    fn on_stuck(&mut self, cx: &mut Cx<'_>) {
        // Where most packets are lost most SPMs are too, and without one there is no NAK to carry
        // the report; the source's own address is known.
        if self.config.speak_up && self.meter.loss() > 0.0 {
            self.plan_own_report(cx, URGENT_INTERVAL);
        }
    }

    fn shape_vector(&self, vector: AckVector) -> AckVector {
        // src: pgmcc-draft s2.9: what was marked is reported as not received.
        let Some(marks) = self.marks else { return vector };
        let distance = vector.highest.distance(marks.highest);
        let marked = match u32::try_from(distance) {
            Ok(above) => marks.bitmap.checked_shl(above).unwrap_or(0),
            Err(_) => marks.bitmap.checked_shr(distance.unsigned_abs()).unwrap_or(0),
        };
        AckVector { bitmap: vector.bitmap & !marked, ..vector }
    }

    fn on_overheard(&mut self, cx: &mut Cx<'_>, _from: NodeId, report: &PgmccReport) {
        if !self.config.speak_up || report.receiver == Some(self.node) {
            return;
        }
        // A receiver that loses much more than those who are heard may be the slowest of all, and
        // its NAKs may be suppressed by theirs (src: seada-helmy s4.3).
        let heard = f64::from(report.loss) / 65535.0;
        if 2.0 * heard < self.meter.loss() {
            self.plan_own_report(cx, SPEAK_UP_INTERVAL);
        } else {
            self.own_report = None;
        }
    }

    fn reports_directly(&self) -> bool {
        self.is_acker
    }

    #[inline]
    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, PgmccReport)> {
        // Asked after every packet, and mostly in vain.
        let held = self.ack_held.is_some() && self.acks_due < self.config.ack_every;
        if (self.acks_due == 0 || held) && !self.nak_due {
            return None;
        }
        let report = self.report(cx.now, self.meter.loss())?;
        if self.acks_due > 0 && !held {
            // One bitmap says what all of them would.
            self.acks_due = if self.config.ack_every > 1 { 0 } else { self.acks_due - 1 };
            self.ack_held = None;
            return Some((Audience::SenderAck, report));
        }
        if self.nak_due {
            self.nak_due = false;
            return Some((Audience::SenderNak, report));
        }
        None
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>) -> Option<PgmccReport> {
        let report = self.report(cx.now, self.meter.loss_with_holes(cx.now))?;
        (self.own_report, self.own_report_at) = (None, Some(cx.now));
        Some(report)
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.ack_held.is_some_and(|at| at <= cx.now) {
            self.ack_held = None;
        }
        if self.election.is_some_and(|at| at <= cx.now) {
            self.election = None;
            // An ACK, as OpenPGM sends. deviates: the draft has a NAK that asks for no repair.
            self.acks_due = (self.acks_due + 1).min(ACKS_MAX);
        }
        if self.own_report.is_some_and(|at| at <= cx.now) {
            (self.own_report, self.own_report_at) = (None, Some(cx.now));
            self.nak_due = true;
        }
        if let Some((last, at)) = self.tail
            && at <= cx.now
        {
            self.tail = None;
            self.meter.give_up(cx.now, last);
            let is_interrupted = cx.now.since(self.heard_at) >= INTERRUPTION
                && self.stamp.is_some_and(|stamp| stamp.seq.before(last));
            if is_interrupted && self.is_acker && self.config.speak_up {
                // There is nothing to acknowledge, and NAKs of others may have suppressed its own.
                self.nak_due = true;
            }
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        let mut next = self.election.unwrap_or(Time::MAX);
        if let Some(at) = self.ack_held {
            next = next.min(at);
        }
        if let Some(at) = self.own_report {
            next = next.min(at);
        }
        if let Some((_, at)) = self.tail {
            next = next.min(at);
        }
        (next < Time::MAX).then_some(next)
    }
}
