//! Reliable delivery over PGM, end to end, from scenario files as a user would write them.
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
