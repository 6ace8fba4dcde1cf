//! The two ends of a PGM session (src: RFC 3208), with whatever congestion control the scheme
//! brings.
//!
//! [`PgmSource`] reads its [`Content`](crate::content::Content) by position, so neither the
//! transmit window nor repairs hold payload. [`PgmReceiver`] delivers in order and keeps only what
//! came out of order. Both are [`Machine`](crate::Machine)s.

mod bounded;
mod config;
pub(crate) mod options;
pub(crate) mod receiver;
pub(crate) mod source;
#[cfg(test)]
mod tests;

pub use bounded::Bounded;
pub use config::{Bounds, ReceiverConfig, Reliability, SourceConfig};
pub use options::OPTIONS;
pub use receiver::{PgmReceiver, SpmOrder};
pub use source::PgmSource;
