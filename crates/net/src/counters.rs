//! The counters of a driver, which only grow.

use faircast_base::Duration;

/// What a driver has done since its start, for metrics. Nothing here is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What came in.
    pub received: Received,
    /// What went out.
    pub sent: Sent,
    /// What was refused before any machine saw it.
    pub refused: Refused,
    /// How well timers were met.
    pub timers: Timers,
    /// For how long it slept because there was nothing to do.
    pub asleep: Duration,
}

/// What came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams that were given to a machine.
    pub packets: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes: u64,
    /// Packets marked by the network (ECN CE), or first in a read from a crowded socket.
    pub marked: u64,
    /// Reads that left so much in the socket's buffer that the next pause may cost packets.
    pub crowded: u64,
    /// System calls that brought something.
    pub calls: u64,
    /// Datagrams that the kernel dropped since the socket's buffer was full.
    pub overflowed: u64,
}

/// What went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that machines sent; one to a group counts once, however many receive it.
    pub packets: u64,
    /// Datagrams that were handed to the kernel; one to a unicast list counts for each receiver.
    pub datagrams: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Datagrams that left as part of a larger one that the kernel or the network card cuts (GSO).
    pub segmented: u64,
    /// Times that the kernel had no room and the driver waited.
    pub waits: u64,
    /// For how long it waited then.
    pub waited: Duration,
    /// System calls that failed for another reason, as where the network is down.
    pub failures: u64,
    /// Datagrams that were dropped, because the network stayed down or the address was refused.
    pub unsent: u64,
    /// Datagrams without a destination: to an unknown node, or to a group that is not there.
    pub unaddressed: u64,
}

/// What was refused, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Without any bytes.
    pub empty: u64,
    /// Longer than the setting allows.
    pub oversized: u64,
    /// Cut by the kernel, or with control data cut.
    pub truncated: u64,
    /// Not opened by the envelope.
    pub sealed: u64,
    /// Without the header by which sessions are told apart.
    pub malformed: u64,
    /// Of a session that nobody here takes part in.
    pub foreign: u64,
    /// In the name of a session's source, but not from its address.
    pub spoofed: u64,
    /// From an address that the address book does not know.
    pub unknown: u64,
    /// Of a new session beyond the limit.
    pub sessions: u64,
}

impl Refused {
    /// All of them.
    pub const fn total(&self) -> u64 {
        let Self { empty, oversized, truncated, sealed, malformed, .. } = *self;
        let Self { foreign, spoofed, unknown, sessions, .. } = *self;
        empty + oversized + truncated + sealed + malformed + foreign + spoofed + unknown + sessions
    }
}

/// How well timers were met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// Timers of machines that came due.
    pub fired: u64,
    /// How many were later than 1 ms.
    pub late_over_1ms: u64,
    /// How many were handled early, together with one that was due.
    pub early: u64,
}

impl Timers {
    pub(crate) fn fired(&mut self, late: Duration) {
        self.fired += 1;
        self.late_over_1ms += u64::from(late > Duration::from_millis(1));
    }
}
