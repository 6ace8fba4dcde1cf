//! Byte interface of both halves: announcements and reports become option values. The sender half
//! has the operator's rate bounds.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, NodeId, Seq, Time};

use super::{
    AckVector, Arrival, Audience, Carrier, Gauges, Pace, Permit, ReceiverFeedback, Regime,
    SenderControl, Wire,
};

/// Operator's rate bounds, none by default: the cap wins over the floor, the floor over the scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Rate cap: highest rate of payload, repairs and packets without payload.
    pub cap: Option<Bitrate>,
    /// Lowest rate of payload while there is data to send, even if the scheme allows less.
    pub floor: Option<Bitrate>,
}

/// Lowest limit that receivers can set: about one packet a second.
const RECEIVER_LIMIT_MIN: Bitrate = Bitrate::from_bits_per_s(16_000);

/// Sender half of any scheme.
pub type BoxControl = Box<dyn ErasedControl + Send>;
/// Receiver half of any scheme.
pub type BoxFeedback = Box<dyn ErasedFeedback + Send>;

/// Facts from a decoded report that [`ErasedControl::on_report`] has not processed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportFacts {
    /// Node that the report names as its sender.
    pub reporter: Option<NodeId>,
    /// Round trip to that node.
    pub round_trip: Option<Duration>,
}

/// Type-erased [`SenderControl`], with encoded values. Only differences are described.
#[expect(missing_docs, reason = "methods without a text are those of SenderControl")]
pub trait ErasedControl {
    fn options(&self) -> SchemeOptions;
    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> Permit;
    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32, out: &mut Vec<u8>);
    /// Appends the announcement, if any. Returns true if there was one.
    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32, out: &mut Vec<u8>) -> bool;
    /// Returns when a deferrable packet without data, such as a confirmation, may leave.
    fn permit_overhead(&self, now: Time) -> Permit;
    /// Notes that a packet of `bytes` without data leaves.
    fn on_overhead(&mut self, now: Time, bytes: u32);
    /// Decodes a report received at `now`, which has no effect before
    /// [`on_report`](Self::on_report).
    ///
    /// # Errors
    /// The report is malformed.
    fn read_report(&mut self, now: Time, report: &[u8]) -> Checked<ReportFacts>;
    /// Processes the report that was decoded last.
    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier);
    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId);
    fn on_unreached_receiver(&mut self, cx: &mut Cx<'_>);
    fn on_new_path(&mut self, cx: &mut Cx<'_>);
    fn on_idle(&mut self, cx: &mut Cx<'_>);
    /// Sets the receivers' rate limit. Returns true if it is below the operator's cap.
    fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) -> bool;
    fn on_timeout(&mut self, cx: &mut Cx<'_>);
    fn next_timeout(&self) -> Option<Time>;
    fn gauges(&self) -> Gauges;
    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any;
}

/// Type-erased [`ReceiverFeedback`], with encoded values. Only differences are described.
#[expect(missing_docs, reason = "methods without a text are those of ReceiverFeedback")]
pub trait ErasedFeedback {
    fn options(&self) -> SchemeOptions;
    /// Returns false if the announcement is malformed, which counts as no announcement.
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&[u8]>) -> bool;
    fn on_missing(&mut self, cx: &mut Cx<'_>, first: Seq, last: Seq);
    fn on_rewind(&mut self, cx: &mut Cx<'_>, newest: Seq);
    fn on_naks_blocked(&mut self, cx: &mut Cx<'_>);
    fn shape_vector(&self, vector: AckVector) -> AckVector;
    /// # Errors
    /// The report is malformed.
    fn on_overheard(&mut self, cx: &mut Cx<'_>, from: NodeId, report: &[u8]) -> Checked;
    fn reports_directly(&self) -> bool;
    fn on_leaving(&mut self) -> bool;
    fn poll_report(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<Audience>;
    /// Appends the report, if any. Returns true if there was one.
    fn report_for_nak(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool;
    fn on_timeout(&mut self, cx: &mut Cx<'_>);
    fn next_timeout(&self) -> Option<Time>;
    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any;
}

/// Option numbers of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeOptions {
    /// Option on data: the sender's announcement.
    pub announce: u8,
    /// Option on feedback: the receiver's report.
    pub report: u8,
}

struct CodedControl<C: SenderControl> {
    half: C,
    report: Option<C::Report>,
    bounds: Bounds,
    /// Pacer of the rate cap: the operator's or the receivers' limit, whichever is lower.
    cap: Option<Pace>,
    floor: Option<Pace>,
    /// True if the cap, not the scheme, limited the latest permit.
    is_capped: bool,
}

struct CodedFeedback<F> {
    half: F,
}

/// Boxes a sender half, without bounds.
pub fn boxed_control<C>(half: C) -> BoxControl
where
    C: SenderControl<Report: Send> + Send + 'static,
{
    bounded_control(half, Bounds::default())
}

/// Boxes a sender half, within `bounds`.
pub fn bounded_control<C>(half: C, bounds: Bounds) -> BoxControl
where
    C: SenderControl<Report: Send> + Send + 'static,
{
    let cap = bounds.cap.map(|rate| pace(rate, Pace::BURST));
    let floor = bounds.floor.map(|rate| pace(rate, Duration::ZERO));
    Box::new(CodedControl { half, report: None, bounds, cap, floor, is_capped: false })
}

fn pace(rate: Bitrate, burst: Duration) -> Pace {
    Pace::new(rate.bits_per_s() as f64, burst)
}

/// Boxes a receiver half.
pub fn boxed_feedback<F: ReceiverFeedback + Send + 'static>(half: F) -> BoxFeedback {
    Box::new(CodedFeedback { half })
}

fn put<W: Wire>(value: &W, out: &mut Vec<u8>) {
    let start = out.len();
    value.encode(out);
    assert!(out.len() - start <= W::BYTES_MAX, "senders leave no more room for it");
}

impl<C: SenderControl + 'static> CodedControl<C> {
    fn charge(&mut self, now: Time, bytes: u32) {
        self.on_overhead(now, bytes);
        if let Some(floor) = &mut self.floor {
            floor.restart(now, bytes);
        }
    }
}

impl<C: SenderControl + 'static> ErasedControl for CodedControl<C> {
    fn options(&self) -> SchemeOptions {
        SchemeOptions { announce: C::Announce::OPTION, report: C::Report::OPTION }
    }

    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> Permit {
        let scheme = self.half.permit(cx, len, repair);
        // An earlier permit sends sooner: the floor takes the earlier one, the cap the later one.
        let floored = self.floor.as_ref().map_or(scheme, |floor| scheme.min(floor.permit(cx.now)));
        let capped = self.permit_overhead(cx.now);
        self.is_capped = capped > floored;
        let permit = floored.max(capped);
        if scheme == Permit::Now && permit != scheme {
            // The path was not tested at the scheme's rate, so a window must not grow unused.
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
        self.half.on_repair_sent(cx, seq, len).inspect(|announce| put(announce, out)).is_some()
    }

    fn permit_overhead(&self, now: Time) -> Permit {
        self.cap.as_ref().map_or(Permit::Now, |cap| cap.permit(now))
    }

    fn on_overhead(&mut self, now: Time, bytes: u32) {
        if let Some(cap) = &mut self.cap {
            cap.spend(now, bytes);
        }
    }

    fn read_report(&mut self, now: Time, report: &[u8]) -> Checked<ReportFacts> {
        let report = self.report.insert(C::Report::decode(report).ok_or(BadInput::Malformed)?);
        let round_trip = self.half.round_trip(now, report);
        Ok(ReportFacts { reporter: C::reporter(report), round_trip })
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier) {
        if let Some(report) = self.report.take() {
            // Routers forward NAKs as their own; the report names the receiver (src: openpgm).
            let from = C::reporter(&report).unwrap_or(from);
            self.half.on_report(cx, from, carrier, &report);
        }
    }

    fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) -> bool {
        // Anybody can announce a limit, so no limit goes below the floor.
        let floor = self.bounds.floor;
        let limit_min = floor.map_or(RECEIVER_LIMIT_MIN, |floor| floor.max(RECEIVER_LIMIT_MIN));
        let limit = limit.map(|limit| limit.max(limit_min));
        let rate = limit.into_iter().chain(self.bounds.cap).min();
        match (&mut self.cap, rate) {
            (Some(cap), Some(rate)) => cap.set(now, rate.bits_per_s() as f64),
            (cap, rate) => *cap = rate.map(|rate| pace(rate, Pace::BURST)),
        }
        limit.is_some_and(|limit| self.bounds.cap.is_none_or(|cap| limit < cap))
    }

    passes! {
        half:
        fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId);
        fn on_unreached_receiver(&mut self, cx: &mut Cx<'_>);
        fn on_new_path(&mut self, cx: &mut Cx<'_>);
        fn on_idle(&mut self, cx: &mut Cx<'_>);
        fn on_timeout(&mut self, cx: &mut Cx<'_>);
        fn next_timeout(&self) -> Option<Time>;
    }

    fn gauges(&self) -> Gauges {
        let gauges = self.half.gauges();
        if self.is_capped { Gauges { regime: Regime::Cap, ..gauges } } else { gauges }
    }

    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any {
        &self.half
    }
}

impl<F: ReceiverFeedback + 'static> ErasedFeedback for CodedFeedback<F> {
    fn options(&self) -> SchemeOptions {
        SchemeOptions { announce: F::Announce::OPTION, report: F::Report::OPTION }
    }

    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&[u8]>) -> bool {
        let read = announce.and_then(F::Announce::decode);
        self.half.on_data(cx, arrival, read.as_ref());
        announce.is_some() == read.is_some()
    }

    fn on_overheard(&mut self, cx: &mut Cx<'_>, from: NodeId, report: &[u8]) -> Checked {
        let report = F::Report::decode(report).ok_or(BadInput::Malformed)?;
        self.half.on_overheard(cx, from, &report);
        Ok(())
    }

    fn poll_report(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<Audience> {
        let (audience, report) = self.half.poll_report(cx)?;
        put(&report, out);
        Some(audience)
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        self.half.report_for_nak(cx).inspect(|report| put(report, out)).is_some()
    }

    passes! {
        half:
        fn on_missing(&mut self, cx: &mut Cx<'_>, first: Seq, last: Seq);
        fn on_rewind(&mut self, cx: &mut Cx<'_>, newest: Seq);
        fn on_naks_blocked(&mut self, cx: &mut Cx<'_>);
        fn on_leaving(&mut self) -> bool;
        fn on_timeout(&mut self, cx: &mut Cx<'_>);
        fn shape_vector(&self, vector: AckVector) -> AckVector;
        fn reports_directly(&self) -> bool;
        fn next_timeout(&self) -> Option<Time>;
    }

    #[cfg(test)]
    fn inner(&self) -> &dyn core::any::Any {
        &self.half
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
