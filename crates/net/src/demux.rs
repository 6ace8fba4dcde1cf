//! The demultiplexer: whom a datagram is for, as the protocol's packets tell it.

use std::net::SocketAddr;

use faircast_base::{NodeId, Time};

use crate::counters::Refused;
use crate::{AddressBook, SessionId, Sockets};

/// Demultiplexer: finds the session of a packet, and where answers go.
pub trait Demux {
    /// By which sessions are told apart. The default is for a machine of which nothing is known.
    type Key: Default;

    /// A session that was heard and that no machine takes part in, for the application.
    type Heard<'a>;

    /// A machine takes part in the session of this key.
    fn add(&mut self, now: Time, id: SessionId, key: Self::Key);

    /// It does no longer.
    fn remove(&mut self, id: SessionId);

    /// Whom a datagram is for. `None` where it is refused, and counted.
    fn find<'a>(
        &mut self,
        arrival: Arrival<'_>,
        datagram: &'a [u8],
    ) -> Option<Found<Self::Heard<'a>>>;

    /// The key of a session that was heard, which a machine takes part in from now on.
    fn key(&self, heard: &Self::Heard<'_>) -> Self::Key;

    /// The application leaves a session alone: it need not hear of it again at once.
    fn decline(&mut self, _heard: &Self::Heard<'_>) {}

    /// Where a packet of a machine to a node goes; `None` where that is not known. By default where the
    /// address book says.
    fn route(
        &self,
        _id: SessionId,
        to: NodeId,
        _sockets: &Sockets,
        book: &AddressBook,
    ) -> Option<SocketAddr> {
        book.address(to)
    }

    /// Place of the way by which a packet leaves for an address. By default that is the way on
    /// which the address was heard last, since it knows this host by the address of that way.
    fn way(&self, to: SocketAddr, sockets: &Sockets, book: &AddressBook) -> usize {
        if sockets.ways.len() > 1 { book.way(to) } else { 0 }
    }

    /// Whether a session may be forgotten where another wants its place: anybody can invent sessions. By
    /// default none.
    fn may_go(&self, _now: Time, _id: SessionId) -> bool {
        false
    }
}

/// What is known of a datagram beside its bytes.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// When it came.
    pub now: Time,
    /// From where.
    pub from: SocketAddr,
    /// True if its bytes were authenticated: one of the session's own ends has sent it, once.
    pub authenticated: bool,
    /// The sockets to which it came.
    pub sockets: &'a Sockets,
    /// Who is at which address.
    pub book: &'a mut AddressBook,
    /// Where it is counted if it is refused.
    pub refused: &'a mut Refused,
    /// Set where the datagram shows that an end has moved from one address to another.
    pub moved: &'a mut Option<(SocketAddr, SocketAddr)>,
}

/// Whom a datagram is for.
#[derive(Debug)]
pub enum Found<H> {
    /// The machine that takes part in the session of this number, from this node.
    Session(SessionId, NodeId),
    /// Every machine, from this node: the packet is that of one of them.
    Any(NodeId),
    /// A session that the application is asked about.
    New(H),
}
