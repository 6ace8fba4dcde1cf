//! Whole objects to many receivers: every receiver ends with all bytes, whenever it came and
//! whatever it lost.
//!
//! Below is a PGM session without repair, which gives congestion control and nothing else: each
//! packet has a sequence number of its own, repairs too, so that every byte on the wire is paid
//! for. Above it receivers ask for what they lack, and the source sends what somebody asked for.
//! What crosses the wire is described in `docs/transfer.md`.

mod part;
mod setup;
mod status;
mod store;
mod supply;

pub use part::{Announcement, Part};
pub use setup::{
    Fec, SlowPolicy, Transfer, TransferReceiverSetup, TransferSource, TransferSourceSetup,
};
pub use status::{MemberState, MemberStatus, Stage, TransferStatus};
pub use store::{Store, StoreError, StoreProgress, Verdict};
pub use supply::{Supply, SupplyError};
