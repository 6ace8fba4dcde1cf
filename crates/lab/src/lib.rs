//! Scenarios in the lab: real sockets and the kernel's own TCP between network namespaces of this
//! machine. The simulator's code emulates the links in real time.
//!
//! Each end of each flow is a host: an unnamed network namespace, which its thread keeps and which
//! disappears with the process. All links, routers and multicast trees are one
//! [`Fabric`](faircast_sim::Fabric), advanced with the clock by a thread. Reading order: [`run`],
//! `emulator` (event loop), `host` (namespace), `endpoint` and `tcp` (programs of a host), `tap`
//! (events derived from packets). Apart from scenarios, [`Field`] and [`lan`] run real programs.

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
pub mod lan;
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

/// Result of a run.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct LabOutcome {
    pub at: Time,
    /// True if an observer ended the run early.
    pub interrupted: bool,
    pub events: u64,
    /// Packets transmitted over a link, counted once for each link.
    pub packet_hops: u64,
    pub lateness: Lateness,
    /// Processor time of the emulator in seconds.
    pub cpu_s: f64,
    /// By flow and receiver: true if the delivered data is intact; `None` without any data.
    pub intact: Vec<Vec<Option<bool>>>,
    /// Remarks for readers of the figures, as sentences.
    pub notes: Vec<String>,
}
