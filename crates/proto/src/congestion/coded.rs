//! The two halves of a scheme as transports hold them: what they say and hear are bytes, the values
//! of options, so that one transport serves every scheme.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, NodeId, Seq, Time};

use super::{
    AckVector, Arrival, Audience, Carrier, Gauges, Pace, Permit, ReceiverFeedback, Regime,
    SenderControl, Wire,
};

/// A sender's half of any scheme.
pub type BoxControl = Box<dyn Control + Send>;
/// A receiver's half of any scheme.
pub type BoxFeedback = Box<dyn Feedback + Send>;

/// Content of a report before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Sender, as the report says.
    pub reporter: Option<NodeId>,
    /// The round trip to there.
    pub round_trip: Option<Duration>,
}

/// A [`SenderControl`] behind its encoding and within the bounds that the operator has set. The methods of
/// both are alike; what is not is described.
#[expect(missing_docs, reason = "methods without a text are those of SenderControl")]
pub trait Control {
    /// The numbers of the options of announcements and of reports.
    fn options(&self) -> SchemeOptions;
    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> Permit;
    /// Appends the announcement to `out`.
    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32, out: &mut Vec<u8>);
    /// Appends the announcement, where there is one.
    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32, out: &mut Vec<u8>) -> bool;
    /// Whether a packet without data may leave now, of those that can wait: confirmations, answers.
    fn permit_overhead(&self, now: Time) -> Permit;
    /// A packet of `bytes` without data leaves.
    fn on_overhead(&mut self, now: Time, bytes: u32);
    /// Reads a report that came at `now`, of which nothing counts before
    /// [`on_report`](Self::on_report).
    ///
    /// # Errors
    /// It is malformed.
    fn read_report(&mut self, now: Time, report: &[u8]) -> Checked<Told>;
    /// The report that was read last counts.
    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier);
    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId);
    fn on_heard(&mut self, cx: &mut Cx<'_>);
    fn on_new_path(&mut self, cx: &mut Cx<'_>);
    fn on_idle(&mut self, cx: &mut Cx<'_>);
    /// Receivers ask for no more than this, or for nothing of the kind. Returns whether it is less than
    /// the upper bound that the operator has set.
    fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) -> bool;
    fn on_timeout(&mut self, cx: &mut Cx<'_>);
    fn next_timeout(&self) -> Option<Time>;
    fn gauges(&self) -> Gauges;
    /// The half itself.
    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any;
}

/// A [`ReceiverFeedback`] behind its encoding. The methods of both are alike; what is not is described.
#[expect(missing_docs, reason = "methods without a text are those of ReceiverFeedback")]
pub trait Feedback {
    /// The numbers of the options of announcements and of reports.
    fn options(&self) -> SchemeOptions;
    /// Whether there was nothing wrong with the announcement; a malformed one counts as none.
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&[u8]>) -> bool;
    fn on_missing(&mut self, cx: &mut Cx<'_>, first: Seq, last: Seq);
    fn on_rewind(&mut self, cx: &mut Cx<'_>, newest: Seq);
    fn on_stuck(&mut self, cx: &mut Cx<'_>);
    fn shape_vector(&self, vector: AckVector) -> AckVector;
    /// # Errors
    /// The report is malformed.
    fn on_overheard(&mut self, cx: &mut Cx<'_>, from: NodeId, report: &[u8]) -> Checked;
    fn reports_directly(&self) -> bool;
    fn on_leaving(&mut self) -> bool;
    /// Appends the report to `out`.
    fn poll_report(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<Audience>;
    /// Appends the report, where there is one.
    fn report_for_nak(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool;
    fn on_timeout(&mut self, cx: &mut Cx<'_>);
    fn next_timeout(&self) -> Option<Time>;
    /// The half itself.
    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any;
}

/// The numbers of a scheme's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeOptions {
    /// On data: what the sender announces.
    pub announce: u8,
    /// On feedback: a receiver's report.
    pub report: u8,
}

/// Bounds that the operator sets to a sending rate; none unless set. Where they contradict each other the
/// upper one holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Most payload, repairs too, and packets without payload.
    pub max: Option<Bitrate>,
    /// Least payload while there is any to send, whatever the scheme says.
    pub min: Option<Bitrate>,
}

/// The least to which receivers can limit a sender: about a packet a second.
const LIMIT_MIN: Bitrate = Bitrate::from_bits_per_s(16_000);

/// A sender's half behind its encoding: never faster than the one bound, never slower than the other.
struct CodedControl<C: SenderControl> {
    half: C,
    /// The report that was read last and does not count yet.
    report: Option<C::Report>,
    bounds: Bounds,
    max: Option<Pace>,
    min: Option<Pace>,
    /// Whether the upper bound, and not the half, held back what was to leave last.
    capped: bool,
}

struct CodedFeedback<F>(F);

/// A sender's half behind its encoding, without bounds.
pub fn boxed_control<C>(half: C) -> BoxControl
where
    C: SenderControl<Report: Send> + Send + 'static,
{
    bounded_control(half, Bounds::default())
}

/// A sender's half behind its encoding and within `bounds`.
pub fn bounded_control<C>(half: C, bounds: Bounds) -> BoxControl
where
    C: SenderControl<Report: Send> + Send + 'static,
{
    let max = bounds.max.map(|rate| pace(rate, Pace::BURST));
    // It is there for when the scheme says no, so nothing is saved up for it.
    let min = bounds.min.map(|rate| pace(rate, Duration::ZERO));
    Box::new(CodedControl { half, report: None, bounds, max, min, capped: false })
}

fn pace(rate: Bitrate, burst: Duration) -> Pace {
    Pace::new(rate.bits_per_s() as f64, burst)
}

/// A receiver's half behind its encoding.
pub fn boxed_feedback<F: ReceiverFeedback + Send + 'static>(half: F) -> BoxFeedback {
    Box::new(CodedFeedback(half))
}

fn put<W: Wire>(value: &W, out: &mut Vec<u8>) {
    let start = out.len();
    value.encode(out);
    assert!(out.len() - start <= W::BYTES_MAX, "senders leave no more room for it");
}

impl<C: SenderControl> CodedControl<C> {
    fn charge(&mut self, now: Time, len: u32) {
        if let Some(max) = &mut self.max {
            max.spend(now, len);
        }
        if let Some(min) = &mut self.min {
            min.restart(now, len);
        }
    }
}

impl<C: SenderControl + 'static> Control for CodedControl<C> {
    fn options(&self) -> SchemeOptions {
        SchemeOptions { announce: C::Announce::OPTION, report: C::Report::OPTION }
    }

    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> Permit {
        let own = self.half.permit(cx, len, repair);
        let least = self.min.as_ref().map_or(own, |min| own.min(min.permit(cx.now)));
        let permit = match &self.max {
            Some(max) => {
                let bound = max.permit(cx.now);
                self.capped = bound > least;
                least.max(bound)
            }
            None => {
                self.capped = false;
                least
            }
        };
        if own == Permit::Now && permit != own {
            // What a path was never asked for it has not granted: a window that grew on would take
            // many losses to be felt when others come.
            self.half.on_idle(cx);
        }
        permit
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32, out: &mut Vec<u8>) {
        self.charge(cx.now, len);
        put(&self.half.on_sent(cx, seq, len), out);
    }

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32, out: &mut Vec<u8>) -> bool {
        self.charge(cx.now, len);
        let announce = self.half.on_repair_sent(cx, seq, len);
        announce.is_some_and(|announce| {
            put(&announce, out);
            true
        })
    }

    fn permit_overhead(&self, now: Time) -> Permit {
        self.max.as_ref().map_or(Permit::Now, |max| max.permit(now))
    }

    fn on_overhead(&mut self, now: Time, bytes: u32) {
        if let Some(max) = &mut self.max {
            max.spend(now, bytes);
        }
    }

    fn read_report(&mut self, now: Time, report: &[u8]) -> Checked<Told> {
        let report = self.report.insert(C::Report::decode(report).ok_or(BadInput::Malformed)?);
        let round_trip = self.half.round_trip(now, report);
        Ok(Told { reporter: C::reporter(report), round_trip })
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier) {
        if let Some(report) = self.report.take() {
            // Routers forward NAKs in their own name, so the report's word counts (src: openpgm).
            let from = C::reporter(&report).unwrap_or(from);
            self.half.on_report(cx, from, carrier, &report);
        }
    }

    fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) -> bool {
        // Anybody can announce one: it brings nobody below the lower bound.
        let least = self.bounds.min.map_or(LIMIT_MIN, |min| min.max(LIMIT_MIN));
        let limit = limit.map(|limit| limit.max(least));
        let rate = limit.into_iter().chain(self.bounds.max).min();
        match (&mut self.max, rate) {
            (Some(max), Some(rate)) => max.set(now, rate.bits_per_s() as f64),
            (max, rate) => *max = rate.map(|rate| pace(rate, Pace::BURST)),
        }
        limit.is_some_and(|limit| self.bounds.max.is_none_or(|max| limit < max))
    }

    passes! {
        half:
        fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId);
        fn on_heard(&mut self, cx: &mut Cx<'_>);
        fn on_new_path(&mut self, cx: &mut Cx<'_>);
        fn on_idle(&mut self, cx: &mut Cx<'_>);
        fn on_timeout(&mut self, cx: &mut Cx<'_>);
        fn next_timeout(&self) -> Option<Time>;
    }

    fn gauges(&self) -> Gauges {
        let gauges = self.half.gauges();
        if self.capped { Gauges { regime: Regime::Cap, ..gauges } } else { gauges }
    }

    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any {
        &self.half
    }
}

impl<F: ReceiverFeedback + 'static> Feedback for CodedFeedback<F> {
    fn options(&self) -> SchemeOptions {
        SchemeOptions { announce: F::Announce::OPTION, report: F::Report::OPTION }
    }

    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&[u8]>) -> bool {
        let read = announce.and_then(F::Announce::decode);
        self.0.on_data(cx, arrival, read.as_ref());
        announce.is_some() == read.is_some()
    }

    fn on_overheard(&mut self, cx: &mut Cx<'_>, from: NodeId, report: &[u8]) -> Checked {
        let report = F::Report::decode(report).ok_or(BadInput::Malformed)?;
        self.0.on_overheard(cx, from, &report);
        Ok(())
    }

    fn poll_report(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<Audience> {
        let (audience, report) = self.0.poll_report(cx)?;
        put(&report, out);
        Some(audience)
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        let report = self.0.report_for_nak(cx);
        report.is_some_and(|report| {
            put(&report, out);
            true
        })
    }

    passes! {
        0:
        fn on_missing(&mut self, cx: &mut Cx<'_>, first: Seq, last: Seq);
        fn on_rewind(&mut self, cx: &mut Cx<'_>, newest: Seq);
        fn on_stuck(&mut self, cx: &mut Cx<'_>);
        fn on_leaving(&mut self) -> bool;
        fn on_timeout(&mut self, cx: &mut Cx<'_>);
        fn shape_vector(&self, vector: AckVector) -> AckVector;
        fn reports_directly(&self) -> bool;
        fn next_timeout(&self) -> Option<Time>;
    }

    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{SenderBench, encoded, ms};
    use crate::congestion::pgmcc::{PgmccConfig, PgmccReport, PgmccSender};

    #[test]
    fn routers_may_forward_reports_in_their_own_name() {
        for (receiver, acker) in [(Some(NodeId(8)), 8), (None, 77)] {
            let mut control = boxed_control(PgmccSender::new(PgmccConfig::default()));
            // It has the clock.
            let mut bench = SenderBench::of(PgmccSender::new(PgmccConfig::default()), 1400);
            let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.log);
            control.on_sent(&mut cx, Seq::new(0), 1400, &mut Vec::new());
            cx.now += ms(50);
            let report = encoded(&PgmccReport { echo_ms: 0, loss: 0, receiver });
            control.read_report(cx.now, &report).unwrap();
            control.on_report(&mut cx, NodeId(77), Carrier::Nak { first: Seq::new(0) });
            assert_eq!(control.gauges().representative, Some(NodeId(acker)));
        }
    }
}
