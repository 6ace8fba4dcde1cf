//! Programs of sessions: the policies of the SDK as WebAssembly and as they are do the same, and whatever a program does
//! costs its own session alone.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod built;
mod faults;
mod hostile;
mod same;
mod signatures;
mod text;
mod world;
