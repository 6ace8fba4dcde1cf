//! Reliable delivery over PGM as a whole: sources, receivers, network elements and the network
//! between them, from scenario files as a user would write them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod faults;
mod objects;
mod profiles;
mod quiet;
mod repairs;
mod requests;
mod schemes;
mod sweep;
mod world;
