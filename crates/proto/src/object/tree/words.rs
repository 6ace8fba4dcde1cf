//! Messages of objects over TRAM: state, lacks and place upstream; answers and probes downstream.

use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::Bitrate;

use crate::fields::{Encoded, Fields};
use crate::object::layout::SymbolId;
use crate::object::wire::{
    MemberMessage, PathMessage, Probe, decode_limit, decode_load, encode_limit, encode_load,
};
use crate::object::{MemberLoad, TreePlace};
use crate::tram::PACKET_HEADER;

pub(super) const RANGES_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    pub(super) message: MemberMessage,
    pub(super) load: Option<MemberLoad>,
    pub(super) limit: Option<Bitrate>,
    pub(super) lacks: Option<Lacks>,
    /// Path options: a request for probes, and the measured limit.
    pub(super) path: [Option<PathMessage>; 2],
    /// Place in the tree; the packet carries the receiver's own number.
    pub(super) place: TreePlace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    /// First packet that the receiver has not taken. Symbols from that packet on come anyway.
    pub(super) after: u64,
    /// One past the last symbol of content known to the receiver.
    pub(super) known: SymbolId,
    /// Missing symbols, ascending and disjoint; the receiver may have some of them.
    pub(super) ranges: Vec<Range<SymbolId>>,
}

const LOAD: u8 = 1;
const LIMIT: u8 = 2;
const LACKS: u8 = 4;
/// Flags of the two path options; a message has at most one of each kind.
const PATH: [u8; 2] = [8, 16];

const LOAD_BYTES: usize = 24;
const LIMIT_BYTES: usize = 12;
const PATH_BYTES: usize = 12;

impl Word {
    pub(super) fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = flag(self.load.is_some(), LOAD)
            | flag(self.limit.is_some(), LIMIT)
            | flag(self.lacks.is_some(), LACKS)
            | flag(self.path[0].is_some(), PATH[0])
            | flag(self.path[1].is_some(), PATH[1]);
        let TreePlace { head, level, members, repairs, .. } = self.place;
        let mut out = Vec::new();
        ([flags, level, 0, 0], head, members, repairs).put(&mut out);
        out.extend(self.load.iter().flat_map(encode_load));
        out.extend(self.limit.into_iter().flat_map(encode_limit));
        if let Some(lacks) = &self.lacks {
            let count = lacks.ranges.len().min(RANGES_MAX);
            (lacks.after, lacks.known, count as u8).put(&mut out);
            for range in &lacks.ranges[..count] {
                (range.start, range.end - range.start).put(&mut out);
            }
        }
        out.extend(self.path.iter().flatten().flat_map(PathMessage::encode));
        self.message.encode(&mut out);
        out
    }

    pub(super) fn decode(number: u64, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let [flags, level, 0, 0] = fields.read::<[u8; 4]>()? else { return None };
        let (head, members, repairs) = fields.read()?;
        let place = TreePlace { number, head, level, members, repairs };
        let load = match flags & LOAD {
            0 => None,
            _ => Some(decode_load(fields.bytes(LOAD_BYTES)?)?),
        };
        let limit = match flags & LIMIT {
            0 => None,
            _ => Some(decode_limit(fields.bytes(LIMIT_BYTES)?)?),
        };
        let lacks = match flags & LACKS {
            0 => None,
            _ => {
                let (after, known, count): (_, _, u8) = fields.read()?;
                let count = usize::from(count).min(RANGES_MAX + 1);
                Some(Lacks { after, known, ranges: decode_ranges(&mut fields, count)? })
            }
        };
        let mut path = [None; 2];
        for (word, flag) in path.iter_mut().zip(PATH) {
            if flags & flag != 0 {
                *word = Some(PathMessage::decode(fields.bytes(PATH_BYTES)?)?);
            }
        }
        let message = MemberMessage::decode(fields.0)?;
        let sound = flags & !(LOAD | LIMIT | LACKS | PATH[0] | PATH[1]) == 0;
        sound.then_some(Self { message, load, limit, lacks, path, place })
    }
}

/// Decodes `count` ranges; `None` unless they are ascending, disjoint, and at most [`RANGES_MAX`].
fn decode_ranges(fields: &mut Fields<'_>, count: usize) -> Option<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for _ in 0..count {
        let (start, len): (u64, _) = fields.read()?;
        let end = start.checked_add(len)?;
        let apart = ranges.last().is_none_or(|before| before.end < start);
        if len == 0 || !apart || ranges.len() == RANGES_MAX {
            return None;
        }
        ranges.push(start..end);
    }
    Some(ranges)
}

/// First byte of a probe, which is no version of an answer.
const PROBE: u8 = 0xff;

/// Encodes a probe without TRAM's header, which counts in its size.
pub(super) fn encode_probe(probe: &Probe) -> Vec<u8> {
    let mut bytes = alloc::vec![PROBE];
    bytes.extend(probe.encode());
    let len = (probe.size as usize).saturating_sub(PACKET_HEADER);
    bytes.resize(len.max(bytes.len()), 0);
    bytes
}

pub(super) fn decode_probe(bytes: &[u8]) -> Option<Probe> {
    let (first, rest) = bytes.split_first()?;
    Probe::decode(rest).filter(|_| *first == PROBE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::PathLimit;
    use crate::object::wire::{Answer, Claim, Status};
    use crate::tests::formats::Snapshot;
    use alloc::string::String;
    use faircast_base::NodeId;
    use proptest::prelude::*;

    fn word(ranges: Vec<Range<u64>>) -> Word {
        let message = MemberMessage {
            claim: Claim::Receiving,
            ask: true,
            loss: 9,
            number: 4,
            id: 77,
            reporter: NodeId(3),
            bytes: 1 << 40,
            name: "hall".into(),
            reason: String::new(),
            identity: Some(9),
        };
        let place = TreePlace { number: 5, head: 6, level: 3, members: 4, repairs: 1000 };
        let limit = Some(Bitrate::from_bits_per_s(1_000_000));
        let lacks = Some(Lacks { after: 12, known: 1 << 38, ranges });
        let limit_word = PathMessage::Limit(PathLimit { arrives: 1252, sent: 1472 });
        let path = [Some(PathMessage::Ask { low: 600, high: 0 }), Some(limit_word)];
        Word { message, load: Some(MemberLoad::default()), limit, lacks, path, place }
    }

    #[test]
    fn words_come_back_as_they_went() {
        let ranges: Vec<_> = (0..RANGES_MAX as u64).map(|i| 10 * i..10 * i + 3).collect();
        let mut snapshot = Snapshot::new("tree-word");
        for all in [ranges.clone(), Vec::new()] {
            let word = word(all.clone());
            snapshot.add(&word.encode());
            assert_eq!(Word::decode(5, &word.encode()), Some(word));
            let answer = Answer { status: Status::Welcome, number: 4, id: 77 };
            assert_eq!(decode_probe(&answer.encode()), None);
        }
        snapshot.check();
        let [asked, found] = word(Vec::new()).path;
        for path in [[None, None], [asked, None], [None, found]] {
            let ranges = ranges.clone();
            let plain = Word { load: None, limit: None, lacks: None, path, ..word(ranges) };
            assert_eq!(Word::decode(5, &plain.encode()), Some(plain));
        }
    }

    #[test]
    fn probes_have_their_length() {
        for size in [100, 576, 1472] {
            let probe = Probe { size, sent: 1472, range: (576, 0) };
            let bytes = encode_probe(&probe);
            assert_eq!(bytes.len() + PACKET_HEADER, size as usize);
            assert_eq!(decode_probe(&bytes), Some(probe));
            assert_eq!(Answer::decode(&bytes), None);
        }
    }

    #[test]
    fn ranges_that_cannot_be_are_refused() {
        let at = 4 + 20 + LOAD_BYTES + LIMIT_BYTES + 16;
        let sound = word([4..6, 9..11].into()).encode();
        assert!(Word::decode(5, &sound).is_some());
        for (place, value) in [(at, 3), (at, 255), (at + 9, 255), (at + 24, 6), (at + 16, 0)] {
            let mut bytes = sound.clone();
            bytes[place] = value;
            assert_eq!(Word::decode(5, &bytes), None, "byte {place}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            if let Some(word) = Word::decode(1, &bytes) {
                prop_assert_eq!(Word::decode(1, &word.encode()), Some(word));
            }
        }
    }
}
