//! Packets that arrive at the ends of a session, by kind.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use faircast_base::{Cx, FlowId, NodeId, Time};
use faircast_proto::relay::Relay;
use faircast_proto::transport::Role;
use faircast_proto::{Datagram, FlowEvent, FlowMachine, Machine, passes_on};
use faircast_scenario::{Flow, Program};
use faircast_sim::Protocols;

/// Counted kinds of packets, with the numbers of docs/tram.md.
const DATA: u8 = 2;
const BIND: u8 = 5;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overheard {
    pub(crate) data: u64,
    pub(crate) repairs: u64,
    pub(crate) binds: u64,
}

pub(crate) struct Listening<'a> {
    ends: &'a dyn Protocols,
    heard: Rc<RefCell<BTreeMap<NodeId, Overheard>>>,
}

impl<'a> Listening<'a> {
    pub(crate) fn new(ends: &'a dyn Protocols) -> Self {
        Self { ends, heard: Rc::default() }
    }

    pub(crate) fn heard(&self) -> BTreeMap<NodeId, Overheard> {
        self.heard.borrow().clone()
    }
}

impl Protocols for Listening<'_> {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        let machine = self.ends.end(flow, id, node, role, start);
        Box::new(Heard { machine, node, heard: self.heard.clone() })
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        self.ends.relay(program, node)
    }
}

struct Heard {
    machine: FlowMachine,
    node: NodeId,
    heard: Rc<RefCell<BTreeMap<NodeId, Overheard>>>,
}

impl Machine for Heard {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let mut heard = self.heard.borrow_mut();
        let heard = heard.entry(self.node).or_default();
        if let [_, _, _, kind, flags, ..] = *datagram.bytes {
            heard.data += u64::from(kind == DATA && flags & 1 == 0);
            heard.repairs += u64::from(kind == DATA && flags & 1 == 1);
            heard.binds += u64::from(kind == BIND);
        }
        self.machine.handle_datagram(cx, datagram);
    }

    passes_on!(machine: handle_timeout, handle_close, poll_membership, poll_transmit, poll_event, next_timeout);
}
