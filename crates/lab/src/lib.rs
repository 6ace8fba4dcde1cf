//! Scenarios in the lab: real sockets and the kernel's own TCP between network namespaces of this
//! machine, over links that are emulated in real time by the simulator's own code.
//!
//! Each end of each flow is a host: a network namespace without a name, with one interface, held
//! by the thread that runs there and by nothing else, so that it vanishes with the process however
//! that ends. All links, routers, multicast trees and relays in routers are one
//! [`Fabric`](faircast_sim::Fabric), the same that the simulator drives; here a thread gives it
//! the time of the clock, reads IP packets from the hosts' interfaces and writes them out when
//! they are due. What happens becomes the same trace as in the simulator.
//!
//! Reading order: [`run`] (a scenario from start to end), `emulator` (the loop), `host` (a
//! namespace), `tcp`, `scheme` and `machine` (what runs
//! in one), `tap` (what packets tell), [`check`] (what
//! this machine can do).

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "only Linux has a lab; elsewhere there is an error that says so")
)]

mod address;
mod check;

mod clock;
mod error;
mod lateness;
mod merge;
mod plan;

#[cfg(target_os = "linux")]
mod diag;
#[cfg(target_os = "linux")]
mod emulator;
#[cfg(target_os = "linux")]
mod field;
#[cfg(target_os = "linux")]
mod frame;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod scheme;
#[cfg(target_os = "linux")]
mod tap;
#[cfg(target_os = "linux")]
mod tcp;

pub use check::{Check, RateCheck, check};
pub use error::LabError;
#[cfg(target_os = "linux")]
pub use field::{Field, FieldCounts, Seen};
pub use plan::warnings;

use faircast_base::Time;
use faircast_scenario::Scenario;
use faircast_sim::Observer;
use faircast_trace::{Lateness, Sink};

/// What a run did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The moment at which it ended.
    pub at: Time,
    /// Whether an observer ended it early.
    pub interrupted: bool,
    /// Events that the emulator handled.
    pub events: u64,
    /// Packets that were transmitted over a link, counted once a link.
    pub packet_hops: u64,
    /// How much later than due packets left the emulator.
    pub lateness: Lateness,
    /// Seconds of a processor that the emulator took.
    pub cpu_s: f64,
    /// For each flow, for each of its receivers in the scenario's order: whether what was
    /// delivered is intact; `None` where nothing was.
    pub intact: Vec<Vec<Option<bool>>>,
    /// What the reader of the figures should know, in sentences.
    pub notes: Vec<String>,
}

/// Runs a scenario in the lab, in real time. Events go to `sink` in the order of their times.
///
/// # Errors
/// The machine lacks something, or the scenario asks for what the lab has not.
#[cfg(target_os = "linux")]
pub fn run(
    scenario: &Scenario,
    observer: &mut dyn Observer,
    sink: &mut dyn Sink,
) -> Result<Outcome, LabError> {
    run::run(scenario, observer, sink)
}

/// Runs a scenario in the lab: not on this system.
///
/// # Errors
/// Always: the lab needs Linux.
#[cfg(not(target_os = "linux"))]
pub fn run(
    _scenario: &Scenario,
    _observer: &mut dyn Observer,
    _sink: &mut dyn Sink,
) -> Result<Outcome, LabError> {
    Err(LabError::NotLinux)
}
