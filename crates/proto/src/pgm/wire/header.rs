//! The common header of all PGM packets (src: RFC 3208 s8).

use core::fmt;

use faircast_base::{BadInput, Checked};

/// Bytes of the common header.
pub const HEADER_LEN: usize = 16;

/// Bytes that a data packet has beside its payload, those of IPv4 and UDP among them, where the value
/// of its scheme's option has `announce`: what rates count that count headers.
pub const fn data_overhead(announce: usize) -> u32 {
    const IPV4_AND_UDP: usize = 20 + 8;
    const NUMBERS: usize = 8;
    const OPTIONS_LENGTH: usize = 4;
    const OPTION: usize = 4;
    (IPV4_AND_UDP + HEADER_LEN + NUMBERS + OPTIONS_LENGTH + OPTION + announce) as u32
}

/// Option extensions are present.
pub(super) const FLAG_OPTIONS: u8 = 0x01;
/// Some of them matter to network elements.
pub(super) const FLAG_NETWORK_SIGNIFICANT: u8 = 0x02;
/// Parity over packets of various lengths.
pub(super) const FLAG_VARIABLE_LENGTH: u8 = 0x40;
/// A parity packet.
pub(super) const FLAG_PARITY: u8 = 0x80;

/// The global source id: names a source, whatever ports it uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gsi(pub [u8; 6]);

impl fmt::Debug for Gsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{g:02x}")
    }
}

/// The transport session id, by which every packet says to which session it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tsi {
    /// The source.
    pub gsi: Gsi,
    /// Its data-source port.
    pub port: u16,
}

/// The packet types that this codec knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum PacketType {
    /// Source path message.
    Spm = 0x00,
    Odata = 0x04,
    Rdata = 0x05,
    Nak = 0x08,
    /// Null negative acknowledgement.
    Nnak = 0x09,
    Ncf = 0x0a,
    Spmr = 0x0c,
    /// Acknowledgement of congestion control; sent as 0x0d as OpenPGM and Wireshark have it.
    Ack = 0x0d,
}

impl PacketType {
    /// The type with this number. 0x0b, the ACK of the first pgmcc code and of tcpdump, is
    /// accepted too.
    pub(crate) const fn from_nibble(nibble: u8) -> Option<Self> {
        Some(match nibble {
            0x00 => Self::Spm,
            0x04 => Self::Odata,
            0x05 => Self::Rdata,
            0x08 => Self::Nak,
            0x09 => Self::Nnak,
            0x0a => Self::Ncf,
            0x0b | 0x0d => Self::Ack,
            0x0c => Self::Spmr,
            _ => return None,
        })
    }

    /// Whether such packets travel from receivers towards the source, which tells which port names
    /// the session.
    pub const fn is_upstream(self) -> bool {
        matches!(self, Self::Nak | Self::Nnak | Self::Spmr | Self::Ack)
    }

    /// Whether such packets carry payload.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Odata | Self::Rdata)
    }
}

/// What a common header says, besides type, checksum and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Header {
    /// Downstream the data-source port, upstream the data-destination port.
    pub source_port: u16,
    /// Downstream the data-destination port, upstream the data-source port.
    pub destination_port: u16,
    /// The source of the session, in upstream packets too.
    pub gsi: Gsi,
    /// Whether the payload is parity, or the NAK asks for parity.
    pub parity: bool,
    /// Whether parity covers packets of various lengths.
    pub variable_length: bool,
}

impl Header {
    /// The header of a packet that the source of `tsi` or an element on its behalf sends.
    pub const fn downstream(tsi: Tsi, data_port: u16) -> Self {
        Self {
            source_port: tsi.port,
            destination_port: data_port,
            gsi: tsi.gsi,
            parity: false,
            variable_length: false,
        }
    }

    /// The header of a packet that goes towards the source of `tsi`.
    pub const fn upstream(tsi: Tsi, data_port: u16) -> Self {
        let (source_port, destination_port) = (data_port, tsi.port);
        Self { source_port, destination_port, ..Self::downstream(tsi, data_port) }
    }

    /// The session, for a packet of type `kind`.
    pub const fn tsi(&self, kind: PacketType) -> Tsi {
        let port = if kind.is_upstream() { self.destination_port } else { self.source_port };
        Tsi { gsi: self.gsi, port }
    }

    /// The data-destination port, for a packet of type `kind`.
    pub const fn data_port(&self, kind: PacketType) -> u16 {
        if kind.is_upstream() { self.source_port } else { self.destination_port }
    }
}

/// The type and session of the packet that `bytes` begin with, without a look at anything else;
/// `None` where they are no PGM packet. By this drivers tell sessions apart.
pub fn peek(bytes: &[u8]) -> Option<(PacketType, Tsi)> {
    let fixed = Fixed::decode(bytes.first_chunk()?).ok()?;
    Some((fixed.kind, fixed.header.tsi(fixed.kind)))
}

/// The fixed part of a packet, taken apart.
pub(super) struct Fixed {
    pub(super) header: Header,
    pub(super) kind: PacketType,
    pub(super) has_options: bool,
    pub(super) checksum: u16,
    pub(super) payload_len: u16,
}

impl Fixed {
    pub(super) fn decode(bytes: &[u8; HEADER_LEN]) -> Checked<Self> {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (version, nibble) = (bytes[4] >> 6, bytes[4] & 0x0f);
        if version != 0 {
            return Err(BadInput::Malformed);
        }
        let kind = PacketType::from_nibble(nibble).ok_or(BadInput::Malformed)?;
        let flags = bytes[5];
        Ok(Self {
            header: Header {
                source_port: word(0),
                destination_port: word(2),
                gsi: Gsi([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13]]),
                parity: flags & FLAG_PARITY != 0,
                variable_length: flags & FLAG_VARIABLE_LENGTH != 0,
            },
            kind,
            has_options: flags & FLAG_OPTIONS != 0,
            checksum: word(6),
            payload_len: word(14),
        })
    }
}
