//! Protocols that come with faircast, by their names in scenarios.

use std::sync::Arc;

use faircast_base::{FlowId, GroupId, NodeId, Time};
use faircast_proto::catalog::{self, RELAYS, RelayEntry};
use faircast_proto::credit::ProgramHost;
use faircast_proto::options::Options;
use faircast_proto::pgm::OPTIONS;
use faircast_proto::relay::Relay;
use faircast_proto::stack::Stack;
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{Destination, FlowMachine};
use faircast_scenario::{Catalog, Flow, NodeProgram, Program, ProgramEntry};

use crate::fabric::Protocols;

/// Returns the names that a scenario may use: multicast schemes, background traffic and relays.
pub fn catalog() -> Catalog {
    let relay = |entry: &RelayEntry| ProgramEntry {
        name: entry.name,
        about: entry.about,
        options: entry.options,
    };
    let of_nodes = cfg!(feature = "quic").then(|| catalog::relay("credit")).flatten();
    Catalog {
        protocols: catalog::stacks().chain(quic()).collect(),
        programs: RELAYS.iter().map(relay).collect(),
        relay_node: of_nodes.map(relay),
        runs_sessions_programs: cfg!(feature = "programs"),
    }
}

#[cfg(feature = "quic")]
fn quic() -> Option<Stack> {
    Some(faircast_hop::flow::STACK)
}

#[cfg(not(feature = "quic"))]
fn quic() -> Option<Stack> {
    None
}

/// Makes the connection endpoint of a node. Identifiers derive from node and start: runs repeat.
#[cfg(feature = "quic")]
fn connections(node: NodeId, start: Time, accepts: bool) -> faircast_hop::Endpoint {
    use faircast_hop::{CongestionControl, Endpoint, RelayKey};
    let key = RelayKey::shared([0; 32]).without_secrecy();
    let seed = u64::from(node.0) << 48 ^ start.as_nanos();
    Endpoint::new(&key, &node.0.to_be_bytes(), seed, accepts, CongestionControl::NewReno)
}

/// Attaches an end to the first of `relays` that answers. A receiver count of 0 means a sender.
#[cfg(feature = "quic")]
fn behind(
    end: FlowMachine,
    (flow, receivers): (FlowId, u32),
    node: NodeId,
    relays: &[NodeId],
    start: Time,
) -> FlowMachine {
    let named = (node, &*format!("node {}", node.0));
    let group = (u64::from(flow.0) + 1, receivers);
    let start = if receivers == 0 { Time::ZERO } else { start };
    let connections = connections(node, start, false);
    let host = faircast_hop::Host::new(start, connections, named, relays.to_vec(), group);
    Box::new(faircast_hop::Behind::new(end, host))
}

#[cfg(not(feature = "quic"))]
fn behind(_: FlowMachine, _: (FlowId, u32), _: NodeId, _: &[NodeId], _: Time) -> FlowMachine {
    unreachable!("the catalog has no relay nodes")
}

#[cfg(feature = "quic")]
pub(crate) fn node_program(program: NodeProgram<'_>, start: Time) -> FlowMachine {
    use faircast_hop::{NodeLimits, RelayNode};
    let connections = connections(program.node(), start, true);
    let relay = match program {
        NodeProgram::Relay(relay) => relay,
        NodeProgram::Daemon(daemon) => {
            return Box::new(crate::daemons::DaemonProgram::new(daemon, connections, start));
        }
    };
    let program = faircast_proto::credit::relay(relay.node, &relay.options, program_host());
    let named = (relay.node, &*format!("node {}", relay.node.0));
    let (parents, limits) = (relay.parents.clone(), NodeLimits::default());
    Box::new(faircast_proto::FlowEnd(RelayNode::new(connections, named, parents, limits, program)))
}

#[cfg(not(feature = "quic"))]
pub(crate) fn node_program(_: NodeProgram<'_>, _: Time) -> FlowMachine {
    unreachable!("the catalog has no node programs")
}

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

/// Factory of every protocol of the catalog that can be simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Protocols for Builtin {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        let spoken = flow.spoken_by(node);
        // Another scheme shares only the transport settings among the flow's options.
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
        let receivers = u32::from(!matches!(role, Role::Source(_)));
        let end = spoken
            .end(role, setup)
            .unwrap_or_else(|| unreachable!("{spoken} is simulated in this role"));
        match flow.via.get(&node) {
            Some(relays) => behind(end, (id, receivers), node, relays, start),
            None => end,
        }
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        let Some(entry) = catalog::relay(&program.name) else {
            unreachable!("the scenario was checked against a catalog that has \"{}\"", program.name)
        };
        (entry.relay)(node, &program.options, program_host())
    }

    fn sees_corruption(&self, flow: &Flow) -> bool {
        flow.stack.transport.own_checksum || !flow.via.is_empty()
    }
}
