//! The limits of a relay, and its status.

use alloc::vec::Vec;
use core::net::SocketAddr;

use faircast_base::NodeId;

use super::attach::Attachment;
use crate::relay::Served;

/// How many of everything a relay takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopSettings {
    /// Hosts and relays that may be attached to it. Default 4096.
    pub neighbours_max: usize,
    /// Of them at one address. Default 256.
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
    /// They make no sense.
    pub malformed: u64,
    /// They are not authentic: of somebody without the key.
    pub forged: u64,
    /// They came before.
    pub repeated: u64,
    /// They are of somebody who is not attached, or not to this group.
    pub unknown: u64,
    /// There was no room for who wanted to be attached.
    pub full: u64,
    /// Somebody wanted to be attached that is above this relay.
    pub loops: u64,
    /// They say to be of a node that is elsewhere.
    pub misplaced: u64,
    /// Nobody knows where they should go, or they have passed too many relays.
    pub lost: u64,
}

/// How a relay stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopStatus {
    /// The node that it is.
    pub node: NodeId,
    /// The relay above, and whether it is attached there.
    pub parent: Option<(SocketAddr, Attachment)>,
    /// Who is attached to it.
    pub neighbours: Vec<NeighbourStatus>,
    /// Frames with packets of sessions that came, and that left.
    pub received: u64,
    /// Those that left.
    pub sent: u64,
    /// Their bytes that left.
    pub sent_bytes: u64,
    /// Packets that wait here now.
    pub held: usize,
    /// The sessions that its program serves.
    pub served: Served,
    /// What was not taken.
    pub refused: HopRefused,
}

/// Somebody who is attached to a relay.
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
