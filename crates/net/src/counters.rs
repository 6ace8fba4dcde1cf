//! Counters of a driver, which only grow.

use faircast_base::Duration;

/// Counters of a driver since its start, for metrics; never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Counters {
    pub received: Received,
    pub sent: Sent,
    /// Datagrams rejected before any machine.
    pub refused: Refused,
    pub timers: Timers,
    /// Time asleep without anything to do.
    pub asleep: Duration,
}

/// Received datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams passed to a machine.
    pub packets: u64,
    /// Bytes of these datagrams, without UDP and IP headers.
    pub bytes: u64,
    /// Packets marked by the network (ECN CE), or first in a read from a crowded socket.
    pub marked: u64,
    /// Reads from a crowded socket: its buffer was so full that the next pause might lose packets.
    pub crowded: u64,
    /// System calls that returned datagrams.
    pub calls: u64,
    /// Datagrams that the kernel dropped at a full socket buffer.
    pub overflowed: u64,
}

/// Sent datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams sent by machines; a multicast counts once.
    pub packets: u64,
    /// Datagrams passed to the kernel; a unicast list counts once for each receiver.
    pub datagrams: u64,
    /// Bytes of these datagrams, without UDP and IP headers.
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Datagrams sent as part of a larger one that the kernel or the network card splits (GSO).
    pub segmented: u64,
    /// Waits for room in the kernel's buffer.
    pub waits: u64,
    /// Total time of these waits.
    pub waited: Duration,
    /// System calls that failed for another reason, such as a network that is down.
    pub failures: u64,
    /// Datagrams dropped because the network stayed down or the address was refused.
    pub unsent: u64,
    /// Datagrams without a destination: to an unknown node or group.
    pub unaddressed: u64,
}

/// Rejected datagrams, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Empty.
    pub empty: u64,
    /// Longer than the limit of the settings.
    pub oversized: u64,
    /// Truncated by the kernel, or with truncated control data.
    pub truncated: u64,
    /// Rejected by the envelope.
    pub sealed: u64,
    /// Without a valid header that names the session.
    pub malformed: u64,
    /// Packets of a session without a machine here.
    pub foreign: u64,
    /// In the name of a session's source, but from another address.
    pub spoofed: u64,
    /// From an address that is not in the address book.
    pub unknown: u64,
    /// Packets of a new session beyond the limit.
    pub sessions: u64,
}

impl Refused {
    /// Returns the sum of all reasons.
    pub const fn total(&self) -> u64 {
        let Self { empty, oversized, truncated, sealed, malformed, .. } = *self;
        let Self { foreign, spoofed, unknown, sessions, .. } = *self;
        empty + oversized + truncated + sealed + malformed + foreign + spoofed + unknown + sessions
    }
}

/// Timers of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// Expired timers.
    pub fired: u64,
    /// Timers that were more than 1 ms late.
    pub late_over_1ms: u64,
    /// Timers handled early, together with an expired one.
    pub early: u64,
}
