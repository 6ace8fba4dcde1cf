//! QUIC between nodes (RFC 9000), driven as a state machine without sockets and clocks.
//!
//! Reading order: `keys` (authentication by a shared key), [`Endpoint`] (connections of a node, and
//! ordered frames over them), [`flow`] (one connection as a flow of a scenario). `quinn-proto`
//! implements the protocol itself.

mod cid;
mod clock;
mod dial;
mod down;
mod endpoint;
pub mod flow;
mod frames;
mod held;
mod host;
mod keys;
mod message;
mod node;
mod peers;
mod routes;
#[cfg(test)]
mod sessions;
mod status;
#[cfg(test)]
mod tests;
mod transport;
mod uplink;

pub use dial::Dialer;
pub use down::Down;
pub use endpoint::{ConnectionHandle, ConnectionStats, Endpoint, EndpointEvent, StreamId};
pub use host::{Behind, Host, SessionPacket};
pub use keys::RelayKey;
pub use message::{JoinRefusal, NAME_BYTES_MAX};
pub use node::RelayNode;
pub use status::{NodeEvent, NodeLimits, NodeRefused, NodeStatus, PeerStatus};
pub use transport::CongestionControl;
pub use uplink::UplinkState;

/// Bytes of a multicast datagram beside the packet of the session, without IP and UDP headers.
pub const MULTICAST_BYTES: usize = 11 + message::PARCEL_HEAD_BYTES + 16;
