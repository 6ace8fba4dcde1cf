//! Trace events: reports of protocols, links and routers about themselves.
//!
//! Traces, summaries, plots and verdicts use these events only. The schema must have each kind.

use core::fmt;

use crate::{FlowId, NodeId};

/// Event of a flow's endpoint, a link or a node. The driver adds the time and the place. `seq` is
/// the number of a packet, or of the first of `count`. `bytes` is payload at ends, the length on
/// the wire at links.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum Event {
    /// A sender sent a data packet. `repair` is true for a retransmission or parity.
    DataSent { seq: u64, bytes: u32, repair: bool },
    /// A sender received an acknowledgement of packets up to `seq` and of `bytes` new bytes.
    AckReceived { seq: u64, bytes: u32, from: NodeId },
    /// A sender received a negative acknowledgement (NAK), which requests packets.
    NakReceived { seq: u64, count: u32, from: NodeId },
    /// A receiver delivered payload to the application, in order.
    Delivered { seq: u64, bytes: u32 },
    /// A receiver counts packets of the session as lost (definition: `docs/research.md`).
    LossDetected { seq: u64, count: u64 },
    /// A receiver no longer counts packets as lost: they arrived late, or were never sent.
    LossWithdrawn { seq: u64, count: u64 },
    /// Packets, arrived or lost, known to a receiver since its join; now and then, and at the end.
    SessionExtent { packets: u64 },
    /// Packets are lost by their length: longest that arrives, and length sent, in bytes.
    PathLimit { arrives: u32, sent: u32 },
    /// A receiver gave up packets that can no longer be repaired.
    Abandoned { seq: u64, count: u64 },
    /// The congestion window changed, in 1/1000 packets. `flight` counts packets in flight.
    Window { window_milli: u64, flight: u32 },
    /// The sending rate changed. The rate counts payload.
    Rate { bits_per_s: u64 },
    /// A sender reduced its window or rate, to this window; zero without a window.
    Cut { reason: CutReason, window_milli: u64 },
    /// A protocol timer expired after this time.
    Timeout { kind: TimeoutKind, after_ns: u64 },
    /// The sender selected another representative, or none: pgmcc's acker, TFMCC's CLR.
    Representative { node: Option<NodeId>, reason: SwitchReason },
    /// A receiver has a new repair head, or none. `level` is the head's plus one; 0 without a head.
    RepairHead { node: Option<NodeId>, level: u32 },
    /// A session ended before a receiver had everything, or before `receivers` unknown ones had.
    Incomplete { node: Option<NodeId>, receivers: u32, reason: Shortfall },
    /// The sender measured a round-trip time.
    RttSample { node: NodeId, rtt_ns: u64 },
    /// A receiver has the whole object of `bytes` bytes, or all is acknowledged to a sender.
    Completed { bytes: u64 },
    /// A receiver joined the group. Reported by the driver, which performs the join.
    Joined,
    /// A receiver left the group. Reported by the driver.
    Left,
    /// Input from the network was refused.
    BadInput { reason: BadInput },
    /// A router confirmed a NAK, or forwarded it towards the source.
    NakForwarded { seq: u64 },
    /// A router suppressed a NAK.
    NakSuppressed { seq: u64 },
    /// A link dropped a packet.
    PacketDropped { flow: FlowId, bytes: u32, reason: DropReason },
    /// Current counters of a link.
    LinkSample(LinkCounters),
    /// A link duplicated a packet.
    PacketDuplicated { flow: FlowId, bytes: u32 },
    /// A link flipped bit `bit` of a packet. Bit 0 is the most significant of the first byte.
    PacketCorrupted { flow: FlowId, bytes: u32, bit: u64 },
    /// A link delayed a packet by `delay_ns` more than others, so that these may overtake it.
    PacketDelayed { flow: FlowId, bytes: u32, delay_ns: u64 },
    /// A relay node, or a host behind relays, is attached to another relay, or to none.
    Attached { relay: Option<NodeId> },
    /// A scheduled fault of a node began or ended.
    NodeFault { kind: NodeFaultKind },
}

/// Kind of node fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum NodeFaultKind {
    Stopped,
    Resumed,
    Killed,
    Started,
    Moved,
}

/// Counters of one direction of a link since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct LinkCounters {
    /// Packets that arrived at the queue.
    pub offered_packets: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    /// Packets dropped by the queue or lost on the wire.
    pub dropped_packets: u64,
    /// Transmission time of the link, in nanoseconds.
    pub busy_ns: u64,
    /// Integral over time of `queue_packets`, in packet-nanoseconds.
    pub queue_packet_ns: u64,
    /// Packets waiting now, without the one in transmission.
    pub queue_packets: u32,
    /// Most packets waiting or in transmission since the last sample.
    pub queue_max_packets: u32,
}

/// Reason why a link dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum DropReason {
    QueueFull,
    /// RED early drop: average between the thresholds.
    RedEarly,
    /// RED forced drop: average above the upper threshold.
    RedForced,
    Loss,
    TimeToLive,
    NoRoute,
    Listed,
    /// Lost on the wire in a burst.
    Burst,
    Outage,
    TooLong,
}

/// Reason why a sender reduced its window or rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum CutReason {
    Loss,
    Timeout,
    Ecn,
    /// The representative reported a lower rate.
    Report,
    NoFeedback,
}

/// Timer that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum TimeoutKind {
    Retransmission,
    Stall,
    NakConfirmation,
    NakRepair,
    /// Longest silence of a source.
    SessionExpiry,
}

/// Reason of a new representative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum SwitchReason {
    First,
    Slower,
    Left,
    Silent,
    /// Reports of the old representative contradict its acknowledgements.
    Lied,
    Recovered,
}

/// Reason why a receiver lacks data at the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Shortfall {
    Silent,
    Left,
    Pruned,
    Gaps,
    Unnamed,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "it fell silent",
            Self::Left => "it left before the end",
            Self::Pruned => "it was too slow",
            Self::Gaps => "some of it could not be repaired any more",
            Self::Unnamed => "it was below one that was lost",
        })
    }
}

/// Valid input from the network, or the reason of its refusal.
pub type Checked<T = ()> = Result<T, BadInput>;

/// Reason why input from the network was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum BadInput {
    Truncated,
    Malformed,
    Checksum,
    Foreign,
    /// Sequence number outside every window.
    OutOfWindow,
    Absurd,
    Duplicate,
    TableFull,
    /// Packet of a scheme that this end does not support.
    OtherScheme,
    /// The program of the session is not available, was refused, or has failed.
    Program,
}
