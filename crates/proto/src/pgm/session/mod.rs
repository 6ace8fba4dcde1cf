//! PGM session without repair: sequence numbers, SPMs, negotiation, the scheme's halves, the end.
//!
//! Repair is a layer above: [`repair`](super::repair) or [`object`](crate::object).

mod receiver;
mod source;

pub use receiver::SpmOrder;
pub(crate) use receiver::{
    REORDER_DELAY, ReceiverPhase, ReceiverSession, RepairLayer, dissent, naks, reach, start_over,
};
pub(crate) use source::{DataPacket, SourceSession};
