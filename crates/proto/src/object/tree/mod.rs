//! Objects over TRAM: ends of a transfer whose receivers repair for each other.
//!
//! The TRAM session below delivers all packets in order. Receivers report to the source as over
//! PGM. Wire format: `docs/tram.md`.

mod receiver;
mod source;
mod stream;
mod words;

pub use receiver::TramObjectReceiver;
pub use source::TramObjectSource;
