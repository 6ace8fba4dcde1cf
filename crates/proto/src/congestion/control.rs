//! Congestion control as a pair at both ends of a *span*: end to end (sender and group), or one
//! hop. Repair belongs to the endpoint; a scheme sees a repair as [`Arrival::repair`].

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Seq, Time};

/// Permission for a packet to leave. Ordered from free to strict: controls compose by `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permit {
    /// Send at once.
    Now,
    /// Send at this time, which is in the future.
    At(Time),
    /// Wait for feedback or a timeout; one of the control's timers is armed.
    Blocked,
}

/// Message of a scheme: the value of one option on data packets or on feedback.
pub trait Wire: Sized {
    /// Option number, 1 to 0x7f: 0x12 for pgmcc's announcement, 0x13 for pgmcc's report.
    const OPTION: u8;

    /// Most bytes of an encoding, reserved in packets. Default 28.
    const BYTES_MAX: usize = 28;

    /// Appends the encoding to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes a whole encoding; `None` for other bytes. Never panics.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Arrivals among the last 32 data packets: the body of a positive acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckVector {
    /// Highest sequence number received.
    pub highest: Seq,
    /// Bit i is set if `highest - i` was received. Bit 0 is `highest` itself.
    pub bitmap: u32,
}

impl AckVector {
    /// Number of packets that a bitmap covers.
    pub const PACKETS: u64 = u32::BITS as u64;
}

/// Packet that carried a report to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Positive acknowledgement with this body.
    Ack(AckVector),
    /// Negative acknowledgement: a request to repair `first` and perhaps more.
    Nak {
        /// First sequence number requested.
        first: Seq,
    },
    /// Null NAK, which requests no repair.
    NullNak {
        /// Latest packet that the NAK's sender missed, or else received.
        latest: Seq,
    },
}

/// Destination of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Sender, at once: a positive acknowledgement with the endpoint's [`AckVector`].
    SenderAck,
    /// Sender, at once: a null NAK, which requests no repair (pgmcc's dummy NAK).
    SenderNak,
}

/// Received data packet, as a scheme's receiver half sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Sequence number.
    pub seq: Seq,
    /// Payload length in bytes.
    pub len: u32,
    /// True if the packet is a repair.
    pub repair: bool,
    /// True if the packet was received before.
    pub duplicate: bool,
    /// True if the network marked congestion on the packet.
    pub congestion_experienced: bool,
    /// Waiting time for a missing packet, learnt from late ones; `None` if later ones show a loss.
    pub reordering: Option<Duration>,
}

/// Present limit of a control's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regime {
    /// Loss and round trip of the representative.
    #[default]
    Path,
    /// Growth since the start: no limit of the path was met yet.
    Start,
    /// Lowest rate of the scheme, without feedback or capacity.
    Floor,
    /// Rate cap, which is below the scheme's rate.
    Cap,
}

/// Gauges of a control. Values that the scheme lacks are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Window in packets.
    pub window: Option<f64>,
    /// Packets in flight.
    pub flight: Option<u32>,
    /// Payload rate in bits per second.
    pub rate_bits_per_s: Option<f64>,
    /// Representative: pgmcc's acker, TFMCC's CLR.
    pub representative: Option<NodeId>,
    /// Smoothed round trip to the representative.
    pub rtt: Option<Duration>,
    /// Present limit of the rate.
    pub regime: Regime,
}

impl Gauges {
    /// Returns the allowed payload bits per second: the rate, or else a window per round trip.
    pub fn allowed_bits_per_s(&self, packet_bytes: u32) -> Option<f64> {
        self.rate_bits_per_s.or_else(|| {
            let round_trip = self.rtt.filter(|rtt| *rtt > Duration::ZERO)?;
            Some(self.window? * f64::from(packet_bytes) * 8.0 / round_trip.as_secs_f64())
        })
    }
}

/// Sender half of a scheme.
pub trait SenderControl {
    /// Announcement on each data packet: acker, CLR, round.
    type Announce: Wire;
    /// Report to the sender.
    type Report: Wire;

    /// Sets the bytes beside a packet's payload, with IPv4 and UDP, before all else. Default 0.
    fn set_header(&mut self, _bytes: u32) {}

    /// Returns when a data packet, or a repair, with `len` bytes of payload may leave.
    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> Permit;

    /// Notes that a new data packet leaves. Returns the packet's announcement.
    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Self::Announce;

    /// Notes that a repair leaves. Returns its announcement. By default it counts as a new packet.
    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Option<Self::Announce> {
        Some(self.on_sent(cx, seq, len))
    }

    /// Processes a report from receiver `from`, which the [report](Self::reporter) may name.
    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier, report: &Self::Report);

    /// Notes that a receiver announced its leave.
    fn on_leave(&mut self, _cx: &mut Cx<'_>, _from: NodeId) {}

    /// Notes a receiver that cannot report yet, because no data reached it.
    fn on_unreached_receiver(&mut self, _cx: &mut Cx<'_>) {}

    /// Notes that packets take a new path from now on, which did not cause the old path's losses.
    fn on_new_path(&mut self, _cx: &mut Cx<'_>) {}

    /// Notes an unused permit: there is no data, or the rate cap forbids it.
    fn on_idle(&mut self, _cx: &mut Cx<'_>) {}

    /// Runs the timers that are due. Spurious calls have no effect.
    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    /// Returns the next time to call [`on_timeout`](Self::on_timeout).
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Returns the round trip that `report`, received at `now`, measures; `None` if none or absurd.
    fn round_trip(&self, _now: Time, _report: &Self::Report) -> Option<Duration> {
        None
    }

    /// Returns the receiver that `report` names as its sender.
    fn reporter(_report: &Self::Report) -> Option<NodeId> {
        None
    }

    /// Returns gauges for the trace.
    fn gauges(&self) -> Gauges;
}

/// Receiver half of a scheme.
pub trait ReceiverFeedback {
    /// Announcement on each data packet.
    type Announce: Wire;
    /// Report to the sender.
    type Report: Wire;

    /// Sets the header length: see [`SenderControl::set_header`].
    fn set_header(&mut self, _bytes: u32) {}

    /// Processes a data packet and its announcement, if any.
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&Self::Announce>);

    /// Notes that packets `first` to `last` are missing.
    fn on_missing(&mut self, _cx: &mut Cx<'_>, _first: Seq, _last: Seq) {}

    /// Forgets originals after `newest`, which the source did not send; it continues there.
    fn on_rewind(&mut self, _cx: &mut Cx<'_>, _newest: Seq) {}

    /// Notes that due NAKs cannot be sent, because no SPM showed the way. Called repeatedly.
    fn on_naks_blocked(&mut self, _cx: &mut Cx<'_>) {}

    /// Changes a positive acknowledgement before it is sent.
    fn shape_vector(&self, vector: AckVector) -> AckVector {
        vector
    }

    /// Processes a report of another receiver.
    fn on_overheard(&mut self, _cx: &mut Cx<'_>, _from: NodeId, _report: &Self::Report) {}

    /// Returns true if present reports must reach the sender at once: routers delay and merge them.
    fn reports_directly(&self) -> bool {
        false
    }

    /// Notes that this receiver leaves. Returns true if the sender must learn of it even though no
    /// packet was acknowledged, by [`report_for_nak`](Self::report_for_nak).
    fn on_leaving(&mut self) -> bool {
        false
    }

    /// Returns a report that is due now, with its destination.
    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, Self::Report)>;

    /// Returns the report for a NAK that the endpoint is about to send.
    fn report_for_nak(&mut self, _cx: &mut Cx<'_>) -> Option<Self::Report> {
        None
    }

    /// Runs the timers that are due. Spurious calls have no effect.
    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    /// Returns the next time to call [`on_timeout`](Self::on_timeout).
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

const GAUGE_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct GaugeTrace {
    /// Last event: its time, window in thousandths of a packet, and packets in flight.
    window: Option<(Time, u64, u32)>,
    /// Last event: its time, and rate in bits per second.
    rate: Option<(Time, u64)>,
}

impl GaugeTrace {
    /// Emits changed gauges: a fall at once, other changes at most every 10 ms.
    pub(crate) fn observe(&mut self, cx: &mut Cx<'_>, gauges: &Gauges) {
        let now = cx.now;
        let is_due = |at: Time| now.since(at) >= GAUGE_INTERVAL;
        if let Some(window) = gauges.window {
            let window_milli = (window * 1000.0 + 0.5) as u64;
            let flight = gauges.flight.unwrap_or(0);
            if self.window.is_none_or(|(at, last_milli, last_flight)| {
                let changes = (window_milli, flight) != (last_milli, last_flight);
                window_milli < last_milli || changes && is_due(at)
            }) {
                self.window = Some((now, window_milli, flight));
                cx.emit(Event::Window { window_milli, flight });
            }
        }
        if let Some(rate) = gauges.rate_bits_per_s {
            let rate = (rate + 0.5) as u64;
            if self.rate.is_none_or(|(at, last)| rate < last || rate != last && is_due(at)) {
                self.rate = Some((now, rate));
                cx.emit(Event::Rate { bits_per_s: rate });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_in_a_round_trip_is_a_rate() {
        let rtt = Some(Duration::from_millis(20));
        let window = Gauges { window: Some(10.0), rtt, ..Gauges::default() };
        assert_eq!(window.allowed_bits_per_s(1000), Some(4e6));
        let rate = Gauges { rate_bits_per_s: Some(5.0), ..window };
        assert_eq!(rate.allowed_bits_per_s(1000), Some(5.0), "where there is one it counts");
        for unknown in [None, Some(Duration::ZERO)] {
            assert_eq!(Gauges { rtt: unknown, ..window }.allowed_bits_per_s(1000), None);
        }
    }
}
