//! Catalog of names in the language: protocols of flows and programs of routers.

use faircast_proto::catalog::{HOPS, TRANSPORTS, over_pgm};
use faircast_proto::congestion::SchemeEntry;
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
    /// Adds a scheme: over PGM, over each transport that a scheme can steer, and above each hop
    /// control. The entry is kept until the program ends.
    ///
    /// # Errors
    /// The name, or an option number of the scheme's packets, belongs to another scheme.
    pub fn add_scheme(&mut self, scheme: SchemeEntry) -> Result<(), String> {
        let name = scheme.name;
        if self.stack(name).is_some() {
            return Err(format!("scheme {name}: there is a protocol of this name already"));
        }
        let numbers = |of: &SchemeEntry| [of.view.announce_option, of.view.report_option];
        let taken = |of: &&SchemeEntry| numbers(of).iter().any(|it| numbers(&scheme).contains(it));
        if let Some(other) = self.protocols.iter().filter_map(|stack| stack.scheme).find(taken) {
            let [announce, report] = numbers(&scheme);
            return Err(format!(
                "scheme {name}: {} has an option number {announce:#x} or {report:#x} already; allowed: numbers of \
                 its own, from 0x1 to 0x7f",
                other.name
            ));
        }
        let scheme: &'static SchemeEntry = Box::leak(Box::new(scheme));
        let steered = TRANSPORTS.iter().filter(|transport| transport.steered.is_some());
        let steered = steered.map(|transport| Stack { transport, scheme: Some(scheme), hop: None });
        let above = HOPS.iter().map(|hop| Stack { hop: Some(hop), ..over_pgm(scheme) });
        self.protocols.extend(steered.chain(above));
        Ok(())
    }

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
