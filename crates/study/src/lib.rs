//! Studies: runs of scenarios, sweeps over their settings, suites with published figures, and the
//! comparison of schemes.
//!
//! A [`Study`] holds the catalog of protocols, the engine of the runs and a monitor. A run is a
//! [`Scenario`](faircast_scenario::Scenario), with listeners to its trace ([`Study::run`]). A
//! [`Sweep`] is the product of values of settings and of seeds. A [`Suite`](suite::Suite) judges
//! rows by expected values. Results are rows; other crates make pages and texts of them.
//!
//! The crate knows no operating system. Engines on real networks are a [`Backend`] of another
//! crate.
//!
//! Reading order: `study`, `backend`, `run`, [`sweep`], [`table`], [`suite`], [`matrix`].

pub mod files;
pub mod matrix;
pub mod monitor;
pub mod suite;
pub mod sweep;
pub mod table;

mod backend;
mod error;
mod optimum;
mod run;
mod study;

pub use backend::{Backend, BackendOutcome, Simulator};
pub use error::Error;
pub use monitor::{Monitor, Runs};
pub use run::{Run, TRACE_FILE, TRIES_MAX, until_valid};
pub use study::Study;
pub use sweep::Sweep;
