//! Forged packets for simulated and real attacks: each kind, with harmful values in each field.

use alloc::vec::Vec;
use core::ops::Range;

use crate::congestion::AckVector;
use crate::fields::Fields;
use crate::pgm::wire::{Body, Data, Encoder, Header, Nak, Nla, Packet, Spm, checksum};
use crate::{credit, tram};

/// Bytes at the start of a packet that are searched for fields. Payload follows.
const FIELDS_END: usize = 96;

const OPTIONS: u8 = 0x40;

/// Candidate values of an option: the first that decodes is used. Two end with an IPv4 address.
const OPTION_VALUES: [&[u8]; 6] = [
    &[],
    &[0; 4],
    &[0; 8],
    &[0; 12],
    &[0, 1, 0, 0, 10, 9, 8, 7],
    &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 10, 9, 8, 7],
];

const LARGE: u64 = (1 << 62) - 2;

/// Packet format: positions of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    magic: &'static [u8],
    kind: usize,
    flags: usize,
    fields: usize,
    word: usize,
    sender: Option<usize>,
}

/// Format of TRAM.
pub const TRAM: Format =
    Format { magic: b"ft", kind: 3, flags: 4, fields: 24, word: 8, sender: Some(16) };

/// Format of PGM.
pub const PGM: Format = Format { magic: &[], kind: 4, flags: 5, fields: 16, word: 4, sender: None };

/// Format of credits: capsules without their payload, and the packets that answer them.
pub const CREDIT: Format =
    Format { magic: b"fr", kind: 3, flags: 4, fields: 8, word: 4, sender: None };

/// Harmful value of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Value {
    Zero,
    /// All bits set.
    Most,
    /// Largest packet number that is accepted.
    Large,
    /// True value plus this number.
    Add(i64),
}

impl Value {
    const ALL: [Self; 9] = [
        Self::Zero,
        Self::Most,
        Self::Large,
        Self::Add(1),
        Self::Add(50),
        Self::Add(1000),
        Self::Add(100_000),
        Self::Add(-1),
        Self::Add(-1000),
    ];

    fn of(self, old: u64) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Most => u64::MAX,
            Self::Large => LARGE,
            Self::Add(more) => old.wrapping_add_signed(more),
        }
    }
}

/// Change to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Change {
    /// No change: the packet is replayed, or sent under another sender's name.
    Nothing,
    Flags(u8),
    Byte(usize, u8),
    Half(usize, u16),
    Number(usize, Value),
    Both(u8, usize, Value),
}

impl Format {
    /// True if the first bytes of a packet match this format.
    pub fn owns(self, packet: &[u8]) -> bool {
        packet.starts_with(self.magic)
    }

    /// Returns the kind of a packet.
    pub fn kind(self, packet: &[u8]) -> u8 {
        packet.get(self.kind).copied().unwrap_or_default()
    }

    /// Returns the position of the sender's number in a packet.
    pub fn sender(self) -> Option<Range<usize>> {
        self.sender.map(|at| at..at + 8)
    }

    /// Returns a packet of each kind, in the session and name of the sender of `data`, a data
    /// packet with `zeros` zero bytes at its end. PGM: also with each option.
    pub fn specimens(self, data: &[u8], zeros: u32) -> Vec<Vec<u8>> {
        if self == PGM {
            return pgm_specimens(data, zeros);
        }
        if self == CREDIT {
            return credit::specimens(data);
        }
        let mut fields = Fields(data.get(8..).unwrap_or_default());
        let [session, sender, last] = [(); 3].map(|()| fields.read().unwrap_or(1));
        tram::specimens(session, sender, last)
    }

    /// True if a packet has no options. Only the fields of such packets are changed.
    pub fn is_plain(self, packet: &[u8]) -> bool {
        self != PGM || packet.get(self.flags).is_some_and(|flags| flags & 1 == 0)
    }

    /// Returns all harmful changes to a packet.
    pub fn changes(self, packet: &[u8]) -> Vec<Change> {
        if !self.is_plain(packet) {
            return [Change::Nothing].into();
        }
        let (fields, word) = (self.fields, self.word);
        let end = packet.len().min(FIELDS_END);
        let bit = |bit: usize| 1u8 << bit;
        let mut all = Vec::from([Change::Nothing]);
        for one in 0..8 {
            all.push(Change::Flags(bit(one)));
            all.extend((one + 1..8).map(|other| Change::Flags(bit(one) | bit(other))));
            let ahead = [1, 50].map(|ahead| Change::Both(bit(one), fields, Value::Add(ahead)));
            all.extend(ahead);
        }
        for at in (fields..end.saturating_sub(word - 1)).step_by(word) {
            all.extend(Value::ALL.map(|value| Change::Number(at, value)));
        }
        for at in (fields..end.saturating_sub(1)).step_by(2) {
            all.extend([0, u16::MAX].map(|value| Change::Half(at, value)));
        }
        for at in fields..end.min(fields + 4) {
            all.extend([1, 2, 3, 4, 63, u8::MAX].map(|value| Change::Byte(at, value)));
        }
        all
    }

    /// Applies a change, if the packet has that position, and corrects the checksum.
    pub fn apply(self, change: Change, packet: &mut [u8]) {
        self.put(change, packet);
        let header = if self == CREDIT { credit::header_bytes(packet) } else { usize::MAX };
        let covered = header.min(packet.len());
        let packet = &mut packet[..covered];
        if let Some(place) = packet.get_mut(6..8) {
            place.fill(0);
            let sum = checksum(packet);
            packet[6..8].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn put(self, change: Change, packet: &mut [u8]) {
        let (at, bytes): (usize, &[u8]) = match change {
            Change::Nothing => return,
            Change::Flags(flags) => (self.flags, &[flags]),
            Change::Byte(at, value) => (at, &[value]),
            Change::Half(at, value) => (at, &value.to_be_bytes()),
            Change::Number(at, value) => {
                let Some(word) = packet.get_mut(at..at + self.word) else { return };
                let old = word.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                word.copy_from_slice(&value.of(old).to_be_bytes()[8 - self.word..]);
                return;
            }
            Change::Both(flags, at, value) => {
                self.put(Change::Number(at, value), packet);
                self.put(Change::Flags(flags), packet);
                return;
            }
        };
        if let Some(place) = packet.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

fn pgm_specimens(data: &[u8], zeros: u32) -> Vec<Vec<u8>> {
    let Ok(packet) = Packet::decode(data, zeros) else { return Vec::new() };
    let Body::Odata(Data { sequence, .. }) = packet.body else { return Vec::new() };
    let (tsi, port) = (packet.tsi(), packet.header.data_port(packet.kind()));
    let (first, trail, path) = (sequence, sequence - 8, Nla::V4([10, 9, 8, 7]));
    let nak = Nak { first, source: path, group: path };
    let vector = AckVector { highest: sequence, bitmap: 1 };
    let data = Data { sequence, trail };
    let all = [
        Body::Spm(Spm { sequence, trail, lead: sequence, path }),
        Body::Odata(data),
        Body::Rdata(data),
        Body::Nak(nak),
        Body::Nnak(nak),
        Body::Ncf(nak),
        Body::Spmr,
        Body::Ack(vector),
    ];
    let mut packets = Vec::new();
    for body in all {
        let header = match body.kind().is_upstream() {
            true => Header::upstream(tsi, port),
            false => Header::downstream(tsi, port),
        };
        let options = match body {
            Body::Spm(_) | Body::Odata(_) => 1..OPTIONS,
            _ => 1..2,
        };
        for option in options {
            let with = |value: &[u8]| {
                let mut bytes = Vec::new();
                let mut encoder = Encoder::new(&mut bytes, &header, &body);
                // The encoder writes options 0 and 1 itself.
                if option > 1 {
                    encoder.raw_option(option, 0, value);
                }
                encoder.finish();
                bytes
            };
            let mut made = OPTION_VALUES.iter().map(|value| with(value));
            packets.extend(made.find(|bytes| Packet::decode(bytes, 0).is_ok()));
        }
    }
    packets
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use crate::pgm::wire::{Gsi, PacketType, Tsi};
    use crate::tests::formats;
    use faircast_base::Seq;

    fn pgm_data() -> Vec<u8> {
        let header = Header::downstream(Tsi { gsi: Gsi([7; 6]), port: 3 }, 7500);
        let data = Data { sequence: Seq::new(100), trail: Seq::new(1) };
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, &header, &Body::Odata(data)).finish();
        bytes
    }

    #[test]
    fn each_type_of_pgm_has_a_specimen_that_decodes() {
        let all = PGM.specimens(&pgm_data(), 0);
        formats::check("pgm", all.clone());
        for bytes in &all {
            assert_eq!(Packet::decode(bytes, 0).unwrap().tsi().port, 3);
        }
        let options = usize::from(OPTIONS) - 1;
        assert_eq!(all.len(), 6 + 2 * options, "SPM and data come with each option");
        let kinds: BTreeSet<u8> = all.iter().map(|bytes| PGM.kind(bytes) & 0x0f).collect();
        let known = (0..16).filter(|kind| PacketType::from_nibble(*kind).is_some());
        // 0x0b is a second number of ACK.
        let known: BTreeSet<u8> = known.filter(|kind| *kind != 0x0b).collect();
        assert_eq!(kinds, known);
    }

    #[test]
    fn each_kind_of_credits_has_a_specimen_and_changes_keep_its_checksum() {
        let capsule = |place: usize, byte| {
            let mut bytes = b"fr\x01\x01\x08\0\0\0".to_vec();
            bytes.resize(52, 0);
            (bytes[37], bytes[39]) = (5, 1);
            bytes[place] = byte;
            CREDIT.apply(Change::Nothing, &mut bytes);
            bytes
        };
        let all = CREDIT.specimens(&capsule(8, 1), 0);
        formats::check("credit", all.clone());
        let kinds: BTreeSet<u8> = all.iter().map(|bytes| CREDIT.kind(bytes)).collect();
        assert_eq!(kinds, (1..=5).collect());
        for packet in &all {
            for change in CREDIT.changes(packet) {
                let mut forged = packet.clone();
                CREDIT.apply(change, &mut forged);
                assert_eq!(checksum(&forged[..credit::header_bytes(&forged)]), 0, "{change:?}");
            }
        }
    }

    #[test]
    fn every_byte_of_the_fields_is_changed_and_checksums_are_right() {
        for packet in tram::specimens(1, 2, 3) {
            let mut changed = BTreeSet::new();
            for change in TRAM.changes(&packet) {
                let mut forged = packet.clone();
                TRAM.apply(change, &mut forged);
                assert_eq!(checksum(&forged), 0, "{change:?}");
                let other = (0..packet.len()).filter(|at| packet[*at] != forged[*at]);
                changed.extend(other);
            }
            let end = packet.len() & !1;
            assert!((24..end).all(|at| changed.contains(&at)), "{packet:?}: {changed:?}");
        }
    }
}
