//! The contract of ARCHITECTURE.md, for everything that is registered: who adds a scheme adds no
//! line here. The limits of memory are in `tests/memory.rs`, which counts allocations.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod absurd;
mod ahead;
mod balance;
mod bytes;
mod catalogue;
mod forge;
mod forged;
mod lies;
mod relays;
mod reordering;
mod repeat;
mod reports;
mod silence;
mod watch;
mod world;
