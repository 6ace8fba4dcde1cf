//! Receive window: what a receiver has, lacks and allows the source to send (src: tram s3.2, s3.3),
//! and the repairs that a head sends from its cache.

mod cache;
mod congestion;
mod obsolete;
mod receive_window;
mod reception;
mod repairs;

pub(super) use cache::Cache;
pub(super) use congestion::LEVELS_MAX;
pub(super) use obsolete::ObsoleteLimit;
pub(super) use receive_window::ReceiveWindow;
pub(super) use reception::{Arrived, JUMP_MAX};
#[cfg(test)]
pub(super) use repairs::REPAIR_INTERVAL;
pub(super) use repairs::{Repair, RepairRequest, Repairer};
