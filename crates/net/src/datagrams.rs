//! UDP socket of a node without a [`Driver`](crate::Driver), for another event loop.

use std::net::{SocketAddr, UdpSocket};

use faircast_base::{Duration, NodeId, Time};
use nix::errno::Errno;

use crate::clock::Clock;
use crate::names::Names;
use crate::receive::Inbox;
use crate::transmit::{Flushed, Outbox, Route};
use crate::{AddressBook, Counters, NetError, SocketSettings, Sockets};

/// UDP socket with batches of datagrams, an address book and a clock.
pub struct Datagrams {
    sockets: Sockets,
    inbox: Inbox,
    outbox: Outbox,
    book: AddressBook,
    names: Names,
    counters: Counters,
    clock: Clock,
    packet: Vec<u8>,
}

impl std::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datagrams").field("at", &self.local_address()).finish_non_exhaustive()
    }
}

impl Datagrams {
    /// Opens a node's socket at `listen`. `peers` are addresses or names of hosts, with ports.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(
        listen: SocketAddr,
        peers: Vec<String>,
        settings: SocketSettings,
    ) -> Result<Self, NetError> {
        let sockets = Sockets::relay(listen, None, settings)?;
        Ok(Self {
            outbox: Outbox::new(&sockets),
            sockets,
            inbox: Inbox::new(),
            book: AddressBook::native(),
            names: Names::new(peers),
            counters: Counters::default(),
            clock: Clock::new(),
            packet: Vec::new(),
        })
    }

    fn way(&self) -> &crate::socket::Way {
        &self.sockets.ways[0]
    }

    /// Returns another handle of the socket, to wait for datagrams.
    ///
    /// # Errors
    /// The process has no more descriptors.
    pub fn handle(&self) -> std::io::Result<UdpSocket> {
        let handle = UdpSocket::from(std::os::fd::OwnedFd::from(self.way().socket.try_clone()?));
        handle.set_nonblocking(true)?;
        Ok(handle)
    }

    /// Returns the socket's address.
    pub fn local_address(&self) -> SocketAddr {
        self.way().local
    }

    /// Returns the current time, and the time in which the process did not run since the last call.
    pub fn now(&mut self) -> (Time, Duration) {
        (self.clock.now(), self.clock.take_skipped())
    }

    /// Returns the counters of the socket.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the peers' nodes after a lookup, which repeats every 6 s while `wanted` is true.
    pub fn poll_peers(&mut self, now: Time, wanted: bool) -> Option<Vec<NodeId>> {
        let found = self.names.poll(now, wanted)?;
        Some(found.into_iter().filter_map(|at| self.book.node(at)).collect())
    }

    /// Returns the error of the first peer name that the last lookup did not find.
    pub fn name_error(&self) -> Option<&str> {
        self.names.error.as_deref()
    }

    /// Returns the address of a node.
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.book.address(node)
    }

    /// Passes each datagram to `take`: sender, congestion mark, bytes. True if more may be waiting.
    pub fn receive(&mut self, mut take: impl FnMut(NodeId, bool, &[u8])) -> bool {
        let Self { sockets, inbox, book, counters, .. } = self;
        let Counters { received, refused, sent, .. } = counters;
        let Some((socket, overflowed, _)) = sockets.receiving_at(0) else { return false };
        let more = match inbox.receive(socket, overflowed, received, refused) {
            Ok(read) => read,
            Err(Errno::EAGAIN) => return false,
            Err(Errno::EINTR) => return true,
            Err(_) => {
                sent.failures += 1;
                return false;
            }
        };
        inbox.for_each(|arrived, datagram| {
            let Some(node) = book.node(arrived.from) else { return };
            received.packets += 1;
            received.bytes += datagram.len() as u64;
            take(node, arrived.marked, datagram);
        });
        more
    }

    /// Sends all datagrams that `poll` writes. Returns the time to retry if the socket is full.
    pub fn send(
        &mut self,
        now: Time,
        mut poll: impl FnMut(&mut Vec<u8>) -> Option<NodeId>,
    ) -> Option<Time> {
        loop {
            let is_last = loop {
                if self.outbox.is_full() {
                    break false;
                }
                self.packet.clear();
                let Some(to) = poll(&mut self.packet) else { break true };
                let Some(at) = self.book.address(to) else { continue };
                self.counters.sent.packets += 1;
                let packet = &self.packet;
                let route = Route::Address(0, at);
                self.outbox.push(route, 0, |bytes| bytes.extend_from_slice(packet));
            };
            match self.outbox.flush(now, &mut self.sockets, &mut self.counters.sent) {
                Flushed::All if is_last => return None,
                Flushed::All => {}
                Flushed::WhenWritable(_) => return Some(now + FULL_PAUSE),
                Flushed::At(at) => return Some(at),
            }
        }
    }
}

const FULL_PAUSE: Duration = Duration::from_micros(500);
