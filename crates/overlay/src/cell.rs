//! Cells: pieces of messages, at most 16 kB each. The cells of a source are one numbered stream.
//!
//! | field | bytes |
//! | --- | --- |
//! | Lamport time | var |
//! | flags | 1: kind (low 4 bits), service (3 bits), last cell of its message (high bit) |
//! | daemons | count of bytes (1), then the set of their ranks; no bytes: all daemons |
//! | client | length (1), incarnation (8), name |
//! | groups | count (1), then each: length (1), name |
//! | payload | the rest |
//!
//! The source selects a cell's daemons. Each cell repeats its message's groups, for forwarding.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::Fields;

use crate::ids::{DAEMONS_MAX, DaemonSet};
use crate::wire::{put_name, put_var, take_name, take_var};

/// Delivery guarantee of a message: order and reliability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Best effort: daemons may drop the message at a full queue.
    Unreliable,
    /// Delivered by all members that remain in the view, in any order.
    Reliable,
    /// Reliable, in the order in which the client sent its messages.
    #[default]
    Fifo,
    /// FIFO, and after all messages that the client had sent or received before.
    Causal,
    /// Causal, in the same total order at all members.
    Agreed,
    /// Agreed, and delivered only after the daemons of all members have the message.
    Safe,
}

impl Service {
    /// All services, indexed by wire number.
    pub const ALL: [Self; 6] =
        [Self::Unreliable, Self::Reliable, Self::Fifo, Self::Causal, Self::Agreed, Self::Safe];

    /// Returns the name of the service in files, options and traces.
    pub fn name(self) -> &'static str {
        ["unreliable", "reliable", "fifo", "causal", "agreed", "safe"][self as usize]
    }

    /// True if messages wait for the agreed order, which respects causality without vector clocks.
    pub fn is_ordered(self) -> bool {
        self >= Self::Causal
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Message,
    Continuation,
    /// Announcement of a join: daemons now route the group's messages to the client's daemon.
    Join,
    /// Join at this rank in the order: all daemons have the announcement.
    Joined,
    Leave,
    Disconnect,
    /// Groups of the source's clients at the start of the view. Payload: 1 if no further table cell
    /// follows, else 0; then a list of memberships. A membership is group and client, each after
    /// its length, and 1 if the client asks senders to wait for slow members, else 0.
    Table,
    /// Cell of the previous configuration: source, number and the cell.
    Recovered,
    RecoveryEnd,
    HasAllCells,
    /// Earlier cell of the source, for daemons that keep it for others: number and the cell.
    EarlierCell,
    /// Stop of senders to groups with a slow member at this daemon that ask senders to wait.
    Hold,
    Release,
}

/// Kinds of cells, indexed by wire number.
const KINDS: [Kind; 13] = [
    Kind::Message,
    Kind::Continuation,
    Kind::Join,
    Kind::Joined,
    Kind::Leave,
    Kind::Disconnect,
    Kind::Table,
    Kind::Recovered,
    Kind::RecoveryEnd,
    Kind::HasAllCells,
    Kind::EarlierCell,
    Kind::Hold,
    Kind::Release,
];

impl Kind {
    pub(crate) fn is_message(self) -> bool {
        matches!(self, Self::Message | Self::Continuation)
    }

    pub(crate) fn is_ordered(self, service: Service) -> bool {
        self.is_message() && service.is_ordered()
            || matches!(self, Self::Joined | Self::Leave | Self::Disconnect)
    }
}

/// Names of groups, each after its length: a part of a cell or of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Bytes);

impl Names {
    /// Returns the names.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        core::iter::from_fn(move || {
            let (len, names) = rest.split_first()?;
            let (name, others) = names.split_at_checked(usize::from(*len))?;
            rest = others;
            Some(name)
        })
    }

    pub(crate) fn copies(&self) -> impl Iterator<Item = Bytes> {
        self.iter().map(Bytes::copy_from_slice)
    }

    pub(crate) fn shares(&self) -> impl Iterator<Item = Bytes> {
        self.iter().map(|name| self.0.slice_ref(name))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.iter().count() as u8);
        out.extend_from_slice(&self.0);
    }

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

impl<T: AsRef<[u8]>> FromIterator<T> for Names {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut out = Vec::new();
        names.into_iter().for_each(|name| put_name(&mut out, name.as_ref()));
        Self(out.into())
    }
}

/// Maximum length of a group's or client's name, in bytes.
pub const GROUP_BYTES_MAX: usize = 64;
/// Maximum number of groups of a message.
pub const GROUPS_MAX: usize = 100;
/// Maximum payload of a cell in bytes: a frame has room for the cell inside another one.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 15 * 1024;
/// Length of names in bytes that [`PAYLOAD_BYTES_MAX`] leaves room for.
const NAMES_BYTES: usize = 256;

pub(crate) fn payload_bytes_max(groups: &[&[u8]]) -> usize {
    let names: usize = groups.iter().map(|it| it.len() + 1).sum();
    PAYLOAD_BYTES_MAX - names.saturating_sub(NAMES_BYTES)
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) time: u64,
    pub(crate) kind: Kind,
    pub(crate) service: Service,
    pub(crate) last: bool,
    pub(crate) to: DaemonSet,
    pub(crate) client: Bytes,
    pub(crate) groups: Names,
    pub(crate) payload: Bytes,
}

impl Cell {
    /// Encodes a cell. The caller keeps names and payload within their limits.
    pub(crate) fn encode(
        time: u64,
        (kind, service, last): (Kind, Service, bool),
        to: DaemonSet,
        client: &[u8],
        groups: &[&[u8]],
        payload: &[&[u8]],
    ) -> Bytes {
        let names: usize = groups.iter().map(|it| it.len() + 1).sum();
        let bytes: usize = payload.iter().map(|it| it.len()).sum();
        let mut out = Vec::with_capacity(28 + client.len() + names + bytes);
        put_var(&mut out, time);
        out.push(kind as u8 | (service as u8) << 4 | u8::from(last) << 7);
        let set = if to == DaemonSet::ALL { 0 } else { to.0 };
        let ranks = &set.to_be_bytes()[set.leading_zeros() as usize / 8..];
        out.push(ranks.len() as u8);
        out.extend_from_slice(ranks);
        put_name(&mut out, client);
        out.push(groups.len() as u8);
        groups.iter().for_each(|group| put_name(&mut out, group));
        payload.iter().for_each(|it| out.extend_from_slice(it));
        out.into()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut fields = Fields(bytes);
        let time = take_var(&mut fields)?;
        let head: u8 = fields.read()?;
        let kind = *KINDS.get(usize::from(head & 15))?;
        let service = *Service::ALL.get(usize::from(head >> 4 & 7))?;
        let ranks = usize::from(fields.read::<u8>()?);
        let ranks = fields.bytes(ranks).filter(|it| it.len() <= DAEMONS_MAX / 8)?;
        let set = ranks.iter().fold(0, |set, byte| set << 8 | u128::from(*byte));
        let to = if set == 0 { DaemonSet::ALL } else { DaemonSet(set) };
        let is_name = |it: &[u8]| it.len() <= GROUP_BYTES_MAX;
        let client = take_name(bytes, &mut fields).filter(|it| is_name(it))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_back_and_what_is_cut_is_refused() {
        let what = (Kind::Message, Service::Safe, true);
        for (to, bytes) in [(DaemonSet::ALL, 0), (DaemonSet::of(7), 1), (DaemonSet::of(127), 16)] {
            let cell = Cell::encode(1, what, to, b"", &[], &[]);
            assert_eq!(cell.len(), 5 + bytes);
            assert_eq!(Cell::decode(&cell).unwrap().to, to);
        }
        let to = DaemonSet::of(9).or(DaemonSet::of(2));
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
