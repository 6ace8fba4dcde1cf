//! A daemon of the overlay over real sockets, and the protocol of its clients.
//!
//! Reading order: [`protocol`], `server` (one task for the daemon, one for each client),
//! [`NodeConfig`], `report`.

mod batch;
mod config;
pub mod protocol;
mod report;
mod server;

pub use batch::Batch;
pub use config::{ConfigError, NodeConfig};
pub use report::{ClientReport, DaemonReport, GroupReport, NeighborReport, ServerCounters};
pub use server::{
    ClientAddress, ClientSocket, Inquiry, Server, ServerSettings, StartError, daemon_id,
    incarnation,
};
