//! Whole objects to many receivers: every receiver ends with all bytes, whenever it came and
//! whatever it lost.
//!
//! Below is a PGM session without repair, which gives congestion control and nothing else: each
//! packet has a sequence number of its own, repairs too, so that every byte on the wire is paid
//! for. Above it receivers ask for what they lack, and the source sends what somebody asked for.
//! What crosses the wire is described in `docs/transfer.md`.

mod course;
mod ends;
mod fec;
pub(crate) mod layout;
mod memory;
mod part;
mod path;
mod receiver;
mod setup;
pub(crate) mod source;
mod status;
mod store;
mod supply;
mod tree;
pub(crate) mod wire;

pub use ends::{ObjectReceiverInput, ObjectSender, ObjectSourceInput, ObjectTaker};
pub(crate) use layout::SYMBOL_BYTES_MAX;
pub use memory::{ContentSupply, InOrder};
pub use part::{Announcement, Part};
pub use path::PathLimit;
pub use receiver::ObjectReceiver;
pub use setup::{Fec, ObjectReceiverSetup, ObjectSourceSetup, SlowPolicy};
pub use source::ObjectSource;
pub use status::{
    Cause, HostLoad, Limit, MemberLoad, MemberState, MemberStatus, ObjectStatus, Stage, TreePlace,
};
pub use store::{ObjectError, ObjectResult, Store, Verdict};
pub use supply::Supply;
pub use tree::{TramObjectReceiver, TramObjectSource};
pub use wire::SYMBOL_HEADER;

#[cfg(test)]
mod tests;
