//! Demultiplexer: finds the session of a datagram.

use std::net::SocketAddr;

use faircast_base::{NodeId, Time};

use crate::counters::Refused;
use crate::{AddressBook, SessionId, Sockets};

/// Demultiplexer: finds the session of a packet and the destination of answers.
pub trait Demux {
    /// Identifier of a session. The default is for a machine without a known session.
    type Key: Default;

    /// Unknown session of a received packet, offered to the application.
    type NewSession<'a>;

    /// Registers a machine for the session of this key.
    fn add(&mut self, now: Time, id: SessionId, key: Self::Key);

    /// Removes a machine.
    fn remove(&mut self, id: SessionId);

    /// Finds the session of a datagram. `None` if the datagram is rejected and counted.
    fn find<'a>(
        &mut self,
        arrival: Arrival<'_>,
        datagram: &'a [u8],
    ) -> Option<Found<Self::NewSession<'a>>>;

    /// Returns the key of a new session that a machine joins.
    fn key(&self, new: &Self::NewSession<'_>) -> Self::Key;

    /// Notes that the application ignores a session, which should not be offered again at once.
    fn decline(&mut self, _new: &Self::NewSession<'_>) {}

    /// Returns the destination of a packet to a node, by default from the book; `None` if unknown.
    fn route(
        &self,
        _id: SessionId,
        to: NodeId,
        _sockets: &Sockets,
        book: &AddressBook,
    ) -> Option<SocketAddr> {
        book.address(to)
    }

    /// Returns the socket to an address, by default the one that last received from there.
    fn way(&self, to: SocketAddr, sockets: &Sockets, book: &AddressBook) -> usize {
        if sockets.ways.len() > 1 { book.way(to) } else { 0 }
    }

    /// True if a session may be dropped for another: anybody can invent sessions. Default: false.
    fn may_go(&self, _now: Time, _id: SessionId) -> bool {
        false
    }
}

/// Metadata of a received datagram.
#[derive(Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Arrival<'a> {
    pub now: Time,
    pub from: SocketAddr,
    /// True if the bytes were authenticated: sent, once, by one of the session's ends.
    pub authenticated: bool,
    pub sockets: &'a Sockets,
    pub book: &'a mut AddressBook,
    /// Counters for a rejected datagram.
    pub refused: &'a mut Refused,
    /// Old and new address, set if the datagram shows that an end has moved.
    pub moved: &'a mut Option<(SocketAddr, SocketAddr)>,
}

/// Recipient of a datagram.
#[derive(Debug)]
pub enum Found<H> {
    /// Machine of this session; the packet is from this node.
    Session(SessionId, NodeId),
    /// All machines; the packet, from this node, belongs to one of them.
    Any(NodeId),
    /// New session, for the application.
    New(H),
}
