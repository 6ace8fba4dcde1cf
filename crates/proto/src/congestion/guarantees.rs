//! Guarantees of a protocol to its network. Contract tests check every registered protocol.

use faircast_base::Duration;

use crate::options::Options;

/// Guarantees of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Guarantees {
    /// Floor of a sender without feedback, by its settings; `None` without any feedback.
    pub floor: fn(&Options) -> Option<Floor>,
    /// Longest time below the old rate on a 2 Mbit/s path after forgery. Target:
    /// [`RECOVERY`](Self::RECOVERY).
    pub recovery: Duration,
    /// Most packets of all receivers together under a load, by the settings, if none is lost.
    pub reports_max: fn(&Options, &Load) -> u64,
}

/// Floor of the rate of a sender without feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Time without any report after which the floor applies.
    pub after: Duration,
    /// Span in which at most `burst` data packets leave, and reports take effect again.
    pub every: Duration,
    /// Most data packets in a span: one, unless a timeout sends more.
    pub burst: usize,
}

/// Events on which receivers had to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of receivers.
    pub receivers: u64,
    /// Data packets sent, new and repeated.
    pub data_packets: u64,
    /// Missing packets, counted once for each receiver that missed them.
    pub losses: u64,
    /// Sum over `losses` of the time from loss to delivery, abandonment or the end of the run.
    pub missing: Duration,
    /// Duration of the session.
    pub lasted: Duration,
}

impl Guarantees {
    /// Guarantees of a protocol without feedback.
    pub const SILENT: Self =
        Self { floor: |_| None, recovery: Self::RECOVERY, reports_max: |_, _| 0 };

    /// Longest recovery time of a session after forged packets: 3 s.
    pub const RECOVERY: Duration = Duration::from_secs(3);
}
