//! PGM's session apart from repair: its identity (TSI), its numbering, SPMs, who speaks what, the
//! scheme's two halves and their reports, its end.
//!
//! What repairs lies above: by NAK for streams ([`repair`](super::repair)), by requested symbols for
//! objects ([`object`](crate::object)).

mod receiver;
mod source;

pub use receiver::SpmOrder;
pub(crate) use receiver::{
    REORDER_DELAY, ReceiverPhase, ReceiverSession, RepairLayer, crowd, dissent, naks, reach,
    start_over,
};
pub(crate) use source::{DataPacket, SourceSession};
