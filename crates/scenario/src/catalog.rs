//! The catalog of names in the language: the protocols of flows and the programs of routers.

use faircast_proto::congestion::Guarantees;
use faircast_proto::options::OptionSpec;

/// The protocols and router programs that exist, with their settings. Whoever builds a scenario
/// fills it from the registries of those who implement them.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// What a flow can run.
    pub protocols: Vec<ProtocolEntry>,
    /// What a router can run beside forwarding.
    pub programs: Vec<ProgramEntry>,
    /// Whether relays run programs that sessions bring.
    pub runs_sessions_programs: bool,
}

/// A protocol that a flow can run.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolEntry {
    /// Its name in scenario files, such as `pgmcc` or `tcp-reno`.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Whether it takes many receivers that come and go; otherwise a flow has exactly one.
    pub multicast: bool,
    /// Whether it takes many senders, which may be receivers too; otherwise a flow has exactly one.
    pub many_to_many: bool,
    /// Whether receivers answer, so that a path back must exist.
    pub answers: bool,
    /// Whether receivers repair for others, and can be told who repairs for them.
    pub repair_heads: bool,
    /// Whether the simulator runs it; what it does not run the lab does.
    pub simulated: bool,
    /// Its settings.
    pub options: &'static [OptionSpec],
    /// What it guarantees to the network.
    pub guarantees: Guarantees,
}

impl ProtocolEntry {
    /// Whether it is a scheme: many receivers, which answer.
    pub const fn is_scheme(&self) -> bool {
        self.multicast && self.answers
    }
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
