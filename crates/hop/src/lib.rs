//! QUIC between nodes (RFC 9000) as a state machine without sockets and clocks.
//!
//! Reading order: `keys`, [`Endpoint`], [`flow`] (one connection in a scenario), [`RelayNode`] and
//! [`Host`] (sessions over relays), `multicast_link`, `multicast_relay` and `multicast_host`,
//! [`DaemonNode`] (overlay). `quinn-proto` implements the protocol itself.

#[macro_use(fresh)]
extern crate faircast_base;

mod buffer;
mod clock;
mod daemon;
mod dial;
mod endpoint;
pub mod flow;
mod host;
mod keys;
mod message;
mod multicast_host;
mod multicast_link;
mod multicast_relay;
mod neighbours;
mod node;
#[cfg(test)]
mod overlay_tests;
mod peers;
mod seal;
#[cfg(test)]
mod sessions;
mod status;
#[cfg(test)]
mod tests;
mod transport;
mod uplink;

pub use daemon::DaemonNode;
pub use endpoint::{ConnectionHandle, ConnectionStats, Down, Endpoint, EndpointEvent, StreamId};
pub use host::{Behind, Host, SessionPacket};
pub use keys::RelayKey;
pub use message::NAME_BYTES_MAX;
pub use node::RelayNode;
pub use status::{NodeEvent, NodeLimits, NodeRefused, NodeStatus, PeerStatus, SlowLink};
pub use transport::CongestionControl;
pub use uplink::UplinkState;
