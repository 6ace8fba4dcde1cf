//! Status of a transfer for progress displays, metrics and final tables.

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Bitrate, Duration, NodeId, Time};

use super::PathLimit;
use crate::pgm::negotiation::SchemeMismatch;

/// Stage of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Wait of a source for receivers, or of a receiver for a source or the manifest.
    #[default]
    Gathering,
    /// Transfer of content.
    Sending,
    /// Wait of a source for its last receivers, or comparison of content at a receiver.
    Verifying,
    /// End with everything done.
    Finished,
    /// End without everything.
    Failed,
}

/// State of one receiver, as its source knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberState {
    /// Member that lacks the manifest.
    #[default]
    Joined,
    /// Member with the manifest that lacks content.
    Receiving,
    /// Member that has everything, compared with the digests.
    Done,
    /// Slow member that is not served for now, and served after the others.
    Deferred,
    /// Member that cannot continue, with a reason.
    Failed,
    /// Departed member.
    Left,
    /// Member that was silent for too long.
    Lost,
}

/// One receiver, as the source knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberStatus {
    /// Identifier of the member in this session.
    pub id: u64,
    /// Node of the member, which a driver can convert to an address.
    pub node: NodeId,
    /// Node from which the member joined or sent its last new message; replays change only `node`.
    pub home: NodeId,
    /// Time of the last packet from `home`.
    pub home_heard: Time,
    /// Node number in the scheme's reports, chosen by the receiver.
    pub reporter: NodeId,
    /// Display name, chosen by the receiver; may be empty. Printable, at most 64 bytes.
    pub name: String,
    /// Identity of the receiver, which outlives a restart at any address; `None` if it has none.
    pub identity: Option<u64>,
    /// State.
    pub state: MemberState,
    /// Bytes of content at the member.
    pub bytes: u64,
    /// Bytes of content that the member had when it became ready for content.
    pub found: u64,
    /// Share of all packets of the transfer that the member reports as lost: 0 to 1.
    pub loss: f64,
    /// Time of the first message.
    pub since: Time,
    /// Time of the last packet.
    pub heard: Time,
    /// Time of completion.
    pub done: Option<Time>,
    /// Reason of failure; printable.
    pub reason: String,
    /// Load, as the receiver reports it.
    pub load: MemberLoad,
    /// Payload rate limit that the receiver asks for.
    pub limit: Option<Bitrate>,
    /// Reported place in the tree of repair heads, if there is one.
    pub place: Option<TreePlace>,
    /// Reported path limit, if longer packets do not arrive.
    pub path: Option<PathLimit>,
}

/// Place of an end in a tree of repair heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreePlace {
    /// Number of the end, which all its packets carry.
    pub number: u64,
    /// Number of the end's head; 0 for none.
    pub head: u64,
    /// Level: 1 at the source, one more than the head's level at a receiver, 0 without a head.
    pub level: u8,
    /// Number of members that the end repairs for.
    pub members: u32,
    /// Number of packets retransmitted to these members.
    pub repairs: u64,
}

impl MemberStatus {
    pub(super) fn joined(id: u64, node: NodeId, reporter: NodeId, now: Time) -> Self {
        Self {
            id,
            node,
            home: node,
            home_heard: now,
            reporter,
            since: now,
            heard: now,
            ..Self::default()
        }
    }
}

/// Load of a receiver since the beginning of content, as reported to its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberLoad {
    /// Time since the beginning of content.
    pub span: Duration,
    /// Part of `span` for which the receiver waited for its disk.
    pub disk: Duration,
    /// Part of `span` for which the receiver neither slept nor waited for its disk.
    pub busy: Duration,
    /// Packets dropped by the socket for lack of room.
    pub overflowed: u32,
    /// Lost packets, including the dropped ones.
    pub lost: u32,
}

/// Share of time on the disk from which on the disk counts as the limit.
const DISK_SHARE: f64 = 0.5;

pub(super) fn why_stalled(path: Option<PathLimit>, load: &MemberLoad) -> String {
    match path {
        Some(path) => path.advice(),
        None if load.waits_for_disk() => "no progress: it waits for its disk".into(),
        None => "no progress: what it asks for does not arrive".into(),
    }
}

impl MemberLoad {
    pub(super) fn waits_for_disk(&self) -> bool {
        share(self.disk, self.span) >= DISK_SHARE
    }

    /// Returns the processor's share of the time, 0 to 1.
    pub fn processor_share(&self) -> f64 {
        share(self.busy, self.span)
    }
}

/// Time that a driver's thread has spent, by activity. All fields only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// Time since the thread began.
    pub span: Duration,
    /// Part of `span` for which the thread neither slept nor waited for the network's queue.
    pub busy: Duration,
    /// Part of `span` for which the thread waited for the disk.
    pub disk: Duration,
    /// Time for which the thread waited for the kernel's full send queue, or slept below a relay.
    pub link: Duration,
    /// Packets dropped by the socket for lack of room.
    pub overflowed: u64,
}

impl HostLoad {
    /// Returns the processor's share of the thread's time, 0 to 1.
    pub fn processor_share(&self) -> f64 {
        share(self.busy.saturating_sub(self.disk), self.span)
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole == Duration::ZERO {
        return 0.0;
    }
    (part.as_secs_f64() / whole.as_secs_f64()).min(1.0)
}

/// Cause that limited the speed of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Rate limit of the operator.
    RateMax,
    /// Rate limit of a receiver.
    ReceiverLimit,
    /// Start of the scheme: the transfer was too short to meet a limit.
    Start,
    /// Least rate of the scheme: feedback of a receiver was missing.
    Floor,
    /// Loss and round-trip time on the path to a receiver.
    Path,
    /// Disk of a receiver.
    ReceiverDisk,
    /// Processor of a receiver.
    ReceiverProcessor,
    /// Full socket buffer of a receiver.
    ReceiverBuffer,
    /// Receivers without requests: they searched their stores or compared content.
    Receivers,
    /// Disk of the source, or wait for more content from a pipe.
    SenderDisk,
    /// Processor of the source.
    SenderProcessor,
    /// Full send queue of the source's kernel.
    SenderLink,
}

/// Cause that limited a transfer, and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Cause.
    pub cause: Cause,
    /// Receiver concerned, if known.
    pub member: Option<u64>,
    /// Duration.
    pub time: Duration,
}

/// Packets of a transfer at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Number of packets with source symbols that were sent or received.
    pub symbols: u64,
    /// Number of packets with parity that were sent or received.
    pub parity: u64,
    /// Number of useless packets (receiver), or of repeated or replaced symbols (source).
    pub repairs: u64,
    /// Number of repair requests that were sent or received.
    pub requests: u64,
}

/// Failure of a receiver that its source, or the source's scheme, caused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiverFailure {
    /// True if the receiver failed because the source gave the object up; no state was kept.
    pub given_up: bool,
    /// True if the source gave this receiver up for lack of progress.
    pub stalled: bool,
    /// Scheme mismatch with the source, which made the receiver fail.
    pub mismatch: Option<SchemeMismatch>,
}

/// Status of a transfer at one end, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectStatus {
    /// Stage.
    pub stage: Stage,
    /// At a source: time at which content began.
    pub begun: Option<Time>,
    /// Bytes of content in all; `None` before a receiver knows the length.
    pub bytes_total: Option<u64>,
    /// True if content may still become longer, since it comes from a pipe.
    pub growing: bool,
    /// Bytes of content that are here (receiver), or least bytes of a served member (source).
    pub bytes_done: u64,
    /// Bytes of content that were present at the start.
    pub bytes_found: u64,
    /// Packets so far.
    pub packets: PacketCounts,
    /// Payload rate that the congestion control allows now, in bit/s, if known.
    pub rate_bits_per_s: Option<f64>,
    /// Smoothed round-trip time: at a source to the representative, at a receiver to the source.
    pub rtt: Option<Duration>,
    /// Receiver that limits the rate (acker, CLR), as a [reporter](MemberStatus::reporter).
    pub limiting: Option<NodeId>,
    /// At a receiver: time of the last new SPM or data packet of the source; replays do not count.
    pub heard: Option<Time>,
    /// At a receiver: number of answers from the source.
    pub answers: u64,
    /// At a receiver: cause of a failure, if the source or its scheme is the cause.
    pub failure: ReceiverFailure,
    /// At a receiver: path limit, if longer packets do not arrive.
    pub path: Option<PathLimit>,
    /// At a source: true if a receiver gets single full-length packets, but no data.
    pub whole_lost: bool,
    /// At a source: all known receivers. At a receiver: empty.
    pub members: Vec<MemberStatus>,
    /// Place in the tree of repair heads, if there is one.
    pub place: Option<TreePlace>,
    /// At a source: what limited the speed since content began, longest time first.
    pub limits: Vec<Limit>,
    /// Reason of failure, for people.
    pub reason: Option<String>,
}
