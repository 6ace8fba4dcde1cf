//! The protocols that come with faircast, by the names that scenarios use.

use faircast_base::{FlowId, NodeId, Time};
use faircast_proto::content::Content;
use faircast_proto::relay::RelayProgram;
use faircast_proto::{Destination, Machine};
use faircast_scenario::{Catalog, Flow, Program, ProtocolEntry};

use crate::cbr::{self, CbrReceiver, CbrSender};
use crate::engine::Protocols;
use crate::tcp::{self, Flavour};

/// What a scenario may name: multicast schemes, background traffic and router programs.
pub fn catalog() -> Catalog {
    let tcp = |name| ProtocolEntry { name, multicast: false, answers: true, options: tcp::OPTIONS };
    let cbr = ProtocolEntry { name: "cbr", multicast: true, answers: false, options: cbr::OPTIONS };
    Catalog {
        protocols: vec![tcp("tcp-reno"), tcp("tcp-newreno"), tcp("tcp-sack"), cbr],
        programs: vec![],
    }
}

/// Makes everything that is in the [`catalog`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Protocols for Builtin {
    fn sender(&self, flow: &Flow, id: FlowId, content: Box<dyn Content>) -> Box<dyn Machine> {
        if let Some(flavour) = Flavour::from_protocol(&flow.protocol) {
            return Box::new(tcp::sender(
                flavour,
                tcp_setup(flow, id, flow.to[0], flow.start),
                content,
            ));
        }
        if flow.protocol == "cbr" {
            return Box::new(CbrSender::new(cbr_setup(flow, id, flow.start), content));
        }
        unknown(&flow.protocol)
    }

    fn receiver(&self, flow: &Flow, id: FlowId, _node: NodeId, start: Time) -> Box<dyn Machine> {
        if let Some(flavour) = Flavour::from_protocol(&flow.protocol) {
            return Box::new(tcp::receiver(flavour, tcp_setup(flow, id, flow.from, start)));
        }
        if flow.protocol == "cbr" {
            return Box::new(CbrReceiver::new(cbr_setup(flow, id, start)));
        }
        unknown(&flow.protocol)
    }

    fn program(&self, program: &Program, _node: NodeId) -> Box<dyn RelayProgram> {
        unknown(&program.name)
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
    // Always to the group, be it of one member.
    cbr::Setup {
        flow: id,
        source: flow.from,
        to: Destination::Group,
        start,
        payload: flow.packet.count() as u32,
        options: &flow.options,
    }
}

/// Scenarios are checked against the [`catalog`] before anything is made from them.
fn unknown(name: &str) -> ! {
    unreachable!("\"{name}\" is not in the catalog that the scenario was checked against")
}
