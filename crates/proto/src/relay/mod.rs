//! Nodes inside the network that do more than forward.

use alloc::vec::Vec;

use faircast_base::{Cx, NodeId, Time};

use crate::{Datagram, Destination};

/// One of a router's links, numbered from 0 in the order in which the router has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// What the router would do with a packet, and what it knows of where it came from.
#[derive(Clone, Copy, Debug)]
pub struct RelayPacket<'a> {
    /// The port that it came in on.
    pub port: PortId,
    /// The ports that ordinary forwarding would copy it to.
    pub ports_out: &'a [PortId],
    /// The packet.
    pub datagram: Datagram<'a>,
    /// Hops that it may still travel.
    pub time_to_live: u8,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward it as any router would.
    Forward,
    /// It ends here; what goes on instead is in the program's output.
    Consume,
}

/// A packet that a relay program sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayTransmit {
    /// Out of this one port; `None` routes it by its destination.
    pub port: Option<PortId>,
    /// Whom it is addressed to.
    pub to: Destination,
    /// Whom it says it is from: the source of the session for confirmations and repairs.
    pub from: NodeId,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// How many zero bytes follow them.
    pub zeros: u32,
    /// How many of all its bytes are payload of the application; 0 for control packets.
    pub payload_len: u32,
    /// Hops that it may travel.
    pub time_to_live: u8,
    /// Whether routers further on must look at it too.
    pub router_alert: bool,
}

/// A program in a router. It sees packets with the router alert option and packets addressed to
/// the router itself; ordinary data passes without it, unless it asks for that too.
pub trait RelayProgram {
    /// Whether the program wants to see all packets of multicast sessions.
    fn wants_all_data(&self) -> bool {
        false
    }

    /// Takes a packet. What it wants to send goes to `out`.
    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        out: &mut Vec<RelayTransmit>,
    ) -> Verdict;

    /// Takes the passing of time. A spurious call does nothing.
    fn handle_timeout(&mut self, cx: &mut Cx<'_>, out: &mut Vec<RelayTransmit>);

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time>;
}
