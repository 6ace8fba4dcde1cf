//! Trace records of clients and links of the overlay.

use alloc::string::String;

use crate::ids::NodeId;
use crate::time::Duration;

/// Action of a client of the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ClientNote {
    pub client: u32,
    pub act: ClientAct,
    /// Action as a line of JSON, which `faircast-check` reads.
    pub line: String,
}

/// Kind of an action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum ClientAct {
    /// The daemon has accepted a message of the client.
    Sent { bytes: u32 },
    /// A message has been delivered, `latency` after it was sent.
    Delivered { bytes: u32, latency: Duration },
    /// A view has begun, with this number of daemons.
    View { daemons: u32 },
    /// Any other action.
    Other,
}

/// Queue of a daemon for a link of the overlay and the link's price, between two price updates.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct LinkNote {
    pub from: NodeId,
    pub to: NodeId,
    /// Maximum queue length, in packets.
    pub packets_max: u32,
    /// Average queue length, in thousandths of a packet.
    pub packets_milli: u32,
    /// Price in thousandths of a dollar.
    pub price_milli: u32,
}
