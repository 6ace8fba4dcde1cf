//! The scenario language: a topology, what runs on it, and for how long.
//!
//! [`Scenario::load`] turns a TOML file into a checked [`Scenario`]; `docs/scenario.md` describes
//! the language. What can be named in it beside nodes comes from a [`Catalog`], because the
//! protocols and router programs live elsewhere. Every mistake is one line with the file, the
//! line, the key, the value and what is allowed.

mod catalog;
mod credits;
mod daemons;
mod error;
mod flows;
pub mod limits;
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
pub use error::{ErrorPlace, ScenarioError};
pub use model::{
    ClientSpec, DaemonSpec, Data, FaultKind, Flow, GroupStay, Join, LinkSpec, Node, NodeFault,
    NodeProgram, Program, RelaySpec, Scenario, SendSpec, Speaks,
};
pub use overrides::Overrides;
