//! The limits of a relay, and its status.

use alloc::vec::Vec;
use core::net::SocketAddr;

use faircast_base::NodeId;

use super::attach::Attachment;
use crate::relay::Served;

/// Limits of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopSettings {
    /// Hosts and relays that may be attached to it. Default 4096.
    pub neighbours_max: usize,
    /// Most neighbours at one address. Default 256.
    pub at_host_max: u32,
    /// Groups of each. Default 256.
    pub groups_max: usize,
}

impl Default for HopSettings {
    fn default() -> Self {
        Self { neighbours_max: 4096, at_host_max: 256, groups_max: 256 }
    }
}

/// Frames that were not taken, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopRefused {
    /// Malformed frames.
    pub malformed: u64,
    /// Frames that are not authentic: their sender lacks the key.
    pub forged: u64,
    /// Frames that came before.
    pub repeated: u64,
    /// Frames of a node that is not attached, or not to this group.
    pub unknown: u64,
    /// There was no room for who wanted to be attached.
    pub full: u64,
    /// Joins of nodes above this relay.
    pub loops: u64,
    /// Frames in the name of a node that is elsewhere.
    pub misplaced: u64,
    /// Packets without a route, or that have passed too many relays.
    pub lost: u64,
}

/// Status of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopStatus {
    /// The node that it is.
    pub node: NodeId,
    /// The relay above, and whether it is attached there.
    pub parent: Option<(SocketAddr, Attachment)>,
    /// Attached neighbours.
    pub neighbours: Vec<NeighbourStatus>,
    /// Frames with packets of sessions that came, and that left.
    pub received: u64,
    /// Sent frames.
    pub sent: u64,
    /// Their bytes that left.
    pub sent_bytes: u64,
    /// Packets that wait here now.
    pub held: usize,
    /// The sessions that its program serves.
    pub served: Served,
    /// Refused frames.
    pub refused: HopRefused,
}

/// Neighbour of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourStatus {
    /// Where.
    pub address: SocketAddr,
    /// Whether it is a relay.
    pub is_relay: bool,
    /// Groups that it is a member of.
    pub groups: usize,
    /// Receivers at it or behind it, of all groups.
    pub receivers: u32,
    /// Whether it has a group by multicast.
    pub multicast: bool,
}
