//! Machines at the ends of flows: delivery of packets, timers and membership changes.

use faircast_base::{Cx, FlowId, NodeId, Rng, Time};
use faircast_proto::{Datagram, Destination, FlowEvent, FlowMachine, Machine, Membership};
use faircast_trace::{Sink, Subject, Tagged};

use crate::alarm::Alarm;
use crate::delivery::Delivery;
use crate::engine::Simulation;
use crate::fabric::Fabric;
use crate::network::{EventKind, ScheduledEvent};

/// Sender, receiver or node program. Fields of the packet path come first, in few cache lines.
#[repr(C, align(64))]
pub(crate) struct Agent {
    pub(crate) machine: Option<FlowMachine>,
    /// Next timeout of the machine, or [`Time::MAX`]: most timer events are too early to call it.
    wants: Time,
    pub(crate) flow: FlowId,
    pub(crate) node: NodeId,
    pub(crate) role: AgentRole,
    alarm: Alarm,
    pub(crate) delivery: Delivery,
    pub(crate) rng: Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentRole {
    Sender,
    Receiver,
    Program,
}

impl Agent {
    pub(crate) fn new(flow: FlowId, node: NodeId, role: AgentRole, rng: Rng, real: bool) -> Self {
        let delivery = Delivery::new(real);
        let alarm = Alarm::default();
        Self { machine: None, wants: Time::MAX, flow, node, role, alarm, delivery, rng }
    }

    pub(crate) fn subject(&self) -> Subject {
        match self.role {
            AgentRole::Program => Subject::Node(self.node),
            role => {
                let sender = role == AgentRole::Sender;
                Subject::Endpoint { flow: self.flow, node: self.node, sender }
            }
        }
    }

    #[inline]
    fn call<R>(
        &mut self,
        (due, now): (Time, Time),
        sink: &mut dyn Sink,
        call: impl FnOnce(&mut dyn Machine<Event = FlowEvent>, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let subject = self.subject();
        let machine = self.machine.as_deref_mut()?;
        let mut trace = Tagged { sink, subject };
        let late = now.since(due);
        Some(call(machine, &mut Cx { late, ..Cx::new(now, &mut self.rng, &mut trace) }))
    }

    fn drain(
        &mut self,
        index: u32,
        fabric: &mut Fabric<'_>,
        sink: &mut dyn Sink,
        scratch: &mut Vec<u8>,
    ) {
        let (flow, node, subject) = (self.flow, self.node, self.subject());
        let Some(machine) = self.machine.as_deref_mut() else { return };
        while let Some(change) = machine.poll_membership() {
            match change {
                Membership::Join(group) => fabric.join(flow, group, node),
                Membership::Leave(group) => fabric.leave(flow, group, node),
            };
        }
        loop {
            let mut trace = Tagged { sink: &mut *sink, subject };
            let mut cx = Cx::new(fabric.now, &mut self.rng, &mut trace);
            let Some(transmit) = machine.poll_transmit(&mut cx, scratch) else { break };
            fabric.transmit((flow, node), scratch, transmit, 0, sink);
            scratch.clear();
        }
        while let Some(event) = machine.poll_event() {
            match event {
                FlowEvent::Delivered { bytes, zeros } => self.delivery.take(&bytes, zeros),
                FlowEvent::Lost { packets } => self.delivery.lost_packets += u64::from(packets),
                FlowEvent::Completed => self.delivery.completed = Some(fabric.now),
                FlowEvent::Gone => {}
                FlowEvent::Note(note) => sink.note(fabric.now, &note),
                FlowEvent::Link(note) => sink.link_note(fabric.now, &note),
            }
        }
        self.arm(index, fabric);
    }

    pub(crate) fn kill(&mut self) {
        (self.machine, self.wants) = (None, Time::MAX);
    }

    #[inline]
    fn arm(&mut self, index: u32, fabric: &mut Fabric<'_>) {
        let Some(machine) = &self.machine else { return };
        self.wants = machine.next_timeout().unwrap_or(Time::MAX);
        self.set_alarm(index, fabric);
    }

    #[inline]
    fn set_alarm(&mut self, index: u32, fabric: &mut Fabric<'_>) {
        let at = self.wants.max(fabric.now);
        if self.alarm.set(at) {
            fabric.network.wheel.push(at, ScheduledEvent::new(EventKind::Timer, index));
        }
    }
}

impl Simulation<'_> {
    #[inline]
    pub(crate) fn deliver(&mut self, index: u32, packet: u32) {
        if self.stopped.is_empty() || !self.keep(index, packet) {
            self.deliver_late(index, packet, self.fabric.now);
        }
    }

    #[inline]
    pub(crate) fn deliver_late(&mut self, index: u32, packet: u32, at: Time) {
        let agent = &mut self.agents[index as usize];
        let packet = self.fabric.network.packets.get(packet);
        let to = self.fabric.network.destination(packet.route);
        let datagram = Datagram {
            zeros: packet.zeros,
            // Only the receivers of a group packet share its parsed headers.
            parsed: matches!(to, Destination::Group(_)).then_some(&packet.parsed),
            ..Datagram::new(packet.from, to, &packet.bytes)
        };
        let moments = (at, self.fabric.now);
        agent.call(moments, self.sink, |machine, cx| machine.handle_datagram(cx, datagram));
        agent.drain(index, &mut self.fabric, self.sink, &mut self.scratch);
    }

    #[inline]
    pub(crate) fn run_timer(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        agent.alarm.ring(self.fabric.now);
        if self.stopped.is_empty() || !self.stopped.contains_key(&index) {
            self.run_due_timer(index);
        }
    }

    pub(crate) fn run_due_timer(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        if agent.wants <= self.fabric.now {
            let moments = (agent.wants, self.fabric.now);
            agent.call(moments, self.sink, |machine, cx| machine.handle_timeout(cx));
            agent.drain(index, &mut self.fabric, self.sink, &mut self.scratch);
        } else {
            agent.set_alarm(index, &mut self.fabric);
        }
    }

    pub(crate) fn close(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        let now = self.fabric.now;
        agent.call((now, now), self.sink, |machine, cx| machine.handle_close(cx));
        self.drain(index);
    }

    pub(crate) fn drain(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        agent.drain(index, &mut self.fabric, self.sink, &mut self.scratch);
    }

    pub(crate) fn arm(&mut self, index: u32) {
        self.agents[index as usize].arm(index, &mut self.fabric);
    }
}
