//! Catalog of names in the language: protocols of flows and programs of routers.

use faircast_proto::options::OptionSpec;
use faircast_proto::stack::Stack;

/// Protocols and router programs with their options, from the registries of the caller.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Protocols of flows.
    pub protocols: Vec<Stack>,
    /// Programs of routers beside forwarding.
    pub programs: Vec<ProgramEntry>,
    /// Program of relay nodes; `None` if this build has none.
    pub relay_node: Option<ProgramEntry>,
    /// True if relays run programs that sessions bring.
    pub runs_sessions_programs: bool,
}

impl Catalog {
    /// Returns the stack with this [name](Stack::name).
    pub fn stack(&self, name: &str) -> Option<Stack> {
        self.protocols.iter().find(|stack| stack.name() == name).copied()
    }

    /// Iterates over the stacks that deliver all data to many receivers and limit their own rate.
    pub fn reliable_multicast(&self) -> impl Iterator<Item = Stack> {
        self.protocols.iter().filter(|stack| stack.is_reliable_multicast()).copied()
    }
}

/// Program of a router.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEntry {
    /// Name in scenario files, such as `pgm-element`.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Options of the program.
    pub options: &'static [OptionSpec],
}
