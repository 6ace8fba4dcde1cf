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
use crate::tram::membership::Parent;
use crate::tram::wire::{Announcement, Body, Report, ReportKind};
use crate::tram::{REPORT_INTERVAL, Steering, seq};
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
    requested_from: Option<u64>,
    /// True if the receiver has acknowledged, so that it must announce its leave.
    acknowledges: bool,
    leaves: bool,
    /// Worst report for the parent, own or of a member, and the time of the latest one sent.
    worst: Option<WaitingReport>,
    relayed_at: Option<Time>,
    late_acks: LateAcks,
}

#[derive(Clone, Copy, Debug)]
struct WaitingReport {
    kind: ReportKind,
    sequence: u64,
    report: RelayedReport,
    reported: Reported,
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
            stamps, latest, missing, missing_since, requested_from, acknowledges, leaves, worst,
            relayed_at, late_acks
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
        announce: Option<Announcement<'_>>,
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
        self.feedback.on_data(cx, arrival, announce).then_some(()).ok_or(BadInput::Malformed)
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

    pub(super) fn on_request(&mut self, first_missing: u64) {
        self.requested_from = Some(self.missing_since.take().unwrap_or(first_missing));
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
        let Report { kind, sequence, option, value, leaves } = *report;
        if option != self.view.report_option {
            return Err(BadInput::OtherScheme);
        }
        if leaves {
            // Goodbyes go to the source alone.
            return Err(BadInput::Foreign);
        }
        self.feedback.on_overheard(cx, from, value)?;
        self.offer(cx.now, (kind, sequence), value, beyond)
    }

    fn offer(
        &mut self,
        now: Time,
        (kind, sequence): (ReportKind, u64),
        value: &[u8],
        beyond: Duration,
    ) -> Checked {
        let report = RelayedReport::new(now, self.view, value).ok_or(BadInput::Malformed)?;
        // A report without a measure counts as harmless.
        let nothing = Reported { loss: 0.0, slowness_squared: 0.0 };
        let reported = report.reported(&self.stamps, beyond).unwrap_or(nothing);
        let is_worse = |old: &WaitingReport| {
            let old = old.reported;
            (reported.slowness_squared, reported.loss) > (old.slowness_squared, old.loss)
        };
        if self.worst.as_ref().is_none_or(is_worse) {
            self.worst = Some(WaitingReport { kind, sequence, report, reported });
        }
        Ok(())
    }

    fn relay_due(&self) -> Option<Time> {
        self.worst.as_ref()?;
        Some(self.relayed_at.map_or(Time::ZERO, |at| at + REPORT_INTERVAL))
    }

    fn poll_own(&mut self, cx: &mut Cx<'_>, value: &mut Vec<u8>) -> Option<(ReportKind, u64)> {
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
            (ReportKind::Ack { bitmap }, latest - u64::from(highest.distance(last).max(0) as u32))
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
                    (ReportKind::NullNak, missing.unwrap_or(latest))
                }
            });
        }
        let first = self.requested_from.take()?;
        self.feedback.report_for_nak(cx, value).then_some((ReportKind::Nak, first))
    }

    pub(super) fn poll(
        &mut self,
        cx: &mut Cx<'_>,
        identity: &mut Identity,
        source: NodeId,
        parent: Option<Parent>,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let option = self.view.report_option;
        let mut send = |cx: &mut Cx<'_>, to, kind, sequence, leaves, value: &[u8]| {
            let report = Report { kind, sequence, leaves, option, value };
            identity.send(cx, Destination::Node(to), Body::Report(report), buf)
        };
        if core::mem::take(&mut self.leaves)
            && let Some((latest, bitmap)) = self.latest
        {
            let mut value = Vec::new();
            self.feedback.report_for_nak(cx, &mut value);
            return Some(send(cx, source, ReportKind::Ack { bitmap }, latest, true, &value));
        }
        // Unallocated at first: most calls find no report.
        let mut value = Vec::new();
        while let Some((kind, sequence)) = self.poll_own(cx, &mut value) {
            // A report with a request is not urgent, and every receiver sends requests.
            if kind != ReportKind::Nak && self.feedback.reports_directly() {
                return Some(send(cx, source, kind, sequence, false, &value));
            }
            let beyond = parent.map_or(Duration::ZERO, |parent| parent.round_trip);
            // An own report is always well-formed.
            let _ = self.offer(cx.now, (kind, sequence), &value, beyond);
            value.clear();
        }
        let parent = parent?;
        self.relay_due().filter(|due| *due <= cx.now)?;
        self.relayed_at = Some(cx.now);
        let WaitingReport { kind, sequence, report, .. } = self.worst.take()?;
        let value = report.held_until(cx.now);
        Some(send(cx, parent.node, kind, sequence, false, &value))
    }

    pub(super) fn next_timeout(&self, has_parent: bool) -> Option<Time> {
        let relayed = self.relay_due().filter(|_| has_parent);
        [self.feedback.next_timeout(), relayed].into_iter().flatten().min()
    }
}
