//! Sessions of TRAM that a scheme steers: the tree is TRAM's, the rate the scheme's.

use faircast_base::{Duration, NodeId, Seq};

use super::HEADER_BYTES;
use super::wire::WORDS_HEADER;
use crate::congestion::{BoxControl, BoxFeedback, Floor, Load, SchemeEntry};
use crate::options::Options;

/// Bytes of the headers of IPv4 and UDP.
const IP_UDP_BYTES: u32 = 28;

/// The scheme of a session, at one of its ends.
#[derive(Clone, Copy)]
pub(crate) struct Steering {
    pub(crate) scheme: &'static SchemeEntry,
    /// Who the end is in the scheme's reports.
    pub(crate) node: NodeId,
}

impl Steering {
    /// Bytes of data packets beside their payload.
    fn header_bytes(&self) -> u32 {
        HEADER_BYTES + words_bytes(self.scheme) + IP_UDP_BYTES
    }

    pub(super) fn control(&self, options: &Options) -> BoxControl {
        (self.scheme.control)(options, self.header_bytes())
    }

    pub(super) fn feedback(&self, options: &Options) -> BoxFeedback {
        (self.scheme.feedback)(options, self.node, self.header_bytes())
    }
}

/// Bytes of what a scheme announces on data, at most.
pub(super) fn words_bytes(scheme: &SchemeEntry) -> u32 {
    (WORDS_HEADER + scheme.announce_bytes_max) as u32
}

/// The floor of a session that a scheme with this floor steers: a packet leaves where both permit it.
pub fn steered_floor(own: Option<Floor>, options: &Options) -> Option<Floor> {
    let tree = super::floor(options)?;
    let own = own.unwrap_or(tree);
    Some(Floor {
        after: own.after.max(tree.after),
        every: own.every.max(tree.every),
        burst: own.burst,
    })
}

/// The most packets of receivers in a session that a scheme steers: those of the tree, the representative's for each
/// packet of data, and reports, which each receiver sends at most once in an interval, for itself or for others.
pub fn steered_reports_max(options: &Options, load: &Load) -> u64 {
    let intervals = load.lasted.as_nanos() / REPORT_INTERVAL.as_nanos() + 1;
    let reports = load.receivers * intervals.min(load.losses);
    super::reports_max(options, load) + load.data_packets + reports
}

/// A packet as schemes number it.
pub(super) fn seq(sequence: u64) -> Seq {
    // Truncation is the wrap of sequence numbers.
    Seq::new(sequence as u32)
}

/// Least time between two reports that a receiver sends up the tree, its own or those of its members: of what comes
/// meanwhile the worst waits. Chosen as PGM's interval of reports of those who ask for nothing: no representative is
/// to be replaced faster, and what is held for so long says by how much.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_millis(200);
