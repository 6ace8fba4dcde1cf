//! A host behind relays: packets of its sessions go to the relay above, and come from there.

use std::collections::VecDeque;

use bytes::Bytes;
use faircast_base::{Cx, NodeId, Time};
use faircast_proto::{Datagram, Destination, Machine, Transmit};

use crate::endpoint::{ConnectionStats, Endpoint};
use crate::hearing::Hearing;
use crate::message::{Channel, Hello, Message, PARCEL_HEAD_BYTES, ParcelHead};
use crate::node::HOPS_MAX;
use crate::peers::{PeerEvent, Peers};
use crate::status::SlowLink;
use crate::uplink::{Uplink, UplinkState};

/// A packet of a session.
#[derive(Clone, Debug)]
pub struct SessionPacket {
    /// The node that has sent it.
    pub origin: NodeId,
    /// Its destination.
    pub to: Destination,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The way of a host to its group through relays.
#[derive(Debug)]
pub struct Host {
    peers: Peers,
    uplink: Uplink,
    group: u64,
    receivers: u32,
    /// Multicast that a relay has offered.
    hearing: Option<Hearing>,
    packets: VecDeque<SessionPacket>,
    is_path_new: bool,
}

/// Multicast of the relay in use.
fn current<'a>(hearing: &'a mut Option<Hearing>, uplink: &Uplink) -> Option<&'a mut Hearing> {
    hearing.as_mut().filter(|hearing| uplink.connection() == Some(hearing.connection))
}

impl Host {
    /// The host `node` with this name, below the first of `relays` that answers: a
    /// member of `group` with this number of receivers, 0 if the host only sends.
    pub fn new(
        now: Time,
        endpoint: Endpoint,
        (node, name): (NodeId, &str),
        relays: Vec<NodeId>,
        (group, receivers): (u64, u32),
    ) -> Self {
        let run = endpoint.run();
        let hello = Hello::new(node, run, false, name);
        let mut peers = Peers::new(endpoint, hello);
        let mut uplink = Uplink::new(relays, now);
        uplink.set(now, &mut peers, group, Some(receivers));
        let (hearing, packets, is_path_new) = (None, VecDeque::new(), false);
        Self { peers, uplink, group, receivers, hearing, packets, is_path_new }
    }

    /// Replaces the relays to try. An empty list means that there is none to try now; the
    /// connection in use stays.
    pub fn set_relays(&mut self, relays: Vec<NodeId>) {
        self.uplink.set_relays(relays);
    }

    /// Multicast address of the relay, as the relay was given it; `None` without a relay, without
    /// multicast there, or at a host without receivers. The driver joins this address.
    pub fn multicast_at(&self) -> Option<&[u8]> {
        self.hearing().map(|hearing| &hearing.at[..])
    }

    /// True if packets come by multicast.
    pub fn hears_multicast(&self) -> bool {
        self.hearing().is_some_and(|hearing| hearing.link.is_some())
    }

    fn hearing(&self) -> Option<&Hearing> {
        let connection = self.uplink.connection();
        self.hearing.as_ref().filter(|hearing| connection == Some(hearing.connection))
    }

    /// Takes a datagram that came by multicast. Returns false if the datagram is not authentic or
    /// not for this host.
    pub fn handle_multicast(&mut self, now: Time, bytes: &[u8]) -> bool {
        let Self { hearing, uplink, .. } = self;
        let is_used = current(hearing, uplink).is_some_and(|it| it.on_datagram(now, bytes));
        self.settle(now);
        is_used
    }

    /// State of the way, and true if the relay does not take the group.
    pub fn state(&self) -> (&UplinkState, bool) {
        (self.uplink.state(), self.uplink.is_refused(self.group))
    }

    /// Link at relays that sets the pace of this host's session; `None` without any.
    pub fn slow_link(&self) -> Option<&SlowLink> {
        self.uplink.slow(self.group)
    }

    /// True if a relay is looked for: there is none, or the one above is silent.
    pub const fn is_searching(&self) -> bool {
        self.uplink.is_searching()
    }

    /// Address of the relay above.
    pub fn relay(&self) -> Option<NodeId> {
        self.peers.endpoint.peer(self.uplink.connection()?)
    }

    /// State of the connection to the relay.
    pub fn stats(&self) -> Option<ConnectionStats> {
        self.peers.endpoint.stats(self.uplink.connection()?)
    }

    fn settle(&mut self, now: Time) {
        // A packet at a time: those that nobody takes wait at the relay.
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
                        // A host that only sends has no use for multicast.
                        let offer = || Hearing::new(connection, &key, at);
                        *hearing = (self.receivers > 0).then(offer);
                        continue;
                    }
                    if let Some(hearing) = current(hearing, uplink) {
                        hearing.on_message(now, self.group, &message);
                    }
                    self.is_path_new |= matches!(message, Message::Path(_));
                    uplink.on_message(now, peers, connection, message);
                }
                PeerEvent::Parcel { connection, group, head, body } => {
                    if uplink.is(connection) && group == self.group {
                        self.receive(head, body);
                    }
                }
                PeerEvent::Repair { connection, link, seq, frame } if uplink.is(connection) => {
                    if let Some(hearing) = current(hearing, uplink) {
                        hearing.on_repair(now, link, seq, frame);
                    }
                }
                PeerEvent::Down { connection, reason } | PeerEvent::Bad { connection, reason } => {
                    uplink.on_down(now, peers, connection, reason);
                }
                PeerEvent::Up { .. }
                | PeerEvent::Hello { .. }
                | PeerEvent::Message { .. }
                | PeerEvent::Repair { .. }
                | PeerEvent::Room { .. } => {}
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
        if origin != self.peers.node() {
            self.packets.push_back(SessionPacket { origin, to, bytes });
        }
    }

    /// Takes a datagram from the network; [`take`](Self::take) gives packets of sessions. Returns
    /// false if the datagram belongs to no connection.
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

    /// True once after each change of the relays above: packets may have been lost.
    pub fn take_new_path(&mut self) -> bool {
        std::mem::take(&mut self.is_path_new)
    }

    /// True if a packet may be sent now. Without a relay nothing is waited for: packets are lost,
    /// and time passes for machines.
    pub fn has_room(&self) -> bool {
        self.uplink.connection().is_none_or(|connection| self.peers.has_room(connection))
    }

    /// Sends a packet of a session through at most `hops` relays. Returns false if the packet is
    /// lost.
    pub fn send(&mut self, to: Destination, hops: u8, bytes: Bytes) -> bool {
        let Some(connection) = self.uplink.connection() else { return false };
        let head = ParcelHead { hops: hops.min(HOPS_MAX), origin: self.peers.node(), to };
        self.peers.send_packet(connection, Channel::Group(self.group), &head.encode(), bytes)
    }

    /// Takes the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.peers.endpoint.handle_timeout(now);
        self.uplink.handle_timeout(now, &mut self.peers);
        self.settle(now);
    }

    /// Writes the next datagram to the network into `buf`. Returns its destination.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<NodeId> {
        self.peers.endpoint.poll_transmit(now, buf)
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let way = self.uplink.next_timeout(&self.peers);
        let multicast = self.hearing().and_then(Hearing::next_timeout);
        [way, multicast, self.peers.endpoint.next_timeout()].into_iter().flatten().min()
    }

    /// Leaves the relay.
    pub fn leave(&mut self, now: Time) {
        if let Some(connection) = self.uplink.connection() {
            self.peers.close(now, connection, "the host leaves");
        }
    }
}

/// A machine behind relays, with the host's way to them.
#[derive(Debug)]
pub struct Behind<M> {
    inner: M,
    host: Host,
}

impl<M: Machine> Behind<M> {
    /// `inner` at this host.
    pub const fn new(inner: M, host: Host) -> Self {
        Self { inner, host }
    }

    /// The host.
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
        // All groups of a session come through the relay.
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
        // Without room the time of the machine stands still, as that of sessions on real sockets.
        let inner = self.inner.next_timeout().filter(|_| self.host.has_room());
        inner.into_iter().chain(self.host.next_timeout()).min()
    }
}
