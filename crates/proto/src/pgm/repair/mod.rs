//! Repair by NAK above a session, and delivery in order: the two ends of a stream.

mod receiver;
mod source;

pub use receiver::PgmReceiver;
pub use source::PgmSource;
