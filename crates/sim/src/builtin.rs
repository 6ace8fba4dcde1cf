//! The protocols that come with faircast, by the names that scenarios use.

use std::sync::Arc;

use faircast_base::{FlowId, GroupId, NodeId, Time};
use faircast_proto::catalog::{self, RELAYS};
use faircast_proto::credit::ProgramHost;
use faircast_proto::options::Options;
use faircast_proto::pgm::OPTIONS;
use faircast_proto::relay::Relay;
use faircast_proto::stack::Stack;
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{Destination, FlowMachine};
use faircast_scenario::{Catalog, Flow, Program, ProgramEntry};

use crate::fabric::Protocols;

/// What a scenario may name: multicast schemes, background traffic and relays.
pub fn catalog() -> Catalog {
    let relay = |entry: &catalog::RelayEntry| ProgramEntry {
        name: entry.name,
        about: entry.about,
        options: entry.options,
    };
    Catalog {
        protocols: catalog::stacks().chain(quic()).collect(),
        programs: RELAYS.iter().map(relay).collect(),
        runs_sessions_programs: cfg!(feature = "programs"),
    }
}

/// The connections of relays as a flow.
#[cfg(feature = "quic")]
fn quic() -> Option<Stack> {
    Some(faircast_hop::flow::STACK)
}

#[cfg(not(feature = "quic"))]
fn quic() -> Option<Stack> {
    None
}

/// What runs the programs of sessions, the same for all relays.
#[cfg(feature = "programs")]
fn program_host() -> Option<Arc<dyn ProgramHost>> {
    use faircast_programs::{Limits, Signers, WasmHost};
    static HOST: std::sync::LazyLock<Option<Arc<WasmHost>>> = std::sync::LazyLock::new(|| {
        WasmHost::new(Limits::default(), Signers::Any).ok().map(Arc::new)
    });
    HOST.clone().map(|host| host as Arc<dyn ProgramHost>)
}

#[cfg(not(feature = "programs"))]
fn program_host() -> Option<Arc<dyn ProgramHost>> {
    None
}

/// Makes everything that is in the catalog and can be simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Protocols for Builtin {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        let spoken = flow.spoken_by(node);
        // Of the flow's own settings another scheme knows those of the transport.
        let shared = (spoken != flow.stack)
            .then(|| Options::default().under(&flow.options.of(OPTIONS), OPTIONS));
        let setup = EndSetup {
            flow: id,
            node,
            sources: &flow.from,
            to: match flow.to[..] {
                [only] if flow.from.len() == 1 => Destination::Node(only),
                _ => Destination::Group(GroupId::SESSION),
            },
            start,
            payload: flow.packet.count() as u32,
            header: flow.header.map(|bytes| bytes.count() as u32),
            options: shared.as_ref().unwrap_or(&flow.options),
            head: flow.heads.get(&node).copied(),
        };
        spoken
            .end(role, setup)
            .unwrap_or_else(|| unreachable!("{spoken} is simulated in this role"))
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        let Some(entry) = catalog::relay(&program.name) else {
            unreachable!("the scenario was checked against a catalog that has \"{}\"", program.name)
        };
        (entry.relay)(node, &program.options, program_host())
    }

    fn sees_corruption(&self, flow: &Flow) -> bool {
        flow.stack.transport.own_checksum
    }
}
