//! One QUIC connection as a flow of a scenario, for comparison with other transports.

use std::collections::VecDeque;

use bytes::Bytes;
use faircast_base::{BadInput, Cx, Duration, Event, NodeId, Time};
use faircast_proto::congestion::{Floor, Guarantees};
use faircast_proto::content::Content;
use faircast_proto::options::{OptionKind, OptionSpec};
use faircast_proto::stack::{Alone, Stack, TransportEntry};
use faircast_proto::transport::{EndSetup, PacketFacts, PacketFormat, Role};
use faircast_proto::{Datagram, Destination, FlowEvent, FlowMachine, Machine, Transmit};

use crate::dial::Dialer;
use crate::endpoint::{ConnectionHandle, Down, Endpoint, EndpointEvent, StreamId};
use crate::keys::RelayKey;
use crate::transport::CongestionControl;

/// Transport `quic` of scenarios.
pub static QUIC: TransportEntry = TransportEntry {
    name: "quic",
    about: "one QUIC connection, as between two relays",
    alone: Some(Alone { options: OPTIONS, guarantees: GUARANTEES }),
    steered: None,
    multicast: false,
    many_to_many: false,
    answers: true,
    own_checksum: true,
    repair_heads: false,
    packets: PacketFormat::Datagrams(facts),
    end: Some(end),
};

/// Stack of one QUIC connection.
pub const STACK: Stack = Stack { transport: &QUIC, scheme: None, hop: None };

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "control",
    kind: OptionKind::Choice(&["newreno", "cubic"]),
    default: "\"newreno\"",
    doc: "Congestion control",
}];

/// Guarantees. Without acknowledgements: probes at doubling intervals, a new connection every 2 s.
const GUARANTEES: Guarantees = Guarantees {
    floor: |_| Some(FLOOR),
    recovery: Guarantees::RECOVERY,
    // At most one acknowledgement per packet, plus handshake packets.
    reports_max: |_, load| load.data_packets + load.receivers * 16,
};

/// A probe timeout sends two packets (RFC 9002 s6.2.4).
const FLOOR: Floor =
    Floor { after: Duration::from_secs(8), every: Duration::from_secs(2), burst: 2 };

/// Overhead per packet in bytes: header with identifier and packet number, stream frame, tag.
const OVERHEAD_BYTES: usize = 40;
const CONTROL_BYTES_MAX: usize = 128;
/// Bit of long headers, which handshake packets have (RFC 9000 s17.2).
const LONG_HEADER: u8 = 0x80;

/// Encrypted frames: a long packet with a short header counts as stream data.
fn facts(packet: &[u8]) -> PacketFacts {
    let is_short_header = packet.first().is_some_and(|first| first & LONG_HEADER == 0);
    match is_short_header && packet.len() > CONTROL_BYTES_MAX {
        true => PacketFacts::data((packet.len() - OVERHEAD_BYTES) as u32),
        false => PacketFacts::default(),
    }
}

fn end(_stack: Stack, role: Role, setup: EndSetup<'_>) -> FlowMachine {
    // Repeatable measurements: connection identifiers derive from flow and node.
    let seed = u64::from(setup.flow.0) << 32 | u64::from(setup.node.0);
    let key = RelayKey::none().without_secrecy();
    let control = match setup.options.text("control") {
        Some("cubic") => CongestionControl::Cubic,
        _ => CongestionControl::NewReno,
    };
    let endpoint =
        |accepts| Endpoint::new(&key, &setup.node.0.to_be_bytes(), seed, accepts, control);
    let to = match setup.to {
        Destination::Node(node) => node,
        Destination::Group(_) => unreachable!("a connection has one receiver"),
    };
    match role {
        Role::Source(content) => Box::new(fresh! {
            Sender {
                endpoint: endpoint(false),
                dialer: Dialer::new(vec![to], setup.start),
                payload: setup.payload.max(1),
                object_len: content.len().unwrap_or(u64::MAX),
                content,
            }
            stream, offset, is_finished, packets, repairs, is_over, events
        }),
        Role::Receiver => Box::new(fresh! {
            Receiver { endpoint: endpoint(true), source: setup.source(), }
            link, packets, bytes, is_over, events
        }),
        Role::Both(_) => unreachable!("a connection has one sending end here"),
    }
}

struct Sender {
    endpoint: Endpoint,
    dialer: Dialer,
    payload: u32,
    content: Box<dyn Content>,
    object_len: u64,
    /// Stream of the connection in use, once the receiver has sent its position.
    stream: Option<(ConnectionHandle, StreamId)>,
    offset: u64,
    is_finished: bool,
    packets: u64,
    repairs: u64,
    is_over: bool,
    events: VecDeque<FlowEvent>,
}

impl Sender {
    fn settle(&mut self, cx: &mut Cx<'_>) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Up { connection: link, .. } => {
                    if self.dialer.on_up(cx.now, &mut self.endpoint, link) {
                        (self.stream, self.repairs) = (None, 0);
                    } else {
                        self.endpoint.close(cx.now, link, "another connection is used");
                    }
                }
                EndpointEvent::Down { connection: link, reason } => {
                    if self.dialer.on_down(cx.now, &mut self.endpoint, link) {
                        self.stream = None;
                        if matches!(reason, Down::Closed(_)) {
                            self.is_over = true;
                            self.events.push_back(FlowEvent::Gone);
                        }
                    }
                }
                EndpointEvent::Frame { connection: link, bytes, .. } => {
                    self.begin(cx, link, &bytes)
                }
                EndpointEvent::Finished { connection: link, .. } => {
                    if self.dialer.connection == Some(link) && !self.is_over {
                        self.is_over = true;
                        cx.emit(Event::Completed { bytes: self.offset });
                        self.events.push_back(FlowEvent::Completed);
                        self.endpoint.close(cx.now, link, "");
                    }
                }
                EndpointEvent::Room { .. } | EndpointEvent::StreamEnd { .. } => {}
            }
        }
        self.fill();
    }

    fn begin(&mut self, cx: &mut Cx<'_>, link: ConnectionHandle, frame: &[u8]) {
        let offset = frame.try_into().map(u64::from_be_bytes).ok();
        let Some(offset) = offset.filter(|offset| *offset <= self.offset.max(self.object_len))
        else {
            return cx.emit(Event::BadInput { reason: BadInput::Malformed });
        };
        if self.dialer.connection == Some(link) && self.stream.is_none() {
            self.stream = self.endpoint.open(link).map(|stream| (link, stream));
            (self.offset, self.is_finished) = (offset, false);
        }
    }

    fn fill(&mut self) {
        let Some((link, stream)) = self.stream.filter(|_| !self.is_finished) else { return };
        while self.offset < self.object_len && self.endpoint.has_room(link, stream) {
            let bytes = (self.object_len - self.offset).min(self.payload.into()) as u32;
            let mut body = Vec::new();
            let zeros = self.content.read(self.offset, bytes, &mut body);
            body.resize(body.len() + zeros as usize, 0);
            self.endpoint.send(link, stream, &[], Bytes::from(body));
            self.offset += u64::from(bytes);
        }
        if self.offset == self.object_len && self.endpoint.has_room(link, stream) {
            self.is_finished = true;
            self.endpoint.finish(link, stream);
        }
    }
}

impl Machine for Sender {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        take(&mut self.endpoint, cx, &datagram);
        self.settle(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.endpoint.handle_timeout(cx.now);
        if !self.is_over {
            self.dialer.handle_timeout(cx.now, &mut self.endpoint);
        }
        self.settle(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.object_len = self.offset;
        self.settle(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let to = self.endpoint.poll_transmit(cx.now, buf)?;
        let bytes = facts(buf).payload_len;
        if bytes > 0 {
            // Retransmissions leave before new data: one for each packet declared lost.
            let stats = self.dialer.connection.and_then(|link| self.endpoint.stats(link));
            let repair = stats.is_some_and(|stats| stats.lost_packets > self.repairs);
            cx.emit(Event::DataSent { seq: self.packets, bytes, repair });
            self.packets += 1;
            self.repairs += u64::from(repair);
        }
        Some(Transmit { payload_len: bytes, ..Transmit::control(Destination::Node(to)) })
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        let dial = self.dialer.next_timeout(&self.endpoint).filter(|_| !self.is_over);
        self.endpoint.next_timeout().into_iter().chain(dial).min()
    }
}

struct Receiver {
    endpoint: Endpoint,
    source: NodeId,
    link: Option<ConnectionHandle>,
    packets: u64,
    bytes: u64,
    is_over: bool,
    events: VecDeque<FlowEvent>,
}

impl Receiver {
    fn settle(&mut self, cx: &mut Cx<'_>) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Up { connection: link, peer, .. } => {
                    if peer != self.source || self.is_over {
                        self.endpoint.close(cx.now, link, "not the source");
                        continue;
                    }
                    if let Some(before) = self.link.replace(link) {
                        self.endpoint.close(cx.now, before, "replaced");
                    }
                    if let Some(stream) = self.endpoint.open(link) {
                        self.endpoint.send(link, stream, &self.bytes.to_be_bytes(), Bytes::new());
                    }
                }
                EndpointEvent::Down { connection: link, .. } => {
                    self.link.take_if(|it| *it == link);
                }
                EndpointEvent::Frame { connection: link, bytes, .. } if self.link == Some(link) => {
                    let (seq, len) = (self.packets, bytes.len() as u32);
                    self.packets += 1;
                    self.bytes += u64::from(len);
                    cx.emit(Event::Delivered { seq, bytes: len });
                    self.events.push_back(FlowEvent::Delivered { bytes: bytes.into(), zeros: 0 });
                }
                EndpointEvent::StreamEnd { connection: link, .. }
                    if self.link == Some(link) && !std::mem::replace(&mut self.is_over, true) =>
                {
                    cx.emit(Event::Completed { bytes: self.bytes });
                    self.events.push_back(FlowEvent::Completed);
                }
                _ => {}
            }
        }
    }
}

impl Machine for Receiver {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        take(&mut self.endpoint, cx, &datagram);
        self.settle(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.endpoint.handle_timeout(cx.now);
        self.settle(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.is_over = true;
        if let Some(link) = self.link.take() {
            self.endpoint.close(cx.now, link, "the receiver leaves");
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let to = self.endpoint.poll_transmit(cx.now, buf)?;
        Some(Transmit::control(Destination::Node(to)))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout()
    }
}

/// Passes a packet to the endpoint. Zeros are materialized: the whole packet is authenticated.
fn take(endpoint: &mut Endpoint, cx: &mut Cx<'_>, datagram: &Datagram<'_>) {
    let Datagram { from, congestion_experienced, bytes, zeros, .. } = *datagram;
    let is_used = if zeros == 0 {
        endpoint.handle_datagram(cx.now, from, congestion_experienced, bytes)
    } else {
        let mut packet = bytes.to_vec();
        packet.resize(bytes.len() + zeros as usize, 0);
        endpoint.handle_datagram(cx.now, from, congestion_experienced, &packet)
    };
    if !is_used {
        cx.emit(Event::BadInput { reason: BadInput::Foreign });
    }
}
