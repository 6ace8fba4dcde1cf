//! Daemon of the overlay over real sockets.
//!
//! Reading order: `server` (a task for the daemon, one for each client), [`NodeConfig`], `report`.

mod batch;
mod config;
mod rehearsal;
mod report;
mod server;

pub use batch::Batch;
pub use config::{ConfigError, NodeConfig};
pub use rehearsal::{Rehearsal, RehearsalError};
pub use report::{
    ClientReport, DaemonReport, GroupReport, LinkReport, NeighborReport, ServerCounters,
};
pub use server::{
    ClientAddress, ClientSocket, ClientTls, Inquiry, Server, ServerSettings, ServerTls, StartError,
    TlsSocket, daemon_id, incarnation,
};
