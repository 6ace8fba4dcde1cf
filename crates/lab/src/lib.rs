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
//! namespace), `endpoint` and `tcp` (what runs in
//! one), `tap` (what packets tell), [`check`] (what
//! this machine can do).

mod address;
mod check;
mod clock;
mod diag;
mod emulator;
mod endpoint;
mod error;
mod field;
mod frame;
mod host;
mod lateness;
mod merge;
mod netlink;
mod plan;
mod run;
mod tap;
mod tcp;

pub use check::{Check, RateCheck, check};
pub use error::LabError;
pub use field::{Field, FieldCounts};
pub use plan::warnings;
pub use run::run;

use faircast_base::Time;
use faircast_trace::Lateness;

/// What a run did.
#[derive(Clone, Debug)]
pub struct LabOutcome {
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
    /// By flow and receiver: whether what was delivered is intact; `None` where nothing was.
    pub intact: Vec<Vec<Option<bool>>>,
    /// What the reader of the figures should know, in sentences.
    pub notes: Vec<String>,
}
