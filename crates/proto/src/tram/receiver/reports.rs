//! Reports of a receiver to the scheme of the source: its own ones, and the worst of its members'.
//! Urgent reports go direct to the source, others to the head. Each head passes on the worst once
//! per interval, so the source gets reports at the rate of its members.

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

pub(super) struct Reports {
    pub(super) feedback: BoxFeedback,
    view: &'static RouterView,
    stamps: Stamps,
    /// Latest original of the source, and a bit for each of the last 32 that came.
    latest: Option<(u64, u32)>,
    /// Latest packet found missing, and the first one since the last report of one.
    missing: Option<u64>,
    missing_since: Option<u64>,
    asks: Option<u64>,
    /// True if the receiver has acknowledged, so that it must announce its leave.
    acknowledges: bool,
    leaves: bool,
    up: Up,
    late_acks: LateAcks,
}

#[derive(Debug, Default)]
struct Up {
    sent_at: Option<Time>,
    worst: Option<Waiting>,
}

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

/// Most packets by which an original is overtaken without known disorder; chosen. Beyond that the
/// latest packet was forged, and the source would reject reports of it.
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

    pub(super) fn on_rewind(&mut self, cx: &mut Cx<'_>, index: u64) {
        self.latest = self.latest.filter(|(latest, _)| *latest <= index);
        self.missing = self.missing.filter(|missing| *missing < index);
        self.missing_since = self.missing_since.filter(|missing| *missing < index);
        self.feedback.on_rewind(cx, seq(index) - 1);
    }

    /// Takes data from the source itself. Fails if the announcement is not of this scheme.
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

    pub(super) fn on_leaving(&mut self) {
        self.leaves = self.feedback.on_leaving() || self.acknowledges;
    }

    /// Takes a member's report, its own or one from below. Fails if it is not of this scheme.
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
            // Goodbyes go to the source alone.
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
        // A report without a measure counts as harmless.
        let nothing = Reported { loss: 0.0, slowness_squared: 0.0 };
        let reported = report.reported(&self.stamps, beyond).unwrap_or(nothing);
        self.up.offer(Waiting { telling, sequence, report, reported });
        Ok(())
    }

    fn poll_own(&mut self, cx: &mut Cx<'_>, value: &mut Vec<u8>) -> Option<(Telling, u64)> {
        let Some((latest, bitmap)) = self.latest else {
            // Without an original from the source there is no packet to report about.
            while self.feedback.poll_report(cx, value).is_some() {
                value.clear();
            }
            return None;
        };
        let highest = seq(latest);
        let acknowledges = |it: &Self, vector: AckVector| {
            let AckVector { highest: last, bitmap } = it.feedback.shape_vector(vector);
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
        // Unallocated at first: most calls find no report.
        let mut value = Vec::new();
        while let Some((telling, sequence)) = self.poll_own(cx, &mut value) {
            // A report with a request is not urgent, and every receiver sends requests.
            if telling != Telling::Asks && self.feedback.reports_directly() {
                return Some(send(cx, source, telling, sequence, false, &value));
            }
            let beyond = head.map_or(Duration::ZERO, |head| head.round_trip);
            // An own report is always well-formed.
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

    pub(super) fn next_timeout(&self, has_head: bool) -> Option<Time> {
        let up = self.up.due().filter(|_| has_head);
        [self.feedback.next_timeout(), up].into_iter().flatten().min()
    }
}
