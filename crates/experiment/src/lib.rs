//! Experiments on this machine: studies in the lab, benchmarks by name, measurements on real
//! sockets, attacks, and rounds of faults.
//!
//! Scenarios, sweeps and suites are in `faircast-study`, which knows no operating system; [`Lab`] is
//! its backend here. A [`Bench`] has a name and a verdict; each takes a [`Request`] and returns
//! [`Results`]. A [`Soak`](soak::Soak) is a sequence of rounds of faults over real programs.
//!
//! Reading order: `lab`, `request`, `bench`, `suites`, then `host` and the modules that use it.

pub mod soak;
pub mod speed;

mod attack;
mod bench;
mod host;
mod lab;
mod matrix;
mod overlay;
mod request;
#[cfg(test)]
mod stacks;
mod suites;
mod wire;

use faircast_study::{Error, Monitor, files, monitor};

pub use bench::{Bench, Live, choose, has_verdicts};
pub use lab::{Lab, backend};
pub use request::{Request, Results};
