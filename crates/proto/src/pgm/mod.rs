//! PGM (src: RFC 3208): packets, the two ends of a session with whatever congestion control the
//! scheme brings, repair by NAK above it, and the network element.
//!
//! [`PgmSource`] reads its [`Content`](crate::content::Content) by position, so neither the
//! transmit window nor repairs hold payload. [`PgmReceiver`] delivers in order and keeps only what
//! came out of order. Both are [`Machine`](crate::Machine)s.

mod config;
pub mod element;
pub mod negotiation;
pub(crate) mod options;
pub(crate) mod repair;
pub(crate) mod retry_timer;
pub(crate) mod session;
#[cfg(test)]
mod tests;
pub mod wire;

use crate::transport::PacketFacts;

pub(crate) use config::DATA_PORT;
pub use config::{ReceiverConfig, SourceConfig};
pub use element::PgmElement;
pub use options::{DeliveryMode, OPTIONS, Parity, PgmFlowSettings};
pub use repair::{PgmReceiver, PgmSource};
pub use session::SpmOrder;

/// Facts of a packet. A packet of another protocol is control traffic that no element sees. src: RFC 3208 s8 for the
/// header, s3.6.3 and s3.7 for the packets with a router alert
pub fn facts(packet: &[u8]) -> PacketFacts {
    use wire::PacketType::{Ncf, Odata, Rdata, Spm};
    let Some((kind, _)) = wire::peek(packet) else { return PacketFacts::default() };
    let payload_len = u16::from_be_bytes([packet[14], packet[15]]);
    PacketFacts {
        payload_len: if matches!(kind, Odata | Rdata) { payload_len.into() } else { 0 },
        router_alert: matches!(kind, Spm | Ncf | Rdata),
    }
}
