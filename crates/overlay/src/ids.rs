//! Identifiers of daemons, links and views, and sets of daemons.

use alloc::vec::Vec;
use core::fmt;

use faircast_proto::fields::{Encoded, Fields};

/// Identifier of a daemon, unique in an overlay and kept over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub u64);

/// One run of a daemon: a restart is a new run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonRun {
    /// Identifier of the daemon.
    pub id: DaemonId,
    /// Number of the run; grows with each start.
    pub incarnation: u64,
}

/// Identifier of a connection to another daemon, chosen by the driver and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Identifier of a client's session, chosen by the driver and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Identifier of a configuration: a membership with its routes. Those that a daemon accepts grow.
/// A view has the identifier of its first configuration, and keeps it while only routes change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId {
    /// Round: the coordinator chooses a number above all rounds that it knows.
    pub round: u64,
    /// Daemon that proposes the configuration.
    pub coordinator: DaemonRun,
}

/// Greatest round. The margin below 2^64 keeps additions from overflowing.
pub(crate) const ROUND_MAX: u64 = 1 << 62;

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DaemonRun { id, incarnation } = self.coordinator;
        write!(f, "{}.{:x}.{incarnation:x}", self.round, id.0)
    }
}

impl Encoded for DaemonRun {
    fn put(&self, out: &mut Vec<u8>) {
        (self.id.0, self.incarnation).put(out);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let (id, incarnation) = fields.read()?;
        Some(Self { id: DaemonId(id), incarnation })
    }
}

impl ViewId {
    /// Returns a 16-bit hash: the exclusive or of all its 16-bit words.
    pub(crate) fn tag(&self) -> u16 {
        let words = [self.round, self.coordinator.id.0, self.coordinator.incarnation];
        let word = words.into_iter().fold(0, |all, word| all ^ word);
        (word ^ word >> 16 ^ word >> 32 ^ word >> 48) as u16
    }
}

impl Encoded for ViewId {
    fn put(&self, out: &mut Vec<u8>) {
        (self.round, self.coordinator).put(out);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let (round, coordinator) = fields.read()?;
        (round <= ROUND_MAX).then_some(Self { round, coordinator })
    }
}

/// Maximum number of daemons in a view.
pub(crate) const DAEMONS_MAX: usize = 128;

/// Set of daemons. Bit `i` is the member of rank `i`: its index in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DaemonSet(pub(crate) u128);

impl DaemonSet {
    pub(crate) const ALL: Self = Self(u128::MAX);

    pub(crate) fn of(rank: usize) -> Self {
        Self(1 << rank)
    }

    pub(crate) fn has(self, rank: usize) -> bool {
        self.0 >> rank & 1 == 1
    }

    pub(crate) fn set(&mut self, rank: usize, is_member: bool) {
        self.0 = self.0 & !(1 << rank) | u128::from(is_member) << rank;
    }

    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if the sets share a daemon.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the ranks in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..DAEMONS_MAX).filter(move |rank| self.has(*rank))
    }
}

impl FromIterator<usize> for DaemonSet {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Self {
        ranks.into_iter().fold(Self::default(), |set, rank| set.or(Self::of(rank)))
    }
}
