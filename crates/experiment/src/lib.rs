//! Experiments: runs of a scenario, sweeps over its settings, suites with published figures, the
//! comparison of schemes, measurements on real sockets, attacks, and rounds of faults.
//!
//! A run is a [`Scenario`](faircast_scenario::Scenario) in the simulator or in the lab, with
//! listeners to its trace ([`execute()`]). A [`Sweep`] is the product of values of settings and of
//! seeds. A [`Bench`] has a name and a verdict; each takes a [`Request`] and returns [`Results`]. A
//! [`Soak`](soak::Soak) is a sequence of rounds of faults over real programs. A [`Monitor`] watches
//! experiments.
//!
//! Reading order: `execute`, [`sweep`], [`table`], `suite`, `request`, `bench`, then `host` and the
//! modules that use it.

pub mod files;
pub mod soak;
pub mod speed;
pub mod sweep;
pub mod table;

mod attack;
mod bench;
mod error;
mod execute;
mod host;
mod matrix;
mod monitor;
mod optimum;
mod overlay;
mod request;
mod suite;
#[cfg(test)]
mod tests;
mod wire;

pub use bench::{Bench, choose};
pub use error::Error;
pub use execute::{Done, TRACE_FILE, TRIES_MAX, execute, header, run_into, until_valid};
pub use monitor::{Monitor, Runs};
pub use request::{Request, Results};
pub use sweep::Sweep;
