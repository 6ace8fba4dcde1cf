//! Status of a transfer for progress displays, metrics and final tables.

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Bitrate, Duration, NodeId, Time};

use super::PathLimit;
use crate::pgm::negotiation::SchemeMismatch;

/// Where a transfer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A source waits for receivers; a receiver waits for a source or for the manifest.
    #[default]
    Gathering,
    /// Content is sent and received.
    Sending,
    /// A source has nothing more that anybody asked for and waits for the last to finish; a
    /// receiver compares what it has with the digests.
    Verifying,
    /// All that was wanted is done.
    Finished,
    /// Ended without everything.
    Failed,
}

/// State of one receiver, as its source knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberState {
    /// Joined, and lacks the manifest.
    #[default]
    Joined,
    /// Has the manifest and lacks content.
    Receiving,
    /// Has everything, compared with the digests.
    Done,
    /// Too slow: sent nothing for now, and served when the others are done.
    Deferred,
    /// Cannot go on, for a reason that it has sent.
    Failed,
    /// Has left.
    Left,
    /// Silent for too long.
    Lost,
}

/// One receiver, as the source knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberStatus {
    /// By which it is known for this session.
    pub id: u64,
    /// Its node, which a driver can turn into an address.
    pub node: NodeId,
    /// The node from which the member joined, or from which its last new message came. A host that repeats its
    /// messages seems to be at [`node`](Self::node).
    pub home: NodeId,
    /// When it was last heard from there.
    pub home_heard: Time,
    /// By what name the scheme knows it: that of its reports, which is its own choice.
    pub reporter: NodeId,
    /// The name that it gave itself; may be empty. Printable, at most 64 bytes.
    pub name: String,
    /// Identity of the receiver, which outlives a restart at any address; `None` if it has none.
    pub identity: Option<u64>,
    /// State.
    pub state: MemberState,
    /// Bytes of content that it has.
    pub bytes: u64,
    /// Bytes among these that it had when it was ready for content.
    pub found: u64,
    /// Share of the packets of the whole transfer that it lost, as its reports tell it: 0 to 1.
    pub loss: f64,
    /// When it was first heard.
    pub since: Time,
    /// When it was last heard.
    pub heard: Time,
    /// When it was done.
    pub done: Option<Time>,
    /// Why it failed, in its own words; printable.
    pub reason: String,
    /// Load, as the receiver reports it.
    pub load: MemberLoad,
    /// The rate of payload that it asks for at most.
    pub limit: Option<Bitrate>,
    /// Where it is in a tree of repair heads, by its own word; where there is one.
    pub place: Option<TreePlace>,
    /// The longest packets that reach it, by its own word, where longer ones do not.
    pub path: Option<PathLimit>,
}

/// Where an end is in a tree of repair heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreePlace {
    /// Its own number, which all its packets have.
    pub number: u64,
    /// The number of its head; 0 for none.
    pub head: u64,
    /// Level: 1 at the source, one more than its head's at a receiver, 0 without a head.
    pub level: u8,
    /// Number of members that it repairs for.
    pub members: u32,
    /// Packets that it has sent them again.
    pub repairs: u64,
}

impl MemberStatus {
    /// One that has just joined from `node` and said nothing else.
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

/// Load of a receiver since it began to take content, as it reports to its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberLoad {
    /// For how long it has taken content.
    pub span: Duration,
    /// Time in that span for which it waited for its disk.
    pub disk: Duration,
    /// Time in that span for which it neither slept nor waited for its disk.
    pub busy: Duration,
    /// Packets that its socket had no room for.
    pub overflowed: u32,
    /// Packets that it lacked, those included.
    pub lost: u32,
}

/// Share of a receiver's time on its disk from which on the disk is what the receiver waits for.
const DISK_SHARE: f64 = 0.5;

/// Reason for a receiver without progress, which has this load and is reached by packets of this length alone.
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

    /// Its processor's share of its time, 0 to 1.
    pub fn processor_share(&self) -> f64 {
        share(self.busy, self.span)
    }
}

/// What a driver knows of its host and a machine cannot: how its thread has spent its time. All of it
/// only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// Since the thread began.
    pub span: Duration,
    /// Time in that span for which it neither slept nor waited for the network's queue.
    pub busy: Duration,
    /// Time in that span for which it waited for the disk.
    pub disk: Duration,
    /// Time for which it waited because the kernel's queue towards the network was full, or slept
    /// below a relay.
    pub link: Duration,
    /// Packets that its socket had no room for.
    pub overflowed: u64,
}

impl HostLoad {
    /// The processor's share of the thread's time, 0 to 1.
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

/// Cause that kept a transfer from going faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The operator's upper bound.
    RateMax,
    /// The rate that a receiver asks for at most.
    ReceiverLimit,
    /// The scheme had not met a limit yet: the transfer was short.
    Start,
    /// The scheme sent the least that it sends: a receiver's feedback did not come.
    Floor,
    /// Loss and round trip on the way to a receiver.
    Path,
    /// A receiver waited for its disk.
    ReceiverDisk,
    /// A receiver's processor had no time left.
    ReceiverProcessor,
    /// A receiver's socket had no room for what came.
    ReceiverBuffer,
    /// Receivers had asked for nothing more: they looked what they have, or compared it.
    Receivers,
    /// The source waited for its disk, or for more of what comes by a pipe.
    SenderDisk,
    /// The source's processor had no time left.
    SenderProcessor,
    /// The kernel had no room for more towards the network.
    SenderLink,
}

/// One thing that kept a transfer from going faster, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Cause.
    pub cause: Cause,
    /// The receiver that it was about, where it is known.
    pub member: Option<u64>,
    /// For how long.
    pub time: Duration,
}

/// A transfer at one end, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectStatus {
    /// Where it is.
    pub stage: Stage,
    /// A source: when it began to send content.
    pub begun: Option<Time>,
    /// Bytes of content in all; `None` before a receiver knows.
    pub bytes_total: Option<u64>,
    /// Whether content may still become longer: it comes from a pipe.
    pub growing: bool,
    /// A receiver: bytes of content that it has. A source: the least that a member has which is
    /// neither deferred nor gone.
    pub bytes_done: u64,
    /// Bytes of content that were there at the start.
    pub bytes_found: u64,
    /// Packets with source symbols that were sent or received.
    pub symbols: u64,
    /// Packets with parity that were sent or received.
    pub parity: u64,
    /// Of those, packets that repaired nothing (receiver), or that somebody had asked for again: what
    /// had been sent before, and parity in its place (source).
    pub repairs: u64,
    /// Requests for repair that were sent or received.
    pub requests: u64,
    /// Payload rate that the congestion control allows now, in bits per second, where it tells.
    pub rate_bits_per_s: Option<f64>,
    /// Smoothed round trip to the representative.
    pub rtt: Option<Duration>,
    /// The receiver that limits the rate, as a [reporter](MemberStatus::reporter): pgmcc's acker,
    /// TFMCC's CLR.
    pub limiting: Option<NodeId>,
    /// A receiver: when the source last said something new, an SPM or data that had not come
    /// before; whatever came before anybody can repeat. `None` at a source, and before one is heard.
    pub heard: Option<Time>,
    /// A receiver: how often the source has answered it, which nobody else can.
    pub answers: u64,
    /// At a receiver: true if it failed because the source has given the object up. No state of the object was kept.
    pub given_up: bool,
    /// A receiver: that it and the source do not speak the same scheme, which is why it failed.
    pub mismatch: Option<SchemeMismatch>,
    /// At a receiver: the longest packets that arrive, where longer ones do not.
    pub path: Option<PathLimit>,
    /// At a receiver: whether the source has given it up, because it gets no further.
    pub stalled: bool,
    /// At a source: whether a receiver gets packets of full length that are sent one by one, and no data.
    pub whole_lost: bool,
    /// A source: all receivers that it knows. A receiver: empty.
    pub members: Vec<MemberStatus>,
    /// Where it is in the tree of repair heads, where there is one.
    pub place: Option<TreePlace>,
    /// A source: what kept it from going faster since content began, the longest time first.
    pub limits: Vec<Limit>,
    /// Why it failed; for people.
    pub reason: Option<String>,
}
