//! Decoding errors of PGM packets.

use core::fmt;

use faircast_base::BadInput;

/// Why bytes are not a PGM packet that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the header, body or options do.
    Truncated,
    /// The version is not 0.
    Version(u8),
    /// No packet type has this number.
    UnknownType(u8),
    /// The checksum is wrong.
    Checksum,
    /// A data packet has no checksum.
    NoChecksum,
    /// The length of the payload is not what the header says.
    PayloadLength,
    /// No address family has this number.
    AddressFamily(u16),
    /// The options do not begin with their length, or do not end where it says.
    OptionsLength,
    /// There are more options than the format allows.
    TooManyOptions,
    /// The option of this type has a length that its format forbids.
    OptionLength(u8),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the packet is cut short"),
            Self::Version(version) => write!(f, "version {version} of PGM is unknown"),
            Self::UnknownType(number) => write!(f, "packet type {number:#04x} is unknown"),
            Self::Checksum => f.write_str("the checksum is wrong"),
            Self::NoChecksum => f.write_str("a data packet without checksum"),
            Self::PayloadLength => f.write_str("the payload is not as long as the header says"),
            Self::AddressFamily(number) => write!(f, "address family {number} is unknown"),
            Self::OptionsLength => f.write_str("the length of all options is wrong"),
            Self::TooManyOptions => f.write_str("too many options"),
            Self::OptionLength(kind) => write!(f, "option {kind:#04x} has a wrong length"),
        }
    }
}

impl core::error::Error for DecodeError {}

impl From<DecodeError> for BadInput {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Truncated => Self::Truncated,
            DecodeError::Checksum | DecodeError::NoChecksum => Self::Checksum,
            DecodeError::Version(_)
            | DecodeError::UnknownType(_)
            | DecodeError::PayloadLength
            | DecodeError::AddressFamily(_)
            | DecodeError::OptionsLength
            | DecodeError::TooManyOptions
            | DecodeError::OptionLength(_) => Self::Malformed,
        }
    }
}
