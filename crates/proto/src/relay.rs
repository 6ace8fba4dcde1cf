//! Interface between relays and their drivers. A relay is what a router runs beside forwarding.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::{Cx, FlowId, NodeId, Time};

use crate::{Datagram, Destination};

/// Port of a router: one of its links, numbered from 0 in the router's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// Key of a packet, valid while the relay holds the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketKey(pub u64);

/// Packets that a relay receives, beside those addressed to its router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Interest {
    /// Packets with the router alert option.
    Alerted,
    Everything,
}

/// Packet that passes a router, with its origin and its forwarding ports.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct RelayPacket<'a> {
    pub key: PacketKey,
    /// Flow whose groups the destination belongs to.
    pub flow: FlowId,
    pub port: PortId,
    /// Ports to which ordinary forwarding would copy the packet.
    pub ports_out: &'a [PortId],
    pub datagram: Datagram<'a>,
    pub time_to_live: u8,
}

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Handling {
    Forward,
    /// Forward with the bytes that the relay has written in place of the packet's own.
    Alter,
    /// Keep the packet until the relay [releases](Egress::Release) it.
    Hold,
    Drop,
}

/// Request of a relay to its router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Egress {
    /// Sends a copy of a held packet through this port, with the written bytes at the start.
    Copy(PacketKey, PortId),
    Release(PacketKey),
    Send(RelayTransmit),
    /// Requests one call of [`Relay::handle_writable`] when this port has no backlog. The relay
    /// awaits the port again only after it has sent a packet there.
    Await(PortId),
}

/// Packet of a relay's own. [`Relay::poll_transmit`] writes its bytes into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct RelayTransmit {
    /// Flow whose groups the destination belongs to.
    pub flow: FlowId,
    /// Port to send through; `None` for routing by destination.
    pub port: Option<PortId>,
    pub to: Destination,
    /// Source address of the packet: for confirmations, the source of the session.
    pub from: NodeId,
    pub zeros: u32,
    pub payload_len: u32,
    pub time_to_live: u8,
    pub router_alert: bool,
}

impl RelayTransmit {
    pub(crate) const fn control(flow: FlowId, port: PortId, to: Destination, from: NodeId) -> Self {
        let (port, router_alert) = (Some(port), false);
        Self { flow, port, to, from, zeros: 0, payload_len: 0, time_to_live: 255, router_alert }
    }
}

/// Number of sessions and programs that a relay serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Served {
    pub sessions: usize,
    /// Sessions that are forwarded without the relay, because it lacks their program.
    pub plain: usize,
    pub programs: usize,
    /// Programs refused and sessions with a failed program since the relay started.
    pub failed: u64,
}

/// Branch that may set the pace of a session, at this relay or downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct BranchPace {
    pub flow: FlowId,
    /// Port on which packets of the session arrive.
    pub from: PortId,
    pub port: PortId,
    pub bits_per_s: u64,
    /// True if packets wait for the branch: it sets the pace.
    pub waits: bool,
}

/// Program of a router beside forwarding: sees packets of all flows that pass, by
/// [`interest`](Self::interest).
///
/// Rule for drivers: call `handle_*`, then [`poll_transmit`](Self::poll_transmit) until `None`,
/// then read [`next_timeout`](Self::next_timeout). Held packets are bounded for each flow and in
/// total: a flow that stops does not stop another.
pub trait Relay {
    /// Returns the packets that the relay receives; constant.
    fn interest(&self) -> Interest {
        Interest::Alerted
    }

    /// Handles a packet, and decides about it. Bytes for [`Handling::Alter`] go into the empty
    /// `buf`; the number of zeros after them stays the same.
    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        buf: &mut Vec<u8>,
    ) -> Handling;

    /// Handles an [awaited](Egress::Await) port that has no backlog.
    fn handle_writable(&mut self, _cx: &mut Cx<'_>, _port: PortId) {}

    /// Handles a node's departure: packets of a flow to it through this port stay unanswered.
    fn handle_gone(&mut self, _cx: &mut Cx<'_>, _flow: FlowId, _port: PortId, _node: NodeId) {}

    /// Handles a timeout. A spurious call does nothing.
    fn handle_timeout(&mut self, cx: &mut Cx<'_>);

    /// Returns the next request. Writes the bytes of an own packet into the empty `buf`.
    #[must_use]
    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Egress>;

    /// Returns the time at which to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;

    /// Returns the sessions and programs served now.
    fn served(&self) -> Served {
        Served::default()
    }

    /// Returns the bytes queued at each port; ports without a queue may be missing.
    fn queued(&self) -> BTreeMap<PortId, u64> {
        BTreeMap::new()
    }

    /// Returns branches with their rates since the last call, except those not waited for.
    fn paces(&mut self, _now: Time) -> Vec<BranchPace> {
        Vec::new()
    }
}
