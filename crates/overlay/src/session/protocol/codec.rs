//! Encoding and decoding of frames.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;
use faircast_proto::fields::{Encoded, Fields};

use super::{Frame, ReasonCode, VERSION, Welcome};
use crate::cell::{Names, Service};
use crate::client::{ClientEvent, Reason, SendError};
use crate::group::MemberId;
use crate::ids::{DaemonId, DaemonRun, ViewId};
use crate::price::Benefit;
use crate::session::remote::WaitReason;

/// Numbers of the frame types. Types 7, 12, 14 and 15 are free.
mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const WELCOME: u8 = 2;
    pub(super) const PING: u8 = 3;
    pub(super) const PONG: u8 = 4;
    pub(super) const GOODBYE: u8 = 5;
    pub(super) const ERROR: u8 = 6;
    pub(super) const JOIN: u8 = 8;
    pub(super) const LEAVE: u8 = 9;
    pub(super) const SEND: u8 = 10;
    pub(super) const SENT: u8 = 11;
    pub(super) const WAITING: u8 = 13;
    pub(super) const MESSAGE: u8 = 16;
    pub(super) const GROUP: u8 = 17;
    pub(super) const TRANSITIONAL: u8 = 18;
    pub(super) const VIEW: u8 = 19;
    pub(super) const CUT: u8 = 20;
    pub(super) const RESUMED: u8 = 21;
    pub(super) const RECEIPT: u8 = 22;
    pub(super) const NO_MEMBERS: u8 = 23;
    pub(super) const REFUSED: u8 = 24;
}

/// Flags in the byte of a message's service.
const RECEIPT: u8 = 0x80;
const IN_VIEW: u8 = 0x40;
/// Mask of the benefit in the same byte: 0 for the default, else the benefit's number from 1.
const BENEFIT: u8 = 0x30;

/// Length of the shortest member in bytes: daemon, run, and a name of one byte with its length.
const MEMBER_BYTES_MIN: usize = 8 + 8 + 2;

/// First two bytes of a TLS alert (RFC 8446 s5.1), with which a TLS server answers a plain frame.
const TLS_ALERT: usize = 0x1503;

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
            Self::Length { len, .. } if len >> 16 == TLS_ALERT => {
                f.write_str("TLS instead of a frame; expected tls:HOST:PORT as the address")
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
                (kind::HELLO, *version, *incarnation, *next).put(out);
                put_name(out, name);
                put_name(out, token);
            }
            Self::Welcome(welcome) => {
                (kind::WELCOME, VERSION, welcome.daemon, welcome.view, welcome.taken).put(out);
                (welcome.message_bytes, welcome.groups, welcome.group_bytes).put(out);
                put_name(out, &welcome.full_name);
            }
            Self::Ping(number) => (kind::PING, *number).put(out),
            Self::Pong(number) => (kind::PONG, *number).put(out),
            Self::Goodbye => out.push(kind::GOODBYE),
            Self::Error(code, text) => {
                (kind::ERROR, *code as u8).put(out);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Join { request, group, holds_senders } => {
                (kind::JOIN, *request, u8::from(*holds_senders)).put(out);
                put_name(out, group);
            }
            Self::Leave { request, group } => {
                (kind::LEAVE, *request).put(out);
                put_name(out, group);
            }
            Self::Send { request, service, wants_receipt, view, benefit, groups, payload } => {
                let receipt = if *wants_receipt { RECEIPT } else { 0 };
                let in_view = if view.is_some() { IN_VIEW } else { 0 };
                let benefit = benefit.map_or(0, |it| (it as u8 + 1) << 4);
                (kind::SEND, *request, *service as u8 | receipt | in_view | benefit).put(out);
                view.iter().for_each(|view| view.put(out));
                groups.put(out);
                return core::slice::from_ref(payload);
            }
            Self::Sent(request) => (kind::SENT, *request).put(out),
            Self::Waiting(reason) => {
                (kind::WAITING, reason.map_or(0, |it| ReasonCode::from(it) as u8)).put(out);
                if let Some(WaitReason::Price { price_cents, purse_cents }) = reason {
                    (*price_cents, *purse_cents as u32).put(out);
                }
            }
            Self::Event(number, event) => return put_event(out, *number, event),
            Self::Resumed => out.push(kind::RESUMED),
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
            kind::HELLO => {
                let (version, incarnation, next) = fields.read()?;
                let (name, token) = (take_name(bytes, fields)?, take_name(bytes, fields)?);
                Self::Hello { version, incarnation, next, name, token }
            }
            kind::WELCOME => {
                let (VERSION, daemon, view, taken) = fields.read()? else { return None };
                let (message_bytes, groups, group_bytes) = fields.read()?;
                let full_name = take_name(bytes, fields)?;
                let welcome =
                    Welcome { daemon, view, taken, message_bytes, groups, group_bytes, full_name };
                Self::Welcome(welcome)
            }
            kind::PING => Self::Ping(fields.read()?),
            kind::PONG => Self::Pong(fields.read()?),
            kind::GOODBYE => Self::Goodbye,
            kind::ERROR => Self::Error(ReasonCode::take(fields)?, text(fields)?),
            kind::JOIN => {
                let (request, holds_senders): (_, u8) = fields.read()?;
                let (group, holds_senders) = (take_name(bytes, fields)?, holds_senders == 1);
                Self::Join { request, group, holds_senders }
            }
            kind::LEAVE => {
                Self::Leave { request: fields.read()?, group: take_name(bytes, fields)? }
            }
            kind::SEND => {
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
            kind::SENT => Self::Sent(fields.read()?),
            kind::WAITING if fields.0 == [0] => {
                fields.rest();
                Self::Waiting(None)
            }
            kind::WAITING => Self::Waiting(Some(match ReasonCode::take(fields)? {
                ReasonCode::TooExpensive => {
                    let (price_cents, purse_cents): (_, u32) = fields.read()?;
                    WaitReason::Price { price_cents, purse_cents: purse_cents as i32 }
                }
                code => WaitReason::from(code),
            })),
            kind::RESUMED => Self::Resumed,
            _ => Self::Event(fields.read()?, take_event(kind, bytes, fields)?.into()),
        })
    }
}

fn put_event<'a>(out: &mut Vec<u8>, number: u64, event: &'a ClientEvent) -> &'a [Bytes] {
    match event {
        ClientEvent::Message { from, service, groups, parts, view, sequence } => {
            (kind::MESSAGE, number, *service as u8, *view, *sequence).put(out);
            put_member(out, from);
            groups.put(out);
            return parts;
        }
        ClientEvent::Group { group, members, reason, subject, position, view } => {
            (kind::GROUP, number, *reason as u8, *view, *position).put(out);
            put_name(out, group);
            out.push(u8::from(subject.is_some()));
            subject.iter().for_each(|member| put_member(out, member));
            (members.len() as u32).put(out);
            members.iter().for_each(|member| put_member(out, member));
        }
        ClientEvent::Transitional { closes, members } => {
            (kind::TRANSITIONAL, number, *closes).put(out);
            put_runs(out, members);
        }
        ClientEvent::View { id, members, names, together, previous } => {
            (kind::VIEW, number, *id, previous.unwrap_or_default()).put(out);
            put_runs(out, members);
            names.iter().for_each(|name| put_name(out, name.as_bytes()));
            put_runs(out, together);
        }
        ClientEvent::Cut { lost, closes } => (kind::CUT, number, *lost, u8::from(*closes)).put(out),
        ClientEvent::Receipt { request, members, view } => {
            (kind::RECEIPT, number, *request, *members, *view).put(out);
        }
        ClientEvent::NoMembers { request, groups } => {
            (kind::NO_MEMBERS, number, *request).put(out);
            groups.put(out);
        }
        ClientEvent::Refused { request, reason } => {
            (kind::REFUSED, number, *request, ReasonCode::from(*reason) as u8).put(out);
        }
    }
    &[]
}

fn take_event(kind: u8, bytes: &Bytes, fields: &mut Fields<'_>) -> Option<ClientEvent> {
    Some(match kind {
        kind::MESSAGE => {
            let (service, view, sequence) = (take_service(fields)?, fields.read()?, fields.read()?);
            let (from, groups) = (take_member(bytes, fields)?, take_names(bytes, fields)?);
            let parts = [rest(bytes, fields)].into();
            ClientEvent::Message { from, service, groups, parts, view, sequence }
        }
        kind::GROUP => {
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
        kind::TRANSITIONAL => {
            ClientEvent::Transitional { closes: fields.read()?, members: take_runs(fields)? }
        }
        kind::VIEW => {
            let (id, previous) = fields.read()?;
            let members = take_runs(fields)?;
            let mut names = Vec::with_capacity(members.len());
            for _ in &members {
                names.push(String::from_utf8(take_name(bytes, fields)?.into()).ok()?);
            }
            let previous = Some(previous).filter(|it| *it != ViewId::default());
            ClientEvent::View { id, members, names, together: take_runs(fields)?, previous }
        }
        kind::RECEIPT => {
            let (request, members, view) = fields.read()?;
            ClientEvent::Receipt { request, members, view }
        }
        kind::NO_MEMBERS => {
            ClientEvent::NoMembers { request: fields.read()?, groups: take_names(bytes, fields)? }
        }
        kind::REFUSED => {
            let (request, code) = (fields.read()?, ReasonCode::take(fields)?);
            let reason = *REFUSALS.iter().find(|it| ReasonCode::from(**it) == code)?;
            ClientEvent::Refused { request, reason }
        }
        kind::CUT => {
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

/// Reasons of group events, in the order of their numbers.
pub(super) const REASONS: [Reason; 4] =
    [Reason::Join, Reason::Leave, Reason::Disconnect, Reason::Network];

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
