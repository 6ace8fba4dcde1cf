//! Messages between nodes: control messages, and packets of sessions.
//!
//! Each side of a connection opens a stream for control, for each group to which it sends, and for
//! repairs of each multicast link. The first frame of a stream identifies its kind. Numbers are in
//! network byte order. Flag 1 marks a relay. Software is preceded by its length. Names are UTF-8 up
//! to the end of the frame. A run is a number of missing frames, then a number of received ones.
//! Runs begin at the next frame; at most 32 are sent. A link's acknowledgement counts the frames
//! that came by multicast since the last one. A group is refused if a relay has too many groups.
//!
//! | frame | bytes |
//! | --- | --- |
//! | first of the control stream | 0, version, node (4), run (8), flags, software, name |
//! | first of a group's stream | 1, group (8) |
//! | first of a link's stream | 2, link (4) |
//! | join | 2, group (8), receivers (4) |
//! | leave | 3, group (8) |
//! | member | 4, group (8), receivers elsewhere (4), 1 if the group is refused or 0 |
//! | path | 6, nodes (4 each) from the relay itself upwards |
//! | end of joins | 7 |
//! | offer of multicast | 8, key (32), address (64 at most) |
//! | multicast is heard | 9, network (2) |
//! | join of a link | 10, group (8), link (4), first frame (8), pace (2) |
//! | leave of a link | 11, link (4) |
//! | mark of a link | 12, link (4), next frame to be sent (8), pace (2) |
//! | acknowledgement of a link | 13, link (4), next frame (8), heard (4), runs (4 each) |
//! | slow link | 14, group (8), and if there is one: bits/s (8), name (160 at most) |
//! | repair of a link | frame (8), packet of a session |
//! | packet of a session | hops, origin (4), destination kind, destination (4), packet |

use faircast_base::{BadInput, Checked, GroupId, NodeId};
use faircast_proto::Destination;
use faircast_proto::fields::{Encoded, Fields};

use crate::status::SlowLink;

const VERSION: u8 = 1;
/// Maximum length of a name in bytes.
pub const NAME_BYTES_MAX: usize = 64;
const LINK_NAME_BYTES_MAX: usize = 2 * NAME_BYTES_MAX + 32;
pub(crate) const PATH_MAX: usize = 64;
pub(crate) const PARCEL_HEAD_BYTES: usize = 10;
pub(crate) const MULTICAST_AT_MAX: usize = 64;
pub(crate) const RUNS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    Group(u64),
    Link(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Control(Hello),
    Packets(Channel),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) node: NodeId,
    /// Secret random number of a run. A connection with the same number replaces an earlier one.
    pub(crate) run: u64,
    pub(crate) is_relay: bool,
    pub(crate) software: String,
    pub(crate) name: String,
}

impl Hello {
    pub(crate) fn new(node: NodeId, run: u64, is_relay: bool, name: &str) -> Self {
        let software = env!("CARGO_PKG_VERSION").to_string();
        Self { node, run, is_relay, software, name: name.to_string() }
    }
}

/// Message of the control stream, as in the table above. `elsewhere` and `receivers` are numbers of
/// receivers, `next` is the number of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Join { group: u64, receivers: u32 },
    Leave { group: u64 },
    Member { group: u64, elsewhere: u32, is_refused: bool },
    Path(Vec<NodeId>),
    EndOfJoins,
    Multicast { key: [u8; 32], at: Vec<u8> },
    MulticastHeard { network: u16 },
    LinkJoin { group: u64, link: u32, next: u64, pace: u16 },
    LinkLeave { link: u32 },
    LinkMark { link: u32, next: u64, pace: u16 },
    LinkAck { link: u32, next: u64, multicast_frames: u32, runs: Vec<[u16; 2]> },
    Slow { group: u64, link: Option<SlowLink> },
}

fn read<T: Encoded>(fields: &mut Fields<'_>) -> Checked<T> {
    fields.read().ok_or(BadInput::Truncated)
}

fn put(kind: u8, fields: impl Encoded, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    fields.put(&mut bytes);
    bytes.extend_from_slice(rest);
    bytes
}

fn text(bytes: &[u8], max: usize) -> Checked<String> {
    let text = std::str::from_utf8(bytes).ok();
    let text = text.filter(|it| it.len() <= max && !it.contains(char::is_control));
    text.map(str::to_string).ok_or(BadInput::Malformed)
}

fn whole<T>(value: T, rest: &Fields<'_>) -> Checked<T> {
    rest.end().map(|()| value).ok_or(BadInput::Malformed)
}

impl First {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Control(Hello { node, run, is_relay, software, name }) => {
                let head = (VERSION, *node, *run, u8::from(*is_relay), software.len() as u8);
                put(0, head, &[software.as_bytes(), name.as_bytes()].concat())
            }
            Self::Packets(Channel::Group(group)) => put(1, *group, &[]),
            Self::Packets(Channel::Link(link)) => put(2, *link, &[]),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Checked<Self> {
        let fields = &mut Fields(bytes);
        let first = match read(fields)? {
            0_u8 => {
                if read::<u8>(fields)? != VERSION {
                    return Err(BadInput::Malformed);
                }
                let (node, run, flags, length): (_, _, u8, u8) = read(fields)?;
                let software = fields.bytes(length.into()).ok_or(BadInput::Truncated)?;
                let [software, name] = [software, fields.rest()].map(|it| text(it, NAME_BYTES_MAX));
                let (software, name) = (software?, name?);
                Self::Control(Hello { node, run, is_relay: flags & 1 != 0, software, name })
            }
            1 => Self::Packets(Channel::Group(read(fields)?)),
            2 => Self::Packets(Channel::Link(read(fields)?)),
            _ => return Err(BadInput::Malformed),
        };
        whole(first, fields)
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Join { group, receivers } => put(2, (*group, *receivers), &[]),
            Self::Leave { group } => put(3, *group, &[]),
            Self::Member { group, elsewhere, is_refused } => {
                put(4, (*group, *elsewhere, u8::from(*is_refused)), &[])
            }
            Self::Path(path) => {
                let nodes = path.iter().flat_map(|node| node.0.to_be_bytes());
                [6].into_iter().chain(nodes).collect()
            }
            Self::EndOfJoins => vec![7],
            Self::Multicast { key, at } => put(8, *key, at),
            Self::MulticastHeard { network } => put(9, *network, &[]),
            Self::LinkJoin { group, link, next, pace } => {
                put(10, (*group, *link, *next, *pace), &[])
            }
            Self::LinkLeave { link } => put(11, *link, &[]),
            Self::LinkMark { link, next, pace } => put(12, (*link, *next, *pace), &[]),
            Self::LinkAck { link, next, multicast_frames, runs } => {
                let mut bytes = put(13, (*link, *next, *multicast_frames), &[]);
                bytes.extend(runs.as_flattened().iter().flat_map(|frames| frames.to_be_bytes()));
                bytes
            }
            Self::Slow { group, link: None } => put(14, *group, &[]),
            Self::Slow { group, link: Some(SlowLink { name, bits_per_s }) } => {
                put(14, (*group, *bits_per_s), name.as_bytes())
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Checked<Self> {
        let fields = &mut Fields(bytes);
        let message = match read(fields)? {
            2_u8 => Self::Join { group: read(fields)?, receivers: read(fields)? },
            3 => Self::Leave { group: read(fields)? },
            4 => {
                let (group, elsewhere, refused): (_, _, u8) = read(fields)?;
                if refused > 1 {
                    return Err(BadInput::Malformed);
                }
                Self::Member { group, elsewhere, is_refused: refused == 1 }
            }
            6 => {
                let (nodes, rest) = fields.0.as_chunks::<4>();
                if nodes.len() > PATH_MAX {
                    return Err(BadInput::Malformed);
                }
                fields.0 = rest;
                Self::Path(nodes.iter().map(|it| NodeId(u32::from_be_bytes(*it))).collect())
            }
            7 => Self::EndOfJoins,
            8 => {
                let (key, at) = (read(fields)?, fields.rest());
                if at.len() > MULTICAST_AT_MAX {
                    return Err(BadInput::Malformed);
                }
                Self::Multicast { key, at: at.to_vec() }
            }
            9 => Self::MulticastHeard { network: read(fields)? },
            10 => {
                let (group, link, next, pace) = read(fields)?;
                Self::LinkJoin { group, link, next, pace }
            }
            11 => Self::LinkLeave { link: read(fields)? },
            12 => {
                let (link, next, pace) = read(fields)?;
                Self::LinkMark { link, next, pace }
            }
            13 => {
                let (link, next, multicast_frames) = read(fields)?;
                let (runs, rest) = fields.0.as_chunks::<4>();
                if runs.len() > RUNS_MAX {
                    return Err(BadInput::Malformed);
                }
                fields.0 = rest;
                let run = |&[a, b, c, d]: &[u8; 4]| [[a, b], [c, d]].map(u16::from_be_bytes);
                Self::LinkAck { link, next, multicast_frames, runs: runs.iter().map(run).collect() }
            }
            14 => {
                let (group, mut link) = (read(fields)?, None);
                if fields.end().is_none() {
                    let bits_per_s = read(fields)?;
                    let name = text(fields.rest(), LINK_NAME_BYTES_MAX)?;
                    link = Some(SlowLink { name, bits_per_s });
                }
                Self::Slow { group, link }
            }
            _ => return Err(BadInput::Malformed),
        };
        whole(message, fields)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParcelHead {
    pub(crate) hops: u8,
    pub(crate) origin: NodeId,
    pub(crate) to: Destination,
}

impl ParcelHead {
    pub(crate) fn encode(&self) -> [u8; PARCEL_HEAD_BYTES] {
        let (kind, to) = match self.to {
            Destination::Group(group) => (0, group.0),
            Destination::Node(node) => (1, node.0),
        };
        let mut head = [0; PARCEL_HEAD_BYTES];
        head[0] = self.hops;
        head[1..5].copy_from_slice(&self.origin.0.to_be_bytes());
        head[5] = kind;
        head[6..].copy_from_slice(&to.to_be_bytes());
        head
    }

    pub(crate) fn decode(bytes: &[u8]) -> Checked<Self> {
        let (hops, origin, kind, to) = read(&mut Fields(bytes))?;
        let to = match kind {
            0_u8 => Destination::Group(GroupId(to)),
            1 => Destination::Node(NodeId(to)),
            _ => return Err(BadInput::Malformed),
        };
        Ok(Self { hops, origin, to })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Message> {
        let path = proptest::collection::vec(any::<u32>().prop_map(NodeId), 0..PATH_MAX);
        prop_oneof![
            any::<(u64, u32)>().prop_map(|(group, receivers)| Message::Join { group, receivers }),
            any::<u64>().prop_map(|group| Message::Leave { group }),
            any::<(u64, u32, bool)>().prop_map(|(group, elsewhere, is_refused)| {
                Message::Member { group, elsewhere, is_refused }
            }),
            path.prop_map(Message::Path),
            Just(Message::EndOfJoins),
            links(),
        ]
    }

    fn links() -> impl Strategy<Value = Message> {
        let at = proptest::collection::vec(any::<u8>(), 0..=MULTICAST_AT_MAX);
        let runs = proptest::collection::vec(any::<[u16; 2]>(), 0..=RUNS_MAX);
        prop_oneof![
            (any::<[u8; 32]>(), at).prop_map(|(key, at)| Message::Multicast { key, at }),
            any::<u16>().prop_map(|network| Message::MulticastHeard { network }),
            any::<(u64, u32, u64, u16)>().prop_map(|(group, link, next, pace)| {
                Message::LinkJoin { group, link, next, pace }
            }),
            any::<u32>().prop_map(|link| Message::LinkLeave { link }),
            any::<(u32, u64, u16)>().prop_map(|(link, next, pace)| Message::LinkMark {
                link,
                next,
                pace
            }),
            (any::<(u32, u64, u32)>(), runs).prop_map(|((link, next, multicast_frames), runs)| {
                Message::LinkAck { link, next, multicast_frames, runs }
            }),
            slow_links(),
        ]
    }

    fn slow_links() -> impl Strategy<Value = Message> {
        let link = ("[a-zà-ü .→-]{0,53}", any::<u64>());
        let link = link.prop_map(|(name, bits_per_s)| SlowLink { name, bits_per_s });
        (any::<u64>(), proptest::option::of(link))
            .prop_map(|(group, link)| Message::Slow { group, link })
    }

    fn firsts() -> impl Strategy<Value = First> {
        let hello =
            any::<(u32, u64, bool)>().prop_flat_map(|(node, run, is_relay)| {
                ("[0-9a-z.+-]{0,64}", "[a-zà-ü0-9 .-]{0,32}").prop_map(move |(software, name)| {
                    Hello { node: NodeId(node), run, is_relay, software, name }
                })
            });
        let channel = prop_oneof![
            any::<u64>().prop_map(Channel::Group),
            any::<u32>().prop_map(Channel::Link),
        ];
        prop_oneof![hello.prop_map(First::Control), channel.prop_map(First::Packets)]
    }

    fn destinations() -> impl Strategy<Value = Destination> {
        prop_oneof![
            any::<u32>().prop_map(|node| Destination::Node(NodeId(node))),
            any::<u32>().prop_map(|group| Destination::Group(GroupId(group))),
        ]
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(message in messages(), first in firsts()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            prop_assert_eq!(First::decode(&first.encode()), Ok(first));
        }

        #[test]
        fn heads_come_back_as_they_were(
            (hops, origin) in any::<(u8, u32)>(),
            to in destinations(),
            packet: Vec<u8>,
        ) {
            let head = ParcelHead { hops, origin: NodeId(origin), to };
            let bytes = [&head.encode()[..], &packet].concat();
            prop_assert_eq!(ParcelHead::decode(&bytes), Ok(head));
        }

        #[test]
        fn no_bytes_break_a_decoder(bytes: Vec<u8>) {
            let message = Message::decode(&bytes);
            prop_assert!(message.is_err() || message.unwrap().encode() == bytes);
            _ = First::decode(&bytes);
            _ = ParcelHead::decode(&bytes);
        }
    }
}
