//! Daemon of the overlay over real sockets.
//!
//! Reading order: `server` (a task for the daemon, one for each client), [`NodeConfig`].

mod batch;
mod config;
mod rehearsal;
mod server;

pub use batch::Batch;
pub use config::{ConfigError, NodeConfig};
pub use rehearsal::{Rehearsal, RehearsalError};
pub use server::{
    ClientAddress, ClientReport, ClientSocket, ClientTls, DaemonReport, GroupReport, Inquiry,
    LinkReport, NeighborReport, Server, ServerCounters, ServerSettings, ServerTls, StartError,
    TlsSocket, daemon_id, incarnation,
};
