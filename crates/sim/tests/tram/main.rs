//! Sessions of TRAM in the simulator: trees that form, break and heal, and complete delivery.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod controllers;
mod delivery;
mod faults;
mod liars;
mod named;
mod objects;
mod overheard;
mod scale;
mod world;
