//! The machines at the ends of flows, and how they are given time and packets.

use faircast_base::{Cx, FlowId, NodeId, Rng};
use faircast_proto::{AppEvent, Datagram, Destination, Machine, Transmit};
use faircast_trace::{Subject, Tagged};

use crate::alarm::Alarm;
use crate::delivery::Delivery;
use crate::engine::Simulation;
use crate::network::{Happening, Kind};
use crate::packets::{About, Route};

/// Bytes of IPv4 and UDP headers, which every packet of a multicast scheme has on the wire unless
/// the scenario says otherwise.
const UDP_IP_BYTES: u32 = 28;

/// A sender or receiver of a flow.
pub(crate) struct Agent {
    pub(crate) flow: FlowId,
    pub(crate) node: NodeId,
    pub(crate) sender: bool,
    /// `None` before it joins.
    pub(crate) machine: Option<Box<dyn Machine>>,
    pub(crate) rng: Rng,
    alarm: Alarm,
    /// What a receiver delivered.
    pub(crate) delivery: Delivery,
}

impl Agent {
    pub(crate) fn new(flow: FlowId, node: NodeId, sender: bool, rng: Rng, real: bool) -> Self {
        let delivery = Delivery::new(real);
        Self { flow, node, sender, machine: None, rng, alarm: Alarm::default(), delivery }
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::Endpoint { flow: self.flow, node: self.node, sender: self.sender }
    }
}

impl Simulation<'_> {
    /// Gives a packet to an agent.
    #[inline]
    pub(crate) fn deliver(&mut self, index: u32, packet: u32) {
        let packet = self.network.packets.get(packet);
        let to = match packet.route {
            Route::Tree(_) => Destination::Group,
            Route::Node { node, .. } => Destination::Node(node),
        };
        let datagram = Datagram {
            from: packet.from,
            to,
            bytes: &packet.bytes,
            zeros: packet.zeros,
            congestion_experienced: false,
        };
        let agent = &mut self.agents[index as usize];
        let subject = agent.subject();
        let Some(machine) = &mut agent.machine else { return };
        let mut trace = Tagged { sink: self.sink, subject };
        let mut cx = Cx { now: self.now, rng: &mut agent.rng, trace: &mut trace };
        machine.handle_datagram(&mut cx, datagram);
        self.drain(index);
    }

    /// Runs an agent's timer, if the machine still wants it.
    #[inline]
    pub(crate) fn run_timer(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        agent.alarm.ring(self.now);
        let subject = agent.subject();
        let Some(machine) = &mut agent.machine else { return };
        if machine.next_timeout().is_some_and(|at| at <= self.now) {
            let mut trace = Tagged { sink: self.sink, subject };
            let mut cx = Cx { now: self.now, rng: &mut agent.rng, trace: &mut trace };
            machine.handle_timeout(&mut cx);
            self.drain(index);
        } else {
            self.arm(index);
        }
    }

    /// Tells a machine that its application wants to end.
    pub(crate) fn close(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        let subject = agent.subject();
        let Some(machine) = &mut agent.machine else { return };
        let mut trace = Tagged { sink: self.sink, subject };
        let mut cx = Cx { now: self.now, rng: &mut agent.rng, trace: &mut trace };
        machine.handle_close(&mut cx);
        self.drain(index);
    }

    /// Takes everything that a machine wants to send and say, and arms its timer.
    #[inline]
    pub(crate) fn drain(&mut self, index: u32) {
        loop {
            let agent = &mut self.agents[index as usize];
            let subject = agent.subject();
            let Some(machine) = &mut agent.machine else { return };
            let mut trace = Tagged { sink: self.sink, subject };
            let mut cx = Cx { now: self.now, rng: &mut agent.rng, trace: &mut trace };
            let Some(transmit) = machine.poll_transmit(&mut cx, &mut self.scratch) else { break };
            self.transmit(index, transmit);
        }
        let agent = &mut self.agents[index as usize];
        if let Some(machine) = &mut agent.machine {
            while let Some(event) = machine.poll_event() {
                match event {
                    AppEvent::Delivered { bytes, zeros } => agent.delivery.take(&bytes, zeros),
                    AppEvent::Lost { packets } => {
                        agent.delivery.lost_packets += u64::from(packets);
                    }
                    AppEvent::Completed => agent.delivery.completed = Some(self.now),
                    _ => {}
                }
            }
        }
        self.arm(index);
    }

    /// Schedules the next timer event, unless one that is not later is already scheduled.
    #[inline]
    pub(crate) fn arm(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        let Some(machine) = &agent.machine else { return };
        if let Some(at) = machine.next_timeout() {
            let at = if at < self.now { self.now } else { at };
            if agent.alarm.set(at) {
                self.network.wheel.push(at, Happening::new(Kind::Timer, index));
            }
        }
    }

    /// Puts a machine's packet, written into `scratch`, on the wire.
    fn transmit(&mut self, index: u32, transmit: Transmit) {
        let agent = &self.agents[index as usize];
        let (flow, from) = (agent.flow, agent.node);
        let own_len = self.scratch.len() as u32 + transmit.zeros;
        let wire_len =
            transmit.wire_len.unwrap_or_else(|| self.wire_len(flow, own_len, transmit.payload_len));
        let route = match transmit.to {
            Destination::Group => Route::Tree(flow.0),
            Destination::Node(node) => Route::Node { node, agent: self.agent_at(flow, node) },
        };
        let about = About {
            zeros: transmit.zeros,
            wire_len,
            payload_len: transmit.payload_len,
            flow,
            from,
            route,
            time_to_live: transmit.time_to_live,
            router_alert: transmit.router_alert,
        };
        let packet = self.network.packets.insert(&self.scratch, about);
        self.scratch.clear();
        self.network.forward(self.now, from, packet, 0, self.sink);
    }

    /// Bytes on the wire of a packet of `own_len` bytes. With the scenario's own header size, data
    /// packets count payload and that, and control packets what the protocol encodes: ns-2 counts
    /// so.
    pub(crate) fn wire_len(&self, flow: FlowId, own_len: u32, payload_len: u32) -> u32 {
        match self.scenario.flows[flow.index()].header {
            None => own_len + UDP_IP_BYTES,
            Some(header) if payload_len > 0 => payload_len + header.count() as u32,
            Some(_) => own_len,
        }
    }

    /// The agent of a flow at a node.
    pub(crate) fn agent_at(&self, flow: FlowId, node: NodeId) -> Option<u32> {
        let agents = &self.agents_by_node[flow.index()];
        let place = agents.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(agents[place].1)
    }
}
