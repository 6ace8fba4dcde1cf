//! Programs in routers.

use std::collections::BTreeMap;

use faircast_base::{Cx, FlowId, NodeId, Purpose, Rng};
use faircast_proto::Datagram;
use faircast_proto::relay::{PortId, RelayPacket, RelayProgram, RelayTransmit, Verdict};
use faircast_trace::{Sink, Subject, Tagged};

use crate::alarm::Alarm;
use crate::fabric::Fabric;
use crate::network::{Happening, Kind};
use crate::packets::{About, Route};
use crate::topology::NONE;

/// A program in a router, for one flow: programs of different flows share nothing.
pub(crate) struct Relay {
    node: NodeId,
    flow: FlowId,
    program: Box<dyn RelayProgram>,
    rng: Rng,
    alarm: Alarm,
}

/// All programs in all routers.
#[derive(Default)]
pub(crate) struct Relays {
    entries: Vec<Relay>,
    /// By router and flow.
    index: BTreeMap<(NodeId, FlowId), u32>,
    out: Vec<RelayTransmit>,
    ports_out: Vec<PortId>,
}

impl Fabric<'_> {
    /// Shows a packet that came in over `link` to the router's program, if it wants to see it.
    /// True where the packet ends there.
    pub(crate) fn relay(
        &mut self,
        node: NodeId,
        packet: u32,
        link: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) -> bool {
        let info = self.network.packets.get(packet);
        let (flow, alert) = (info.flow, info.router_alert);
        let addressed = matches!(info.route, Route::Node { node: to, .. } if to == node);
        let index = self.relay_index(node, flow);
        let program = &self.relays.entries[index as usize].program;
        if !(alert || addressed || program.wants_all_data()) {
            return false;
        }
        let Some(port) = self.network.topology.port_back(link) else { return false };
        self.find_ports_out(node, packet);
        let info = self.network.packets.get(packet);
        let to = self.network.destination(info.route);
        let relays = &mut self.relays;
        let view = RelayPacket {
            port: PortId(port),
            ports_out: &relays.ports_out,
            datagram: Datagram {
                from: info.from,
                to,
                bytes: &info.bytes,
                zeros: info.zeros,
                congestion_experienced: false,
            },
            time_to_live: info.time_to_live.saturating_sub(hops),
        };
        let entry = &mut relays.entries[index as usize];
        let mut trace = Tagged { sink, subject: Subject::Node(node) };
        let mut cx = Cx { now: self.now, rng: &mut entry.rng, trace: &mut trace };
        let verdict = entry.program.handle_packet(&mut cx, &view, &mut relays.out);
        self.send_relay_output(index, sink);
        verdict == Verdict::Consume
    }

    /// Runs a program's timer.
    pub(crate) fn run_relay_timer(&mut self, index: u32, sink: &mut dyn Sink) {
        let entry = &mut self.relays.entries[index as usize];
        entry.alarm.ring(self.now);
        if entry.program.next_timeout().is_some_and(|at| at <= self.now) {
            let mut trace = Tagged { sink, subject: Subject::Node(entry.node) };
            let mut cx = Cx { now: self.now, rng: &mut entry.rng, trace: &mut trace };
            entry.program.handle_timeout(&mut cx, &mut self.relays.out);
        }
        self.send_relay_output(index, sink);
    }

    /// The program of `node` for `flow`, made when the flow's first packet comes by.
    fn relay_index(&mut self, node: NodeId, flow: FlowId) -> u32 {
        if let Some(index) = self.relays.index.get(&(node, flow)) {
            return *index;
        }
        let spec = self.scenario.nodes[node.index()].program.as_ref();
        let spec = spec.expect("only routers with a program are asked");
        let program = self.protocols.program(spec, node);
        let index = self.relays.entries.len() as u32;
        // One stream for each router and flow: flows differ in the seed.
        let seed = self.scenario.seed ^ u64::from(flow.0) << 32;
        let rng = Rng::new(seed, node, Purpose::Relay);
        self.relays.entries.push(Relay { node, flow, program, rng, alarm: Alarm::default() });
        self.relays.index.insert((node, flow), index);
        index
    }

    /// The ports over which ordinary forwarding would send a packet.
    fn find_ports_out(&mut self, node: NodeId, packet: u32) {
        self.relays.ports_out.clear();
        let route = self.network.packets.get(packet).route;
        let single;
        let links = match route {
            Route::Tree(tree) => self.network.groups.children(tree, node),
            Route::Neighbours(_) => &[],
            Route::Node { node: to, .. } if to == node => &[],
            Route::Node { node: to, .. } => {
                single = [self.network.topology.next_link(node, to)];
                if single[0] == NONE { &[] } else { &single[..] }
            }
        };
        // Links and ports are numbered in the same order, so that the ports ascend too.
        let port = |link: &u32| PortId(self.network.topology.port_of(*link));
        self.relays.ports_out.extend(links.iter().map(port));
    }

    fn send_relay_output(&mut self, index: u32, sink: &mut dyn Sink) {
        let Relay { node, flow, .. } = self.relays.entries[index as usize];
        let mut out = std::mem::take(&mut self.relays.out);
        for transmit in out.drain(..) {
            self.send_from_relay(node, flow, transmit, sink);
        }
        self.relays.out = out;
        let entry = &mut self.relays.entries[index as usize];
        if let Some(at) = entry.program.next_timeout() {
            let at = at.max(self.now);
            if entry.alarm.set(at) {
                self.network.wheel.push(at, Happening::new(Kind::RelayTimer, index));
            }
        }
    }

    fn send_from_relay(
        &mut self,
        node: NodeId,
        flow: FlowId,
        transmit: RelayTransmit,
        sink: &mut dyn Sink,
    ) {
        let own_len = transmit.bytes.len() as u32 + transmit.zeros;
        let wire_len = self.wire_len(flow, own_len, transmit.payload_len);
        let route = self.route(flow, transmit.to, (transmit.from, transmit.time_to_live));
        let about = About {
            zeros: transmit.zeros,
            wire_len,
            payload_len: transmit.payload_len,
            flow,
            from: transmit.from,
            route,
            time_to_live: transmit.time_to_live,
            router_alert: transmit.router_alert,
            tag: 0,
            flipped: false,
        };
        let packet = self.network.packets.insert(&transmit.bytes, about);
        match transmit.port {
            None => self.network.forward(self.now, node, packet, 0, sink),
            Some(PortId(port)) => {
                match self.network.topology.ports(node).get(port as usize).copied() {
                    Some(link) => self.network.send_over(self.now, link, packet, 0, sink),
                    None => self.network.packets.release(packet),
                }
            }
        }
    }
}
