//! Receive window: what a receiver has, lacks and allows the source to send (src: tram s3.2, s3.3).
//!
//! Input: data and repairs, the end of each acknowledgement window, and requests of members.
//! Output: the first missing packet and the last allowed one (H_a) for acknowledgements, the lost
//! packets to request, and the repairs to send from the cache. Received packets are in `reception`,
//! the congestion window in `congestion`, times of acknowledgements in `ack_schedule`, packets kept
//! for repair in `cache`, and requested repairs in `repairs`.

mod ack_schedule;
mod cache;
mod congestion;
mod obsolete;
mod receive_window;
mod reception;
mod repairer;
mod repairs;

pub(super) use ack_schedule::AckSchedule;
pub(super) use cache::Cache;
pub(super) use congestion::{CongestionWindow, LEVELS_MAX};
pub(super) use obsolete::ObsoleteLimit;
pub(super) use receive_window::ReceiveWindow;
pub(super) use reception::{Arrived, JUMP_MAX, Reception};
pub(super) use repairer::{RepairRequest, Repairer};
#[cfg(test)]
pub(super) use repairs::REPAIR_INTERVAL;
pub(super) use repairs::Repair;
