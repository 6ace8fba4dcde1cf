//! The contract between relays, which are what a router does beside forwarding, and their drivers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::{Cx, FlowId, NodeId, Time};

use crate::{Datagram, Destination};

/// One of a router's links, numbered from 0 in the order in which the router has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// A packet that passed by, as long as the relay holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketKey(pub u64);

/// Which packets a relay is shown, beside those that are addressed to its router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Those with the router alert option.
    Alerted,
    /// All.
    Everything,
}

/// A packet that passes by: what the router would do with it, and where it came from.
#[derive(Clone, Copy, Debug)]
pub struct RelayPacket<'a> {
    /// By which the relay may send it on later, where it [holds](Handling::Hold) it.
    pub key: PacketKey,
    /// Whose groups its destination speaks of.
    pub flow: FlowId,
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
pub enum Handling {
    /// The router forwards it as any router would.
    Forward,
    /// The same, with the bytes that the relay has written in the place of its own.
    Alter,
    /// The relay keeps it until it [releases](Egress::Release) it.
    Hold,
    /// It ends here.
    Drop,
}

/// What a relay asks of its router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// A copy of a packet that it holds leaves through this port, with the bytes that it has written, if any, in the
    /// place of as many at its beginning.
    Copy(PacketKey, PortId),
    /// It holds this packet no longer.
    Release(PacketKey),
    /// A packet of its own leaves, with the bytes that it has written.
    Send(RelayTransmit),
    /// It wants to be told, once, when nothing waits at this port. Who has been told asks again only
    /// after it has sent something there.
    Await(PortId),
}

/// A packet of a relay's own. Its bytes are what [`Relay::poll_transmit`] wrote into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayTransmit {
    /// Whose groups its destination speaks of.
    pub flow: FlowId,
    /// Out of this one port; `None` routes it by its destination.
    pub port: Option<PortId>,
    /// Whom it is addressed to.
    pub to: Destination,
    /// Whom it says it is from: the source of the session for confirmations.
    pub from: NodeId,
    /// How many zero bytes follow the bytes in the buffer.
    pub zeros: u32,
    /// How many of all its bytes are payload of the application; 0 for control packets.
    pub payload_len: u32,
    /// Hops that it may travel.
    pub time_to_live: u8,
    /// Whether routers further on must look at it too.
    pub router_alert: bool,
}

impl RelayTransmit {
    /// A packet without payload that leaves through `port` and may travel 255 hops.
    pub(crate) const fn control(flow: FlowId, port: PortId, to: Destination, from: NodeId) -> Self {
        let (port, router_alert) = (Some(port), false);
        Self { flow, port, to, from, zeros: 0, payload_len: 0, time_to_live: 255, router_alert }
    }
}

/// What a relay serves, and the programs that it has for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Sessions under a policy or a program.
    pub sessions: usize,
    /// Sessions that pass as by any router, since there is no program for them here.
    pub plain: usize,
    /// Programs that are kept.
    pub programs: usize,
    /// Programs that were refused, and sessions whose programs have failed, since it was made.
    pub failed: u64,
}

/// Branch of a session on which the session's pace may be set, here or further on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchPace {
    /// Flow of the session.
    pub flow: FlowId,
    /// Port by which packets of the session come.
    pub from: PortId,
    /// Port of the branch.
    pub port: PortId,
    /// Rate of the session on the branch, in bits per second.
    pub bits_per_s: u64,
    /// True if packets wait for the branch, which sets the pace therefore.
    pub waits: bool,
}

/// What a router does beside forwarding, for all flows that pass it: a machine that sees packets of
/// others. Ordinary data passes without it, unless it asks for that too.
///
/// The one law for drivers: call `handle_*`, then [`poll_transmit`](Self::poll_transmit) until it gives
/// `None`, then read [`next_timeout`](Self::next_timeout). What a relay holds is bounded, for each flow
/// and in all; a flow that stops does not stop another.
pub trait Relay {
    /// What it is shown. The answer never changes.
    fn interest(&self) -> Interest {
        Interest::Alerted
    }

    /// Takes a packet, and says what becomes of it. Bytes for [`Handling::Alter`] go to the empty
    /// `buf`; as many zeros follow them as before.
    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        buf: &mut Vec<u8>,
    ) -> Handling;

    /// Nothing waits at a port that was [awaited](Egress::Await).
    fn handle_writable(&mut self, _cx: &mut Cx<'_>, _port: PortId) {}

    /// A node that had packets of a flow through a port is reached there no more, and answers nothing that has gone there.
    fn handle_gone(&mut self, _cx: &mut Cx<'_>, _flow: FlowId, _port: PortId, _node: NodeId) {}

    /// Takes the passing of time. A spurious call does nothing.
    fn handle_timeout(&mut self, cx: &mut Cx<'_>);

    /// Gives what it wants done next, with the bytes of a packet of its own written into the empty
    /// `buf`, or `None`.
    #[must_use]
    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Egress>;

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;

    /// What it serves now.
    fn served(&self) -> Served {
        Served::default()
    }

    /// Bytes of packets that wait at each port; ports without any may be missing.
    fn queued(&self) -> BTreeMap<PortId, u64> {
        BTreeMap::new()
    }

    /// Branches of sessions with their rates since the last call, without those that have fallen
    /// behind and are not waited for.
    fn paces(&mut self, _now: Time) -> Vec<BranchPace> {
        Vec::new()
    }
}
