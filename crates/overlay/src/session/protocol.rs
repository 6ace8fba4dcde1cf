//! Protocol between a daemon and its clients: frames over a byte stream.
//!
//! `docs/wire/overlay-clients.md` has the tables and test vectors. Integers are in network byte
//! order.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use bytes::{Buf as _, Bytes, BytesMut};
use faircast_proto::fields::{Encoded, Fields};

use super::remote::WaitReason;
use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX, Names, Service};
use crate::client::{ClientEvent, Reason, SendError};
use crate::daemon::MESSAGE_BYTES_MAX;
use crate::group::MemberId;
use crate::ids::{DaemonId, DaemonRun, ViewId};
use crate::price::Benefit;

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Maximum frame from a client in bytes, without the length field: a message with 100 groups.
pub const REQUEST_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 64 * 1024;
/// Maximum length of a client's first frame in bytes.
pub const HELLO_BYTES_MAX: usize = 256;
/// Maximum length of a token in bytes.
pub const TOKEN_BYTES_MAX: usize = 128;
/// Maximum length of a frame from a daemon in bytes, without the length field.
pub const EVENT_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
const ROOM_BYTES: usize = 64 * 1024;

/// Flags in the byte of a message's service.
const RECEIPT: u8 = 0x80;
const IN_VIEW: u8 = 0x40;
/// Mask of the benefit in the same byte: 0 for the default, else the benefit's number from 1.
const BENEFIT: u8 = 0x30;

/// Frame of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// First frame of a client.
    Hello {
        /// Version of the protocol.
        version: u8,
        /// Number of the run of the client's program; grows with each start.
        incarnation: u64,
        /// Number of the next event of a session to resume; 0 for a new session.
        next: u64,
        /// Name of 1 to 56 bytes of UTF-8.
        name: Bytes,
        /// Token at an address with TLS, at most 128 bytes of UTF-8; otherwise empty.
        token: Bytes,
    },
    /// First frame of the daemon.
    Welcome(Welcome),
    /// Request for a [`Pong`](Self::Pong) with the same number.
    Ping(u64),
    /// Answer to a [`Ping`](Self::Ping).
    Pong(u64),
    /// Last frame of a client, which ends the session.
    Goodbye,
    /// Last frame before a connection is closed.
    Error(Code, String),
    /// Request to join a group; true if the group's senders shall wait for slow members.
    Join(u64, Bytes, bool),
    /// Request to leave a group.
    Leave(u64, Bytes),
    /// Request to send a message.
    Send {
        /// Number of the request.
        request: u64,
        /// Service of the message.
        service: Service,
        /// True if the client wants a receipt.
        wants_receipt: bool,
        /// View to which the message is restricted; `None` for any view.
        view: Option<ViewId>,
        /// Benefit under flow control; `None` for the daemon's default.
        benefit: Option<Benefit>,
        /// Groups, 1 to 100.
        groups: Names,
        /// Payload.
        payload: Bytes,
    },
    /// Report that all requests up to this number are accepted or refused.
    Sent(u64),
    /// Report that requests of the client wait at the daemon; `None`: they no longer wait.
    Waiting(Option<WaitReason>),
    /// Event with its number in the session.
    Event(u64, Arc<ClientEvent>),
    /// Report that the session resumes.
    Resumed,
}

/// Answer of a daemon to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Run of the daemon.
    pub daemon: DaemonRun,
    /// Current view.
    pub view: ViewId,
    /// Number of the client's last request that the daemon has handled.
    pub taken: u64,
    /// Maximum length of a message in bytes.
    pub message_bytes: u32,
    /// Maximum number of groups of a message.
    pub groups: u8,
    /// Maximum length of a group's name in bytes.
    pub group_bytes: u8,
    /// Name of the client in the overlay: `name@daemon`.
    pub full_name: Bytes,
}

/// Reason of an error, a refusal or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Bytes are no frame, or a frame is not allowed at this point.
    Malformed = 1,
    /// The protocol versions differ.
    Version,
    /// The client's name is empty, too long or taken.
    Name,
    /// The session has ended and cannot be resumed.
    Session,
    /// Another connection continues the session, or a later run of the program has begun.
    Replaced,
    /// The client was too slow and has lost events.
    Slow,
    /// No frame arrived for 30 s.
    Idle,
    /// No hello arrived for 5 s.
    Handshake,
    /// The daemon stops.
    Shutdown,
    /// A group's name is empty or longer than 64 bytes, or the number of groups is 0 or above 100.
    Group,
    /// The message is longer than 16 MB.
    Length,
    /// The members of the view change.
    Changing,
    /// Not all daemons have the earlier messages of this daemon's clients.
    Retention,
    /// The daemon has too many clients.
    Flood,
    /// A member of a group is slow, and the group asks senders to wait.
    Held,
    /// The view to which the message was restricted has ended.
    View,
    /// The client has no certificate, and its token is missing or wrong.
    Auth,
    /// The message is too expensive at present.
    Price,
}

impl Code {
    /// All codes, in the order of their numbers from 1.
    pub const ALL: [Self; 18] = [
        Self::Malformed,
        Self::Version,
        Self::Name,
        Self::Session,
        Self::Replaced,
        Self::Slow,
        Self::Idle,
        Self::Handshake,
        Self::Shutdown,
        Self::Group,
        Self::Length,
        Self::Changing,
        Self::Retention,
        Self::Flood,
        Self::Held,
        Self::View,
        Self::Auth,
        Self::Price,
    ];

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let number: u8 = fields.read()?;
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl From<SendError> for Code {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Name => Self::Session,
            SendError::Group => Self::Group,
            SendError::Length => Self::Length,
            SendError::Changing => Self::Changing,
            SendError::Retention => Self::Retention,
            SendError::Held => Self::Held,
            SendError::Price => Self::Price,
            SendError::View => Self::View,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the bytes are no frame of the protocol",
            Self::Version => "the daemon speaks version 1 of the protocol",
            Self::Name => "the client's name is taken, empty or longer than 56 bytes",
            Self::Session => "the session is over",
            Self::Replaced => "another connection or a later run of the client took over",
            Self::Slow => "the client was too slow and has lost events",
            Self::Idle => "no frame has come for 30 s",
            Self::Handshake => "no hello has come for 5 s",
            Self::Shutdown => "the daemon stops",
            Self::Group => "a request has 1 to 100 groups, with names of 1 to 64 bytes of UTF-8",
            Self::Length => "the message is longer than 16 MB",
            Self::Changing => "the members of the view change",
            Self::Retention => "not all daemons have the earlier messages yet",
            Self::Flood => "there are too many clients",
            Self::Held => "a member of the group is slow, and the group asks senders to wait",
            Self::View => "the view in which the message was to be delivered is over",
            Self::Auth => "the token is missing or wrong",
            Self::Price => "the message is too expensive now",
        })
    }
}

/// Reason for which bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The length of a frame is 0 or above the limit.
    Length {
        /// Length in bytes.
        len: usize,
        /// Maximum length at this point in bytes.
        max: usize,
    },
    /// The fields do not match the frame type.
    Fields(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A TLS alert: the answer of a TLS server to a plain frame.
            Self::Length { len, .. } if len >> 16 == 0x1503 => {
                f.write_str("TLS in rank of a frame; expected tls:HOST:PORT as the address")
            }
            Self::Length { len, max } => write!(f, "a frame of {len} bytes; allowed: 1 to {max}"),
            Self::Fields(kind) => {
                write!(f, "a frame of type {kind} has wrong fields, or there is no such type")
            }
        }
    }
}

impl core::error::Error for FrameError {}

impl Frame {
    /// Appends the frame. Returns the payload of its message, which must follow.
    pub fn put(&self, out: &mut Vec<u8>) -> &[Bytes] {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        let payload = self.put_fields(out);
        let bytes = out.len() - start - 4 + payload.iter().map(Bytes::len).sum::<usize>();
        out[start..start + 4].copy_from_slice(&(bytes as u32).to_be_bytes());
        payload
    }

    /// Returns the whole frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let payload = self.put(&mut out);
        payload.iter().for_each(|part| out.extend_from_slice(part));
        out
    }

    fn put_fields(&self, out: &mut Vec<u8>) -> &[Bytes] {
        match self {
            Self::Hello { version, incarnation, next, name, token } => {
                (1u8, *version, *incarnation, *next).put(out);
                put_name(out, name);
                put_name(out, token);
            }
            Self::Welcome(it) => {
                (2u8, VERSION, it.daemon, it.view, it.taken).put(out);
                (it.message_bytes, it.groups, it.group_bytes).put(out);
                put_name(out, &it.full_name);
            }
            Self::Ping(number) => (3u8, *number).put(out),
            Self::Pong(number) => (4u8, *number).put(out),
            Self::Goodbye => out.push(5),
            Self::Error(code, text) => {
                (6u8, *code as u8).put(out);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Join(request, group, asks) => {
                (8u8, *request, u8::from(*asks)).put(out);
                put_name(out, group);
            }
            Self::Leave(request, group) => {
                (9u8, *request).put(out);
                put_name(out, group);
            }
            Self::Send { request, service, wants_receipt, view, benefit, groups, payload } => {
                let receipt = if *wants_receipt { RECEIPT } else { 0 };
                let in_view = if view.is_some() { IN_VIEW } else { 0 };
                let benefit = benefit.map_or(0, |it| (it as u8 + 1) << 4);
                (10u8, *request, *service as u8 | receipt | in_view | benefit).put(out);
                view.iter().for_each(|view| view.put(out));
                groups.put(out);
                return core::slice::from_ref(payload);
            }
            Self::Sent(request) => (11u8, *request).put(out),
            Self::Waiting(reason) => {
                (13u8, reason.map_or(0, |it| Code::from(it) as u8)).put(out);
                if let Some(WaitReason::Price { price_cents, purse_cents }) = reason {
                    (*price_cents, *purse_cents as u32).put(out);
                }
            }
            Self::Event(number, event) => return put_event(out, *number, event),
            Self::Resumed => out.push(21),
        }
        &[]
    }

    /// Decodes a frame without its length; fails on other bytes. Names and payloads are slices of
    /// `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, FrameError> {
        let mut fields = Fields(bytes);
        let kind = fields.read().unwrap_or_default();
        let frame = Self::take(kind, bytes, &mut fields).filter(|_| fields.0.is_empty());
        frame.ok_or(FrameError::Fields(kind))
    }

    fn take(kind: u8, bytes: &Bytes, fields: &mut Fields<'_>) -> Option<Self> {
        Some(match kind {
            1 => {
                let (version, incarnation, next) = fields.read()?;
                let (name, token) = (take_name(bytes, fields)?, take_name(bytes, fields)?);
                Self::Hello { version, incarnation, next, name, token }
            }
            2 => {
                let (VERSION, daemon, view, taken) = fields.read()? else { return None };
                let (message_bytes, groups, group_bytes) = fields.read()?;
                let full_name = take_name(bytes, fields)?;
                let welcome =
                    Welcome { daemon, view, taken, message_bytes, groups, group_bytes, full_name };
                Self::Welcome(welcome)
            }
            3 => Self::Ping(fields.read()?),
            4 => Self::Pong(fields.read()?),
            5 => Self::Goodbye,
            6 => Self::Error(Code::take(fields)?, text(fields)?),
            8 => {
                let (request, asks): (_, u8) = fields.read()?;
                Self::Join(request, take_name(bytes, fields)?, asks == 1)
            }
            9 => Self::Leave(fields.read()?, take_name(bytes, fields)?),
            10 => {
                let (request, head): (_, u8) = fields.read()?;
                let wants_receipt = head & RECEIPT != 0;
                let service =
                    *Service::ALL.get(usize::from(head & !(RECEIPT | IN_VIEW | BENEFIT)))?;
                let rank = usize::from((head & BENEFIT) >> 4).checked_sub(1);
                let benefit = rank.and_then(|rank| Benefit::EACH.get(rank).copied());
                let view = if head & IN_VIEW != 0 { Some(fields.read()?) } else { None };
                let (groups, payload) = (take_names(bytes, fields)?, rest(bytes, fields));
                Self::Send { request, service, wants_receipt, view, benefit, groups, payload }
            }
            11 => Self::Sent(fields.read()?),
            13 if fields.0 == [0] => {
                fields.rest();
                Self::Waiting(None)
            }
            13 => Self::Waiting(Some(match Code::take(fields)? {
                Code::Price => {
                    let (price_cents, purse_cents): (_, u32) = fields.read()?;
                    WaitReason::Price { price_cents, purse_cents: purse_cents as i32 }
                }
                code => WaitReason::from(code),
            })),
            16..21 | 22..25 => Self::Event(fields.read()?, take_event(kind, bytes, fields)?.into()),
            21 => Self::Resumed,
            _ => return None,
        })
    }
}

fn put_event<'a>(out: &mut Vec<u8>, number: u64, event: &'a ClientEvent) -> &'a [Bytes] {
    match event {
        ClientEvent::Message { from, service, groups, parts, view, sequence } => {
            (16u8, number, *service as u8, *view, *sequence).put(out);
            put_member(out, from);
            groups.put(out);
            return parts;
        }
        ClientEvent::Group { group, members, reason, subject, position, view } => {
            (17u8, number, *reason as u8, *view, *position).put(out);
            put_name(out, group);
            out.push(u8::from(subject.is_some()));
            subject.iter().for_each(|member| put_member(out, member));
            (members.len() as u32).put(out);
            members.iter().for_each(|member| put_member(out, member));
        }
        ClientEvent::Transitional { closes, members } => {
            (18u8, number, *closes).put(out);
            put_runs(out, members);
        }
        ClientEvent::View { id, members, names, together, previous } => {
            (19u8, number, *id, previous.unwrap_or_default()).put(out);
            put_runs(out, members);
            names.iter().for_each(|name| put_name(out, name.as_bytes()));
            put_runs(out, together);
        }
        ClientEvent::Cut { lost, closes } => (20u8, number, *lost, u8::from(*closes)).put(out),
        ClientEvent::Receipt { request, members, view } => {
            (22u8, number, *request, *members, *view).put(out);
        }
        ClientEvent::NoMembers { request, groups } => {
            (23u8, number, *request).put(out);
            groups.put(out);
        }
        ClientEvent::Refused { request, reason } => {
            (24u8, number, *request, Code::from(*reason) as u8).put(out);
        }
    }
    &[]
}

fn take_event(kind: u8, bytes: &Bytes, fields: &mut Fields<'_>) -> Option<ClientEvent> {
    Some(match kind {
        16 => {
            let (service, view, sequence) = (take_service(fields)?, fields.read()?, fields.read()?);
            let (from, groups) = (take_member(bytes, fields)?, take_names(bytes, fields)?);
            let parts = [rest(bytes, fields)].into();
            ClientEvent::Message { from, service, groups, parts, view, sequence }
        }
        17 => {
            let reason = *REASONS.get(usize::from(fields.read::<u8>()?))?;
            let (view, position) = fields.read()?;
            let group = take_name(bytes, fields)?;
            let subject = match fields.read::<u8>()? {
                0 => None,
                1 => Some(take_member(bytes, fields)?),
                _ => return None,
            };
            let count: u32 = fields.read()?;
            // Each member has at least 18 bytes.
            let mut members = Vec::with_capacity((count as usize).min(fields.0.len() / 18));
            for _ in 0..count {
                members.push(take_member(bytes, fields)?);
            }
            let members = members.into();
            ClientEvent::Group { group, members, reason, subject, position, view }
        }
        18 => ClientEvent::Transitional { closes: fields.read()?, members: take_runs(fields)? },
        19 => {
            let (id, previous) = fields.read()?;
            let members = take_runs(fields)?;
            let mut names = Vec::with_capacity(members.len());
            for _ in &members {
                names.push(String::from_utf8(take_name(bytes, fields)?.into()).ok()?);
            }
            let previous = Some(previous).filter(|it| *it != ViewId::default());
            ClientEvent::View { id, members, names, together: take_runs(fields)?, previous }
        }
        22 => {
            let (request, members, view) = fields.read()?;
            ClientEvent::Receipt { request, members, view }
        }
        23 => {
            ClientEvent::NoMembers { request: fields.read()?, groups: take_names(bytes, fields)? }
        }
        24 => {
            let (request, code) = (fields.read()?, Code::take(fields)?);
            let reason = *REFUSALS.iter().find(|it| Code::from(**it) == code)?;
            ClientEvent::Refused { request, reason }
        }
        _ => {
            let (lost, closes): (_, u8) = fields.read()?;
            ClientEvent::Cut { lost, closes: closes == 1 }
        }
    })
}

const REFUSALS: [SendError; 7] = [
    SendError::Name,
    SendError::Group,
    SendError::Length,
    SendError::Changing,
    SendError::Retention,
    SendError::Held,
    SendError::View,
];

const REASONS: [Reason; 4] = [Reason::Join, Reason::Leave, Reason::Disconnect, Reason::Network];

fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

fn take_name(bytes: &Bytes, fields: &mut Fields<'_>) -> Option<Bytes> {
    let len = usize::from(fields.read::<u8>()?);
    let name = fields.bytes(len).filter(|name| core::str::from_utf8(name).is_ok())?;
    Some(bytes.slice_ref(name))
}

fn take_names(bytes: &Bytes, fields: &mut Fields<'_>) -> Option<Names> {
    Some(Names::take(bytes, fields, |name| core::str::from_utf8(name).is_ok())?.1)
}

fn put_member(out: &mut Vec<u8>, member: &MemberId) {
    (member.daemon.0, member.incarnation).put(out);
    put_name(out, &member.name);
}

fn take_member(bytes: &Bytes, fields: &mut Fields<'_>) -> Option<MemberId> {
    let (daemon, incarnation) = fields.read()?;
    Some(MemberId { daemon: DaemonId(daemon), name: take_name(bytes, fields)?, incarnation })
}

fn put_runs(out: &mut Vec<u8>, runs: &[DaemonRun]) {
    out.push(runs.len() as u8);
    runs.iter().for_each(|run| run.put(out));
}

fn take_runs(fields: &mut Fields<'_>) -> Option<Vec<DaemonRun>> {
    let count: u8 = fields.read()?;
    (0..count).map(|_| fields.read()).collect()
}

fn take_service(fields: &mut Fields<'_>) -> Option<Service> {
    Service::ALL.get(usize::from(fields.read::<u8>()?)).copied()
}

fn text(fields: &mut Fields<'_>) -> Option<String> {
    core::str::from_utf8(fields.rest()).ok().map(String::from)
}

fn rest(bytes: &Bytes, fields: &mut Fields<'_>) -> Bytes {
    bytes.slice_ref(fields.rest())
}

/// Checks the groups of a request; fails on a name or a number of groups that is not allowed.
pub fn check_groups<T: AsRef<[u8]>>(groups: &[T]) -> Result<(), SendError> {
    let fits = |name: &T| (1..=GROUP_BYTES_MAX).contains(&name.as_ref().len());
    let is_allowed = (1..=GROUPS_MAX).contains(&groups.len()) && groups.iter().all(fits);
    is_allowed.then_some(()).ok_or(SendError::Group)
}

/// Decoder of frames from a byte stream.
#[derive(Debug)]
pub struct Decoder {
    bytes: BytesMut,
    max: usize,
}

impl Decoder {
    /// Creates a decoder of frames of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { bytes: BytesMut::new(), max }
    }

    /// Changes the limit of frames.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Returns the buffer with room for the next bytes.
    pub fn room(&mut self) -> &mut BytesMut {
        self.bytes.reserve(ROOM_BYTES);
        &mut self.bytes
    }

    /// Frees the buffer if it is empty.
    pub fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Returns the next complete frame, if any; fails on bytes that are no frame.
    pub fn poll(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(len) = self.bytes.first_chunk() else { return Ok(None) };
        let (len, max) = (u32::from_be_bytes(*len) as usize, self.max);
        if !(1..=max).contains(&len) {
            return Err(FrameError::Length { len, max });
        }
        if self.bytes.len() < 4 + len {
            return Ok(None);
        }
        self.bytes.advance(4);
        Frame::decode(&self.bytes.split_to(len).freeze()).map(Some)
    }
}

#[cfg(test)]
mod tests;
