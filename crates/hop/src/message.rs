//! Messages between nodes: those of the control stream, and packets of sessions.
//!
//! Each side of a connection opens one stream for control, and one for each group to which it sends
//! packets. The first frame of a stream says which it is. All numbers are in network byte order. A
//! name is UTF-8 and the rest of its frame.
//!
//! | frame | bytes |
//! | --- | --- |
//! | first of the control stream | 0, version, node (4), run (8), flags (bit 0: relay), name |
//! | first of a group's stream | 1, group (8) |
//! | join | 2, group (8), receivers (4) |
//! | leave | 3, group (8) |
//! | member | 4, group (8), receivers elsewhere (4) |
//! | refusal | 5, group (8), reason |
//! | path | 6, nodes (4 each) from the relay itself upwards |
//! | end of joins | 7 |
//! | packet of a session | hops, origin (4), destination kind, destination (4), packet |

use faircast_base::{BadInput, GroupId, NodeId};
use faircast_proto::Destination;

/// Version of the messages.
const VERSION: u8 = 1;
/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 64;
/// Most relays of a path.
pub(crate) const PATH_MAX: usize = 64;
/// Bytes of a packet of a session before the packet itself.
pub(crate) const PARCEL_HEAD_BYTES: usize = 10;

/// First frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// The stream of control messages of this node.
    Control(Hello),
    /// The stream of packets of this group.
    Group(u64),
}

/// Presentation of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The node, which a restart does not change.
    pub(crate) node: NodeId,
    /// Secret random number of a run of the node's program. A connection with the same number
    /// replaces one before it, and nobody else knows the number.
    pub(crate) run: u64,
    pub(crate) is_relay: bool,
    /// Name for people.
    pub(crate) name: String,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefusal {
    /// The node stands above the relay.
    Loop,
    /// The relay has as many neighbours, or the neighbour as many groups, as may be.
    Full,
}

/// Control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The node has this number of receivers of a group, at it or below.
    Join { group: u64, receivers: u32 },
    /// The node is no member of a group any more.
    Leave { group: u64 },
    /// The node is a member; this number of receivers is elsewhere.
    Member { group: u64, elsewhere: u32 },
    /// The node is not taken: with one group, or at all.
    Refuse { group: u64, reason: JoinRefusal },
    /// The relay, and those above it.
    Path(Vec<NodeId>),
    /// The node has said all its groups on this connection.
    EndOfJoins,
}

/// Takes a number of `N` bytes from the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadInput> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(BadInput::Truncated)?;
    *bytes = rest;
    Ok(*first)
}

fn take_group(bytes: &mut &[u8]) -> Result<u64, BadInput> {
    take(bytes).map(u64::from_be_bytes)
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, BadInput> {
    take(bytes).map(u32::from_be_bytes)
}

/// `value` if nothing follows it.
const fn whole<T: Copy>(value: T, rest: &[u8]) -> Result<T, BadInput> {
    if rest.is_empty() { Ok(value) } else { Err(BadInput::Malformed) }
}

impl First {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Control(Hello { node, run, is_relay, name }) => {
                let (node, run) = (node.0.to_be_bytes(), run.to_be_bytes());
                [&[0, VERSION], &node[..], &run, &[u8::from(*is_relay)], name.as_bytes()].concat()
            }
            Self::Group(group) => [&[1][..], &group.to_be_bytes()].concat(),
        }
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, BadInput> {
        match take(&mut bytes)? {
            [0] => {
                let [version] = take(&mut bytes)?;
                if version != VERSION {
                    return Err(BadInput::Malformed);
                }
                let node = NodeId(take_u32(&mut bytes)?);
                let run = u64::from_be_bytes(take(&mut bytes)?);
                let [flags] = take(&mut bytes)?;
                let name = std::str::from_utf8(bytes).map_err(|_| BadInput::Malformed)?;
                if name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
                    return Err(BadInput::Malformed);
                }
                let (is_relay, name) = (flags & 1 != 0, name.to_string());
                Ok(Self::Control(Hello { node, run, is_relay, name }))
            }
            [1] => {
                let group = take_group(&mut bytes)?;
                whole((), bytes).map(|()| Self::Group(group))
            }
            _ => Err(BadInput::Malformed),
        }
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let of =
            |kind: u8, group: u64, more: &[u8]| [&[kind][..], &group.to_be_bytes(), more].concat();
        match self {
            Self::Join { group, receivers } => of(2, *group, &receivers.to_be_bytes()),
            Self::Leave { group } => of(3, *group, &[]),
            Self::Member { group, elsewhere } => of(4, *group, &elsewhere.to_be_bytes()),
            Self::Refuse { group, reason } => of(5, *group, &[*reason as u8]),
            Self::Path(path) => {
                let nodes = path.iter().flat_map(|node| node.0.to_be_bytes());
                [6].into_iter().chain(nodes).collect()
            }
            Self::EndOfJoins => vec![7],
        }
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, BadInput> {
        let [kind] = take(&mut bytes)?;
        if kind == 6 {
            let (nodes, rest) = bytes.as_chunks::<4>();
            if nodes.len() > PATH_MAX {
                return Err(BadInput::Malformed);
            }
            let path = nodes.iter().map(|node| NodeId(u32::from_be_bytes(*node))).collect();
            return whole((), rest).map(|()| Self::Path(path));
        }
        if kind == 7 {
            return whole((), bytes).map(|()| Self::EndOfJoins);
        }
        let group = take_group(&mut bytes)?;
        let message = match kind {
            2 => Self::Join { group, receivers: take_u32(&mut bytes)? },
            3 => Self::Leave { group },
            4 => Self::Member { group, elsewhere: take_u32(&mut bytes)? },
            5 => match take(&mut bytes)? {
                [0] => Self::Refuse { group, reason: JoinRefusal::Loop },
                [1] => Self::Refuse { group, reason: JoinRefusal::Full },
                _ => return Err(BadInput::Malformed),
            },
            _ => return Err(BadInput::Malformed),
        };
        whole((), bytes).map(|()| message)
    }
}

/// Head of a packet of a session on its way between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParcelHead {
    /// Relays that it may still pass.
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

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, BadInput> {
        let [hops] = take(&mut bytes)?;
        let origin = NodeId(take_u32(&mut bytes)?);
        let kind = take(&mut bytes)?;
        let to = take_u32(&mut bytes)?;
        let to = match kind {
            [0] => Destination::Group(GroupId(to)),
            [1] => Destination::Node(NodeId(to)),
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
        let reason = prop_oneof![Just(JoinRefusal::Loop), Just(JoinRefusal::Full)];
        let path = proptest::collection::vec(any::<u32>().prop_map(NodeId), 0..PATH_MAX);
        prop_oneof![
            any::<(u64, u32)>().prop_map(|(group, receivers)| Message::Join { group, receivers }),
            any::<u64>().prop_map(|group| Message::Leave { group }),
            any::<(u64, u32)>().prop_map(|(group, elsewhere)| Message::Member { group, elsewhere }),
            (any::<u64>(), reason).prop_map(|(group, reason)| Message::Refuse { group, reason }),
            path.prop_map(Message::Path),
            Just(Message::EndOfJoins),
        ]
    }

    fn firsts() -> impl Strategy<Value = First> {
        let hello = any::<(u32, u64, bool)>().prop_flat_map(|(node, run, is_relay)| {
            "[a-zà-ü0-9 .-]{0,32}".prop_map(move |name| Hello {
                node: NodeId(node),
                run,
                is_relay,
                name,
            })
        });
        prop_oneof![hello.prop_map(First::Control), any::<u64>().prop_map(First::Group)]
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
