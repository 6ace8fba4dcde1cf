//! Tests of programs: equality with native policies, and effects on their own session only.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod built;
mod faults;
mod hostile;
mod same;
mod signatures;
mod state;
mod text;
mod world;
