//! QUIC endpoint of a node: connections to other nodes, and ordered frames over their streams.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use faircast_base::{Duration, NodeId, Time};
pub use quinn_proto::StreamId;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionEvent, ConnectionHandle as QuinnHandle,
    DatagramEvent, Dir, EcnCodepoint, EndpointConfig, Event, Incoming, ReadError, ServerConfig,
    StreamEvent, ValidationTokenConfig, VarInt,
};

use crate::clock::{TokenClock, instant, time};
use crate::keys::RelayKey;
use crate::transport::{CongestionControl, IDLE_MAX, Identifiers, transport};

/// Minimum send window of a connection in bytes, beyond acknowledged data.
const SEND_BYTES_MIN: u64 = 64 << 10;
/// Unfinished handshakes above which addresses are validated first (RFC 9000 s8.1.2).
const HANDSHAKES_FREE: usize = 16;
const HANDSHAKES_MAX: usize = 1024;
const RATE_SPAN: Duration = Duration::from_secs(1);
const CLOSED: u32 = 0;

/// Identifier of a connection, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionHandle(u64);

#[cfg(test)]
impl ConnectionHandle {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum EndpointEvent {
    /// Established connection, opened by this node or the peer. Both have the key.
    Up { connection: ConnectionHandle, peer: NodeId, is_own: bool },
    /// Ended connection.
    Down { connection: ConnectionHandle, reason: Down },
    /// Received frame.
    Frame { connection: ConnectionHandle, stream: StreamId, bytes: Bytes },
    /// End of a stream by the peer, after its last frame.
    StreamEnd { connection: ConnectionHandle, stream: StreamId },
    /// Free capacity on a stream that had none.
    Room { connection: ConnectionHandle, stream: StreamId },
    /// Acknowledgement of all data of a finished stream.
    Finished { connection: ConnectionHandle, stream: StreamId },
}

/// State of a connection. Lengths are without IP and UDP headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ConnectionStats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Congestion window.
    pub window_bytes: u64,
    pub sent_bytes: u64,
    /// Send rate over the last one to two seconds.
    pub sent_bits_per_s: u64,
    /// Length of the queue at a relay for the connection or for multicast.
    pub queued_bytes: u64,
    pub sent_packets: u64,
    pub lost_packets: u64,
    /// Path MTU.
    pub mtu_bytes: u16,
}

struct ConnectionState {
    handle: QuinnHandle,
    connection: Connection,
    is_own: bool,
    is_new: bool,
    is_up: bool,
    received_at: Time,
    is_ready: bool,
    timer: Option<Time>,
    /// Start of the current rate interval, bytes sent since, and last measured rate.
    counted: (Time, u64, u64),
    /// Rest of a frame for each stream that accepts no more at present.
    blocked: BTreeMap<StreamId, Vec<Bytes>>,
    /// Streams of the peer, each with a frame that has arrived in part.
    incoming: BTreeMap<StreamId, Incomplete>,
}

fn address(node: NodeId) -> SocketAddr {
    let [high, low] = [(node.0 >> 16) as u16, node.0 as u16];
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, high, low)), 1)
}

fn node(address: SocketAddr) -> NodeId {
    match address {
        SocketAddr::V6(v6) => NodeId(v6.ip().to_bits() as u32),
        SocketAddr::V4(v4) => NodeId(v4.ip().to_bits()),
    }
}

/// Endpoint of a node. The driver maps each packet's socket address to its own node number.
pub struct Endpoint {
    quic: quinn_proto::Endpoint,
    client: ClientConfig,
    control: CongestionControl,
    identifiers: Identifiers,
    /// Secret of this run, from which the multicast key and the run's number derive.
    secret: [u8; 32],
    clock: TokenClock,
    connections: BTreeMap<ConnectionHandle, ConnectionState>,
    by_handle: BTreeMap<usize, ConnectionHandle>,
    last_connection: u64,
    handshakes: usize,
    timers: BTreeSet<(Time, ConnectionHandle)>,
    ready: VecDeque<ConnectionHandle>,
    readable: BTreeSet<(ConnectionHandle, StreamId)>,
    events: VecDeque<EndpointEvent>,
    /// Packets of no connection, with their destinations.
    responses: VecDeque<(NodeId, Vec<u8>)>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint. `name` survives restarts; real networks need an unpredictable `seed`.
    pub fn new(
        key: &RelayKey,
        name: &[u8],
        seed: u64,
        accepts: bool,
        control: CongestionControl,
    ) -> Self {
        let (reset, token) = key.tokens(name);
        let cid_key = *blake3::keyed_hash(&key.derive("identifiers"), name).as_bytes();
        let identifiers = Identifiers::new(cid_key, seed);
        let transport = Arc::new(transport(control, None));
        let clock = TokenClock::default();
        let mut config = EndpointConfig::new(Arc::new(reset));
        let issued = identifiers.clone();
        config.cid_generator(move || Box::new(issued.clone()));
        let digest = blake3::keyed_hash(&key.derive("run"), &[name, &seed.to_be_bytes()].concat());
        let mut own_seed = [0; 32];
        own_seed[..8].copy_from_slice(&seed.to_be_bytes());
        let server = accepts.then(|| {
            let mut server = ServerConfig::new(Arc::new(key.server()), Arc::new(token));
            let mut tokens = ValidationTokenConfig::default();
            tokens.sent(0);
            server
                .transport_config(transport.clone())
                .validation_token_config(tokens)
                .time_source(Arc::new(clock.clone()));
            Arc::new(server)
        });
        let mut client = ClientConfig::new(Arc::new(key.client()));
        client.transport_config(transport);
        fresh! {
            Self {
                quic: quinn_proto::Endpoint::new(Arc::new(config), server, true, Some(own_seed)),
                client,
                control,
                identifiers: Identifiers::new(cid_key, seed ^ 1),
                secret: *digest.as_bytes(),
                clock,
            }
            connections, by_handle, last_connection, handshakes, timers, ready, readable, events, responses
        }
    }

    pub(crate) fn run(&self) -> u64 {
        u64::from_be_bytes(*self.secret.first_chunk().expect("the secret has 32 bytes"))
    }

    /// Returns the multicast key of this run, which does not reveal the run's number.
    pub(crate) fn multicast_key(&self) -> [u8; 32] {
        blake3::derive_key("faircast 2026 hop multicast", &self.secret)
    }

    /// Opens a connection to a node. [`EndpointEvent::Up`] or [`EndpointEvent::Down`] follows.
    pub fn connect(&mut self, now: Time, to: NodeId) -> ConnectionHandle {
        use quinn_proto::ConnectionIdGenerator as _;
        let first = self.identifiers.generate_cid();
        let mut client = self.client.clone();
        client.initial_dst_cid_provider(Arc::new(move || first));
        // The round-trip time of a silent known peer repeats the first packet earlier.
        // src: RFC 9002 s6.2.2
        let to_it =
            |link: &&ConnectionState| link.is_up && node(link.connection.remote_address()) == to;
        let known = self.connections.values().filter(to_it).map(|link| link.connection.rtt()).min();
        if known.is_some() {
            client.transport_config(Arc::new(transport(self.control, known)));
        }
        let (handle, connection) = self
            .quic
            .connect(instant(now), client, address(to), "faircast")
            .expect("addresses of nodes are specified, and identifiers do not run out");
        self.add(now, handle, connection, true)
    }

    fn add(
        &mut self,
        now: Time,
        handle: QuinnHandle,
        connection: Connection,
        is_own: bool,
    ) -> ConnectionHandle {
        self.last_connection += 1;
        let id = ConnectionHandle(self.last_connection);
        let counted = (now, 0, 0);
        let link = fresh! {
            ConnectionState { handle, connection, is_own, is_new: true, received_at: now, counted, }
            is_up, is_ready, timer, blocked, incoming
        };
        self.by_handle.insert(handle.0, id);
        self.connections.insert(id, link);
        self.handshakes += 1;
        self.touch(id);
        id
    }

    /// Handles a packet; `marked`: a router marked congestion. False if of no connection.
    pub fn handle_datagram(&mut self, now: Time, from: NodeId, marked: bool, bytes: &[u8]) -> bool {
        self.clock.set(now);
        let ecn = marked.then_some(EcnCodepoint::Ce);
        let mut buf = Vec::new();
        let (at, remote) = (instant(now), address(from));
        match self.quic.handle(at, remote, None, ecn, BytesMut::from(bytes), &mut buf) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                self.pass(now, remote, handle, event);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
            Some(DatagramEvent::Response(transmit)) => {
                self.respond(&transmit, buf);
                return false;
            }
            None => return false,
        }
        true
    }

    fn respond(&mut self, transmit: &quinn_proto::Transmit, mut buf: Vec<u8>) {
        buf.truncate(transmit.size);
        self.responses.push_back((node(transmit.destination), buf));
    }

    fn accept(&mut self, now: Time, incoming: Incoming) {
        let mut buf = Vec::new();
        if self.handshakes >= HANDSHAKES_MAX {
            return self.quic.ignore(incoming);
        }
        if self.handshakes >= HANDSHAKES_FREE && !incoming.remote_address_validated() {
            match self.quic.retry(incoming, &mut buf) {
                Ok(transmit) => self.respond(&transmit, buf),
                Err(error) => self.quic.ignore(error.into_incoming()),
            }
            return;
        }
        match self.quic.accept(incoming, instant(now), &mut buf, None) {
            Ok((handle, connection)) => _ = self.add(now, handle, connection, false),
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(&transmit, buf);
                }
            }
        }
    }

    fn pass(&mut self, now: Time, remote: SocketAddr, handle: QuinnHandle, event: ConnectionEvent) {
        let Some(id) = self.by_handle.get(&handle.0).copied() else { return };
        if let Some(link) = self.connections.get_mut(&id) {
            link.connection.handle_event(event);
            // `quinn-proto` discards packets from the new address of a peer that was connected to.
            if link.connection.remote_address() == remote {
                link.received_at = now;
            }
            self.touch(id);
        }
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.clock.set(now);
        while self.timers.first().is_some_and(|it| it.0 <= now)
            && let Some((_, id)) = self.timers.pop_first()
        {
            if let Some(link) = self.connections.get_mut(&id) {
                link.timer = None;
                link.connection.handle_timeout(instant(now));
                self.touch(id);
            }
        }
    }

    fn touch(&mut self, id: ConnectionHandle) {
        let Self { quic, connections, events, readable, ready, by_handle, handshakes, .. } = self;
        let Some(link) = connections.get_mut(&id) else { return };
        let mut is_drained = false;
        while let Some(event) = link.connection.poll_endpoint_events() {
            is_drained |= event.is_drained();
            if let Some(event) = quic.handle_event(link.handle, event) {
                link.connection.handle_event(event);
            }
        }
        while let Some(event) = link.connection.poll() {
            match event {
                Event::Connected => {
                    link.is_up = true;
                    *handshakes -= usize::from(std::mem::take(&mut link.is_new));
                    let (peer, is_own) = (node(link.connection.remote_address()), link.is_own);
                    events.push_back(EndpointEvent::Up { connection: id, peer, is_own });
                }
                Event::ConnectionLost { reason } => {
                    link.is_up = false;
                    *handshakes -= usize::from(std::mem::take(&mut link.is_new));
                    if let Some(reason) = down(reason) {
                        events.push_back(EndpointEvent::Down { connection: id, reason });
                    }
                }
                Event::Stream(StreamEvent::Opened { .. }) => {
                    while let Some(stream) = link.connection.streams().accept(Dir::Uni) {
                        link.incoming.insert(stream, Incomplete::default());
                        readable.insert((id, stream));
                    }
                }
                Event::Stream(StreamEvent::Readable { id: stream }) => {
                    readable.insert((id, stream));
                }
                Event::Stream(StreamEvent::Writable { id: stream })
                    if link.write_blocked(stream) =>
                {
                    events.push_back(EndpointEvent::Room { connection: id, stream });
                }
                Event::Stream(StreamEvent::Finished { id: stream }) => {
                    events.push_back(EndpointEvent::Finished { connection: id, stream });
                }
                _ => {}
            }
        }
        if is_drained {
            *handshakes -= usize::from(link.is_new);
            readable.retain(|(of, _)| *of != id);
            by_handle.remove(&link.handle.0);
            if let Some(at) = link.timer {
                self.timers.remove(&(at, id));
            }
            connections.remove(&id);
            return;
        }
        // One round trip of data waits here. The rest waits where connections can share it.
        let window = link.connection.congestion_state().window();
        link.connection.set_send_window(SEND_BYTES_MIN.max(2 * window));
        if !std::mem::replace(&mut link.is_ready, true) {
            ready.push_back(id);
        }
    }

    /// Writes the next packet into `buf`. Returns its destination.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<NodeId> {
        if let Some((to, packet)) = self.responses.pop_front() {
            buf.extend_from_slice(&packet);
            return Some(to);
        }
        while let Some(id) = self.ready.front().copied() {
            if let Some(link) = self.connections.get_mut(&id) {
                if let Some(transmit) = link.connection.poll_transmit(instant(now), 1, buf) {
                    buf.truncate(transmit.size);
                    link.count(now, transmit.size);
                    return Some(node(transmit.destination));
                }
                link.is_ready = false;
                let timer = link.connection.poll_timeout().map(time);
                if timer != link.timer {
                    if let Some(at) = link.timer {
                        self.timers.remove(&(at, id));
                    }
                    self.timers.extend(timer.map(|at| (at, id)));
                    link.timer = timer;
                }
            }
            self.ready.pop_front();
        }
        None
    }

    /// Returns the next event. Unread frames stop their sender by flow control.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(&(id, stream)) = self.readable.first() {
            if let Some(event) = self.read(id, stream) {
                return Some(event);
            }
            self.readable.pop_first();
        }
        None
    }

    fn read(&mut self, id: ConnectionHandle, stream: StreamId) -> Option<EndpointEvent> {
        let link = self.connections.get_mut(&id)?;
        let incomplete = link.incoming.get_mut(&stream)?;
        loop {
            if let Some(bytes) = incomplete.next() {
                return Some(EndpointEvent::Frame { connection: id, stream, bytes });
            }
            let mut reading = link.connection.recv_stream(stream);
            let mut chunks = reading.read(true).ok()?;
            let next = chunks.next(usize::MAX);
            let sends = chunks.finalize().should_transmit();
            if sends && !std::mem::replace(&mut link.is_ready, true) {
                self.ready.push_back(id);
            }
            match next {
                Ok(Some(chunk)) => incomplete.chunk = chunk.bytes,
                Err(ReadError::Blocked) => return None,
                Ok(None) | Err(ReadError::Reset(_)) => {
                    link.incoming.remove(&stream);
                    return Some(EndpointEvent::StreamEnd { connection: id, stream });
                }
            }
        }
    }

    /// Returns the next [`handle_timeout`](Self::handle_timeout) time, if any. Poll packets first.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Opens a stream of frames, if the connection is up and does not have too many streams.
    pub fn open(&mut self, link: ConnectionHandle) -> Option<StreamId> {
        self.connections.get_mut(&link)?.connection.streams().open(Dir::Uni)
    }

    /// Sets the priority of a stream over streams with lower priority. Default 0.
    pub fn set_priority(&mut self, link: ConnectionHandle, stream: StreamId, priority: i32) {
        if let Some(link) = self.connections.get_mut(&link) {
            _ = link.connection.send_stream(stream).set_priority(priority);
        }
    }

    /// True if a stream accepts a frame now.
    pub fn has_room(&self, link: ConnectionHandle, stream: StreamId) -> bool {
        self.connections.get(&link).is_some_and(|it| it.is_up && !it.blocked.contains_key(&stream))
    }

    /// True if all streams of a connection accept a frame now.
    pub fn has_room_for_all(&self, link: ConnectionHandle) -> bool {
        self.connections.get(&link).is_some_and(|it| it.is_up && it.blocked.is_empty())
    }

    /// Sends a frame of at most 65 535 bytes. False, unsent, if the stream is full or has ended.
    pub fn send(
        &mut self,
        id: ConnectionHandle,
        stream: StreamId,
        head: &[u8],
        body: Bytes,
    ) -> bool {
        if !self.has_room(id, stream) {
            return false;
        }
        let Ok(length) = u16::try_from(head.len() + body.len()) else { return false };
        let Some(link) = self.connections.get_mut(&id) else { return false };
        let head = Bytes::from([&length.to_be_bytes(), head].concat());
        link.blocked.insert(stream, vec![head, body]);
        link.write_blocked(stream);
        self.touch(id);
        true
    }

    /// Ends a stream after the frames already sent. A blocked frame is dropped.
    pub fn finish(&mut self, id: ConnectionHandle, stream: StreamId) {
        if let Some(link) = self.connections.get_mut(&id) {
            if link.blocked.remove(&stream).is_some() {
                self.events.push_back(EndpointEvent::Room { connection: id, stream });
            }
            _ = link.connection.send_stream(stream).finish();
            self.touch(id);
        }
    }

    /// Closes a connection with a reason. No event follows.
    pub fn close(&mut self, now: Time, id: ConnectionHandle, reason: &str) {
        if let Some(link) = self.connections.get_mut(&id) {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            link.connection.close(instant(now), VarInt::from_u32(CLOSED), reason);
            self.touch(id);
        }
    }

    /// Returns the number of connections, including unfinished handshakes and closing connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the present address of a peer, which may change.
    pub fn peer(&self, link: ConnectionHandle) -> Option<NodeId> {
        self.connections.get(&link).map(|link| node(link.connection.remote_address()))
    }

    /// Returns the time of a connection's last received packet, or of its start.
    pub fn received_at(&self, link: ConnectionHandle) -> Option<Time> {
        self.connections.get(&link).map(|link| link.received_at)
    }

    /// Returns the state of a connection.
    pub fn stats(&self, link: ConnectionHandle) -> Option<ConnectionStats> {
        let link = self.connections.get(&link)?;
        let stats = link.connection.stats();
        Some(ConnectionStats {
            rtt: Duration::from_nanos(stats.path.rtt.as_nanos() as u64),
            window_bytes: stats.path.cwnd,
            sent_bytes: stats.udp_tx.bytes,
            sent_bits_per_s: link.counted.2,
            queued_bytes: 0,
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            mtu_bytes: stats.path.current_mtu,
        })
    }
}

impl ConnectionState {
    fn count(&mut self, now: Time, bytes: usize) {
        let (since, counted, _) = self.counted;
        let passed = now.since(since);
        if passed >= RATE_SPAN {
            let bits_per_s = counted as f64 * 8.0 / passed.as_secs_f64();
            self.counted = (now, 0, bits_per_s as u64);
        }
        self.counted.1 += bytes as u64;
    }

    fn write_blocked(&mut self, stream: StreamId) -> bool {
        let Some(rest) = self.blocked.get_mut(&stream) else { return true };
        // Only after a refused write does the connection report free capacity.
        let is_all = loop {
            match self.connection.send_stream(stream).write_chunks(rest) {
                Ok(written) => _ = rest.drain(..written.chunks),
                Err(quinn_proto::WriteError::Blocked) => break false,
                Err(_) => break true,
            }
            if rest.iter().all(Bytes::is_empty) {
                break true;
            }
        };
        if is_all {
            self.blocked.remove(&stream);
        }
        is_all
    }
}

/// Reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of a reason describes the variant")]
pub enum Down {
    #[error("closed by the peer{colon}{why}", colon = if .0.is_empty() { "" } else { ": " }, why = .0)]
    Closed(String),
    #[error("silent for {IDLE_MAX}")]
    Silent,
    #[error("the peer has started again")]
    Restarted,
    #[error("the peer has another key")]
    Unauthenticated,
    #[error("the peer accepts no connection now")]
    Refused,
    /// Violation of the protocol by the peer.
    #[error("{0}")]
    Failed(String),
}

fn down(error: ConnectionError) -> Option<Down> {
    Some(match error {
        ConnectionError::LocallyClosed => return None,
        ConnectionError::ApplicationClosed(close) => {
            Down::Closed(String::from_utf8_lossy(&close.reason).into_owned())
        }
        ConnectionError::TimedOut => Down::Silent,
        ConnectionError::Reset => Down::Restarted,
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            code if is_crypto(code) => Down::Unauthenticated,
            CONNECTION_REFUSED => Down::Refused,
            _ => Down::Failed(close.to_string()),
        },
        ConnectionError::TransportError(error) if is_crypto(error.code.into()) => {
            Down::Unauthenticated
        }
        error => Down::Failed(error.to_string()),
    })
}

/// CONNECTION_REFUSED (RFC 9000 s20.1).
const CONNECTION_REFUSED: u64 = 2;

const fn is_crypto(code: u64) -> bool {
    code >> 8 == 1
}

/// Frames of a byte stream: a two-byte length, and the content.
#[derive(Default)]
struct Incomplete {
    chunk: Bytes,
    /// First part of a frame, with its length, that spans several chunks.
    begun: Vec<u8>,
}

const LENGTH_BYTES: usize = 2;

impl Incomplete {
    fn next(&mut self) -> Option<Bytes> {
        if self.begun.is_empty()
            && let Some(length) = self.chunk.first_chunk::<LENGTH_BYTES>()
        {
            let end = LENGTH_BYTES + usize::from(u16::from_be_bytes(*length));
            if self.chunk.len() >= end {
                return Some(self.chunk.split_to(end).slice(LENGTH_BYTES..));
            }
        }
        while !self.chunk.is_empty() {
            let end = match self.begun.first_chunk::<LENGTH_BYTES>() {
                Some(length) => LENGTH_BYTES + usize::from(u16::from_be_bytes(*length)),
                None => LENGTH_BYTES,
            };
            let more = (end - self.begun.len()).min(self.chunk.len());
            self.begun.extend_from_slice(&self.chunk.split_to(more));
            if self.begun.len() == end && end > LENGTH_BYTES {
                return Some(Bytes::from(std::mem::take(&mut self.begun)).slice(LENGTH_BYTES..));
            }
        }
        None
    }
}
