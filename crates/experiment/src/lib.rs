//! Experiments: single runs of a scenario, and sweeps over its settings.
//!
//! A run is a [`Scenario`](faircast_scenario::Scenario) in the simulator or in the lab, with whatever
//! listens to its trace ([`execute()`]). A [`Sweep`] is the product of values of its settings and of
//! seeds: each run is kept in a file of its own that is named after what was run, so that a sweep goes
//! on where it stopped, on one machine or on many, and its tables are made from these files.
//!
//! Reading order: `execute`, [`sweep`], [`table`].

pub mod sweep;
pub mod table;

mod execute;

pub use execute::{Done, RunError, TRIES_MAX, execute, header, until_valid};
pub use sweep::Sweep;
