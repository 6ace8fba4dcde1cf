//! Sessions of TRAM with a scheme: the tree is TRAM's, the rate is the scheme's.

use faircast_base::{Duration, NodeId, Seq};

use super::HEADER_BYTES;
use super::wire::ANNOUNCEMENT_HEADER;
use crate::congestion::{BoxControl, BoxFeedback, Floor, Load, SchemeEntry};
use crate::options::Options;

/// Bytes of the headers of IPv4 and UDP.
const IP_UDP_BYTES: u32 = 28;

#[derive(Clone, Copy)]
pub(crate) struct Steering {
    pub(crate) scheme: &'static SchemeEntry,
    pub(crate) node: NodeId,
}

impl Steering {
    fn header_bytes(&self) -> u32 {
        HEADER_BYTES + announcement_bytes(self.scheme) + IP_UDP_BYTES
    }

    pub(super) fn control(&self, options: &Options) -> BoxControl {
        (self.scheme.control)(options, self.header_bytes())
    }

    pub(super) fn feedback(&self, options: &Options) -> BoxFeedback {
        (self.scheme.feedback)(options, self.node, self.header_bytes())
    }
}

/// Returns the most bytes that a scheme's announcement takes in a data packet.
pub(super) fn announcement_bytes(scheme: &SchemeEntry) -> u32 {
    (ANNOUNCEMENT_HEADER + scheme.announce_bytes_max) as u32
}

/// Returns the floor of a session whose scheme has the floor `own`: both must permit a packet.
pub fn steered_floor(own: Option<Floor>, options: &Options) -> Option<Floor> {
    let tree = super::floor(options)?;
    let own = own.unwrap_or(tree);
    Some(Floor {
        after: own.after.max(tree.after),
        every: own.every.max(tree.every),
        burst: own.burst,
    })
}

/// Returns the most packets from receivers with a scheme: those of the tree, one of the
/// representative per data packet, and one report per receiver and interval.
pub fn steered_reports_max(options: &Options, load: &Load) -> u64 {
    let intervals = load.lasted.as_nanos() / REPORT_INTERVAL.as_nanos() + 1;
    let reports = load.receivers * intervals.min(load.losses);
    super::reports_max(options, load) + load.data_packets + reports
}

pub(super) fn seq(sequence: u64) -> Seq {
    Seq::new(sequence as u32)
}

/// Shortest time between two reports of a receiver up the tree, as PGM's for unrequested reports:
/// 200 ms. No representative needs replacement sooner.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_millis(200);
