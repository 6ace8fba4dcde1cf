//! Reports of a receiver to the scheme that steers the source: its own, and of those of its members the worst.
//!
//! Whoever must be heard at once, as the scheme says, reports to the source itself. All others report to their heads,
//! each of which hands on the worst that it has heard, its own among it, once in an interval: so the source hears as
//! often as it has members, however many receivers there are.

use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, NodeId, Time};

use crate::congestion::{
    AckVector, Arrival, Audience, BoxFeedback, LateAcks, RelayedReport, Reported, RouterView,
    Stamps,
};
use crate::options::Options;
use crate::tram::identity::Identity;
use crate::tram::parent::Bound;
use crate::tram::steering::{REPORT_INTERVAL, Steering, seq};
use crate::tram::wire::{Body, Report, Telling, Words};
use crate::{Destination, Transmit};

/// A receiver's half of the scheme, and what goes up the tree.
pub(super) struct Reports {
    pub(super) feedback: BoxFeedback,
    view: &'static RouterView,
    /// When announcements came, by which round trips are told.
    stamps: Stamps,
    /// The latest packet that came from the source when it was new, and which of the 32 up to it did.
    latest: Option<(u64, u32)>,
    /// The latest packet that was found missing, and the first of those found since it was reported of one.
    missing: Option<u64>,
    missing_since: Option<u64>,
    /// This packet is being asked for, which is reported.
    asks: Option<u64>,
    /// It has acknowledged, so that it must say when it leaves.
    acknowledges: bool,
    leaves: bool,
    up: Up,
    late_acks: LateAcks,
}

/// What goes up the tree next.
#[derive(Debug, Default)]
struct Up {
    sent_at: Option<Time>,
    worst: Option<Waiting>,
}

/// A report that waits until it may go up.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    telling: Telling,
    sequence: u64,
    report: RelayedReport,
    reported: Reported,
}

impl Up {
    fn offer(&mut self, waiting: Waiting) {
        let new = waiting.reported;
        let is_worse = |old: &Waiting| {
            let old = old.reported;
            (new.slowness_squared, new.loss) > (old.slowness_squared, old.loss)
        };
        if self.worst.as_ref().is_none_or(is_worse) {
            self.worst = Some(waiting);
        }
    }

    /// When the worst may go up.
    fn due(&self) -> Option<Time> {
        self.worst.as_ref()?;
        Some(self.sent_at.map_or(Time::ZERO, |at| at + REPORT_INTERVAL))
    }

    fn take_due(&mut self, now: Time) -> Option<Waiting> {
        self.due().filter(|due| *due <= now)?;
        self.sent_at = Some(now);
        self.worst.take()
    }
}

/// Most packets by which an original of the source is overtaken, on a path that is not known to reorder; chosen. With
/// a greater distance the latest packet was forged, and the source would reject reports of a packet that it has not
/// sent yet.
const LATE_MAX: u64 = 64;

impl Reports {
    pub(super) fn new(steering: Steering, options: &Options) -> Self {
        fresh! {
            Self {
                feedback: steering.feedback(options),
                view: &steering.scheme.view,
            }
            stamps, latest, missing, missing_since, asks, acknowledges, leaves, up, late_acks
        }
    }

    pub(super) fn on_missing(&mut self, cx: &mut Cx<'_>, first: u64, packets: u64) {
        if packets == 0 {
            return;
        }
        let last = first + packets - 1;
        self.missing = Some(last);
        self.missing_since.get_or_insert(first);
        self.feedback.on_missing(cx, seq(first), seq(last));
    }

    /// Packets after `index` were none of the source.
    pub(super) fn on_rewind(&mut self, cx: &mut Cx<'_>, index: u64) {
        self.latest = self.latest.filter(|(latest, _)| *latest <= index);
        self.missing = self.missing.filter(|missing| *missing < index);
        self.missing_since = self.missing_since.filter(|missing| *missing < index);
        self.feedback.on_rewind(cx, seq(index) - 1);
    }

    /// Data has come from the source itself. What heads repair is no packet of the source: it says nothing of the way
    /// from there.
    ///
    /// # Errors
    /// The announcement is none of this scheme.
    pub(super) fn on_data(
        &mut self,
        cx: &mut Cx<'_>,
        sequence: u64,
        arrival: &Arrival,
        announce: Option<Words<'_>>,
    ) -> Checked {
        if announce.is_some_and(|words| words.option != self.view.announce_option) {
            return Err(BadInput::OtherScheme);
        }
        let announce = announce.map(|words| words.value);
        if !arrival.repair {
            self.note(sequence, arrival.reordering);
            if let Some(stamp) = announce.and_then(self.view.stamp) {
                self.stamps.note(cx.now, stamp);
            }
        }
        let sound = self.feedback.on_data(cx, arrival, announce);
        if sound { Ok(()) } else { Err(BadInput::Malformed) }
    }

    fn note(&mut self, sequence: u64, reordering: Option<Duration>) {
        let behind = self.latest.map_or(0, |(latest, _)| latest.saturating_sub(sequence));
        self.late_acks.note(seq(sequence), behind);
        let known = self.latest.filter(|_| behind <= LATE_MAX || reordering.is_some());
        let (latest, bits) = known.unwrap_or((sequence, 0));
        let ahead = sequence.saturating_sub(latest);
        let bits = if ahead < 32 { bits << ahead } else { 0 };
        let latest = latest.max(sequence);
        let behind = latest - sequence;
        self.latest = Some((latest, if behind < 32 { bits | 1 << behind } else { bits }));
    }

    pub(super) fn on_ask(&mut self, first_missing: u64) {
        let first = self.missing_since.take().unwrap_or(first_missing);
        self.asks = Some(first);
    }

    /// It leaves the session, which the source may have to be told.
    pub(super) fn on_leaving(&mut self) {
        self.leaves = self.feedback.on_leaving() || self.acknowledges;
    }

    /// A member's report, of its own or of those below it.
    ///
    /// # Errors
    /// It is none of this scheme.
    pub(super) fn take(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        report: &Report<'_>,
        beyond: Duration,
    ) -> Checked {
        let Report { telling, sequence, option, value, leaves } = *report;
        if option != self.view.report_option {
            return Err(BadInput::OtherScheme);
        }
        if leaves {
            // That is for the source alone.
            return Err(BadInput::Foreign);
        }
        self.feedback.on_overheard(cx, from, value)?;
        self.offer(cx.now, (telling, sequence), value, beyond)
    }

    fn offer(
        &mut self,
        now: Time,
        (telling, sequence): (Telling, u64),
        value: &[u8],
        beyond: Duration,
    ) -> Checked {
        let report = RelayedReport::new(now, self.view, value).ok_or(BadInput::Malformed)?;
        // What does not tell how bad it is claims nothing.
        let nothing = Reported { loss: 0.0, slowness_squared: 0.0 };
        let reported = report.reported(&self.stamps, beyond).unwrap_or(nothing);
        self.up.offer(Waiting { telling, sequence, report, reported });
        Ok(())
    }

    /// What the scheme has to say of itself now, and of what.
    fn poll_own(&mut self, cx: &mut Cx<'_>, value: &mut Vec<u8>) -> Option<(Telling, u64)> {
        let Some((latest, bitmap)) = self.latest else {
            // Repairs alone came: no packet of the source is there to report of.
            while self.feedback.poll_report(cx, value).is_some() {
                value.clear();
            }
            return None;
        };
        let highest = seq(latest);
        let acknowledges = |it: &Self, vector: AckVector| {
            let AckVector { highest: last, bitmap } = it.feedback.shape_vector(vector);
            // A late packet lies a little behind the latest.
            (
                Telling::Acknowledges { bitmap },
                latest - u64::from(highest.distance(last).max(0) as u32),
            )
        };
        if let Some((vector, report)) = self.late_acks.next() {
            value.extend_from_slice(&report);
            return Some(acknowledges(self, vector));
        }
        if let Some(audience) = self.feedback.poll_report(cx, value) {
            return Some(match audience {
                Audience::SenderAck => {
                    self.acknowledges |= self.feedback.reports_directly();
                    let late = self.late_acks.replace(value);
                    acknowledges(self, late.unwrap_or(AckVector { highest, bitmap }))
                }
                Audience::SenderNak => {
                    let missing = self.missing.filter(|missing| *missing < latest);
                    (Telling::Nothing, missing.unwrap_or(latest))
                }
            });
        }
        let first = self.asks.take()?;
        self.feedback.report_for_nak(cx, value).then_some((Telling::Asks, first))
    }

    /// The next packet with a report: to the source, or to the head that this receiver has.
    pub(super) fn poll(
        &mut self,
        cx: &mut Cx<'_>,
        identity: &mut Identity,
        source: NodeId,
        head: Option<Bound>,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mut send = |cx: &mut Cx<'_>, to, telling, sequence, leaves, value: &[u8]| {
            let option = self.view.report_option;
            let report = Report { telling, sequence, leaves, option, value };
            identity.control(cx, Destination::Node(to), u8::MAX, Body::Report(report), buf)
        };
        if core::mem::take(&mut self.leaves)
            && let Some((latest, bitmap)) = self.latest
        {
            let mut value = Vec::new();
            self.feedback.report_for_nak(cx, &mut value);
            return Some(send(cx, source, Telling::Acknowledges { bitmap }, latest, true, &value));
        }
        // Asked after every packet, and mostly in vain.
        let mut value = Vec::new();
        while let Some((telling, sequence)) = self.poll_own(cx, &mut value) {
            // What goes with a request for packets says nothing that must not wait, and every receiver asks.
            if telling != Telling::Asks && self.feedback.reports_directly() {
                return Some(send(cx, source, telling, sequence, false, &value));
            }
            let beyond = head.map_or(Duration::ZERO, |head| head.round_trip);
            // It is of this scheme's own making.
            let _ = self.offer(cx.now, (telling, sequence), &value, beyond);
            value.clear();
        }
        let Waiting { telling, sequence, report, .. } =
            head.is_some().then(|| self.up.take_due(cx.now))??;
        let value = report.held_until(cx.now);
        Some(send(cx, head?.node, telling, sequence, false, &value))
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.feedback.next_timeout().is_some_and(|at| at <= cx.now) {
            self.feedback.on_timeout(cx);
        }
    }

    /// When it wants to be called; with a head that takes reports, or without one.
    pub(super) fn next_timeout(&self, has_head: bool) -> Option<Time> {
        let up = self.up.due().filter(|_| has_head);
        [self.feedback.next_timeout(), up].into_iter().flatten().min()
    }
}
