//! PGM packets (src: RFC 3208), with the ACK and the congestion control options that OpenPGM adds.
//!
//! [`Packet::decode`] borrows and allocates nothing; [`Encoder`] appends to a `Vec<u8>`. A packet is
//! its bytes followed by a count of zero bytes, as in [`Datagram`](crate::Datagram); only payload
//! may lie among those zeros, since every encoder writes headers and options out.
//!
//! Reserved bits and the bits that only network elements look at (OPX) are never checked on input,
//! because OpenPGM leaves them uninitialised, and are zero on output. Unknown options are skipped
//! by their length. The value of a scheme's option ([`Wire`]) passes through untouched.
//!
//! [`Wire`]: crate::congestion::Wire

mod checksum;
mod header;
mod nla;
mod options;
mod packet;
#[cfg(test)]
pub(crate) mod tests;

pub use checksum::checksum;
pub use header::{Gsi, HEADER_LEN, Header, PacketType, Tsi, data_overhead, peek};
pub use nla::Nla;
pub use options::{NAK_LIST_MAX, NakList, OPTIONS_MAX, OptionType, Options, RawOption};
pub(crate) use packet::Received;
pub use packet::{Ack, Body, Data, Encoder, NO_WINDOW_LEAD, Nak, Packet, Payload, Spm};
