//! Transfer of whole objects to many receivers, in spite of late joins and losses.
//!
//! The PGM session below only controls congestion: every packet, repairs included, has its own
//! sequence number. Receivers request missing symbols. Wire format: `docs/transfer.md`.

mod course;
mod ends;
mod fec;
pub(crate) mod layout;
mod memory;
mod offer;
mod parts;
mod path;
mod planner;
mod receiver;
pub(crate) mod source;
mod status;
mod tree;
pub(crate) mod wire;

pub use ends::{
    Fec, ObjectReceiverInput, ObjectReceiverSetup, ObjectSender, ObjectSourceInput,
    ObjectSourceSetup, ObjectTaker, SlowPolicy,
};
pub(crate) use layout::SYMBOL_BYTES_MAX;
pub use memory::{ContentSupply, InOrder};
pub use parts::{Announcement, ObjectError, ObjectResult, Part, Store, Supply, Verdict};
pub use path::PathLimit;
pub use receiver::ObjectReceiver;
pub use source::ObjectSource;
pub use status::{
    Cause, HostLoad, Limit, MemberLoad, MemberState, MemberStatus, ObjectStatus, PacketCounts,
    ReceiverFailure, Stage, TreePlace,
};
pub use tree::{TramObjectReceiver, TramObjectSource};
pub use wire::SYMBOL_HEADER;

#[cfg(test)]
mod tests;
