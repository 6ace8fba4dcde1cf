//! What transfers put on the wire: the name before each symbol, and four options.
//!
//! Nothing here panics, whatever the bytes are. Lists are read where they lie.

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Bitrate, Duration, NodeId};

use super::layout::{BLOCK_SYMBOLS, Key, PARITY_SYMBOLS, block_of, key, part_of};
use super::{Announcement, MemberLoad, Part};

/// Of everything here.
const VERSION: u8 = 1;

/// Bytes before each symbol.
pub(crate) const SYMBOL_HEADER: usize = 8;

/// The name of a symbol: the first bytes of every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SymbolName {
    /// The block.
    pub(super) key: Key,
    /// 0 to 63 for source symbols, 64 to 127 for parity.
    pub(super) symbol: u32,
    /// Whether somebody asked for it, and it is not of the sweep.
    pub(super) repair: bool,
}

impl SymbolName {
    pub(super) fn encode(&self) -> [u8; SYMBOL_HEADER] {
        let flags = part_of(self.key) as u8 | if self.repair { MARK } else { 0 };
        let [b0, b1, b2, b3] = block_of(self.key).to_be_bytes();
        [VERSION, flags, 0, self.symbol as u8, b0, b1, b2, b3]
    }

    /// Reads a name from the front of a payload; returns what follows it too.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[version, flags, high, symbol, b0, b1, b2, b3], rest) = bytes.split_first_chunk()?;
        let part = part(flags & PART)?;
        let sound = version == VERSION && flags & !(MARK | PART) == 0 && high == 0;
        let symbol = u32::from(symbol);
        let block = u32::from_be_bytes([b0, b1, b2, b3]);
        (sound && symbol < BLOCK_SYMBOLS + PARITY_SYMBOLS)
            .then_some((Self { key: key(part, block), symbol, repair: flags & MARK != 0 }, rest))
    }
}

/// The bits of the part.
const PART: u8 = 3;

/// The bit that marks the exception: a repair, a run, an answer that is wanted.
const MARK: u8 = 0x80;

/// The bit of a confirmed block that says that parity will answer.
const ANY: u8 = 0x40;

fn part(number: u8) -> Option<Part> {
    Part::ALL.into_iter().find(|part| *part as u8 == number)
}

/// What a source says of itself and its object: the option OBJECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) announcement: Announcement,
    /// Whether parity may be asked for.
    pub(super) parity: bool,
    /// Whether content is being sent.
    pub(super) begun: bool,
    /// Whether nothing is left that was asked for.
    pub(super) exhausted: bool,
    /// The least time between two status messages of a receiver.
    pub(super) status_interval: Duration,
    /// The block that the sweep is at; `None` before it has begun.
    pub(super) position: Option<Key>,
    /// Tells one start of the source from another; 24 bits.
    pub(super) epoch: u32,
}

/// Bytes of OBJECT.
const NOTICE_LEN: usize = 104;

impl Notice {
    pub(super) fn encode(&self) -> [u8; NOTICE_LEN] {
        let mut out = [0; NOTICE_LEN];
        let known = self.announcement.digests.is_some();
        let growing = self.announcement.growing;
        let flags = [self.parity, known, self.begun, self.exhausted, growing];
        out[0] = VERSION;
        out[1] = flags.iter().enumerate().map(|(i, &set)| u8::from(set) << i).sum();
        out[2..4].copy_from_slice(&self.announcement.symbol_bytes.to_be_bytes());
        for (slot, len) in out[4..28].chunks_exact_mut(8).zip(self.announcement.lens) {
            slot.copy_from_slice(&len.to_be_bytes());
        }
        let ms = u32::try_from(self.status_interval.as_millis()).unwrap_or(u32::MAX);
        out[28..32].copy_from_slice(&ms.to_be_bytes());
        out[32] = self.position.map_or(PART, |key| part_of(key) as u8);
        out[33..36].copy_from_slice(&self.epoch.to_be_bytes()[1..]);
        out[36..40].copy_from_slice(&self.position.map_or(0, block_of).to_be_bytes());
        out[40..72].copy_from_slice(&self.announcement.object);
        out[72..104].copy_from_slice(&self.announcement.digests.unwrap_or_default());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTICE_LEN] = bytes.try_into().ok()?;
        let (version, flags) = (bytes[0], bytes[1]);
        if version != VERSION || flags > 31 {
            return None;
        }
        let len = |i: usize| u64::from_be_bytes(array(&bytes[4 + 8 * i..]));
        let position = match bytes[32] {
            PART => None,
            number => Some(key(part(number)?, u32::from_be_bytes(array(&bytes[36..])))),
        };
        let ms = u32::from_be_bytes(array(&bytes[28..]));
        Some(Self {
            announcement: Announcement {
                lens: [len(0), len(1), len(2)],
                growing: flags & 16 != 0,
                symbol_bytes: u16::from_be_bytes(array(&bytes[2..])),
                object: array(&bytes[40..]),
                digests: (flags & 2 != 0).then(|| array(&bytes[72..])),
            },
            parity: flags & 1 != 0,
            begun: flags & 4 != 0,
            exhausted: flags & 8 != 0,
            status_interval: Duration::from_millis(u64::from(ms)),
            position,
            epoch: u32::from_be_bytes([0, bytes[33], bytes[34], bytes[35]]),
        })
    }
}

/// The first `N` bytes; `bytes` has as many.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("the caller has checked the length")
}

/// What a receiver lacks, or a source is going to send: an entry of WANT and CONFIRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Whole blocks.
    Run {
        /// The first.
        first: Key,
        /// How many, within the part; at least one.
        count: u32,
    },
    /// Some of one block.
    Block {
        /// The block.
        key: Key,
        /// Its source symbols, one bit each; at least one.
        missing: u64,
        /// In a confirmation: whoever lacks no more than so many symbols, whichever they are, is
        /// served.
        any: bool,
    },
}

/// Bytes of an entry.
const ENTRY_LEN: usize = 13;

/// Most entries in one option.
pub(super) const ENTRIES_PER_OPTION: usize = 19;

/// Most entries in one packet, in several options.
pub(super) const ENTRIES_MAX: usize = 3 * ENTRIES_PER_OPTION;

impl Entry {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (at, flags, value) = match *self {
            Self::Run { first, count } => (first, MARK, u64::from(count) << 32),
            Self::Block { key, missing, any } => (key, if any { ANY } else { 0 }, missing),
        };
        out.push(part_of(at) as u8 | flags);
        out.extend_from_slice(&block_of(at).to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }

    fn decode(bytes: &[u8; ENTRY_LEN]) -> Option<Self> {
        let flags = bytes[0];
        let (block, value) = (u32::from_be_bytes(array(&bytes[1..])), array(&bytes[5..]));
        let (at, value) = (key(part(flags & PART)?, block), u64::from_be_bytes(value));
        match flags & !PART {
            MARK => {
                let count = (value >> 32) as u32;
                let sound = count > 0 && value as u32 == 0 && block.checked_add(count).is_some();
                sound.then_some(Self::Run { first: at, count })
            }
            flags if flags & !ANY == 0 && value != 0 => {
                Some(Self::Block { key: at, missing: value, any: flags & ANY != 0 })
            }
            _ => None,
        }
    }

    /// Reads a list; `None` where a part of it is no entry.
    pub(super) fn decode_all(bytes: &[u8]) -> Option<impl Iterator<Item = Self> + '_> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_LEN>();
        let sound = rest.is_empty() && entries.iter().all(|entry| Self::decode(entry).is_some());
        sound.then(|| entries.iter().filter_map(Self::decode))
    }
}

/// How a receiver says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Joined,
    Receiving,
    Done,
    Failed,
    Leaving,
}

impl Claim {
    const ALL: [Self; 5] = [Self::Joined, Self::Receiving, Self::Done, Self::Failed, Self::Leaving];
}

/// What a receiver says of itself: the option MEMBER upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberMessage {
    pub(super) claim: Claim,
    /// Whether it wants an answer.
    pub(super) ask: bool,
    /// Smoothed loss, 65535 for all.
    pub(super) loss: u16,
    pub(super) number: u32,
    pub(super) id: u64,
    /// Who it is in the scheme's reports.
    pub(super) reporter: NodeId,
    /// Bytes of content that it has.
    pub(super) bytes: u64,
    pub(super) name: String,
    pub(super) reason: String,
}

/// Most bytes of a name and of a reason.
pub(super) const NAME_MAX: usize = 64;
pub(super) const REASON_MAX: usize = 120;

impl MemberMessage {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let claim = Claim::ALL.iter().position(|claim| *claim == self.claim).unwrap_or(0) as u8;
        out.extend_from_slice(&[VERSION, claim | if self.ask { MARK } else { 0 }]);
        out.extend_from_slice(&self.loss.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.bytes.to_be_bytes());
        out.extend_from_slice(&self.reporter.0.to_be_bytes());
        for (text, max) in [(&self.name, NAME_MAX), (&self.reason, REASON_MAX)] {
            let text = cut(text, max);
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<28>()?;
        let claim = *Claim::ALL.get(usize::from(head[1] & !MARK))?;
        let (name, rest) = text(rest, NAME_MAX)?;
        let (reason, rest) = text(rest, REASON_MAX)?;
        (head[0] == VERSION && rest.is_empty()).then(|| Self {
            claim,
            ask: head[1] & MARK != 0,
            loss: u16::from_be_bytes(array(&head[2..])),
            number: u32::from_be_bytes(array(&head[4..])),
            id: u64::from_be_bytes(array(&head[8..])),
            bytes: u64::from_be_bytes(array(&head[16..])),
            reporter: NodeId(u32::from_be_bytes(array(&head[24..]))),
            name,
            reason,
        })
    }
}

/// Bytes of LOAD.
const LOAD_LEN: usize = 24;

/// What keeps a receiver busy: the option LOAD beside MEMBER upstream. Times in milliseconds.
pub(super) fn encode_load(load: &MemberLoad) -> [u8; LOAD_LEN] {
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let fields = [ms(load.span), ms(load.disk), ms(load.busy), load.overflowed, load.lost];
    let mut out = [0; LOAD_LEN];
    out[0] = VERSION;
    for (slot, field) in out[4..].chunks_exact_mut(4).zip(fields) {
        slot.copy_from_slice(&field.to_be_bytes());
    }
    out
}

/// Reads it.
pub(super) fn decode_load(bytes: &[u8]) -> Option<MemberLoad> {
    let bytes: &[u8; LOAD_LEN] = bytes.try_into().ok()?;
    let field = |i: usize| u32::from_be_bytes(array(&bytes[4 + 4 * i..]));
    let ms = |i: usize| Duration::from_millis(u64::from(field(i)));
    (bytes[..4] == [VERSION, 0, 0, 0]).then(|| MemberLoad {
        span: ms(0),
        disk: ms(1),
        busy: ms(2),
        overflowed: field(3),
        lost: field(4),
    })
}

/// The rate that a receiver asks for at most: the option LIMIT beside MEMBER upstream.
pub(super) fn encode_limit(limit: Bitrate) -> [u8; 12] {
    let mut out = [0; 12];
    out[0] = VERSION;
    out[4..].copy_from_slice(&limit.bits_per_s().to_be_bytes());
    out
}

/// Reads it.
pub(super) fn decode_limit(bytes: &[u8]) -> Option<Bitrate> {
    let bytes: &[u8; 12] = bytes.try_into().ok()?;
    let rate = Bitrate::from_bits_per_s(u64::from_be_bytes(array(&bytes[4..])));
    (bytes[..4] == [VERSION, 0, 0, 0]).then_some(rate)
}

/// The first `max` bytes of a text, or fewer, so that it stays one.
pub(super) fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A text of at most `max` bytes: of a longer one the end, which says what is wrong and what to do,
/// where the beginning is a path.
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

/// A text with its length before it; what would move a terminal's cursor becomes a question mark.
fn text(bytes: &[u8], max: usize) -> Option<(String, &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let (text, rest) =
        rest.split_at_checked(usize::from(len)).filter(|_| usize::from(len) <= max)?;
    let text = core::str::from_utf8(text).ok()?;
    // A question mark is never longer than what it stands for.
    let printable = |c: char| if c.is_control() || is_direction(c) { '?' } else { c };
    Some((text.chars().map(printable).collect(), rest))
}

/// Marks that reorder the text around them.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What a source answers to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Welcome,
    Deferred,
    Done,
    Refused,
    Gone,
}

/// The answer to a receiver: the option MEMBER downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    /// The message that is answered.
    pub(super) number: u32,
    pub(super) id: u64,
}

impl Answer {
    const ALL: [Status; 5] =
        [Status::Welcome, Status::Deferred, Status::Done, Status::Refused, Status::Gone];

    pub(super) fn encode(&self) -> [u8; 16] {
        let status = Self::ALL.iter().position(|status| *status == self.status).unwrap_or(0);
        let mut out = [0; 16];
        (out[0], out[1]) = (VERSION, status as u8);
        out[4..8].copy_from_slice(&self.number.to_be_bytes());
        out[8..16].copy_from_slice(&self.id.to_be_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = bytes.try_into().ok()?;
        let status = *Self::ALL.get(usize::from(bytes[1]))?;
        (bytes[0] == VERSION && bytes[2..4] == [0, 0]).then(|| Self {
            status,
            number: u32::from_be_bytes(array(&bytes[4..])),
            id: u64::from_be_bytes(array(&bytes[8..])),
        })
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
