//! Scenario language: a topology, its flows and programs, and a duration.
//!
//! [`Scenario::load`] turns a TOML file (`docs/scenario.md`) into a checked [`Scenario`]; a
//! [`Draft`] is made in code, or read from a file and changed. A [`Catalog`] supplies protocols and
//! router programs, which other crates implement.

mod catalog;
mod credits;
mod daemons;
mod draft;
mod error;
mod flows;
mod limits;
mod link_config;
mod link_faults;
mod model;
mod names;
mod options;
mod overrides;
mod parse;
mod reach;
mod read;
mod relays;
mod topology;
mod value;

pub use catalog::{Catalog, ProgramEntry};
pub use draft::{Draft, ListEntry};
pub use error::{ErrorPlace, ScenarioError};
pub use model::{
    ClientSpec, DaemonSpec, Data, FaultKind, Flow, Join, LinkSpec, Node, NodeFault, NodeProgram,
    Program, Scenario, Speaks,
};
pub use overrides::Overrides;
