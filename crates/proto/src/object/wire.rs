//! Wire format of transfers: the name before each symbol, and the options.
//!
//! Decoding never panics, for any bytes. Lists are decoded in place.

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Bitrate, Duration, NodeId};

use super::layout::{BLOCK_SYMBOLS, BlockId, PARITY_SYMBOLS, block_id, block_of, part_of};
use super::{Announcement, MemberLoad, Part, PathLimit};
use crate::fields::{Encoded, Fields, encoded};

const VERSION: u8 = 1;

/// Bytes of the name before each symbol.
pub const SYMBOL_HEADER: usize = 8;

/// Name of a symbol: the first bytes of every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SymbolName {
    pub(super) block_id: BlockId,
    /// 0 to 63 for source symbols, 64 to 127 for parity.
    pub(super) symbol: u32,
    /// True if the symbol answers a request, and is not part of the sweep.
    pub(super) repair: bool,
}

impl SymbolName {
    pub(super) fn encode(&self) -> [u8; SYMBOL_HEADER] {
        let flags = part_of(self.block_id) as u8 | if self.repair { MARK } else { 0 };
        let [b0, b1, b2, b3] = block_of(self.block_id).to_be_bytes();
        [VERSION, flags, 0, self.symbol as u8, b0, b1, b2, b3]
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[version, flags, high, symbol, b0, b1, b2, b3], rest) = bytes.split_first_chunk()?;
        let part = part(flags & PART)?;
        let sound = version == VERSION && flags & !(MARK | PART) == 0 && high == 0;
        let symbol = u32::from(symbol);
        let block = u32::from_be_bytes([b0, b1, b2, b3]);
        (sound && symbol < BLOCK_SYMBOLS + PARITY_SYMBOLS).then_some((
            Self { block_id: block_id(part, block), symbol, repair: flags & MARK != 0 },
            rest,
        ))
    }
}

const PART: u8 = 3;

/// Flag bit of a repair (symbol), a run (entry), or a wanted answer (message).
const MARK: u8 = 0x80;

/// Flag bit of a confirmed block that parity will repair.
const ANY: u8 = 0x40;

fn part(number: u8) -> Option<Part> {
    Part::ALL.into_iter().find(|part| *part as u8 == number)
}

/// State of a source and its object: the option OBJECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) announcement: Announcement,
    pub(super) parity: bool,
    pub(super) begun: bool,
    pub(super) exhausted: bool,
    /// Least interval between two status messages of a receiver.
    pub(super) status_interval: Duration,
    /// Present block of the sweep; `None` before its beginning.
    pub(super) position: Option<BlockId>,
    /// Random number of 24 bits that distinguishes starts of the source.
    pub(super) epoch: u32,
}

impl Notice {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Announcement { lens, growing, symbol_bytes, object, digests } = self.announcement;
        let flags = [self.parity, digests.is_some(), self.begun, self.exhausted, growing];
        let flags: u8 = flags.iter().enumerate().map(|(i, &set)| u8::from(set) << i).sum();
        let part = self.position.map_or(PART, |block_id| part_of(block_id) as u8);
        let [_, epoch @ ..] = self.epoch.to_be_bytes();
        let mut out = Vec::new();
        let lens: (_, _, _) = lens.into();
        ([VERSION, flags], symbol_bytes, lens, millis(self.status_interval)).put(&mut out);
        let block = self.position.map_or(0, block_of);
        (part, epoch, block, object, digests.unwrap_or_default()).put(&mut out);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let ([version, flags], symbol_bytes, lens): ([u8; 2], _, (_, _, _)) = fields.read()?;
        let status_interval = fields.millis()?;
        let ([number, e1, e2, e3], block, object, digests) = fields.read()?;
        fields.end()?;
        let position = if number == PART { None } else { Some(block_id(part(number)?, block)) };
        let flag = |i: u8| flags >> i & 1 == 1;
        let digests = flag(1).then_some(digests);
        let growing = flag(4);
        (version == VERSION && flags < 32).then_some(Self {
            announcement: Announcement {
                lens: lens.into(),
                growing,
                symbol_bytes,
                object,
                digests,
            },
            parity: flag(0),
            begun: flag(2),
            exhausted: flag(3),
            status_interval,
            position,
            epoch: u32::from_be_bytes([0, e1, e2, e3]),
        })
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Entry of WANT and CONFIRM: symbols that a receiver lacks, or that a source will send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Run {
        first: BlockId,
        /// Number of blocks, within the part; at least one.
        count: u32,
    },
    Block {
        block_id: BlockId,
        missing: u64,
        /// True in a confirmation if the answer repairs any symbols, as many as `missing` has bits.
        any: bool,
    },
}

const ENTRY_LEN: usize = 13;

pub(super) const ENTRIES_PER_OPTION: usize = 19;

pub(super) const ENTRIES_MAX: usize = 3 * ENTRIES_PER_OPTION;

impl Entry {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (at, flags, value) = match *self {
            Self::Run { first, count } => (first, MARK, u64::from(count) << 32),
            Self::Block { block_id, missing, any } => {
                (block_id, if any { ANY } else { 0 }, missing)
            }
        };
        (part_of(at) as u8 | flags, block_of(at), value).put(out);
    }

    fn decode(bytes: &[u8; ENTRY_LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (flags, block, value): (u8, u32, u64) = fields.read()?;
        let at = block_id(part(flags & PART)?, block);
        match flags & !PART {
            MARK => {
                let count = (value >> 32) as u32;
                let sound = count > 0 && value as u32 == 0 && block.checked_add(count).is_some();
                sound.then_some(Self::Run { first: at, count })
            }
            flags if flags & !ANY == 0 && value != 0 => {
                Some(Self::Block { block_id: at, missing: value, any: flags & ANY != 0 })
            }
            _ => None,
        }
    }

    pub(super) fn decode_all(bytes: &[u8]) -> Option<impl Iterator<Item = Self>> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_LEN>();
        let sound = rest.is_empty() && entries.iter().all(|entry| Self::decode(entry).is_some());
        sound.then(|| entries.iter().filter_map(Self::decode))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Claim {
    #[default]
    Joined,
    Receiving,
    Done,
    Failed,
    Leaving,
}

const CLAIMS: [Claim; 5] =
    [Claim::Joined, Claim::Receiving, Claim::Done, Claim::Failed, Claim::Leaving];

/// Most message numbers by which a member can be ahead: one for each change of its state.
pub(super) const LEAD_MAX: i32 = 1024;

/// Message of a receiver about itself: the option MEMBER upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberMessage {
    pub(super) claim: Claim,
    pub(super) ask: bool,
    /// Share of packets lost in the whole transfer, 65535 for all.
    pub(super) loss: u16,
    pub(super) number: u32,
    pub(super) id: u64,
    pub(super) reporter: NodeId,
    /// Bytes of the manifest with claim Joined, of content otherwise.
    pub(super) bytes: u64,
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) identity: Option<u64>,
}

pub(super) const NAME_MAX: usize = 64;
pub(super) const REASON_MAX: usize = 120;

impl MemberMessage {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let first = [VERSION, self.claim as u8 | if self.ask { MARK } else { 0 }];
        (first, self.loss, self.number, self.id, self.bytes, self.reporter).put(out);
        for (text, max) in [(&self.name, NAME_MAX), (&self.reason, REASON_MAX)] {
            let text = cut(text, max);
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        out.extend(self.identity.into_iter().flat_map(u64::to_be_bytes));
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let [version, claim] = fields.read()?;
        let message = Self {
            claim: *CLAIMS.get(usize::from(claim & !MARK))?,
            ask: claim & MARK != 0,
            loss: fields.read()?,
            number: fields.read()?,
            id: fields.read()?,
            bytes: fields.read()?,
            reporter: fields.read()?,
            name: fields.text(NAME_MAX)?,
            reason: fields.text(REASON_MAX)?,
            identity: if fields.0.is_empty() { None } else { Some(fields.read()?) },
        };
        fields.end()?;
        (version == VERSION).then_some(message)
    }
}

const PLAIN: [u8; 4] = [VERSION, 0, 0, 0];

/// Encodes the load of a receiver: the option LOAD beside MEMBER upstream.
pub(super) fn encode_load(load: &MemberLoad) -> Vec<u8> {
    let [span, disk, busy] = [load.span, load.disk, load.busy].map(millis);
    encoded((PLAIN, span, disk, busy, load.overflowed, load.lost))
}

pub(super) fn decode_load(bytes: &[u8]) -> Option<MemberLoad> {
    let mut fields = Fields(bytes);
    let plain = fields.read::<[u8; 4]>()? == PLAIN;
    let (span, disk, busy) = (fields.millis()?, fields.millis()?, fields.millis()?);
    let (overflowed, lost) = fields.read()?;
    fields.end()?;
    plain.then_some(MemberLoad { span, disk, busy, overflowed, lost })
}

/// Encodes the rate limit of a receiver: the option LIMIT beside MEMBER upstream.
pub(super) fn encode_limit(limit: Bitrate) -> Vec<u8> {
    encoded((PLAIN, limit.bits_per_s()))
}

pub(super) fn decode_limit(bytes: &[u8]) -> Option<Bitrate> {
    let mut fields = Fields(bytes);
    let (plain, rate): ([u8; 4], _) = fields.read()?;
    fields.end()?;
    (plain == PLAIN).then_some(Bitrate::from_bits_per_s(rate))
}

/// Packet lengths at a receiver: option PATH upstream. A `high` of 0 means as long as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathMessage {
    Ask { low: u32, high: u32 },
    Limit(PathLimit),
}

impl PathMessage {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, a, b) = match *self {
            Self::Ask { low, high } => (0, low, high),
            Self::Limit(PathLimit { arrives, sent }) => (1, arrives, sent),
        };
        encoded(([VERSION, kind, 0, 0], a, b))
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let ([version, kind, r0, r1], a, b) = fields.read()?;
        fields.end()?;
        let word = match kind {
            0 => Self::Ask { low: a, high: b },
            1 if a <= b => Self::Limit(PathLimit { arrives: a, sent: b }),
            _ => return None,
        };
        let lengths = a <= LENGTH_MAX && b <= LENGTH_MAX;
        ([version, r0, r1] == [VERSION, 0, 0] && lengths).then_some(word)
    }
}

const LENGTH_MAX: u32 = 1 << 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) size: u32,
    pub(super) sent: u32,
    /// Requested range of lengths, as in [`PathMessage::Ask`].
    pub(super) range: (u32, u32),
}

impl Probe {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { size, sent, range: (low, high) } = *self;
        encoded((PLAIN, size, sent, low, high))
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (plain, size, sent, low, high): ([u8; 4], _, _, _, _) = fields.read()?;
        let sound = plain == PLAIN && [size, sent, low, high].iter().all(|len| *len <= LENGTH_MAX);
        sound.then_some(Self { size, sent, range: (low, high) })
    }
}

pub(super) fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns at most the last `max` bytes of a text: a message ends with the cause and the advice.
pub(super) fn end_of(text: &str, max: usize) -> String {
    const CUT: &str = "...";
    if text.len() <= max {
        return text.into();
    }
    let mut start = text.len() - (max - CUT.len());
    while !text.is_char_boundary(start) {
        start += 1;
    }
    [CUT, &text[start..]].concat()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Welcome,
    Deferred,
    Done,
    Refused,
    Gone,
    /// The object is given up: no later start of the source sends the same object.
    GivenUp,
    Stalled,
}

/// Answer to a receiver: the option MEMBER downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) number: u32,
    pub(super) id: u64,
}

const STATUSES: [Status; 7] = [
    Status::Welcome,
    Status::Deferred,
    Status::Done,
    Status::Refused,
    Status::Gone,
    Status::GivenUp,
    Status::Stalled,
];

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        encoded(([VERSION, self.status as u8, 0, 0], self.number, self.id))
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let ([version, status, r0, r1], number, id): ([u8; 4], _, _) = fields.read()?;
        let status = *STATUSES.get(usize::from(status))?;
        fields.end()?;
        ([version, r0, r1] == [VERSION, 0, 0]).then_some(Self { status, number, id })
    }
}

#[cfg(test)]
mod tests;
