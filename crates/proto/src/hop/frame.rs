//! Frames on the wire: what hosts and relays send to each other by unicast.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use faircast_base::{BadInput, Duration, GroupId, NodeId};

use super::window::ACK_DELAY;
use crate::Destination;
use crate::fields::Fields;

const MAGIC: [u8; 2] = *b"fh";
const VERSION: u8 = 1;
const TO_GROUP: u8 = 0x80;
const RELAY: u8 = 1;
const BEGINS: u8 = 2;

/// Bytes before what a frame carries.
pub const FRAME_BYTES: usize = 40;
/// Bytes of a cookie.
pub(super) const COOKIE_BYTES: usize = 16;
/// Relays above one another at most.
pub(super) const DEPTH_MAX: usize = 32;

/// Packet that a frame on a link carries, and its addressees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopPacket {
    /// Relays that may still pass the packet on.
    pub hops: u8,
    /// The group.
    pub group: u64,
    /// Sender.
    pub origin: NodeId,
    /// Addressees.
    pub to: Destination,
    /// Bytes of the packet, shared by all links.
    pub body: Arc<[u8]>,
}

/// Frames after which one of two neighbours acknowledges at once (src: RFC 5681 s4.2). With rarer
/// acknowledgements, data leaves in bursts that find each place in a full queue before TCP does:
/// with 4 the hop had seven times the rate of TCP in `faircast bench credit --only hop`.
const ACK_EVERY: u16 = 2;
/// Hosts that acknowledge as often as one would. Chosen: all acknowledgements are then a few times
/// as many as the frames.
const HOSTS_AT_PAIR_PACE: usize = 16;

/// Pace of acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AckPace {
    /// Frames after which an acknowledgement leaves at once.
    pub(super) every: u16,
    /// Longest delay of an acknowledgement.
    pub(super) within: Duration,
}

impl AckPace {
    /// Pace of a link of two.
    pub(super) const PAIR: Self = Self { every: ACK_EVERY, within: ACK_DELAY };
    /// Longest delay of any pace: the sender's retry timer bears no longer one.
    pub(super) const WITHIN_MAX: Duration = Duration::from_millis(32);

    /// Pace of a link to `hosts` hosts: among many, each acknowledges more rarely.
    pub(super) fn of(hosts: usize) -> Self {
        let times = hosts.div_ceil(HOSTS_AT_PAIR_PACE).clamp(1, 16) as u16;
        let within = (ACK_DELAY * u64::from(times)).min(Self::WITHIN_MAX);
        Self { every: ACK_EVERY * times, within }
    }
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Packet of a session, on the link between two neighbours.
    Data,
    /// Acknowledgement of data frames.
    Ack,
    /// Join: a node wants to be, or to stay, a neighbour.
    Join,
    /// Challenge: the joiner must echo a cookie from its address.
    Challenge,
    /// Accept: the joiner is a neighbour for some seconds.
    Accept,
    /// Leave: the neighbour detaches.
    Leave,
    /// Refuse: the joiner cannot be a neighbour.
    Refuse,
    /// By multicast: who hears it hears that relay's multicast.
    Beacon,
}

const KINDS: [FrameKind; 8] = [
    FrameKind::Data,
    FrameKind::Ack,
    FrameKind::Join,
    FrameKind::Challenge,
    FrameKind::Accept,
    FrameKind::Leave,
    FrameKind::Refuse,
    FrameKind::Beacon,
];

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Relays that may still pass it on.
    pub hops: u8,
    /// The link that it is on, and its number there; 0 where it is on none.
    pub link: (u16, u32),
    /// Number among the frames of `sender`, greater than all before.
    pub counter: u64,
    /// The neighbour that sent it.
    pub sender: NodeId,
    /// The group of hosts that it is for, by its [number](super::group_number).
    pub group: u64,
    /// Sender of the packet that the frame carries.
    pub origin: NodeId,
    /// To whom.
    pub to: Destination,
    /// Packet or message in the frame.
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

/// A frame of each kind in the name of the sender of the frame `data`, from which attacks forge others.
pub(crate) fn specimens(data: &[u8]) -> Vec<Vec<u8>> {
    let Ok(frame) = Frame::decode(data) else { return Vec::new() };
    let next = frame.link.1.to_be_bytes();
    let write = |kind| {
        let mut bytes = Vec::new();
        Frame { kind, body: &next, ..frame }.encode(&mut bytes);
        // As long as the body of any kind.
        bytes.extend_from_slice(&[0; COOKIE_BYTES + 4]);
        if kind == FrameKind::Ack {
            bytes.truncate(FRAME_BYTES + next.len());
        }
        bytes
    };
    KINDS.map(write).into()
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

/// Body of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) cookie: [u8; COOKIE_BYTES],
    /// True if the joiner is a relay itself.
    pub(super) relay: bool,
    /// True if the joiner knows no link.
    pub(super) begins: bool,
    /// The relay's network whose multicast it hears, from 1 on; 0 for none.
    pub(super) hears: u16,
    /// Receivers of the group at it or behind it.
    pub(super) receivers: u32,
}

impl Join {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.cookie);
        let flag = |is: bool, flag| if is { flag } else { 0 };
        out.extend_from_slice(&[flag(self.relay, RELAY) | flag(self.begins, BEGINS), 0]);
        out.extend_from_slice(&self.hears.to_be_bytes());
        out.extend_from_slice(&self.receivers.to_be_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let cookie = fields.array()?;
        let [flags, 0]: [u8; 2] = fields.array()? else { return None };
        let (hears, receivers) = (fields.u16()?, fields.u32()?);
        fields.end()?;
        let (relay, begins) = (flags & RELAY != 0, flags & BEGINS != 0);
        Some(Self { cookie, relay, begins, hears, receivers })
    }
}

/// Where a relay sends by multicast, and by which link this comes to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanOffer {
    /// The address and port.
    pub(super) at: SocketAddr,
    /// The link by which the group comes there: its number, not 0, the first frame that is for this host, and how often it
    /// acknowledges. Nothing where the group comes over the link between the two.
    pub(super) link: Option<(u16, u32, AckPace)>,
}

impl LanOffer {
    fn encode(&self, out: &mut Vec<u8>) {
        match self.at.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(6);
                out.extend_from_slice(&ip.octets());
            }
        }
        out.extend_from_slice(&self.at.port().to_be_bytes());
        let (link, first, pace) = self.link.unwrap_or((0, 0, AckPace::PAIR));
        out.extend_from_slice(&link.to_be_bytes());
        out.extend_from_slice(&first.to_be_bytes());
        out.extend_from_slice(&pace.every.to_be_bytes());
        let within_ms = u16::try_from(pace.within.as_millis()).unwrap_or(u16::MAX);
        out.extend_from_slice(&within_ms.to_be_bytes());
    }

    fn decode(family: u8, fields: &mut Fields<'_>) -> Option<Self> {
        let ip = match family {
            4 => IpAddr::from(fields.array::<4>()?),
            6 => IpAddr::from(fields.array::<16>()?),
            _ => return None,
        };
        let at = SocketAddr::new(ip, fields.u16()?);
        let (link, first) = (fields.u16()?, fields.u32()?);
        let (every, within_ms) = (fields.u16()?, fields.u16()?);
        let pace = AckPace { every, within: Duration::from_millis(within_ms.into()) };
        let is_sane = ip.is_multicast() && at.port() > 0 && pace.within <= AckPace::WITHIN_MAX;
        is_sane.then_some(Self { at, link: (link > 0).then_some((link, first, pace)) })
    }
}

/// Relay's answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    /// The link between the two.
    pub(super) link: u16,
    /// Receivers of the group elsewhere.
    pub(super) elsewhere: u32,
    /// The relay, and those above it.
    pub(super) path: Vec<NodeId>,
    /// To a host, where it sends by multicast too.
    pub(super) lan: Option<LanOffer>,
}

impl Accept {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.link.to_be_bytes());
        out.extend_from_slice(&self.elsewhere.to_be_bytes());
        let path = &self.path[..self.path.len().min(DEPTH_MAX)];
        out.push(path.len() as u8);
        path.iter().for_each(|node| out.extend_from_slice(&node.0.to_be_bytes()));
        match &self.lan {
            None => out.push(0),
            Some(lan) => lan.encode(out),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (link, elsewhere) = (fields.u16()?, fields.u32()?);
        let [count] = fields.array()?;
        if usize::from(count) > DEPTH_MAX {
            return None;
        }
        let path = (0..count).map(|_| fields.u32().map(NodeId)).collect::<Option<_>>()?;
        let lan = match fields.array()? {
            [0] => None,
            [family] => Some(LanOffer::decode(family, &mut fields)?),
        };
        fields.end()?;
        Some(Self { link, elsewhere, path, lan })
    }
}
