//! Acts of clients of the overlay, as traces keep them.

use alloc::string::String;

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
