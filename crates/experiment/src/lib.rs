//! Experiments on this machine: studies in the lab, measurements on real sockets, attacks, and
//! rounds of faults.
//!
//! Scenarios, sweeps and suites are in `faircast-study`, which knows no operating system; [`Lab`]
//! is its backend here. A [`LiveBench`] has a name, takes a [`Request`] and returns [`Results`]. A
//! [`Soak`](soak::Soak) is a sequence of rounds of faults over real programs.

pub mod soak;
pub mod speed;

mod attack;
mod host;
mod lab;
mod live;
mod overlay;
mod request;
#[cfg(test)]
mod stacks;
mod wire;

use faircast_study::{Error, Monitor, files, monitor};

pub use lab::{Lab, backend};
pub use live::{LIVE, LiveBench};
pub use request::{COLUMNS, Request, Results, listing};
