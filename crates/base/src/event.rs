//! The events of a trace: what protocols, links and routers say about themselves.
//!
//! This is the one table of event kinds. Traces, summaries, plots and verdicts are made from
//! these and from nothing else, whether the run was simulated, emulated or real. The enums are
//! exhaustive on purpose: a new kind does not compile until the trace schema knows it.

use core::fmt;

use crate::{FlowId, NodeId};

/// One thing that happened. The driver adds when, and to which flow's endpoint, link or node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A sender put a data packet on the wire.
    DataSent {
        /// Sequence number (of packets for multicast, of packets for TCP).
        seq: u64,
        /// Payload bytes in it.
        bytes: u32,
        /// Whether it is a retransmission or parity.
        repair: bool,
    },
    /// A sender got a positive acknowledgement.
    AckReceived {
        /// The highest sequence number that it speaks of.
        seq: u64,
        /// Payload bytes acknowledged for the first time.
        bytes: u32,
        /// Who sent it.
        from: NodeId,
    },
    /// A sender got a negative acknowledgement.
    NakReceived {
        /// The first sequence number asked for.
        seq: u64,
        /// How many sequence numbers it asks for.
        count: u32,
        /// Who sent it.
        from: NodeId,
    },
    /// A receiver handed payload to the application, in order.
    Delivered {
        /// Sequence number of the packet.
        seq: u64,
        /// Payload bytes.
        bytes: u32,
    },
    /// A receiver counts packets of the session as lost: they were sent while it was a member, and have not
    /// arrived. The definition is in `docs/research.md`.
    LossDetected {
        /// Sequence number of the first.
        seq: u64,
        /// Number of packets, with consecutive sequence numbers.
        count: u64,
    },
    /// A receiver no longer counts packets as lost: they arrived late, or the sender had never sent them.
    LossWithdrawn {
        /// Sequence number of the first.
        seq: u64,
        /// Number of packets.
        count: u64,
    },
    /// A receiver has learned of packets of the session, arrived or lost, since it became a member. Receivers that do
    /// not report each delivery emit this event now and then, and at the end.
    SessionExtent {
        /// Number of packets.
        packets: u64,
    },
    /// A receiver has found that packets get lost because of their length.
    PathLimit {
        /// Bytes of the longest packet that arrives.
        arrives: u32,
        /// Bytes of the packets that are sent.
        sent: u32,
    },
    /// A receiver gave packets up: they can no longer be repaired.
    Abandoned {
        /// Sequence number of the first.
        seq: u64,
        /// Number of packets, with consecutive sequence numbers.
        count: u64,
    },
    /// The congestion window changed.
    Window {
        /// Window in thousandths of a packet.
        window_milli: u64,
        /// Packets in flight.
        flight: u32,
    },
    /// The sending rate changed.
    Rate {
        /// Bits of payload per second.
        bits_per_s: u64,
    },
    /// A sender reduced its window or rate.
    Cut {
        /// Why.
        reason: CutReason,
        /// Window after the cut in thousandths of a packet; zero for schemes without a window.
        window_milli: u64,
    },
    /// A timer of the protocol ran out without the event that it waited for.
    Timeout {
        /// Which timer.
        kind: TimeoutKind,
        /// The value that it had, in nanoseconds.
        after_ns: u64,
    },
    /// The sender chose another representative: pgmcc's acker, TFMCC's CLR.
    Representative {
        /// The new one, or none.
        node: Option<NodeId>,
        /// Why.
        reason: SwitchReason,
    },
    /// A receiver has another repair head, or none.
    RepairHead {
        /// The head.
        node: Option<NodeId>,
        /// The receiver's level in the tree: one more than its head's, the sender's being 1; 0 without a head.
        level: u32,
    },
    /// A sender's session has ended, and receivers have not got everything.
    Incomplete {
        /// Who; `None` where that is not known.
        node: Option<NodeId>,
        /// How many: one, unless only their number is known.
        receivers: u32,
        /// How they were lost.
        reason: Shortfall,
    },
    /// The sender measured a round trip.
    RttSample {
        /// To whom.
        node: NodeId,
        /// Nanoseconds.
        rtt_ns: u64,
    },
    /// A receiver has every byte of the finished transfer, or a sender knows that all is
    /// acknowledged.
    Completed {
        /// Bytes of the whole object.
        bytes: u64,
    },
    /// A receiver joined the group. The driver says so, since it does the joining.
    Joined,
    /// A receiver left the group. The driver says so.
    Left,
    /// Input from the network was refused.
    BadInput {
        /// Why.
        reason: BadInput,
    },
    /// A router confirmed or passed a NAK on towards the source.
    NakForwarded {
        /// Its first sequence number.
        seq: u64,
    },
    /// A router withheld a NAK.
    NakSuppressed {
        /// Its first sequence number.
        seq: u64,
    },
    /// A link dropped a packet.
    PacketDropped {
        /// Whose packet.
        flow: FlowId,
        /// Bytes on the wire.
        bytes: u32,
        /// Why.
        reason: DropReason,
    },
    /// The counters of a link, taken now.
    LinkSample(LinkCounters),
    /// A link made a second packet of one.
    PacketDuplicated {
        /// Whose packet.
        flow: FlowId,
        /// Bytes on the wire.
        bytes: u32,
    },
    /// A link flipped a bit of a packet.
    PacketCorrupted {
        /// Whose packet.
        flow: FlowId,
        /// Bytes on the wire.
        bytes: u32,
        /// Which bit of the packet's own bytes, counted from the first byte's most significant.
        bit: u64,
    },
    /// A link delayed a packet, so that others may overtake it.
    PacketDelayed {
        /// Whose packet.
        flow: FlowId,
        /// Bytes on the wire.
        bytes: u32,
        /// By how much more than the others, in nanoseconds.
        delay_ns: u64,
    },
    /// A relay node or a host behind relays is attached to another relay, or to none.
    Attached {
        /// The relay above.
        relay: Option<NodeId>,
    },
    /// A fault of a node began or ended, as the scenario wants it.
    NodeFault {
        /// Its kind.
        kind: NodeFaultKind,
    },
}

/// Kind of a fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeFaultKind {
    /// Programs stand still.
    Stopped,
    /// Programs go on after a stop.
    Resumed,
    /// Programs were killed.
    Killed,
    /// Killed programs start again.
    Started,
    /// The address is another one.
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
pub enum DropReason {
    /// The queue was full.
    QueueFull,
    /// RED chose it early.
    RedEarly,
    /// RED's average was above its upper threshold.
    RedForced,
    /// Lost on the wire.
    Loss,
    /// Its time to live ran out.
    TimeToLive,
    /// No route leads to its destination.
    NoRoute,
    /// Dropped on purpose by the scenario's list.
    Listed,
    /// Lost on the wire, together with its neighbours.
    Burst,
    /// The link was down.
    Outage,
    /// Longer than the MTU of the link.
    TooLong,
}

/// Why a sender slowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutReason {
    /// A packet was lost.
    Loss,
    /// A retransmission or stall timer ran out.
    Timeout,
    /// A congestion mark.
    Ecn,
    /// The representative reported a lower rate.
    Report,
    /// No feedback arrives.
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
pub enum SwitchReason {
    /// There was none.
    First,
    /// Another receiver is slower.
    Slower,
    /// The old one left.
    Left,
    /// The old one fell silent.
    Silent,
    /// The old one's reports contradict what it acknowledges.
    Lied,
    /// The old one is no longer slower than others.
    Recovered,
}

/// How a receiver was lost that has not got everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shortfall {
    /// It was silent for too long.
    Silent,
    /// It left before.
    Left,
    /// It was removed for being too slow.
    Pruned,
    /// It got the end, but not all before it.
    Gaps,
    /// It was below one that was lost.
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
pub enum BadInput {
    /// Shorter than its format needs.
    Truncated,
    /// A field has a value that its format forbids.
    Malformed,
    /// The checksum is wrong.
    Checksum,
    /// It belongs to a foreign session.
    Foreign,
    /// A sequence number outside every window.
    OutOfWindow,
    /// A report that contradicts itself or what is known.
    Absurd,
    /// Repeats what was already handled.
    Duplicate,
    /// A table with a limit is full.
    TableFull,
    /// It is of a scheme that this end does not speak.
    OtherScheme,
    /// The program of its session cannot be had, is refused, or has failed.
    Program,
}
