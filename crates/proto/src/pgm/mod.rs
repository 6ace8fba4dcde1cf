//! PGM (src: RFC 3208): packets, both ends of a session, repair by NAK, and the network element.
//!
//! [`PgmSource`] reads its [`Content`](crate::content::Content) by position and holds no payload.
//! [`PgmReceiver`] keeps only packets that came out of order. Both are
//! [`Machine`](crate::Machine)s.

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

/// Returns the facts of a packet (src: RFC 3208 s8, s3.6.3, s3.7), of other protocols too.
pub fn facts(packet: &[u8]) -> PacketFacts {
    use wire::PacketType::{Ncf, Odata, Rdata, Spm};
    let Some((kind, _)) = wire::peek(packet) else { return PacketFacts::default() };
    let payload_len = u16::from_be_bytes([packet[14], packet[15]]);
    PacketFacts {
        payload_len: if matches!(kind, Odata | Rdata) { payload_len.into() } else { 0 },
        router_alert: matches!(kind, Spm | Ncf | Rdata),
    }
}
