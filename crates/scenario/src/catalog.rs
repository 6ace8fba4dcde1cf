//! The catalog of names in the language: the protocols of flows and the programs of routers.

use faircast_proto::options::OptionSpec;
use faircast_proto::stack::Stack;

/// The protocols and router programs that exist, with their settings. Whoever builds a scenario
/// fills it from the registries of those who implement them.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// What a flow can run.
    pub protocols: Vec<Stack>,
    /// What a router can run beside forwarding.
    pub programs: Vec<ProgramEntry>,
    /// The program of relay nodes; `None` where they cannot be run.
    pub relay_node: Option<ProgramEntry>,
    /// Whether relays run programs that sessions bring.
    pub runs_sessions_programs: bool,
}

/// A program that a router can run.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEntry {
    /// Its name in scenario files, such as `pgm-element`.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Its settings.
    pub options: &'static [OptionSpec],
}
