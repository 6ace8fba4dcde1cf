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

pub(crate) use config::DATA_PORT;
pub use config::{ReceiverConfig, Reliability, SourceConfig};
pub use element::PgmElement;
pub use options::OPTIONS;
pub use repair::{PgmReceiver, PgmSource};
pub use retry_timer::RepairTimers;
pub use session::SpmOrder;
