//! Limits of a relay, its events and its status.

use faircast_base::NodeId;
use faircast_proto::relay::Served;
use faircast_proto::{AppEvent, FlowEvent};

use crate::down::Down;
use crate::endpoint::ConnectionStats;
use crate::uplink::UplinkState;

/// Limits of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Most neighbours. Default 4096.
    pub neighbours: usize,
    /// Most neighbours of one host: of an IPv4 address, or of an IPv6 network of 64 bits. Default
    /// 256.
    pub at_host: usize,
    /// Most groups of a neighbour. Default 256.
    pub groups: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { neighbours: 4096, at_host: 256, groups: 256 }
    }
}

/// Packets and messages that were not taken, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRefused {
    /// Packets that belong to no connection.
    pub foreign: u64,
    /// Connections that were closed, since the peer broke the protocol, and messages about
    /// multicast that cannot be right.
    pub malformed: u64,
    /// Peers without the key.
    pub unauthenticated: u64,
    /// Packets for a group of which their neighbour is no member.
    pub unknown: u64,
    /// Neighbours, groups and nodes for which there was no room.
    pub full: u64,
    /// Nodes above this relay that asked to be below.
    pub loops: u64,
    /// Packets in the name of a node that is elsewhere.
    pub misplaced: u64,
    /// Packets without a way, or that have passed too many relays.
    pub lost: u64,
}

/// Event of a relay, for its log. Neighbours name themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum NodeEvent {
    /// A neighbour is attached, at this address.
    Attached { at: NodeId, name: String, is_relay: bool },
    /// A neighbour is attached no longer.
    Detached { name: String, reason: Down },
    /// The way to the relay above has changed.
    Above(UplinkState),
}

/// Relays deliver nothing.
impl AppEvent for NodeEvent {
    fn into_flow(self) -> Option<FlowEvent> {
        None
    }
}

/// Link that sets the pace of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowLink {
    /// Name of its ends, such as `relay site-2 → receiver host-7`: printable, at most 160 bytes.
    pub name: String,
    /// Rate of the session on the link, in bits per second.
    pub bits_per_s: u64,
}

/// State of a neighbour, for people.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Address.
    pub at: NodeId,
    /// Name that it has given itself.
    pub name: String,
    /// Version of its software.
    pub software: String,
    /// True if it is a relay.
    pub is_relay: bool,
    /// Number of its groups.
    pub groups: usize,
    /// Receivers at it or below, of all groups.
    pub receivers: u32,
    /// True if packets of one of its groups leave for it by multicast.
    pub multicast: bool,
    /// State of its connection.
    pub connection: ConnectionStats,
}

/// State of a relay, for people.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The way to the relay above; `None` if no address of one is known.
    pub above: Option<UplinkState>,
    /// Address of the relay above.
    pub above_at: Option<NodeId>,
    /// State of the connection there.
    pub above_connection: Option<ConnectionStats>,
    /// Neighbours below.
    pub neighbours: Vec<PeerStatus>,
    /// Packets of sessions that came, and that left.
    pub received: u64,
    /// Packets of sessions that left.
    pub sent: u64,
    /// Packets that wait here.
    pub held: usize,
    /// Sessions that the program serves.
    pub served: Served,
    /// Packets and messages that were refused.
    pub refused: NodeRefused,
}
