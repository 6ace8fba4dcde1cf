//! Cells: pieces of at most 16 kB of the messages of a source, in one numbered stream for each.
//!
//! | field | bytes |
//! | --- | --- |
//! | Lamport time | var |
//! | flags | 1: kind (low 4 bits), service (3 bits), last cell of its message (high bit) |
//! | daemons | count of bytes (1), then the set of their places; no bytes: all daemons |
//! | client | length (1), incarnation (8), name |
//! | groups | count (1), then each: length (1), name |
//! | payload | the rest |
//!
//! The source alone decides to which daemons a cell goes. A message in several cells has its groups
//! in each, so that each cell can be sent on by itself.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::Fields;

use crate::ids::{DAEMONS_MAX, Set};
use crate::wire::{put_var, take_var};

/// Order and certainty of the delivery of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// No promise: the daemons may drop the message where a queue is full.
    Unreliable,
    /// Delivered by all members that stay, in no order.
    Reliable,
    /// Reliable, in the order in which the client has sent.
    #[default]
    Fifo,
    /// FIFO, and after all messages that the client had sent or received before.
    Causal,
    /// Causal, in one order at all members.
    Agreed,
    /// Agreed, and only once all members' daemons have the message.
    Safe,
}

impl Service {
    /// All services, by their numbers.
    pub const ALL: [Self; 6] =
        [Self::Unreliable, Self::Reliable, Self::Fifo, Self::Causal, Self::Agreed, Self::Safe];

    /// Name of the service, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreliable => "unreliable",
            Self::Reliable => "reliable",
            Self::Fifo => "fifo",
            Self::Causal => "causal",
            Self::Agreed => "agreed",
            Self::Safe => "safe",
        }
    }

    /// True if messages wait for their place in the common order. Causal messages do too: the
    /// common order respects causality, and no vector of clocks travels with them.
    pub fn is_ordered(self) -> bool {
        self >= Self::Causal
    }
}

/// Kind of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of a client, or its first piece.
    Message,
    /// A further piece of the message in the cell before.
    More,
    /// A client asks to join a group: daemons send it the group's messages from now on.
    Join,
    /// All daemons do so: the client is a member from here in the order.
    Joined,
    /// A client is a member no more.
    Leave,
    /// A client is gone, from all groups.
    Gone,
    /// Groups of the source's clients when the view began, in the payload: 1 if no such cell
    /// follows or 0, then group and client, each behind its length, and 1 if the client asks for
    /// senders to wait for slow members or 0.
    Table,
    /// A cell of the configuration before, sent again: source, number and the cell.
    Recovered,
    /// All such cells of the source have been sent.
    Sent,
    /// All cells of the configuration before have come.
    Have,
    /// An earlier cell of the source for daemons that keep it for others: number and the cell.
    Kept,
    /// Senders to groups wait: a member at this daemon is slow, and the groups ask for that.
    Hold,
    /// Senders to groups go on.
    Free,
}

const KINDS: [Kind; 13] = [
    Kind::Message,
    Kind::More,
    Kind::Join,
    Kind::Joined,
    Kind::Leave,
    Kind::Gone,
    Kind::Table,
    Kind::Recovered,
    Kind::Sent,
    Kind::Have,
    Kind::Kept,
    Kind::Hold,
    Kind::Free,
];

impl Kind {
    /// True for a piece of a message.
    pub(crate) fn is_message(self) -> bool {
        matches!(self, Self::Message | Self::More)
    }

    /// True if the cell waits for its place in the common order.
    pub(crate) fn is_ordered(self, service: Service) -> bool {
        match self {
            Self::Message | Self::More => service.is_ordered(),
            Self::Joined | Self::Leave | Self::Gone => true,
            Self::Join | Self::Table | Self::Recovered | Self::Sent | Self::Have => false,
            Self::Kept | Self::Hold | Self::Free => false,
        }
    }
}

/// Names of groups, each behind its length: a part of a cell or of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Bytes);

impl Names {
    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        core::iter::from_fn(move || {
            let (len, names) = rest.split_first()?;
            let (name, others) = names.split_at_checked(usize::from(*len))?;
            rest = others;
            Some(name)
        })
    }

    /// Copies of the names.
    pub(crate) fn copies(&self) -> impl Iterator<Item = Bytes> {
        self.iter().map(Bytes::copy_from_slice)
    }

    /// The names as parts of the buffer that holds them all.
    pub(crate) fn shares(&self) -> impl Iterator<Item = Bytes> {
        self.iter().map(|name| self.0.slice_ref(name))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.iter().count() as u8);
        out.extend_from_slice(&self.0);
    }

    /// Reads names behind their count, which is returned too.
    pub(crate) fn take(
        bytes: &Bytes,
        fields: &mut Fields<'_>,
        is_name: impl Fn(&[u8]) -> bool,
    ) -> Option<(usize, Self)> {
        let count = usize::from(fields.read::<u8>()?);
        let from = bytes.len() - fields.0.len();
        for _ in 0..count {
            let len = usize::from(fields.read::<u8>()?);
            fields.bytes(len).filter(|it| is_name(it))?;
        }
        Some((count, Self(bytes.slice(from..bytes.len() - fields.0.len()))))
    }
}

/// Takes names of at most 255 bytes.
impl<T: AsRef<[u8]>> FromIterator<T> for Names {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut out = Vec::new();
        for name in names {
            let name = name.as_ref();
            out.push(name.len() as u8);
            out.extend_from_slice(name);
        }
        Self(out.into())
    }
}

/// Most bytes of the name of a group or a client.
pub const GROUP_BYTES_MAX: usize = 64;
/// Most groups of a message.
pub const GROUPS_MAX: usize = 100;
/// Most bytes of the payload of a cell with few names, so that a frame has room for a cell that is
/// sent again in another one.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 15 * 1024;
/// Bytes of names for which such a cell has room.
const NAMES_BYTES: usize = 256;

/// Most bytes of the payload of a cell to groups.
pub(crate) fn payload_bytes_max(groups: &[&[u8]]) -> usize {
    let names: usize = groups.iter().map(|it| it.len() + 1).sum();
    PAYLOAD_BYTES_MAX - names.saturating_sub(NAMES_BYTES)
}

/// A cell, read.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) time: u64,
    pub(crate) kind: Kind,
    pub(crate) service: Service,
    pub(crate) last: bool,
    /// Daemons to which the cell goes.
    pub(crate) to: Set,
    pub(crate) client: Bytes,
    pub(crate) groups: Names,
    pub(crate) payload: Bytes,
}

impl Cell {
    /// Encodes a cell. Names and payload are within their limits.
    pub(crate) fn encode(
        time: u64,
        (kind, service, last): (Kind, Service, bool),
        to: Set,
        client: &[u8],
        groups: &[&[u8]],
        payload: &[&[u8]],
    ) -> Bytes {
        let names: usize = groups.iter().map(|it| it.len() + 1).sum();
        let bytes: usize = payload.iter().map(|it| it.len()).sum();
        let mut out = Vec::with_capacity(28 + client.len() + names + bytes);
        put_var(&mut out, time);
        let kind = KINDS.iter().position(|it| *it == kind).unwrap_or_default() as u8;
        out.push(kind | (service as u8) << 4 | u8::from(last) << 7);
        let set = if to == Set::ALL { 0 } else { to.0 };
        let places = &set.to_be_bytes()[set.leading_zeros() as usize / 8..];
        out.push(places.len() as u8);
        out.extend_from_slice(places);
        out.push(client.len() as u8);
        out.extend_from_slice(client);
        out.push(groups.len() as u8);
        for group in groups {
            out.push(group.len() as u8);
            out.extend_from_slice(group);
        }
        payload.iter().for_each(|it| out.extend_from_slice(it));
        out.into()
    }

    /// Reads a cell without copies.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut fields = Fields(bytes);
        let time = take_var(&mut fields)?;
        let head: u8 = fields.read()?;
        let kind = *KINDS.get(usize::from(head & 15))?;
        let service = *Service::ALL.get(usize::from(head >> 4 & 7))?;
        let places = usize::from(fields.read::<u8>()?);
        let places = fields.bytes(places).filter(|it| it.len() <= DAEMONS_MAX / 8)?;
        let set = places.iter().fold(0, |set, byte| set << 8 | u128::from(*byte));
        let to = if set == 0 { Set::ALL } else { Set(set) };
        let client = bytes.slice_ref(name(&mut fields)?);
        let is_name = |it: &[u8]| it.len() <= GROUP_BYTES_MAX;
        let (count, groups) = Names::take(bytes, &mut fields, is_name)?;
        let payload = bytes.slice_ref(fields.rest());
        (count <= GROUPS_MAX).then_some(Self {
            time,
            kind,
            service,
            last: head & 0x80 != 0,
            to,
            client,
            groups,
            payload,
        })
    }
}

/// Reads a name with its length before it.
fn name<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let len = usize::from(fields.read::<u8>()?);
    fields.bytes(len).filter(|it| it.len() <= GROUP_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_back_and_what_is_cut_is_refused() {
        let what = (Kind::Message, Service::Safe, true);
        for (to, bytes) in [(Set::ALL, 0), (Set::of(7), 1), (Set::of(127), 16)] {
            let cell = Cell::encode(1, what, to, b"", &[], &[]);
            assert_eq!(cell.len(), 5 + bytes);
            assert_eq!(Cell::decode(&cell).unwrap().to, to);
        }
        let to = Set::of(9).or(Set::of(2));
        let bytes = Cell::encode(70_000, what, to, b"c1", &[b"one", b"two"], &[b"pay", b"load"]);
        let cell = Cell::decode(&bytes).unwrap();
        assert_eq!((cell.time, cell.kind, cell.service, cell.last), (70_000, what.0, what.1, true));
        assert_eq!(cell.groups.iter().collect::<Vec<_>>(), [&b"one"[..], b"two"]);
        assert_eq!((&*cell.client, &*cell.payload), (&b"c1"[..], &b"payload"[..]));
        for len in 0..bytes.len() - 7 {
            assert!(Cell::decode(&bytes.slice(..len)).is_none(), "{len}");
        }
    }
}
