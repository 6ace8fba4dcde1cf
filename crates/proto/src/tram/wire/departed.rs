//! Departed receivers, as acknowledgements report them.

use alloc::vec::Vec;

use faircast_base::{NodeId, Shortfall};

use crate::fields::{Encoded, Fields};

/// Most departed receivers in one acknowledgement, so that it has at most 1280 bytes with its mask.
pub(crate) const DEPARTURES_MAX: usize = 32;

/// Most receivers below one member in a credible report; chosen.
pub(crate) const BELOW_MAX: u32 = 1 << 20;

pub(super) const DEPARTED: usize = 28;

/// First address of the range for ends' own numbers, private to each end; the last means "none".
const OWN_NUMBERS: u32 = 0xf000_0000;
const NO_ADDRESS: u32 = u32::MAX;

/// Fate of a receiver. Of two fates at about the same time the later one in this list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// The receiver is there: another message about it is older.
    Back,
    /// The receiver had everything before its silence. Receivers below it may not.
    Complete,
    Silent,
    Left,
    Pruned,
    /// Packets are missing at the end that nobody could repair any more.
    Gaps,
}

impl Fate {
    pub(crate) const ALL: [Self; 6] =
        [Self::Back, Self::Complete, Self::Silent, Self::Left, Self::Pruned, Self::Gaps];

    pub(crate) fn shortfall(self) -> Option<Shortfall> {
        match self {
            Self::Back | Self::Complete => None,
            Self::Silent => Some(Shortfall::Silent),
            Self::Left => Some(Shortfall::Left),
            Self::Pruned => Some(Shortfall::Pruned),
            Self::Gaps => Some(Shortfall::Gaps),
        }
    }

    /// True if receivers below have no head from then on; a resigning head lets them go first.
    pub(crate) fn abandons(self) -> bool {
        matches!(self, Self::Complete | Self::Silent | Self::Gaps)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departed {
    pub(crate) id: u64,
    /// `None` if the address is a number that only another end knows.
    pub(crate) node: Option<NodeId>,
    pub(crate) fate: Fate,
    pub(crate) joins: u16,
    pub(crate) below: u32,
    /// For fate `Back`: number of the head that fell silent; else 0.
    pub(crate) came_from: u64,
}

impl Departed {
    fn encode(&self, out: &mut Vec<u8>) {
        let address = self.node.map(|node| node.0).filter(|number| *number < OWN_NUMBERS);
        let address = address.unwrap_or(NO_ADDRESS);
        let Self { id, came_from, below, joins, fate, .. } = *self;
        (id, came_from, address, below, joins, [fate as u8, 0]).put(out);
    }

    fn decode(mut fields: Fields<'_>) -> Option<Self> {
        let (id, came_from, address, below, joins, [fate, _]) = fields.read()?;
        let node = Some(NodeId(address)).filter(|node| node.0 < OWN_NUMBERS);
        let fate = super::one_of(&Fate::ALL, fate)?;
        let known = id != 0 && below <= BELOW_MAX;
        known.then_some(Self { id, node, fate, joins, below, came_from })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DepartureList<'a> {
    pub(crate) unnamed: u32,
    entries: &'a [u8],
}

impl<'a> DepartureList<'a> {
    pub(crate) fn new<'d>(
        all: impl Iterator<Item = &'d Departed>,
        unnamed: u32,
        buf: &'a mut Vec<u8>,
    ) -> Self {
        all.take(DEPARTURES_MAX).for_each(|it| it.encode(buf));
        Self { unnamed: unnamed.min(BELOW_MAX), entries: buf }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unnamed == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Departed> + use<'a> {
        let (all, _) = self.entries.as_chunks::<DEPARTED>();
        all.iter().filter_map(|bytes| Departed::decode(Fields(bytes)))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let count = self.entries.len() / DEPARTED;
        ([count as u8, 0, 0, 0], self.unnamed).put(out);
        out.extend_from_slice(self.entries);
    }

    pub(super) fn decode(fields: &mut Fields<'a>) -> Option<Self> {
        let ([count, ..], unnamed): ([u8; 4], _) = fields.read()?;
        let count = Some(usize::from(count)).filter(|count| *count <= DEPARTURES_MAX)?;
        let list = Self { unnamed, entries: fields.bytes(count * DEPARTED)? };
        let true_count = list.iter().count() == count;
        (true_count && !list.is_empty() && unnamed <= BELOW_MAX).then_some(list)
    }
}
