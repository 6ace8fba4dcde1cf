//! Congestion control as a pair at the two ends of a *span*: end to end (sender and group), or
//! one hop.
//!
//! A sender asks its control for a [`Permit`], never for a window or a rate, so that window-,
//! rate- and credit-based schemes fit alike. Repair (NAK, FEC, retransmission) belongs to the
//! endpoint and not to the scheme; a scheme sees a repair as [`Arrival::repair`].

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

/// Whether a packet may leave. Ordered from free to strict, so that several controls compose by
/// `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permit {
    /// At once.
    Now,
    /// At this moment, which is later than now.
    At(Time),
    /// Not before feedback or a timeout; one of the control's timers is armed.
    Blocked,
}

/// Message of a scheme on the wire: the value of one option on data packets or on feedback.
pub trait Wire: Sized {
    /// The number of the option that carries it, 1 to 0x7f: 0x12 for pgmcc's announcement and 0x13
    /// for its report.
    const OPTION: u8;

    /// Most bytes of an encoding, for which senders leave room in packets. Default 28.
    const BYTES_MAX: usize = 28;

    /// Appends the encoding to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads a whole encoding; `None` where the bytes are not one. Never panics.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Arrivals among the last 32 data packets: the body of a positive acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckVector {
    /// The highest sequence number received.
    pub highest: Seq,
    /// Bit i: whether `highest - i` was received. Bit 0 is `highest` itself.
    pub bitmap: u32,
}

impl AckVector {
    /// Packets that a bitmap covers.
    pub const PACKETS: u64 = u32::BITS as u64;
}

/// Packet on which a report came to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// On a positive acknowledgement with this body.
    Ack(AckVector),
    /// On a negative acknowledgement, asking for repair of `first` and perhaps more.
    Nak {
        /// The first sequence number asked for.
        first: Seq,
    },
    /// On a null NAK, which asks for no repair.
    NullNak {
        /// The latest packet that its sender found missing, or else the latest that came to it.
        latest: Seq,
    },
}

/// Destination of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// At once to the sender, on a positive acknowledgement with the endpoint's [`AckVector`].
    SenderAck,
    /// At once to the sender as a null NAK, which asks for no repair: pgmcc's dummy NAK.
    SenderNak,
}

/// A data packet as a receiver's side of a scheme sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its sequence number.
    pub seq: Seq,
    /// Bytes of payload.
    pub len: u32,
    /// Whether it is a repair.
    pub repair: bool,
    /// Whether it was already there.
    pub duplicate: bool,
    /// Whether the network marked congestion on it.
    pub congestion_experienced: bool,
    /// Time for which the endpoint waits for a missing packet, as the lateness of others has shown;
    /// `None` where packets come in order, so that some later ones show a loss.
    pub reordering: Option<Duration>,
}

/// Cause of the rate of a control, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regime {
    /// From what the representative reports: its losses and its round trip.
    #[default]
    Path,
    /// From how far the control has come since its start, for it has not met a limit yet.
    Start,
    /// Least rate of the scheme, for want of feedback or of any room.
    Floor,
    /// Rate that the operator allows, which is below that of the scheme.
    Cap,
}

/// Gauges of a control. A field that the scheme does not have is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Window in packets.
    pub window: Option<f64>,
    /// Packets in flight.
    pub flight: Option<u32>,
    /// Rate in bits of payload per second.
    pub rate_bits_per_s: Option<f64>,
    /// The representative: pgmcc's acker, TFMCC's CLR.
    pub representative: Option<NodeId>,
    /// Smoothed round trip to the representative.
    pub rtt: Option<Duration>,
    /// Cause of its rate.
    pub regime: Regime,
}

impl Gauges {
    /// The rate that the control allows, in bits of payload per second: its own where it has one, and
    /// else a window of packets with `packet_bytes` of payload in each round trip.
    pub fn allowed_bits_per_s(&self, packet_bytes: u32) -> Option<f64> {
        let by_window = || {
            let round_trip = self.rtt.filter(|rtt| *rtt > Duration::ZERO)?;
            Some(self.window? * f64::from(packet_bytes) * 8.0 / round_trip.as_secs_f64())
        };
        self.rate_bits_per_s.or_else(by_window)
    }
}

/// The sender's half of a scheme.
pub trait SenderControl {
    /// Rides on each data packet: acker, CLR, round.
    type Announce: Wire;
    /// Report to the sender.
    type Report: Wire;

    /// Data packets have so many bytes beside their payload, those of IPv4 and UDP among them and those of
    /// encryption not: said once, before anything else, for rates that count headers. Before that none.
    fn set_header(&mut self, _bytes: u32) {}

    /// Whether a data packet with `len` bytes of payload may leave now. A repair asks with
    /// `repair` set.
    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> Permit;

    /// A new data packet leaves. Returns what rides on it.
    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Self::Announce;

    /// A repair leaves. `None` lets it travel without an announcement. A scheme that says nothing
    /// treats it as a new packet.
    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Option<Self::Announce> {
        Some(self.on_sent(cx, seq, len))
    }

    /// A report has come from a receiver, by its own [word](Self::reporter) where it tells.
    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier, report: &Self::Report);

    /// A receiver said that it leaves the session.
    fn on_leave(&mut self, _cx: &mut Cx<'_>, _from: NodeId) {}

    /// A receiver was heard that cannot report yet, as one that has had no data.
    fn on_heard(&mut self, _cx: &mut Cx<'_>) {}

    /// Packets go another path from now on, which has no part in what the old one lost.
    fn on_new_path(&mut self, _cx: &mut Cx<'_>) {}

    /// Nothing is sent although a permit was there: the application has nothing to send, or the upper
    /// bound that the operator has set holds it back.
    fn on_idle(&mut self, _cx: &mut Cx<'_>) {}

    /// Time has passed. A spurious call does nothing.
    fn on_timeout(&mut self, cx: &mut Cx<'_>);

    /// When [`on_timeout`](Self::on_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time>;

    /// The round trip that `report`, received at `now`, tells of; `None` where it tells none or an
    /// absurd one. Nothing changes by asking.
    fn round_trip(&self, _now: Time, _report: &Self::Report) -> Option<Duration> {
        None
    }

    /// Sender of `report`, as the report says; `None` if it does not.
    fn reporter(_report: &Self::Report) -> Option<NodeId> {
        None
    }

    /// For the trace.
    fn gauges(&self) -> Gauges;
}

/// A receiver's half of a scheme.
pub trait ReceiverFeedback {
    /// Announcement on each data packet.
    type Announce: Wire;
    /// Report to the sender.
    type Report: Wire;

    /// As of [a sender](SenderControl::set_header).
    fn set_header(&mut self, _bytes: u32) {}

    /// A data packet has come, with its announcement where it carried one.
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&Self::Announce>);

    /// Packets `first` to `last` were found missing.
    fn on_missing(&mut self, cx: &mut Cx<'_>, first: Seq, last: Seq);

    /// Original packets after `newest` were none of the source, which goes on from there: what they
    /// have taught is to be unlearnt.
    fn on_rewind(&mut self, _cx: &mut Cx<'_>, _newest: Seq) {}

    /// NAKs are due that cannot be sent, because the way for them is not known: no SPM has come. Called
    /// again and again while that lasts.
    fn on_stuck(&mut self, _cx: &mut Cx<'_>) {}

    /// Shapes a positive acknowledgement that is about to be sent.
    fn shape_vector(&self, vector: AckVector) -> AckVector {
        vector
    }

    /// Another receiver's report was heard.
    fn on_overheard(&mut self, _cx: &mut Cx<'_>, _from: NodeId, _report: &Self::Report) {}

    /// Whether what it reports by itself now has to reach the sender at once and unchanged. Where others stand between a
    /// receiver and the sender, these hand on the worst of what they hear, and that late: what must not wait is the
    /// word of the representative, and of schemes that bound by timers of their own how many speak.
    fn reports_directly(&self) -> bool {
        false
    }

    /// This receiver leaves the session. Whether the sender must be told, though nothing has been
    /// acknowledged; the report that says it is asked for as that of a NAK is.
    fn on_leaving(&mut self) -> bool {
        false
    }

    /// A report that is due now, with how it is to travel.
    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, Self::Report)>;

    /// The report that rides on a NAK which the endpoint is about to send.
    fn report_for_nak(&mut self, _cx: &mut Cx<'_>) -> Option<Self::Report> {
        None
    }

    /// Time has passed. A spurious call does nothing.
    fn on_timeout(&mut self, cx: &mut Cx<'_>);

    /// When [`on_timeout`](Self::on_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_in_a_round_trip_is_a_rate() {
        let rtt = Some(Duration::from_millis(20));
        let window = Gauges { window: Some(10.0), rtt, ..Gauges::default() };
        // 10 packets of 8000 bits in each fiftieth of a second.
        assert_eq!(window.allowed_bits_per_s(1000), Some(4e6));
        let rate = Gauges { rate_bits_per_s: Some(5.0), ..window };
        assert_eq!(rate.allowed_bits_per_s(1000), Some(5.0), "where there is one it counts");
        for unknown in [None, Some(Duration::ZERO)] {
            assert_eq!(Gauges { rtt: unknown, ..window }.allowed_bits_per_s(1000), None);
        }
    }
}
