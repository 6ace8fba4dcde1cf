//! One direction of one link: a queue, a serialiser and a wire.
//!
//! The simulator and the lab use the same [`Link`]; only their clocks differ. All times are
//! *scheduled* times: a link never asks when it was woken, only when a packet arrived, and it
//! answers at once when the packet will arrive at the other end. What is in propagation never
//! counts as queue, and remainders below a nanosecond are carried.

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
pub use faults::{Copy, Streams};
pub use link::{Link, Outcome};
