//! Contract of ARCHITECTURE.md for everything registered: a new scheme needs no line here.

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
