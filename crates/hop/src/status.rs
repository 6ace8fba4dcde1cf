//! Limits of a relay, its events and its status.

use faircast_base::NodeId;
use faircast_proto::relay::Served;
use faircast_proto::{AppEvent, FlowEvent};

use crate::endpoint::{ConnectionStats, Down};
use crate::uplink::UplinkState;

/// Limits of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Maximum number of neighbours. Default 4096.
    pub neighbours: usize,
    /// Maximum number of neighbours at one IPv4 address or IPv6 network of 64 bits. Default 256.
    pub at_host: usize,
    /// Maximum number of groups of a neighbour. Default 256.
    pub groups: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { neighbours: 4096, at_host: 256, groups: 256 }
    }
}

/// Counters of refused packets and messages, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRefused {
    /// Packets that belong to no connection.
    pub foreign: u64,
    /// Connections closed after a protocol violation, and implausible messages about multicast.
    pub malformed: u64,
    /// Peers without the key.
    pub unauthenticated: u64,
    /// Packets for a group of which the neighbour is not a member.
    pub unknown: u64,
    /// Neighbours, groups and nodes above a limit.
    pub full: u64,
    /// Nodes above this relay that tried to attach below it.
    pub loops: u64,
    /// Packets with the origin of a node that is elsewhere.
    pub misplaced: u64,
    /// Packets without a route, or above the hop limit.
    pub lost: u64,
}

/// Event of a relay, for its log. Names come from the neighbours themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum NodeEvent {
    Attached { at: NodeId, name: String, is_relay: bool },
    Detached { name: String, reason: Down },
    Above(UplinkState),
}

impl AppEvent for NodeEvent {
    fn into_flow(self) -> Option<FlowEvent> {
        None
    }
}

/// Link that sets the pace of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowLink {
    /// Names of the link's ends, as `relay site-2 → receiver host-7`: printable, at most 160 bytes.
    pub name: String,
    /// Rate of the session on the link, in bits per second.
    pub bits_per_s: u64,
}

/// State of a neighbour, for display.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct PeerStatus {
    pub at: NodeId,
    /// Name and software version that the neighbour has sent.
    pub name: String,
    pub software: String,
    pub is_relay: bool,
    /// Number of the neighbour's groups, and of receivers at the neighbour and below in all groups.
    pub groups: usize,
    pub receivers: u32,
    /// True if the neighbour gets packets of some group by multicast.
    pub multicast: bool,
    pub connection: ConnectionStats,
}

/// State of a relay, for display.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct NodeStatus {
    /// State of the path to the parent relay; `None` if no parent's address is known.
    pub above: Option<UplinkState>,
    /// Address of the parent relay, and state of the connection to it.
    pub above_at: Option<NodeId>,
    pub above_connection: Option<ConnectionStats>,
    /// Neighbours below the relay.
    pub neighbours: Vec<PeerStatus>,
    /// Numbers of session packets received, sent and buffered.
    pub received: u64,
    pub sent: u64,
    pub held: usize,
    /// Sessions that the program serves.
    pub served: Served,
    pub refused: NodeRefused,
}
