//! The events of a trace: what protocols, links and routers say about themselves.
//!
//! This is the one table of event kinds. Traces, summaries, plots and verdicts are made from
//! these and from nothing else, whether the run was simulated, emulated or real. The enums are
//! exhaustive on purpose: a new kind does not compile until the trace schema knows it.

use core::fmt;

use crate::{FlowId, NodeId};

/// One thing that happened. The driver adds when, and to which flow's endpoint, link or node.
///
/// `seq` is the sequence number of a packet, or of the first of `count` packets in a row; `bytes`
/// are those of payload at ends and those on the wire at links.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum Event {
    /// A sender put a data packet on the wire: a new one, or a retransmission or parity.
    DataSent { seq: u64, bytes: u32, repair: bool },
    /// A sender got a positive acknowledgement, of packets up to `seq` and of new `bytes`.
    AckReceived { seq: u64, bytes: u32, from: NodeId },
    /// A sender got a negative acknowledgement, which asks for packets.
    NakReceived { seq: u64, count: u32, from: NodeId },
    /// A receiver handed payload to the application, in order.
    Delivered { seq: u64, bytes: u32 },
    /// A receiver counts packets of the session as lost: they were sent while it was a member, and have not
    /// arrived. The definition is in `docs/research.md`.
    LossDetected { seq: u64, count: u64 },
    /// A receiver no longer counts packets as lost: they arrived late, or the sender had never sent them.
    LossWithdrawn { seq: u64, count: u64 },
    /// A receiver has learned of packets of the session, arrived or lost, since it became a member. Receivers that do
    /// not report each delivery emit this event now and then, and at the end.
    SessionExtent { packets: u64 },
    /// A receiver has found that packets get lost because of their length: bytes of the longest
    /// that arrives, and of those that are sent.
    PathLimit { arrives: u32, sent: u32 },
    /// A receiver gave packets up: they can no longer be repaired.
    Abandoned { seq: u64, count: u64 },
    /// The congestion window changed, in thousandths of a packet; with the packets in flight.
    Window { window_milli: u64, flight: u32 },
    /// The sending rate changed, in payload.
    Rate { bits_per_s: u64 },
    /// A sender reduced its window or rate. The window is that after the cut, zero without one.
    Cut { reason: CutReason, window_milli: u64 },
    /// A timer of the protocol ran out, after this time, without the event that it waited for.
    Timeout { kind: TimeoutKind, after_ns: u64 },
    /// The sender chose another representative, or none: pgmcc's acker, TFMCC's CLR.
    Representative { node: Option<NodeId>, reason: SwitchReason },
    /// A receiver has another repair head, or none. Its level in the tree is one more than its
    /// head's, the sender's being 1; 0 without a head.
    RepairHead { node: Option<NodeId>, level: u32 },
    /// A sender's session has ended, and receivers have not got everything: one, unless only their number is known.
    Incomplete { node: Option<NodeId>, receivers: u32, reason: Shortfall },
    /// The sender measured a round trip.
    RttSample { node: NodeId, rtt_ns: u64 },
    /// A receiver has every byte of the finished transfer, or a sender knows that all is
    /// acknowledged; bytes of the whole object.
    Completed { bytes: u64 },
    /// A receiver joined the group. The driver says so, since it does the joining.
    Joined,
    /// A receiver left the group. The driver says so.
    Left,
    /// Input from the network was refused.
    BadInput { reason: BadInput },
    /// A router confirmed or passed a NAK on towards the source.
    NakForwarded { seq: u64 },
    /// A router withheld a NAK.
    NakSuppressed { seq: u64 },
    /// A link dropped a packet.
    PacketDropped { flow: FlowId, bytes: u32, reason: DropReason },
    /// The counters of a link, taken now.
    LinkSample(LinkCounters),
    /// A link made a second packet of one.
    PacketDuplicated { flow: FlowId, bytes: u32 },
    /// A link flipped a bit of a packet, counted from the first byte's most significant.
    PacketCorrupted { flow: FlowId, bytes: u32, bit: u64 },
    /// A link delayed a packet by so much more than the others, so that these may overtake it.
    PacketDelayed { flow: FlowId, bytes: u32, delay_ns: u64 },
    /// A relay node or a host behind relays is attached to another relay, or to none.
    Attached { relay: Option<NodeId> },
    /// A fault of a node began or ended, as the scenario wants it.
    NodeFault { kind: NodeFaultKind },
}

/// Kind of a fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum NodeFaultKind {
    Stopped,
    Resumed,
    Killed,
    Started,
    Moved,
}

/// What one direction of a link has done since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that arrived at the queue.
    pub offered_packets: u64,
    /// Packets whose transmission has ended.
    pub sent_packets: u64,
    /// Bytes whose transmission has ended.
    pub sent_bytes: u64,
    /// Packets dropped by the queue or lost on the wire.
    pub dropped_packets: u64,
    /// Nanoseconds in which the link was transmitting.
    pub busy_ns: u64,
    /// Integral over time of the packets waiting, the one in transmission not counted
    /// (packet-nanoseconds).
    pub queue_packet_ns: u64,
    /// Packets waiting now, the one in transmission not counted.
    pub queue_packets: u32,
    /// The most that have waited, and been in transmission, since the last sample.
    pub queue_max_packets: u32,
}

/// Why a link dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum DropReason {
    QueueFull,
    /// RED chose it early.
    RedEarly,
    /// RED's average was above its upper threshold.
    RedForced,
    Loss,
    TimeToLive,
    NoRoute,
    /// Dropped on purpose by the scenario's list.
    Listed,
    /// Lost on the wire, together with its neighbours.
    Burst,
    Outage,
    TooLong,
}

/// Why a sender slowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum CutReason {
    Loss,
    /// A retransmission or stall timer ran out.
    Timeout,
    Ecn,
    /// The representative reported a lower rate.
    Report,
    NoFeedback,
}

/// Which timer ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutKind {
    /// TCP's retransmission timer.
    Retransmission,
    /// A sender without any acknowledgement.
    Stall,
    /// A NAK that nobody confirmed.
    NakConfirmation,
    /// A confirmed NAK without its repair.
    NakRepair,
    /// A source that is silent for too long.
    SessionExpiry,
}

/// Why the representative changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum SwitchReason {
    First,
    Slower,
    Left,
    Silent,
    /// The old one's reports contradict what it acknowledges.
    Lied,
    Recovered,
}

/// How a receiver was lost that has not got everything.
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

/// Input from the network, or why it was refused.
pub type Checked<T = ()> = Result<T, BadInput>;

/// Why input from the network was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum BadInput {
    /// Shorter than its format needs.
    Truncated,
    /// A field has a value that its format forbids.
    Malformed,
    Checksum,
    Foreign,
    /// A sequence number outside every window.
    OutOfWindow,
    /// A report that contradicts itself or what is known.
    Absurd,
    Duplicate,
    TableFull,
    /// It is of a scheme that this end does not speak.
    OtherScheme,
    /// The program of its session cannot be had, is refused, or has failed.
    Program,
}
