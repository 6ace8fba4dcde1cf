//! Packets of an object over TRAM: the announcement, the manifest, content, the announcement again with the hash of
//! the digests, and the digests.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use crate::content::Packets;
use crate::object::layout::Layout;
use crate::object::wire::Notice;
use crate::object::{Announcement, ObjectResult, Part, Supply};

/// Each payload begins with a byte that says what follows.
pub const KIND_BYTES: u32 = 1;

/// What follows that byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Announcement,
    Symbol(Part),
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [
        Self::Symbol(Part::Manifest),
        Self::Symbol(Part::Content),
        Self::Symbol(Part::Digests),
        Self::Announcement,
    ];

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Symbol(part) => part as u8,
            Self::Announcement => 3,
        }
    }
}

/// What a source says of its object, as a packet carries it.
pub(super) fn encode(announcement: Announcement) -> Vec<u8> {
    let notice = Notice {
        announcement,
        parity: false,
        begun: true,
        exhausted: false,
        status_interval: Duration::ZERO,
        position: None,
        epoch: 0,
    };
    notice.encode()
}

/// Reads it.
pub(super) fn decode(bytes: &[u8]) -> Option<Announcement> {
    Notice::decode(bytes).map(|notice| notice.announcement)
}

/// The packets of what a supply has, whose length is known.
pub(super) struct ObjectStream {
    supply: Box<dyn Supply>,
    announcement: Announcement,
    layout: Layout,
    /// Up to where content was read ahead.
    expected: u64,
    /// Why the supply cannot go on.
    pub(super) failed: Option<String>,
}

/// What a packet has: bytes of a part from an offset on.
type Place = (Kind, u64, u32);

impl ObjectStream {
    pub(super) fn new(supply: Box<dyn Supply>, symbol_bytes: u16) -> Self {
        let lens = Part::ALL.map(|part| supply.len(part));
        let object = supply.object();
        let announcement =
            Announcement { lens, growing: supply.growing(), symbol_bytes, object, digests: None };
        let layout = Layout::new(&announcement).filter(|_| !announcement.growing);
        let failed = layout.is_none().then(|| NO_LAYOUT.to_string());
        let layout = layout.unwrap_or_default();
        Self { supply, announcement, layout, expected: 0, failed }
    }

    pub(super) fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    fn symbols(&self, part: Part) -> u64 {
        self.announcement.len(part).div_ceil(u64::from(self.layout.symbol_bytes()))
    }

    /// What packet `index` has; `None` beyond the last.
    fn place(&self, index: u64) -> Option<Place> {
        let mut left = index;
        let symbols = [Part::Manifest, Part::Content, Part::Digests];
        for (before, part) in [true, false, true].into_iter().zip(symbols) {
            if before {
                if left == 0 {
                    return Some((Kind::Announcement, 0, ANNOUNCEMENT_BYTES));
                }
                left -= 1;
            }
            if left < self.symbols(part) {
                let symbol = u64::from(self.layout.symbol_bytes());
                let len = (self.announcement.len(part) - left * symbol).min(symbol);
                // Not above a symbol, which is below 2^16.
                return Some((Kind::Symbol(part), left * symbol, len as u32));
            }
            left -= self.symbols(part);
        }
        None
    }

    /// The packet with which digests begin, and with it their hash.
    fn last_announcement(&self) -> u64 {
        1 + self.symbols(Part::Manifest) + self.symbols(Part::Content)
    }

    /// Whether the hash of the digests is known by now.
    fn poll_digests(&mut self) -> bool {
        if self.announcement.digests.is_none() && self.failed.is_none() {
            match self.supply.digests() {
                Ok(digests) => self.announcement.digests = digests,
                Err(error) => self.failed = Some(error.reason),
            }
        }
        self.announcement.digests.is_some()
    }

    fn read_place(&mut self, (kind, offset, len): Place, out: &mut Vec<u8>) -> ObjectResult<u32> {
        let Kind::Symbol(part) = kind else {
            out.extend_from_slice(&encode(self.announcement));
            return Ok(0);
        };
        self.supply.read(part, offset, len, out)
    }
}

impl Packets for ObjectStream {
    fn end(&self) -> Option<u64> {
        Some(self.last_announcement() + 1 + self.symbols(Part::Digests))
    }

    fn ready(&mut self, _now: Time, index: u64) -> Option<u32> {
        if self.failed.is_some() || index == self.last_announcement() && !self.poll_digests() {
            return None;
        }
        let (kind, offset, len) = self.place(index)?;
        if kind == Kind::Symbol(Part::Content) && offset >= self.expected {
            self.expected = offset + u64::from(self.layout.symbol_bytes()) * EXPECTED_SYMBOLS;
            self.supply.expect(offset);
        }
        Some(KIND_BYTES + len)
    }

    fn len(&self, index: u64) -> u32 {
        self.place(index).map_or(0, |(_, _, len)| KIND_BYTES + len)
    }

    fn read(&mut self, _now: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        let Some(place) = self.place(index) else { return 0 };
        out.push(place.0.number());
        let start = out.len();
        self.read_place(place, out).unwrap_or_else(|error| {
            self.failed.get_or_insert(error.reason);
            // It never leaves: whoever sends it looks at `failed` first.
            out.truncate(start);
            place.2
        })
    }

    fn completed(&self, _count: u64) -> Option<u64> {
        Some(self.announcement.len(Part::Content))
    }
}

/// Why an object has no packets.
const NO_LAYOUT: &str = "the object has too many symbols, or its length is not known beforehand, as that of a pipe: \
                         TRAM cannot send it";

/// After how many symbols the supply is told again where content is asked for.
const EXPECTED_SYMBOLS: u64 = 64;

/// Bytes of an announcement.
pub(super) const ANNOUNCEMENT_BYTES: u32 = 104;
