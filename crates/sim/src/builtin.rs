//! The protocols that come with faircast, by the names that scenarios use.

use faircast_base::{FlowId, GroupId, NodeId, Time};
use faircast_proto::catalog::{self, RELAYS, ReceiverSetup, SCHEMES, SenderSetup};
use faircast_proto::congestion::Guarantees;
use faircast_proto::content::Content;
use faircast_proto::options::Options;
use faircast_proto::pgm::OPTIONS;
use faircast_proto::relay::Relay;
use faircast_proto::{Destination, Machine};
use faircast_scenario::{Catalog, Flow, Program, ProgramEntry, ProtocolEntry};

use crate::cbr;
use crate::engine::Protocols;
use crate::tcp::{self, Flavour};

/// What a scenario may name: multicast schemes, background traffic and router programs.
pub fn catalog() -> Catalog {
    let schemes = SCHEMES.iter().map(|scheme| ProtocolEntry {
        name: scheme.name,
        about: scheme.about,
        multicast: true,
        answers: true,
        simulated: true,
        options: scheme.options,
        guarantees: scheme.guarantees,
    });
    let tcp = |name, about| ProtocolEntry {
        name,
        about,
        multicast: false,
        answers: true,
        simulated: true,
        options: tcp::OPTIONS,
        guarantees: tcp::GUARANTEES,
    };
    let kernel = LAB_ONLY.map(|(name, about)| ProtocolEntry {
        simulated: false,
        options: tcp::KERNEL_OPTIONS,
        ..tcp(name, about)
    });
    let background = [
        tcp("tcp-reno", "TCP Reno: fast recovery ends with the first new acknowledgement"),
        tcp("tcp-newreno", "TCP NewReno: fast recovery repairs all losses of a window"),
        tcp("tcp-sack", "TCP with selective acknowledgements"),
        ProtocolEntry {
            name: "cbr",
            about: "packets at a constant rate, without control or repair",
            multicast: true,
            answers: false,
            simulated: true,
            options: cbr::OPTIONS,
            guarantees: Guarantees::SILENT,
        },
    ];
    let program = |entry: &catalog::RelayEntry| ProgramEntry {
        name: entry.name,
        about: entry.about,
        options: entry.options,
    };
    Catalog {
        protocols: schemes.chain(background).chain(kernel).collect(),
        programs: RELAYS.iter().map(program).collect(),
    }
}

/// Protocols of which only the kernel has an implementation.
const LAB_ONLY: [(&str, &str); 2] = [
    ("tcp-cubic", "the kernel's TCP with CUBIC; in the lab only"),
    ("tcp-bbr", "the kernel's TCP with BBR; in the lab only"),
];

/// Whether a protocol runs in the lab and not in the simulator.
pub(crate) fn is_lab_only(protocol: &str) -> bool {
    LAB_ONLY.iter().any(|(name, _)| *name == protocol)
}

/// Makes everything that is in the catalog and can be simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Protocols for Builtin {
    fn sender(&self, flow: &Flow, id: FlowId, content: Box<dyn Content>) -> Box<dyn Machine> {
        if let Some(scheme) = catalog::scheme(&flow.protocol) {
            return scheme.sender(SenderSetup {
                flow: id,
                node: flow.from,
                start: flow.start,
                payload: flow.packet.count() as u32,
                content,
                options: &flow.options,
            });
        }
        match Flavour::from_protocol(&flow.protocol) {
            Some(flavour) => {
                let setup = tcp_setup(flow, id, flow.to[0], flow.start);
                Box::new(tcp::sender(flavour, setup, content))
            }
            None => Box::new(cbr::CbrSender::new(cbr_setup(flow, id, flow.start), content)),
        }
    }

    fn receiver(&self, flow: &Flow, id: FlowId, node: NodeId, start: Time) -> Box<dyn Machine> {
        let spoken = flow.spoken_by(node);
        if let Some(scheme) = catalog::scheme(spoken) {
            // Of the flow's own settings another scheme knows those of the transport.
            let shared = (spoken != flow.protocol)
                .then(|| Options::default().under(&flow.options.of(OPTIONS), OPTIONS));
            let options = shared.as_ref().unwrap_or(&flow.options);
            let source = flow.from;
            return scheme.receiver(ReceiverSetup { flow: id, node, source, start, options });
        }
        match Flavour::from_protocol(&flow.protocol) {
            Some(flavour) => {
                Box::new(tcp::receiver(flavour, tcp_setup(flow, id, flow.from, start)))
            }
            None => Box::new(cbr::CbrReceiver::new(cbr_setup(flow, id, start))),
        }
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        let Some(entry) = catalog::relay(&program.name) else {
            unreachable!("the scenario was checked against a catalog that has \"{}\"", program.name)
        };
        (entry.relay)(node, &program.options)
    }

    /// Simulated TCP and CBR have no checksum of their own: those of TCP and UDP are the kernel's.
    fn sees_corruption(&self, flow: &Flow) -> bool {
        catalog::scheme(&flow.protocol).is_some()
    }
}

fn tcp_setup(flow: &Flow, id: FlowId, peer: NodeId, start: Time) -> tcp::Setup<'_> {
    tcp::Setup {
        flow: id,
        peer,
        start,
        payload: flow.packet.count() as u32,
        header: flow.header.map(|bytes| bytes.count() as u32),
        options: &flow.options,
    }
}

fn cbr_setup(flow: &Flow, id: FlowId, start: Time) -> cbr::Setup<'_> {
    let to = match flow.to[..] {
        [only] => Destination::Node(only),
        _ => Destination::Group(GroupId::SESSION),
    };
    cbr::Setup {
        flow: id,
        source: flow.from,
        to,
        start,
        payload: flow.packet.count() as u32,
        options: &flow.options,
    }
}
