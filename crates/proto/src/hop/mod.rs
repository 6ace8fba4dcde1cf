//! Frames by which hosts and relays speak with each other where there is no multicast: who is attached to which relay, who
//! has receivers of which group, and where packets go.
//!
//! Reading order: `frame` (packets), `guard` (their authentication), `link` (between two neighbours), `attach` (how a host or
//! a relay holds on to the relay above it), `node` (a relay), `join` (who is attached to it), `lan` (its multicast).
//! Described in `docs/relay.md`.

mod arrivals;
mod attach;
mod frame;
mod guard;
mod held;
mod join;
mod lan;
mod link;
mod neighbours;
mod node;
mod status;
#[cfg(test)]
mod tests;
mod window;

pub use attach::{Attach, Attachment};
pub(crate) use frame::specimens;
pub use frame::{FRAME_BYTES, Frame, FrameKind, HopPacket};
pub use guard::{Guard, TAG_BYTES};
pub use link::HopLink;
pub use node::{HopNode, Sends};
pub use status::{HopRefused, HopSettings, HopStatus, NeighbourStatus};

/// The number by which frames name a group: hosts that name the same one meet at their relays.
pub fn group_number(name: &str) -> u64 {
    let digest = blake3::hash(name.as_bytes());
    u64::from_be_bytes(*digest.as_bytes().first_chunk().expect("a digest has 32 bytes"))
}

/// The node that a host or a relay is, of random bits: an address that has no special meaning.
pub const fn node_of(random: u64) -> faircast_base::NodeId {
    // 1.0.0.0 to 223.255.255.255.
    faircast_base::NodeId(0x0100_0000 + (random % 0xdf00_0000) as u32)
}
