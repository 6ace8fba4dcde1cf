//! The protocols of faircast as pure state machines: no sockets, clocks, threads or randomness of
//! their own. A simulator, a lab or live sockets drive them through [`Machine`].
//!
//! The crate is `no_std`, so the compiler proves that nothing here can reach the outside world.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod content;
pub mod control;
pub mod endpoint;
mod machine;
pub mod options;
mod pace;
mod patience;
pub mod promises;
pub mod registry;
pub mod relay;
pub mod schemes;
pub mod speech;
pub mod transfer;
pub mod wire;

pub use machine::{AppEvent, Datagram, Destination, Machine, Transmit};
pub use pace::Pace;
pub use patience::RepairTimers;
