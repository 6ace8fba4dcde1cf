//! Network-layer addresses as packets carry them.

use alloc::vec::Vec;

use faircast_base::NodeId;

use super::DecodeError;

/// A network-layer address. A [`NodeId`] travels as an IPv4 address; drivers map it to a real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nla {
    /// Address family 1: IPv4.
    V4([u8; 4]),
    /// Address family 2: IPv6.
    V6([u8; 16]),
}

impl Nla {
    /// The address that stands for nobody.
    pub const NULL: Self = Self::V4([0; 4]);

    /// The address that carries `node`.
    pub const fn from_node(node: NodeId) -> Self {
        Self::V4(node.0.to_be_bytes())
    }

    /// The node that it carries; `None` for IPv6.
    pub const fn node(self) -> Option<NodeId> {
        match self {
            Self::V4(octets) => Some(NodeId(u32::from_be_bytes(octets))),
            Self::V6(_) => None,
        }
    }

    /// Whether it is 0.0.0.0 or ::, which stand for nobody.
    pub fn is_null(self) -> bool {
        self.octets().iter().all(|&octet| octet == 0)
    }

    /// Whether a packet that names the group `other` is of this group. A source may send to each receiver
    /// of a list too; they know of no group, and name the null address.
    pub fn is_group(self, other: Self) -> bool {
        self == other || self.is_null() || other.is_null()
    }

    /// The bytes of the address alone.
    pub fn octets(&self) -> &[u8] {
        match self {
            Self::V4(octets) => octets,
            Self::V6(octets) => octets,
        }
    }

    /// Appends the address alone, its family to be known from the length.
    pub fn encode_bare(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.octets());
    }

    /// Reads the address alone; `None` where `bytes` is neither 4 nor 16 long.
    pub fn decode_bare(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            4 => Some(Self::V4(bytes.try_into().ok()?)),
            16 => Some(Self::V6(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// Appends family (2 bytes), two bytes of `reserved` (pgmcc keeps its loss rate there; all
    /// others have zero) and the address.
    pub fn encode(&self, reserved: u16, out: &mut Vec<u8>) {
        let family: u16 = match self {
            Self::V4(_) => 1,
            Self::V6(_) => 2,
        };
        out.extend_from_slice(&family.to_be_bytes());
        out.extend_from_slice(&reserved.to_be_bytes());
        self.encode_bare(out);
    }

    /// Reads what [`encode`](Self::encode) writes from the front of `bytes`. Returns the address,
    /// the two reserved bytes and what follows.
    ///
    /// # Errors
    /// `Truncated` and `AddressFamily`.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u16, &[u8]), DecodeError> {
        let (&[f0, f1, r0, r1], rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let (nla, rest) = match u16::from_be_bytes([f0, f1]) {
            1 => rest.split_first_chunk().map(|(octets, rest)| (Self::V4(*octets), rest)),
            2 => rest.split_first_chunk().map(|(octets, rest)| (Self::V6(*octets), rest)),
            family => return Err(DecodeError::AddressFamily(family)),
        }
        .ok_or(DecodeError::Truncated)?;
        Ok((nla, u16::from_be_bytes([r0, r1]), rest))
    }
}

impl From<NodeId> for Nla {
    fn from(node: NodeId) -> Self {
        Self::from_node(node)
    }
}
