//! One direction of a link: queue, serialiser and wire.
//!
//! The simulator and the lab use [`Link`] with different clocks. All times are *scheduled*: a link
//! takes a packet's arrival time, and returns its arrival at the other end at once.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod faults;
mod link;
mod red;
mod serialiser;

pub use config::{
    BurstLoss, FaultChange, Faults, LinkChange, LinkConfig, Outage, QueueConfig, RedConfig,
    Reorder, Timing,
};
pub use faults::{FaultyCopy, Streams};
pub use link::{Link, Outcome};
