//! Daemon of the overlay over QUIC: two streams of frames per connection, control before data.

use std::collections::BTreeMap;

use bytes::Bytes;
use faircast_base::{Cx, NodeId, Time};
use faircast_overlay::{ClientId, Daemon, DaemonEvent, DaemonId, DaemonRun, LinkId};

use crate::dial::Dialer;
use crate::endpoint::{ConnectionHandle, ConnectionStats, Endpoint, EndpointEvent, StreamId};

const PIECE_BYTES: usize = 32 << 10;
const CONTROL_BYTES_MAX: usize = 16 << 20;
/// First byte of a piece: last one of its message, or one that more follow.
const LAST: u8 = 0;
const MORE: u8 = 1;

#[derive(Debug)]
struct Wire {
    link: LinkId,
    control: StreamId,
    data: StreamId,
    /// Pieces of a control message that wait for room, the last one first.
    unsent_pieces: Vec<Bytes>,
    partial_message: Vec<u8>,
}

#[derive(Debug)]
struct Peer {
    at: NodeId,
    dialer: Dialer,
    daemon: Option<DaemonId>,
}

impl Peer {
    fn new(at: NodeId) -> Self {
        Self { at, dialer: Dialer::new(vec![at], Time::ZERO), daemon: None }
    }

    fn is_served(&self, daemon: &Daemon) -> bool {
        self.dialer.connection.is_none() && self.daemon.is_some_and(|id| daemon.has_link_to(id))
    }
}

/// Daemon with its connections to other daemons.
#[derive(Debug)]
pub struct DaemonNode {
    endpoint: Endpoint,
    daemon: Daemon,
    peers: Vec<Peer>,
    wires: BTreeMap<ConnectionHandle, Wire>,
    last_link: u32,
    ended: Vec<ClientId>,
    /// True if connections may have room for frames.
    is_dirty: bool,
}

impl DaemonNode {
    /// Creates a daemon that opens links to `peers` and accepts links from others.
    pub fn new(endpoint: Endpoint, daemon: Daemon, peers: Vec<NodeId>) -> Self {
        let peers = peers.into_iter().map(Peer::new).collect();
        fresh! {
            Self { endpoint, daemon, peers, }
            wires, last_link, ended, is_dirty
        }
    }

    /// Returns the daemon.
    pub const fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Returns the daemon, to poll its clients. Other calls need [`with`](Self::with).
    pub const fn daemon_mut(&mut self) -> &mut Daemon {
        &mut self.daemon
    }

    /// Calls the daemon on behalf of a client.
    pub fn with<R>(
        &mut self,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut Daemon, &mut Cx<'_>) -> R,
    ) -> R {
        let result = act(&mut self.daemon, cx);
        self.settle(cx);
        result
    }

    /// Returns the next client session that has ended or continues over another connection.
    pub fn poll_end(&mut self) -> Option<ClientId> {
        self.ended.pop()
    }

    /// Replaces the addresses to which links are opened. Links to retained addresses continue.
    pub fn set_peers(&mut self, cx: &mut Cx<'_>, peers: &[NodeId]) {
        let (kept, dropped): (Vec<Peer>, Vec<Peer>) =
            std::mem::take(&mut self.peers).into_iter().partition(|it| peers.contains(&it.at));
        self.peers = kept;
        for at in peers {
            if self.peers.iter().all(|it| it.at != *at) {
                self.peers.push(Peer::new(*at));
            }
        }
        for connection in dropped.iter().filter_map(|it| it.dialer.connection) {
            self.close(cx, connection, "the address of the daemon has changed");
        }
        self.settle(cx);
    }

    /// Returns the links: address, daemon there once it has greeted, and connection statistics.
    pub fn links(&self) -> impl Iterator<Item = (NodeId, Option<DaemonRun>, ConnectionStats)> {
        self.wires.iter().filter_map(|(connection, wire)| {
            let queued_bytes = self.daemon.queued_bytes(wire.link) as u64;
            let stats = ConnectionStats { queued_bytes, ..self.endpoint.stats(*connection)? };
            Some((self.endpoint.peer(*connection)?, self.daemon.peer(wire.link), stats))
        })
    }

    /// Handles a packet from a node; `marked`: a router marked congestion.
    pub fn handle_datagram(&mut self, cx: &mut Cx<'_>, from: NodeId, marked: bool, bytes: &[u8]) {
        self.endpoint.handle_datagram(cx.now, from, marked, bytes);
        self.settle(cx);
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.endpoint.handle_timeout(cx.now);
        for peer in &mut self.peers {
            if !peer.is_served(&self.daemon) {
                peer.dialer.handle_timeout(cx.now, &mut self.endpoint);
            }
        }
        if self.daemon.next_timeout().is_some_and(|at| at <= cx.now) {
            self.daemon.handle_timeout(cx);
        }
        self.settle(cx);
    }

    /// Writes the next packet into `buf`. Returns its destination.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<NodeId> {
        self.pump();
        self.endpoint.poll_transmit(now, buf)
    }

    /// Returns the next [`handle_timeout`](Self::handle_timeout) time. Poll packets first.
    pub fn next_timeout(&self) -> Option<Time> {
        let dialed = self.peers.iter().filter(|it| !it.is_served(&self.daemon));
        let dials = dialed.filter_map(|it| it.dialer.next_timeout(&self.endpoint));
        dials.chain(self.endpoint.next_timeout()).chain(self.daemon.next_timeout()).min()
    }

    /// Closes all links at once.
    pub fn handle_close(&mut self, now: Time) {
        for connection in self.wires.keys() {
            self.endpoint.close(now, *connection, "the daemon ends");
        }
    }

    fn settle(&mut self, cx: &mut Cx<'_>) {
        self.is_dirty = true;
        loop {
            if let Some(event) = self.endpoint.poll_event() {
                self.on_event(cx, event);
            } else if let Some(event) = self.daemon.poll_event() {
                match event {
                    DaemonEvent::Greeted(link, daemon) => {
                        let Some(connection) = self.connection(link) else { continue };
                        let mut dialed = self.peers.iter_mut();
                        if let Some(peer) = dialed.find(|it| it.dialer.is_own(connection)) {
                            peer.daemon = Some(daemon.id);
                        }
                    }
                    DaemonEvent::Close(link) => {
                        if let Some(connection) = self.connection(link) {
                            self.close(cx, connection, "replaced, silent or wrong");
                        }
                    }
                    DaemonEvent::End(client) => self.ended.push(client),
                }
            } else {
                break;
            }
        }
    }

    fn connection(&self, link: LinkId) -> Option<ConnectionHandle> {
        self.wires.iter().find(|(_, it)| it.link == link).map(|(connection, _)| *connection)
    }

    fn on_event(&mut self, cx: &mut Cx<'_>, event: EndpointEvent) {
        match event {
            EndpointEvent::Up { connection, is_own, .. } => self.on_up(cx, connection, is_own),
            EndpointEvent::Down { connection, .. } => self.on_down(cx, connection),
            EndpointEvent::Frame { connection, stream, bytes } => {
                self.on_frame(cx, connection, stream, bytes);
            }
            EndpointEvent::StreamEnd { connection, .. } => {
                self.close(cx, connection, "a stream has ended");
            }
            EndpointEvent::Room { .. } | EndpointEvent::Finished { .. } => {}
        }
    }

    fn on_up(&mut self, cx: &mut Cx<'_>, connection: ConnectionHandle, is_own: bool) {
        if is_own {
            let peer = self.peers.iter_mut().find(|it| it.dialer.is_own(connection));
            let before = peer.as_ref().and_then(|it| it.dialer.connection);
            if !peer.is_some_and(|it| it.dialer.on_up(cx.now, &mut self.endpoint, connection)) {
                return self.endpoint.close(cx.now, connection, "");
            }
            if let Some(wire) = before.and_then(|before| self.wires.remove(&before)) {
                self.daemon.link_down(cx, wire.link);
            }
        }
        let streams = (self.endpoint.open(connection), self.endpoint.open(connection));
        let (Some(control), Some(data)) = streams else {
            return self.close(cx, connection, "no streams");
        };
        self.endpoint.set_priority(connection, control, 1);
        self.last_link += 1;
        let link = LinkId(self.last_link);
        let wire = fresh! { Wire { link, control, data, } unsent_pieces, partial_message };
        self.wires.insert(connection, wire);
        self.daemon.link_up(cx, link, is_own);
    }

    fn on_down(&mut self, cx: &mut Cx<'_>, connection: ConnectionHandle) {
        for peer in &mut self.peers {
            peer.dialer.on_down(cx.now, &mut self.endpoint, connection);
        }
        if let Some(wire) = self.wires.remove(&connection) {
            self.daemon.link_down(cx, wire.link);
        }
    }

    fn close(&mut self, cx: &mut Cx<'_>, connection: ConnectionHandle, reason: &str) {
        self.endpoint.close(cx.now, connection, reason);
        self.on_down(cx, connection);
    }

    fn on_frame(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionHandle,
        stream: StreamId,
        bytes: Bytes,
    ) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let link = wire.link;
        match stream.index() {
            0 => {
                let Some((kind, piece)) = bytes.split_first() else { return };
                let is_first = wire.partial_message.is_empty();
                if *kind == LAST && is_first {
                    self.daemon.handle_control(cx, link, piece);
                } else if *kind <= MORE
                    && wire.partial_message.len() + piece.len() <= CONTROL_BYTES_MAX
                {
                    wire.partial_message.extend_from_slice(piece);
                    if *kind == LAST {
                        let message = std::mem::take(&mut wire.partial_message);
                        self.daemon.handle_control(cx, link, &message);
                    }
                } else {
                    self.close(cx, connection, "this daemon cannot read that");
                }
            }
            1 => self.daemon.handle_data(cx, link, bytes),
            _ => self.close(cx, connection, "this daemon reads two streams"),
        }
    }

    /// Moves frames to connections with room. The daemon sends control first and merges clocks.
    fn pump(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        let Self { wires, endpoint, daemon, .. } = self;
        for (connection, wire) in wires {
            while endpoint.has_room(*connection, wire.control) {
                if wire.unsent_pieces.is_empty()
                    && let Some(message) = daemon.poll_control(wire.link)
                {
                    let pieces = (0..message.len().max(1)).step_by(PIECE_BYTES);
                    let piece = |at| message.slice(at..message.len().min(at + PIECE_BYTES));
                    wire.unsent_pieces = pieces.rev().map(piece).collect();
                }
                let Some(piece) = wire.unsent_pieces.pop() else { break };
                let kind = if wire.unsent_pieces.is_empty() { LAST } else { MORE };
                endpoint.send(*connection, wire.control, &[kind], piece);
            }
            while endpoint.has_room(*connection, wire.data) {
                let Some(frame) = daemon.poll_data(wire.link) else { break };
                endpoint.send(*connection, wire.data, &[], frame);
            }
        }
    }
}
