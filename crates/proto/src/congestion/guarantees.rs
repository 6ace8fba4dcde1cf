//! Guarantees of a protocol to the network that it shares: the sender's floor without feedback,
//! recovery from forged packets, bounds of feedback. The contract tests hold every registered
//! protocol to its own words.

use faircast_base::Duration;

use crate::options::Options;

/// The guarantees of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Guarantees {
    /// How slow a sender becomes that hears nothing, by its settings; `None` where it never hears
    /// anything and does not mind.
    pub floor: fn(&Options) -> Option<Floor>,
    /// How long after the last of some forged packets a session may not be at its old rate, on a
    /// path of 2 Mbit/s. [`RECOVERY`](Self::RECOVERY) is what is wanted.
    pub recovery: Duration,
    /// The most packets that all receivers together send under a load, by the settings, where no
    /// packet of theirs is lost.
    pub reports_max: fn(&Options, &Load) -> u64,
}

/// Floor of the rate of a sender without feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// After so long without any report ...
    pub after: Duration,
    /// ... no more than `burst` data packets, new or repeated, leave in each span of this length.
    /// When reports come through again the sender hears of it within this time.
    pub every: Duration,
    /// Most data packets in such a span: one, unless a timeout sends more.
    pub burst: usize,
}

/// Events that receivers had to report on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of receivers.
    pub receivers: u64,
    /// Data packets sent, new and repeated.
    pub data_packets: u64,
    /// Packets found missing, each counted once for every receiver that missed it.
    pub losses: u64,
    /// How long they were missing until they were delivered or given up, or the run ended: the
    /// sum over all of `losses`.
    pub missing: Duration,
    /// Duration of the session.
    pub lasted: Duration,
}

impl Guarantees {
    /// Guarantees of a protocol without feedback.
    pub const SILENT: Self =
        Self { floor: |_| None, recovery: Self::RECOVERY, reports_max: |_, _| 0 };

    /// Longest time in which a session recovers from forged packets.
    pub const RECOVERY: Duration = Duration::from_secs(3);
}
