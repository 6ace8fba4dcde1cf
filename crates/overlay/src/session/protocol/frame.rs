//! Frames of the protocol, and their encoding. The frame types 7, 12, 14 and 15 are free.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::{Encoded, Fields};

use super::{ReasonCode, VERSION};
use crate::cell::{Names, Service};
use crate::client::{ClientEvent, Reason, SendError};
use crate::group::MemberId;
use crate::ids::{DaemonId, DaemonRun, ViewId};
use crate::price::Benefit;
use crate::session::WaitReason;
use crate::wire::{self, put_list, put_name, take_list};

/// Frame of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum Frame {
    /// First frame of a client. `incarnation` grows with each start of its program; `next` is the
    /// number of the next event of a session to resume, 0 for a new session. Name: 1 to 56 bytes of
    /// UTF-8. Token at an address with TLS: at most 128 bytes of UTF-8.
    Hello { version: u8, incarnation: u64, next: u64, name: Bytes, token: Bytes },
    /// First frame of the daemon.
    Welcome(Welcome),
    /// Request for a [`Pong`](Self::Pong) with the same number.
    Ping(u64),
    /// Answer to a [`Ping`](Self::Ping).
    Pong(u64),
    /// Last frame of a client, which ends the session.
    Goodbye,
    /// Last frame before a connection is closed.
    Error(ReasonCode, String),
    /// Request to join a group, whose senders shall wait while this member is slow if
    /// `holds_senders`.
    Join { request: u64, group: Bytes, holds_senders: bool },
    /// Request to leave a group.
    Leave { request: u64, group: Bytes },
    /// Request to send a message to 1 to 100 groups. `view`: view to which the message is
    /// restricted, if any. `benefit` under flow control: `None` for the daemon's default.
    Send {
        request: u64,
        service: Service,
        wants_receipt: bool,
        view: Option<ViewId>,
        benefit: Option<Benefit>,
        groups: Names,
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
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Welcome {
    pub daemon: DaemonRun,
    pub view: ViewId,
    /// Number of the client's last request that the daemon has handled.
    pub taken: u64,
    /// Maximum length of a message in bytes, number of its groups, and length of a group's name.
    pub message_bytes: u32,
    pub groups: u8,
    pub group_bytes: u8,
    /// Name of the client in the overlay: `name@daemon`.
    pub full_name: Bytes,
}

/// Flags in the byte of a message's service.
const RECEIPT: u8 = 0x80;
const IN_VIEW: u8 = 0x40;
/// Mask of the benefit in the same byte: 0 for the default, else the benefit's number from 1.
const BENEFIT: u8 = 0x30;

/// Length of the shortest member in bytes: daemon, run, and a name of one byte with its length.
const MEMBER_BYTES_MIN: usize = 8 + 8 + 2;

/// Reason for which bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum FrameError {
    /// Alert of a TLS server, which answers a plain frame.
    #[error("TLS instead of a frame; expected tls:HOST:PORT as the address")]
    Tls,
    /// The length of a frame is 0 or above the limit at this point.
    #[error("a frame of {len} bytes; allowed: 1 to {max}")]
    Length { len: usize, max: usize },
    /// The fields do not match the frame type.
    #[error("a frame of type {0} has wrong fields, or there is no such type")]
    Fields(u8),
}

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
                (1_u8, *version, *incarnation, *next).put(out);
                put_name(out, name);
                put_name(out, token);
            }
            Self::Welcome(welcome) => {
                (2_u8, VERSION, welcome.daemon, welcome.view, welcome.taken).put(out);
                (welcome.message_bytes, welcome.groups, welcome.group_bytes).put(out);
                put_name(out, &welcome.full_name);
            }
            Self::Ping(number) => (3_u8, *number).put(out),
            Self::Pong(number) => (4_u8, *number).put(out),
            Self::Goodbye => out.push(5),
            Self::Error(code, text) => {
                (6_u8, *code as u8).put(out);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Join { request, group, holds_senders } => {
                (8_u8, *request, u8::from(*holds_senders)).put(out);
                put_name(out, group);
            }
            Self::Leave { request, group } => {
                (9_u8, *request).put(out);
                put_name(out, group);
            }
            Self::Send { request, service, wants_receipt, view, benefit, groups, payload } => {
                let receipt = if *wants_receipt { RECEIPT } else { 0 };
                let in_view = if view.is_some() { IN_VIEW } else { 0 };
                let benefit = benefit.map_or(0, |it| (it as u8 + 1) << 4);
                (10_u8, *request, *service as u8 | receipt | in_view | benefit).put(out);
                view.iter().for_each(|view| view.put(out));
                groups.put(out);
                return core::slice::from_ref(payload);
            }
            Self::Sent(request) => (11_u8, *request).put(out),
            Self::Waiting(reason) => {
                (13_u8, reason.map_or(0, |it| ReasonCode::from(it) as u8)).put(out);
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
            6 => Self::Error(
                ReasonCode::take(fields)?,
                core::str::from_utf8(fields.rest()).ok()?.into(),
            ),
            8 => {
                let (request, holds_senders): (_, u8) = fields.read()?;
                let (group, holds_senders) = (take_name(bytes, fields)?, holds_senders == 1);
                Self::Join { request, group, holds_senders }
            }
            9 => Self::Leave { request: fields.read()?, group: take_name(bytes, fields)? },
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
            13 => Self::Waiting(Some(match ReasonCode::take(fields)? {
                ReasonCode::TooExpensive => {
                    let (price_cents, purse_cents): (_, u32) = fields.read()?;
                    WaitReason::Price { price_cents, purse_cents: purse_cents as i32 }
                }
                code => WaitReason::from(code),
            })),
            21 => Self::Resumed,
            _ => Self::Event(fields.read()?, take_event(kind, bytes, fields)?.into()),
        })
    }
}

fn put_event<'a>(out: &mut Vec<u8>, number: u64, event: &'a ClientEvent) -> &'a [Bytes] {
    match event {
        ClientEvent::Message { from, service, groups, parts, view, sequence } => {
            (16_u8, number, *service as u8, *view, *sequence).put(out);
            put_member(out, from);
            groups.put(out);
            return parts;
        }
        ClientEvent::Group { group, members, reason, subject, position, view } => {
            (17_u8, number, *reason as u8, *view, *position).put(out);
            put_name(out, group);
            out.push(u8::from(subject.is_some()));
            subject.iter().for_each(|member| put_member(out, member));
            (members.len() as u32).put(out);
            members.iter().for_each(|member| put_member(out, member));
        }
        ClientEvent::Transitional { closes, members } => {
            (18_u8, number, *closes).put(out);
            put_list(out, members);
        }
        ClientEvent::View { id, members, names, together, previous } => {
            (19_u8, number, *id, previous.unwrap_or_default()).put(out);
            put_list(out, members);
            names.iter().for_each(|name| put_name(out, name.as_bytes()));
            put_list(out, together);
        }
        ClientEvent::Cut { lost, closes } => (20_u8, number, *lost, u8::from(*closes)).put(out),
        ClientEvent::Receipt { request, members, view } => {
            (22_u8, number, *request, *members, *view).put(out);
        }
        ClientEvent::NoMembers { request, groups } => {
            (23_u8, number, *request).put(out);
            groups.put(out);
        }
        ClientEvent::Refused { request, reason } => {
            (24_u8, number, *request, ReasonCode::from(*reason) as u8).put(out);
        }
    }
    &[]
}

fn take_event(kind: u8, bytes: &Bytes, fields: &mut Fields<'_>) -> Option<ClientEvent> {
    Some(match kind {
        16 => {
            let (service, view, sequence): (u8, _, _) = fields.read()?;
            let service = *Service::ALL.get(usize::from(service))?;
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
            let members_max = fields.0.len() / MEMBER_BYTES_MIN;
            let mut members = Vec::with_capacity((count as usize).min(members_max));
            for _ in 0..count {
                members.push(take_member(bytes, fields)?);
            }
            let members = members.into();
            ClientEvent::Group { group, members, reason, subject, position, view }
        }
        18 => ClientEvent::Transitional { closes: fields.read()?, members: take_list(fields)? },
        19 => {
            let (id, previous) = fields.read()?;
            let members: Vec<DaemonRun> = take_list(fields)?;
            let mut names = Vec::with_capacity(members.len());
            for _ in &members {
                names.push(String::from_utf8(take_name(bytes, fields)?.into()).ok()?);
            }
            let previous = Some(previous).filter(|it| *it != ViewId::default());
            ClientEvent::View { id, members, names, together: take_list(fields)?, previous }
        }
        22 => {
            let (request, members, view) = fields.read()?;
            ClientEvent::Receipt { request, members, view }
        }
        23 => {
            ClientEvent::NoMembers { request: fields.read()?, groups: take_names(bytes, fields)? }
        }
        24 => {
            let (request, code) = (fields.read()?, ReasonCode::take(fields)?);
            let reason = *REFUSALS.iter().find(|it| ReasonCode::from(**it) == code)?;
            ClientEvent::Refused { request, reason }
        }
        20 => {
            let (lost, closes): (_, u8) = fields.read()?;
            ClientEvent::Cut { lost, closes: closes == 1 }
        }
        _ => return None,
    })
}

/// Reasons with which a request may be refused. [`SendError::Price`] is absent: an expensive
/// request waits, and the frame of the wait has the price.
const REFUSALS: [SendError; 7] = [
    SendError::Name,
    SendError::Group,
    SendError::Length,
    SendError::Changing,
    SendError::Retention,
    SendError::Held,
    SendError::View,
];

pub(super) const REASONS: [Reason; 4] =
    [Reason::Join, Reason::Leave, Reason::Disconnect, Reason::Network];

fn take_name(bytes: &Bytes, fields: &mut Fields<'_>) -> Option<Bytes> {
    wire::take_name(bytes, fields).filter(|name| core::str::from_utf8(name).is_ok())
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

fn rest(bytes: &Bytes, fields: &mut Fields<'_>) -> Bytes {
    bytes.slice_ref(fields.rest())
}
