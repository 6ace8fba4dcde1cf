//! Packet-level, discrete-event, deterministic simulation of faircast scenarios.
//!
//! The simulator drives the same protocol machines as the lab and real networks do. Reading order:
//! [`Simulation`] (event loop), [`Fabric`] (network; the lab drives it in real time), `network`
//! (links, routes, trees), `agents` (ends), `faults`, `relays`, [`Wheel`] (event queue).

mod agents;
mod alarm;
mod builtin;
mod calibration;
#[cfg(feature = "quic")]
mod daemons;
mod delivery;
mod engine;
mod fabric;
mod faults;
mod forest;
mod groups;
mod network;
mod packets;
mod paths;
mod relays;
#[cfg(test)]
mod tests;
mod topology;
mod tree;
mod wheel;

pub use builtin::{Builtin, catalog};
pub use calibration::calibration;
pub use delivery::{Delivery, SentContent, SimError};
pub use engine::{Observer, SimOutcome, Simulation, Unobserved};
pub use fabric::{Fabric, Parcel, Protocols};
pub use paths::shortest_round_trip;
pub use wheel::Wheel;
