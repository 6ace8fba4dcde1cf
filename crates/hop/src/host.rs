//! Host behind relays: session packets to and from the parent relay.

use std::collections::VecDeque;

use bytes::Bytes;
use faircast_base::{Cx, NodeId, Time};
use faircast_proto::{Datagram, Destination, Machine, Transmit};

use crate::endpoint::{ConnectionStats, Endpoint};
use crate::message::{Channel, Hello, Message, PARCEL_HEAD_BYTES, ParcelHead};
use crate::multicast_host::MulticastReceiver;
use crate::node::HOPS_MAX;
use crate::peers::{PeerEvent, Peers};
use crate::status::SlowLink;
use crate::uplink::{Uplink, UplinkState};

/// Packet of a session, as sent by its origin.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct SessionPacket {
    pub origin: NodeId,
    pub to: Destination,
    pub bytes: Bytes,
}

/// Path of a host to its group through relays.
#[derive(Debug)]
pub struct Host {
    peers: Peers,
    uplink: Uplink,
    group: u64,
    receivers: u32,
    hearing: Option<MulticastReceiver>,
    packets: VecDeque<SessionPacket>,
    is_path_new: bool,
}

fn current<'a>(
    hearing: &'a mut Option<MulticastReceiver>,
    uplink: &Uplink,
) -> Option<&'a mut MulticastReceiver> {
    hearing.as_mut().filter(|hearing| uplink.connection() == Some(hearing.connection))
}

impl Host {
    /// Creates the host `node` below the first of `relays` that answers; a sender has 0 receivers.
    pub fn new(
        now: Time,
        endpoint: Endpoint,
        (node, name): (NodeId, &str),
        relays: Vec<NodeId>,
        (group, receivers): (u64, u32),
    ) -> Self {
        let run = endpoint.run();
        let mut peers = Peers::new(endpoint, Hello::new(node, run, false, name));
        let mut uplink = Uplink::new(relays, now);
        uplink.set(now, &mut peers, group, Some(receivers));
        let (hearing, packets, is_path_new) = (None, VecDeque::new(), false);
        Self { peers, uplink, group, receivers, hearing, packets, is_path_new }
    }

    /// Replaces the candidate relays, maybe by none. The connection in use stays.
    pub fn set_relays(&mut self, relays: Vec<NodeId>) {
        self.uplink.dialer.set_nodes(relays);
    }

    /// Returns the multicast address that the driver must join, if any; only a receiver has one.
    pub fn multicast_at(&self) -> Option<&[u8]> {
        self.hearing().map(|hearing| &hearing.at[..])
    }

    /// True if packets arrive by multicast.
    pub fn hears_multicast(&self) -> bool {
        self.hearing().is_some_and(|hearing| hearing.link.is_some())
    }

    fn hearing(&self) -> Option<&MulticastReceiver> {
        let connection = self.uplink.connection();
        self.hearing.as_ref().filter(|hearing| connection == Some(hearing.connection))
    }

    /// Handles a multicast datagram. False if it is not authentic or not for this host.
    pub fn handle_multicast(&mut self, now: Time, bytes: &[u8]) -> bool {
        let Self { hearing, uplink, .. } = self;
        let is_used = current(hearing, uplink).is_some_and(|it| it.on_datagram(now, bytes));
        self.settle(now);
        is_used
    }

    /// Returns the state of the path, and true if the relay refuses the group.
    pub fn state(&self) -> (&UplinkState, bool) {
        (&self.uplink.state, self.uplink.is_refused(self.group))
    }

    /// Returns the link at relays that sets the pace of this host's session, if any.
    pub fn slow_link(&self) -> Option<&SlowLink> {
        self.uplink.slow(self.group)
    }

    /// True during the search for a relay: none is attached, or the attached one is silent.
    pub const fn is_searching(&self) -> bool {
        self.uplink.dialer.is_searching()
    }

    /// Returns the address of the parent relay.
    pub fn relay(&self) -> Option<NodeId> {
        self.peers.endpoint.peer(self.uplink.connection()?)
    }

    /// Returns the state of the connection to the relay.
    pub fn stats(&self) -> Option<ConnectionStats> {
        self.peers.endpoint.stats(self.uplink.connection()?)
    }

    fn settle(&mut self, now: Time) {
        while self.packets.is_empty() {
            let Self { peers, uplink, hearing, .. } = self;
            let frame = current(hearing, uplink).and_then(|hearing| hearing.take(now));
            if let Some(frame) = frame {
                if let Ok(head) = ParcelHead::decode(&frame) {
                    self.receive(head, frame.slice(PARCEL_HEAD_BYTES..));
                }
                continue;
            }
            let Some(event) = peers.poll_event(now) else { break };
            match event {
                PeerEvent::Up { connection, is_own: true, .. } => {
                    uplink.on_up(now, peers, connection);
                }
                PeerEvent::Hello { connection, hello } if uplink.is(connection) => {
                    uplink.on_hello(now, peers, connection, hello);
                    self.is_path_new = true;
                }
                PeerEvent::Message { connection, message } if uplink.is(connection) => {
                    if let Message::Multicast { key, at } = message {
                        let offer = || MulticastReceiver::new(connection, &key, at);
                        *hearing = (self.receivers > 0).then(offer);
                        continue;
                    }
                    if let Some(hearing) = current(hearing, uplink) {
                        hearing.on_message(now, self.group, &message);
                    }
                    self.is_path_new |= matches!(message, Message::Path(_));
                    uplink.on_message(now, peers, connection, message);
                }
                PeerEvent::Parcel { connection, group, head, body }
                    if uplink.is(connection) && group == self.group =>
                {
                    self.receive(head, body);
                }
                PeerEvent::Repair { connection, link, seq, frame } if uplink.is(connection) => {
                    if let Some(hearing) = current(hearing, uplink) {
                        hearing.on_repair(now, link, seq, frame);
                    }
                }
                PeerEvent::Down { connection, reason } | PeerEvent::Bad { connection, reason } => {
                    uplink.on_down(now, peers, connection, reason);
                }
                _ => {}
            }
        }
        let Self { peers, uplink, hearing, .. } = self;
        let Some(hearing) = current(hearing, uplink) else { return };
        while let Some(message) = hearing.poll(now) {
            peers.send_message(now, hearing.connection, &message);
        }
    }

    fn receive(&mut self, head: ParcelHead, bytes: Bytes) {
        let ParcelHead { origin, to, .. } = head;
        if origin != self.peers.hello.node {
            self.packets.push_back(SessionPacket { origin, to, bytes });
        }
    }

    /// Handles a datagram; [`take`](Self::take) returns packets. False if it is of no connection.
    pub fn handle_datagram(&mut self, now: Time, from: NodeId, marked: bool, bytes: &[u8]) -> bool {
        let is_used = self.peers.endpoint.handle_datagram(now, from, marked, bytes);
        self.settle(now);
        is_used
    }

    /// Returns the next packet of a session.
    pub fn take(&mut self, now: Time) -> Option<SessionPacket> {
        let packet = self.packets.pop_front();
        self.settle(now);
        packet.or_else(|| self.packets.pop_front())
    }

    /// True once after each change of the relays above, at which packets may have been lost.
    pub fn take_new_path(&mut self) -> bool {
        std::mem::take(&mut self.is_path_new)
    }

    /// True if a packet can be sent now, and without a relay: packets are then lost.
    pub fn has_room(&self) -> bool {
        self.uplink.connection().is_none_or(|it| self.peers.endpoint.has_room_for_all(it))
    }

    /// Sends a session packet through at most `hops` relays. Returns false if the packet is lost.
    pub fn send(&mut self, to: Destination, hops: u8, bytes: Bytes) -> bool {
        let Some(connection) = self.uplink.connection() else { return false };
        let head = ParcelHead { hops: hops.min(HOPS_MAX), origin: self.peers.hello.node, to };
        self.peers.send_packet(connection, Channel::Group(self.group), &head.encode(), bytes)
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.peers.endpoint.handle_timeout(now);
        self.uplink.dialer.handle_timeout(now, &mut self.peers.endpoint);
        self.settle(now);
    }

    /// Writes the next datagram into `buf`. Returns its destination.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<NodeId> {
        self.peers.endpoint.poll_transmit(now, buf)
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let way = self.uplink.dialer.next_timeout(&self.peers.endpoint);
        let multicast = self.hearing().and_then(MulticastReceiver::next_timeout);
        [way, multicast, self.peers.endpoint.next_timeout()].into_iter().flatten().min()
    }

    /// Leaves the relay.
    pub fn leave(&mut self, now: Time) {
        if let Some(connection) = self.uplink.connection() {
            self.peers.close(now, connection, "the host leaves");
        }
    }
}

/// Machine behind relays, with the host's path to them.
#[derive(Debug)]
pub struct Behind<M> {
    inner: M,
    host: Host,
}

impl<M: Machine> Behind<M> {
    /// Creates the machine `inner` at a host.
    pub const fn new(inner: M, host: Host) -> Self {
        Self { inner, host }
    }

    /// Returns the host.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    fn settle(&mut self, cx: &mut Cx<'_>) {
        while let Some(SessionPacket { origin, to, bytes }) = self.host.take(cx.now) {
            self.inner.handle_datagram(cx, Datagram::new(origin, to, &bytes));
        }
        if self.host.take_new_path() {
            self.inner.handle_new_path(cx);
        }
        while self.inner.poll_membership().is_some() {}
        self.host.uplink.trace(cx, &self.host.peers);
    }
}

impl<M: Machine> Machine for Behind<M> {
    type Event = M::Event;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let Datagram { from, to, congestion_experienced, bytes, .. } = datagram;
        match to {
            Destination::Group(_) => self.host.handle_multicast(cx.now, bytes),
            Destination::Node(_) => {
                self.host.handle_datagram(cx.now, from, congestion_experienced, bytes)
            }
        };
        self.settle(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.host.handle_timeout(cx.now);
        if self.host.has_room() && self.inner.next_timeout().is_some_and(|at| at <= cx.now) {
            self.inner.handle_timeout(cx);
        }
        self.settle(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.inner.handle_close(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            if let Some(to) = self.host.poll_transmit(cx.now, buf) {
                return Some(Transmit::control(Destination::Node(to)));
            }
            if !self.host.has_room() {
                return None;
            }
            let transmit = self.inner.poll_transmit(cx, buf)?;
            let mut bytes = std::mem::take(buf);
            bytes.resize(bytes.len() + transmit.zeros as usize, 0);
            self.host.send(transmit.to, transmit.time_to_live, Bytes::from(bytes));
        }
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        self.inner.poll_event()
    }

    fn next_timeout(&self) -> Option<Time> {
        // Without room the machine's timers stop, as for sessions on real sockets.
        let inner = self.inner.next_timeout().filter(|_| self.host.has_room());
        inner.into_iter().chain(self.host.next_timeout()).min()
    }
}
