//! PGM packets (src: RFC 3208), with the ACK and the congestion control options of OpenPGM.
//!
//! A packet is its bytes followed by a count of zero bytes, as in [`Datagram`](crate::Datagram).
//! Only payload may be among the zeros: every encoder writes out headers and options.
//!
//! Reserved bits and OPX bits are never checked on input, since OpenPGM leaves them uninitialised,
//! and are zero on output. Unknown options are skipped by their length.

mod header;
mod options;
mod packet;
#[cfg(test)]
pub(crate) mod tests;

pub use header::{Gsi, HEADER_LEN, Header, Nla, PacketType, Tsi, data_overhead, peek};
pub use options::{NAK_LIST_MAX, OPTIONS_MAX, OptionType, Options, RawOption};
pub(crate) use packet::Received;
pub use packet::{Body, Data, Encoder, NO_WINDOW_LEAD, Nak, Packet, Payload, Spm, checksum};
