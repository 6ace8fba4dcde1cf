//! Header of a sealed datagram, and the length that sealing adds.

use std::fmt;

use crate::refusal::Refusal;

/// Bytes that sealing adds to any datagram: header and tag.
pub const OVERHEAD: usize = HEADER_BYTES + TAG_BYTES;

/// Identifier of a session: drawn at random by its source, and part of the key derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Salt(pub [u8; 16]);

/// First bytes of a key's id, in each datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHint(pub [u8; 3]);

/// Role of an end in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// Sends to the group.
    Source = 0,
    /// Receives the group's packets.
    Receiver = 1,
}

/// Returns the hint of the key that sealed a datagram; `None` if it is not sealed.
pub fn key_hint(datagram: &[u8]) -> Option<KeyHint> {
    Header::parse(datagram).ok().map(|header| header.key)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) role: Role,
    pub(crate) key: KeyHint,
    pub(crate) salt: Salt,
    pub(crate) party: u64,
    pub(crate) counter: u64,
}

impl Header {
    pub(crate) fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..3].copy_from_slice(MAGIC);
        bytes[3] = VERSION;
        bytes[4] = NO_PGM | self.role as u8;
        bytes[5..8].copy_from_slice(&self.key.0);
        bytes[8..24].copy_from_slice(&self.salt.0);
        bytes[24..32].copy_from_slice(&self.party.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.counter.to_be_bytes());
        bytes
    }

    pub(crate) fn parse(datagram: &[u8]) -> Result<Self, Refusal> {
        if datagram.len() < 5 || &datagram[..3] != MAGIC || datagram[4] & NO_PGM != NO_PGM {
            return Err(Refusal::Plain);
        }
        let role = match (datagram[3], datagram[4] & !NO_PGM) {
            (VERSION, 0) => Role::Source,
            (VERSION, 1) => Role::Receiver,
            _ => return Err(Refusal::Version),
        };
        if datagram.len() < OVERHEAD {
            return Err(Refusal::Short);
        }
        Ok(Self {
            role,
            key: KeyHint(array(datagram, 5)),
            salt: Salt(array(datagram, 8)),
            party: u64::from_be_bytes(array(datagram, 24)),
            counter: u64::from_be_bytes(array(datagram, 32)),
        })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the range has so many bytes")
}

impl fmt::Display for KeyHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const MAGIC: &[u8; 3] = b"fcs";
const VERSION: u8 = 1;
/// Bits that are zero in PGM's fifth byte: PGM and sealed datagrams differ (src: RFC 3208 s8.1).
const NO_PGM: u8 = 0xc0;
pub(crate) const HEADER_BYTES: usize = 40;
pub(crate) const TAG_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let (salt, key) = (Salt(*b"0123456789abcdef"), KeyHint([1, 2, 3]));
        Header { role: Role::Receiver, key, salt, party: 7 << 40, counter: 9 << 33 }
    }

    #[test]
    fn a_header_comes_back_from_its_bytes() {
        let mut datagram = header().write().to_vec();
        datagram.resize(OVERHEAD, 0);
        assert_eq!(Header::parse(&datagram), Ok(header()));
        assert_eq!(key_hint(&datagram), Some(KeyHint([1, 2, 3])));
    }

    #[test]
    fn plain_foreign_and_short_datagrams_are_told_apart() {
        let mut sealed = header().write().to_vec();
        sealed.resize(OVERHEAD, 0);
        // A PGM packet with ports that equal the magic bytes.
        let mut pgm = sealed.clone();
        pgm[4] = 0x04;
        let mut later = sealed.clone();
        later[3] = 2;
        let mut role = sealed.clone();
        role[4] = 0xc7;
        for (case, datagram, want) in [
            ("nothing", &[][..], Refusal::Plain),
            ("four bytes", &sealed[..4], Refusal::Plain),
            ("PGM", &pgm, Refusal::Plain),
            ("a later version", &later, Refusal::Version),
            ("a role of a later version", &role, Refusal::Version),
            ("one byte too few", &sealed[..OVERHEAD - 1], Refusal::Short),
        ] {
            assert_eq!(Header::parse(datagram), Err(want), "{case}");
        }
    }
}
