//! Frames on the wire: what hosts and relays send to each other by unicast.

use alloc::vec::Vec;

use faircast_base::{BadInput, GroupId, NodeId};

use crate::Destination;
use crate::fields::Fields;

const MAGIC: [u8; 2] = *b"fh";
const VERSION: u8 = 1;
const TO_GROUP: u8 = 0x80;
const RELAY: u8 = 1;

/// Bytes before what a frame carries.
pub const FRAME_BYTES: usize = 40;
/// Bytes of a cookie.
pub(super) const COOKIE_BYTES: usize = 16;
/// Relays above one another at most.
pub(super) const DEPTH_MAX: usize = 32;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// It carries a packet of a session, on the link between two neighbours.
    Data,
    /// It says which of these have come.
    Ack,
    /// Somebody wants to be, or to stay, a neighbour.
    Join,
    /// Whoever wants that is to show that it is where it says.
    Challenge,
    /// It is one, for some seconds.
    Accept,
    /// It is one no longer.
    Leave,
    /// It cannot be one.
    Refuse,
}

const KINDS: [FrameKind; 7] = [
    FrameKind::Data,
    FrameKind::Ack,
    FrameKind::Join,
    FrameKind::Challenge,
    FrameKind::Accept,
    FrameKind::Leave,
    FrameKind::Refuse,
];

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is for.
    pub kind: FrameKind,
    /// Relays that may still pass it on.
    pub hops: u8,
    /// The link that it is on, and its number there; 0 where it is on none.
    pub link: (u16, u32),
    /// Of the frames of `sender`, which: greater than those before.
    pub counter: u64,
    /// The neighbour that sent it.
    pub sender: NodeId,
    /// The group of hosts that it is for, by its [number](super::group_number).
    pub group: u64,
    /// Who sent the packet that it carries.
    pub origin: NodeId,
    /// To whom.
    pub to: Destination,
    /// What it carries.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// One that is for the next node alone.
    pub(super) const fn control(kind: FrameKind, group: u64, body: &'a [u8]) -> Self {
        let (sender, to) = (NodeId(0), Destination::Group(GroupId::SESSION));
        Self { kind, hops: 1, link: (0, 0), counter: 0, sender, group, origin: sender, to, body }
    }

    /// Writes it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u8 + 1;
        let (flag, to) = match self.to {
            Destination::Group(group) => (TO_GROUP, group.0),
            Destination::Node(node) => (0, node.0),
        };
        let [high, low] = self.link.0.to_be_bytes();
        out.extend_from_slice(&[MAGIC[0], MAGIC[1], VERSION, kind | flag, self.hops, 0, high, low]);
        out.extend_from_slice(&self.link.1.to_be_bytes());
        out.extend_from_slice(&self.counter.to_be_bytes());
        out.extend_from_slice(&self.sender.0.to_be_bytes());
        out.extend_from_slice(&self.group.to_be_bytes());
        out.extend_from_slice(&self.origin.0.to_be_bytes());
        out.extend_from_slice(&to.to_be_bytes());
        out.extend_from_slice(self.body);
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none, or makes no sense.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, BadInput> {
        read(bytes).ok_or(BadInput::Malformed)
    }
}

fn read(bytes: &[u8]) -> Option<Frame<'_>> {
    let mut fields = Fields(bytes);
    let [a, b, version, kind, hops, 0, high, low]: [u8; 8] = fields.array()? else {
        return None;
    };
    let number = usize::from(kind & !TO_GROUP).checked_sub(1)?;
    if [a, b] != MAGIC || version != VERSION {
        return None;
    }
    let link = (u16::from_be_bytes([high, low]), fields.u32()?);
    let counter = fields.u64()?;
    let sender = NodeId(fields.u32()?);
    let group = fields.u64()?;
    let origin = NodeId(fields.u32()?);
    let to = fields.u32()?;
    let to = match kind & TO_GROUP {
        0 => Destination::Node(NodeId(to)),
        _ => Destination::Group(GroupId(to)),
    };
    let kind = *KINDS.get(number)?;
    Some(Frame { kind, hops, link, counter, sender, group, origin, to, body: fields.0 })
}

/// What somebody says who wants to be a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) cookie: [u8; COOKIE_BYTES],
    /// It is a relay itself.
    pub(super) relay: bool,
    /// Receivers of the group at it or behind it.
    pub(super) receivers: u32,
}

impl Join {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.cookie);
        out.extend_from_slice(&[if self.relay { RELAY } else { 0 }, 0, 0, 0]);
        out.extend_from_slice(&self.receivers.to_be_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let cookie = fields.array()?;
        let [flags, 0, 0, 0]: [u8; 4] = fields.array()? else { return None };
        let receivers = fields.u32()?;
        fields.end()?;
        Some(Self { cookie, relay: flags & RELAY != 0, receivers })
    }
}

/// What a relay answers to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    /// The link between the two.
    pub(super) link: u16,
    /// Receivers of the group elsewhere.
    pub(super) elsewhere: u32,
    /// The relay, and those above it.
    pub(super) path: Vec<NodeId>,
}

impl Accept {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.link.to_be_bytes());
        out.extend_from_slice(&self.elsewhere.to_be_bytes());
        let path = &self.path[..self.path.len().min(DEPTH_MAX)];
        out.push(path.len() as u8);
        path.iter().for_each(|node| out.extend_from_slice(&node.0.to_be_bytes()));
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (link, elsewhere) = (fields.u16()?, fields.u32()?);
        let [count] = fields.array()?;
        if usize::from(count) > DEPTH_MAX {
            return None;
        }
        let path = (0..count).map(|_| fields.u32().map(NodeId)).collect::<Option<_>>()?;
        fields.end()?;
        Some(Self { link, elsewhere, path })
    }
}
