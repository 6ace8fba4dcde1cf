//! Neighbours of a node over QUIC: hellos, control messages and session packets.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use faircast_base::{BadInput, Checked, NodeId, Time};

use crate::endpoint::{ConnectionHandle, Down, Endpoint, EndpointEvent, StreamId};
use crate::message::{Channel, First, Hello, Message, PARCEL_HEAD_BYTES, ParcelHead};

/// Maximum bytes of control messages that wait for a peer; above, the peer is cut off.
const CONTROL_WAITS_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(crate) enum PeerEvent {
    Up { connection: ConnectionHandle, at: NodeId, is_own: bool },
    Hello { connection: ConnectionHandle, hello: Hello },
    Message { connection: ConnectionHandle, message: Message },
    Parcel { connection: ConnectionHandle, group: u64, head: ParcelHead, body: Bytes },
    Repair { connection: ConnectionHandle, link: u32, seq: u64, frame: Bytes },
    Room { connection: ConnectionHandle },
    Down { connection: ConnectionHandle, reason: Down },
    Bad { connection: ConnectionHandle, reason: Down },
}

#[derive(Debug)]
struct Streams {
    control: StreamId,
    /// Control messages that wait for room, and the total of their bytes.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    channels: BTreeMap<Channel, StreamId>,
    /// Open streams of the peer; `None` for the control stream.
    incoming: BTreeMap<StreamId, Option<Channel>>,
    has_hello: bool,
    awaits_room: bool,
}

#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) endpoint: Endpoint,
    pub(crate) hello: Hello,
    streams: BTreeMap<ConnectionHandle, Streams>,
}

impl Peers {
    pub(crate) const fn new(endpoint: Endpoint, hello: Hello) -> Self {
        Self { endpoint, hello, streams: BTreeMap::new() }
    }

    pub(crate) fn poll_event(&mut self, now: Time) -> Option<PeerEvent> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Up { connection, peer, is_own } => {
                    // A peer that allows no streams is not a node of this protocol.
                    let Some(control) = self.endpoint.open(connection) else {
                        self.close(now, connection, "no streams");
                        continue;
                    };
                    self.endpoint.set_priority(connection, control, 1);
                    let hello = First::Control(self.hello.clone()).encode();
                    self.endpoint.send(connection, control, &hello, Bytes::new());
                    let streams = fresh! {
                        Streams { control, }
                        waiting, waiting_bytes, channels, incoming, has_hello, awaits_room
                    };
                    self.streams.insert(connection, streams);
                    return Some(PeerEvent::Up { connection, at: peer, is_own });
                }
                EndpointEvent::Down { connection, reason } => {
                    self.streams.remove(&connection);
                    return Some(PeerEvent::Down { connection, reason });
                }
                EndpointEvent::Frame { connection, stream, bytes } => {
                    match self.on_frame(connection, stream, bytes) {
                        Ok(Some(event)) => return Some(event),
                        Ok(None) => {}
                        Err(reason) => {
                            self.close(now, connection, "this node cannot read that");
                            let reason = Down::Failed(format!("wrong messages: {reason:?}"));
                            return Some(PeerEvent::Bad { connection, reason });
                        }
                    }
                }
                EndpointEvent::StreamEnd { connection, stream } => {
                    if let Some(streams) = self.streams.get_mut(&connection) {
                        streams.incoming.remove(&stream);
                    }
                }
                EndpointEvent::Room { connection, .. } => {
                    self.flush(connection);
                    let has_room = self.endpoint.has_room_for_all(connection);
                    let streams = self.streams.get_mut(&connection);
                    if streams.is_some_and(|of| has_room && std::mem::take(&mut of.awaits_room)) {
                        return Some(PeerEvent::Room { connection });
                    }
                }
                EndpointEvent::Finished { .. } => {}
            }
        }
        None
    }

    fn on_frame(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        bytes: Bytes,
    ) -> Checked<Option<PeerEvent>> {
        let Some(streams) = self.streams.get_mut(&connection) else { return Ok(None) };
        match streams.incoming.get(&stream) {
            None => match First::decode(&bytes)? {
                First::Control(hello) => {
                    if std::mem::replace(&mut streams.has_hello, true) {
                        return Err(BadInput::Duplicate);
                    }
                    streams.incoming.insert(stream, None);
                    Ok(Some(PeerEvent::Hello { connection, hello }))
                }
                First::Packets(channel) => {
                    streams.incoming.insert(stream, Some(channel));
                    Ok(None)
                }
            },
            Some(None) => {
                let message = Message::decode(&bytes)?;
                Ok(Some(PeerEvent::Message { connection, message }))
            }
            Some(Some(Channel::Group(group))) => {
                let (head, group) = (ParcelHead::decode(&bytes)?, *group);
                let body = bytes.slice(PARCEL_HEAD_BYTES..);
                Ok(Some(PeerEvent::Parcel { connection, group, head, body }))
            }
            Some(Some(Channel::Link(link))) => {
                let (seq, _) = bytes.split_first_chunk().ok_or(BadInput::Truncated)?;
                let (seq, link) = (u64::from_be_bytes(*seq), *link);
                let frame = bytes.slice(size_of::<u64>()..);
                Ok(Some(PeerEvent::Repair { connection, link, seq, frame }))
            }
        }
    }

    pub(crate) fn send_message(&mut self, now: Time, to: ConnectionHandle, message: &Message) {
        let Some(streams) = self.streams.get_mut(&to) else { return };
        let bytes = message.encode();
        streams.waiting_bytes += bytes.len();
        streams.waiting.push_back(bytes);
        if streams.waiting_bytes > CONTROL_WAITS_MAX {
            return self.close(now, to, "control messages are not read");
        }
        self.flush(to);
    }

    fn flush(&mut self, connection: ConnectionHandle) {
        let Self { endpoint, streams, .. } = self;
        let Some(of) = streams.get_mut(&connection) else { return };
        while let Some(message) = of.waiting.front() {
            if !endpoint.send(connection, of.control, message, Bytes::new()) {
                break;
            }
            of.waiting_bytes -= message.len();
            of.waiting.pop_front();
        }
    }

    /// Requests an event at the next free capacity.
    pub(crate) fn await_room(&mut self, connection: ConnectionHandle) {
        if let Some(streams) = self.streams.get_mut(&connection) {
            streams.awaits_room = true;
        }
    }

    pub(crate) fn send_packet(
        &mut self,
        connection: ConnectionHandle,
        channel: Channel,
        head: &[u8],
        rest: Bytes,
    ) -> bool {
        let Self { endpoint, streams, .. } = self;
        let Some(of) = streams.get_mut(&connection) else { return false };
        let stream = match of.channels.get(&channel) {
            Some(stream) => *stream,
            None => {
                let Some(stream) = endpoint.open(connection) else { return false };
                let first = First::Packets(channel).encode();
                endpoint.send(connection, stream, &first, Bytes::new());
                of.channels.insert(channel, stream);
                stream
            }
        };
        endpoint.send(connection, stream, head, rest)
    }

    pub(crate) fn end_channel(&mut self, connection: ConnectionHandle, channel: Channel) {
        let stream = self.streams.get_mut(&connection).and_then(|of| of.channels.remove(&channel));
        if let Some(stream) = stream {
            self.endpoint.finish(connection, stream);
        }
    }

    pub(crate) fn close(&mut self, now: Time, connection: ConnectionHandle, reason: &str) {
        self.streams.remove(&connection);
        self.endpoint.close(now, connection, reason);
    }
}
