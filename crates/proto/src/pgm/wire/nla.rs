//! Network-layer addresses in packets.

use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, NodeId};

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
        let family = match self {
            Self::V4(_) => 1,
            Self::V6(_) => 2,
        };
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
