//! Acts of clients of the overlay, as traces keep them.

use alloc::string::String;

use crate::ids::NodeId;
use crate::time::Duration;

/// Act of a client of the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNote {
    /// Number of the client in the scenario.
    pub client: u32,
    /// The act, as far as summaries count it.
    pub act: ClientAct,
    /// The act as a line of JSON, which `faircast-check` reads.
    pub line: String,
}

/// Kind of an act of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum ClientAct {
    /// The daemon has taken a message of the client.
    Sent { bytes: u32 },
    /// A message has arrived, after this time.
    Delivered { bytes: u32, latency: Duration },
    /// A view has begun, with this number of daemons.
    View { daemons: u32 },
    /// Any other act.
    Other,
}

/// Queue of a daemon for a link of the overlay, and its price, between two updates of prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkNote {
    /// Nodes of the daemons at both ends.
    pub from: NodeId,
    /// See `from`.
    pub to: NodeId,
    /// Most packets that waited.
    pub packets_max: u32,
    /// Thousandths of packets that waited on average.
    pub packets_milli: u32,
    /// Price in thousandths of a dollar.
    pub price_milli: u32,
}
