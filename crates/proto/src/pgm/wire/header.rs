//! Common header of all PGM packets (src: RFC 3208 s8), and addresses.

use alloc::vec::Vec;
use core::fmt;

use faircast_base::{BadInput, Checked, NodeId};

use crate::fields::Fields;

/// Bytes of the common header.
pub const HEADER_LEN: usize = 16;

/// Returns the header bytes of a data packet: IPv4, UDP, PGM, option of `announce` bytes.
pub const fn data_overhead(announce: usize) -> u32 {
    const IPV4_AND_UDP: usize = 20 + 8;
    const NUMBERS: usize = 8;
    const OPTIONS_LENGTH: usize = 4;
    const OPTION: usize = 4;
    (IPV4_AND_UDP + HEADER_LEN + NUMBERS + OPTIONS_LENGTH + OPTION + announce) as u32
}

pub(super) const FLAG_OPTIONS: u8 = 0x01;
/// Flag: some options matter to network elements.
pub(super) const FLAG_NETWORK_SIGNIFICANT: u8 = 0x02;
/// Flag: parity over packets of various lengths.
pub(super) const FLAG_VARIABLE_LENGTH: u8 = 0x40;
pub(super) const FLAG_PARITY: u8 = 0x80;

/// Global source id: identifies a source with any ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gsi(pub [u8; 6]);

impl fmt::Debug for Gsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{g:02x}")
    }
}

/// Transport session id, which identifies the session of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tsi {
    /// Source of the session.
    pub gsi: Gsi,
    /// Data-source port of the source.
    pub port: u16,
}

/// Packet types that this codec knows.
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
    /// Acknowledgement of congestion control; sent as 0x0d, as in OpenPGM and Wireshark.
    Ack = 0x0d,
}

impl PacketType {
    /// Returns the type with this number, or with 0x0b, the ACK of early pgmcc code and of tcpdump.
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

    /// Returns true for packets towards the source, where another port names the session.
    pub const fn is_upstream(self) -> bool {
        matches!(self, Self::Nak | Self::Nnak | Self::Spmr | Self::Ack)
    }

    /// Returns true for packets with payload.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Odata | Self::Rdata)
    }
}

/// Contents of a common header, except type, checksum and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Header {
    /// Data-source port downstream, data-destination port upstream.
    pub source_port: u16,
    /// Data-destination port downstream, data-source port upstream.
    pub destination_port: u16,
    /// Source of the session, in upstream packets too.
    pub gsi: Gsi,
    /// True if the payload is parity, or the NAK asks for parity.
    pub parity: bool,
    /// True if parity covers packets of various lengths.
    pub variable_length: bool,
}

impl Header {
    /// Returns the header of a packet sent by the source of `tsi`, or by an element on its behalf.
    pub const fn downstream(tsi: Tsi, data_port: u16) -> Self {
        let (source_port, destination_port, gsi) = (tsi.port, data_port, tsi.gsi);
        Self { source_port, destination_port, gsi, parity: false, variable_length: false }
    }

    /// Returns the header of a packet towards the source of `tsi`.
    pub const fn upstream(tsi: Tsi, data_port: u16) -> Self {
        let (source_port, destination_port) = (data_port, tsi.port);
        Self { source_port, destination_port, ..Self::downstream(tsi, data_port) }
    }

    /// Returns the session, for a packet of type `kind`.
    pub const fn tsi(&self, kind: PacketType) -> Tsi {
        let port = if kind.is_upstream() { self.destination_port } else { self.source_port };
        Tsi { gsi: self.gsi, port }
    }

    /// Returns the data-destination port, for a packet of type `kind`.
    pub const fn data_port(&self, kind: PacketType) -> u16 {
        if kind.is_upstream() { self.source_port } else { self.destination_port }
    }
}

/// Returns type and session of a packet from its first bytes; `None` if it is no PGM packet.
pub fn peek(bytes: &[u8]) -> Option<(PacketType, Tsi)> {
    let fixed = Fixed::decode(bytes.first_chunk()?).ok()?;
    Some((fixed.kind, fixed.header.tsi(fixed.kind)))
}

pub(super) struct Fixed {
    pub(super) header: Header,
    pub(super) kind: PacketType,
    pub(super) has_options: bool,
    pub(super) checksum: u16,
    pub(super) payload_len: u16,
}

impl Fixed {
    pub(super) fn decode(bytes: &[u8; HEADER_LEN]) -> Checked<Self> {
        let fields: Option<(_, _, [u8; 2], _, _, _)> = Fields(bytes).read();
        let (source_port, destination_port, [first, flags], checksum, gsi, payload_len) =
            fields.ok_or(BadInput::Truncated)?;
        let (version, nibble) = (first >> 6, first & 0x0f);
        if version != 0 {
            return Err(BadInput::Malformed);
        }
        let kind = PacketType::from_nibble(nibble).ok_or(BadInput::Malformed)?;
        Ok(Self {
            header: Header {
                source_port,
                destination_port,
                gsi: Gsi(gsi),
                parity: flags & FLAG_PARITY != 0,
                variable_length: flags & FLAG_VARIABLE_LENGTH != 0,
            },
            kind,
            has_options: flags & FLAG_OPTIONS != 0,
            checksum,
            payload_len,
        })
    }
}

/// Network-layer address. A [`NodeId`] is sent as an IPv4 address; drivers map it to a real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nla {
    /// Address family 1: IPv4.
    V4([u8; 4]),
    /// Address family 2: IPv6.
    V6([u8; 16]),
}

impl Nla {
    /// Null address.
    pub const NULL: Self = Self::V4([0; 4]);

    /// Returns the address of `node`.
    pub const fn from_node(node: NodeId) -> Self {
        Self::V4(node.0.to_be_bytes())
    }

    /// Returns the node of the address; `None` for IPv6.
    pub const fn node(self) -> Option<NodeId> {
        match self {
            Self::V4(octets) => Some(NodeId(u32::from_be_bytes(octets))),
            Self::V6(_) => None,
        }
    }

    /// Returns true for the null addresses 0.0.0.0 and ::.
    pub fn is_null(self) -> bool {
        self.octets().iter().all(|&octet| octet == 0)
    }

    /// Returns true if the groups are equal or one is null: unicast receivers know no group.
    pub fn is_group(self, other: Self) -> bool {
        self == other || self.is_null() || other.is_null()
    }

    /// Returns the bytes of the address alone.
    pub fn octets(&self) -> &[u8] {
        match self {
            Self::V4(octets) => octets,
            Self::V6(octets) => octets,
        }
    }

    /// Appends family (2 bytes), two reserved bytes and the address.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let family = if matches!(self, Self::V4(_)) { 1 } else { 2 };
        out.extend_from_slice(&[0, family, 0, 0]);
        out.extend_from_slice(self.octets());
    }

    /// Decodes the output of [`encode`](Self::encode) from the front of `bytes`.
    ///
    /// # Errors
    /// `Truncated`, or `Malformed` for an unknown address family.
    pub fn decode(bytes: &mut &[u8]) -> Checked<Self> {
        let (&[f0, f1, _, _], rest) = bytes.split_first_chunk().ok_or(BadInput::Truncated)?;
        let (nla, rest) = match u16::from_be_bytes([f0, f1]) {
            1 => rest.split_first_chunk().map(|(octets, rest)| (Self::V4(*octets), rest)),
            2 => rest.split_first_chunk().map(|(octets, rest)| (Self::V6(*octets), rest)),
            _ => return Err(BadInput::Malformed),
        }
        .ok_or(BadInput::Truncated)?;
        *bytes = rest;
        Ok(nla)
    }
}

impl From<NodeId> for Nla {
    fn from(node: NodeId) -> Self {
        Self::from_node(node)
    }
}
