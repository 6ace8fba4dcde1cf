//! The machines at the ends of flows, and how they are given time and packets.

use faircast_base::{Cx, FlowId, NodeId, Rng, Time};
use faircast_proto::{AppEvent, Datagram, Machine, Membership, Transmit};
use faircast_trace::{Sink, Subject, Tagged};

use crate::alarm::Alarm;
use crate::delivery::Delivery;
use crate::engine::Simulation;
use crate::network::{EventKind, ScheduledEvent};

/// A sender or receiver of a flow. What every packet needs stands first and together: a crowd of agents
/// fits in no cache.
#[repr(C)]
pub(crate) struct Agent {
    /// `None` before it joins.
    pub(crate) machine: Option<Box<dyn Machine>>,
    /// When the machine wants its next timer, [`Time::MAX`] for never, so that it need not be asked when
    /// an event for an earlier wish comes: most such events are too early.
    wants: Time,
    alarm: Alarm,
    pub(crate) flow: FlowId,
    pub(crate) node: NodeId,
    pub(crate) sender: bool,
    pub(crate) rng: Rng,
    /// What a receiver delivered.
    pub(crate) delivery: Delivery,
}

impl Agent {
    pub(crate) fn new(flow: FlowId, node: NodeId, sender: bool, rng: Rng, real: bool) -> Self {
        let delivery = Delivery::new(real);
        let alarm = Alarm::default();
        Self { machine: None, wants: Time::MAX, alarm, flow, node, sender, rng, delivery }
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::Endpoint { flow: self.flow, node: self.node, sender: self.sender }
    }

    /// Calls its machine, if it has one.
    #[inline]
    fn call<R>(
        &mut self,
        now: Time,
        sink: &mut dyn Sink,
        call: impl FnOnce(&mut dyn Machine, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let subject = self.subject();
        let machine = self.machine.as_deref_mut()?;
        let mut trace = Tagged { sink, subject };
        Some(call(machine, &mut Cx { now, rng: &mut self.rng, trace: &mut trace }))
    }
}

impl Simulation<'_> {
    /// Gives a packet to an agent.
    #[inline]
    pub(crate) fn deliver(&mut self, index: u32, packet: u32) {
        let packet = self.fabric.network.packets.get(packet);
        let to = self.fabric.network.destination(packet.route);
        let datagram = Datagram {
            from: packet.from,
            to,
            bytes: &packet.bytes,
            zeros: packet.zeros,
            congestion_experienced: false,
        };
        let agent = &mut self.agents[index as usize];
        agent.call(self.fabric.now, self.sink, |machine, cx| machine.handle_datagram(cx, datagram));
        self.drain(index);
    }

    /// Runs an agent's timer, if the machine still wants it.
    #[inline]
    pub(crate) fn run_timer(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        agent.alarm.ring(self.fabric.now);
        if agent.wants <= self.fabric.now {
            agent.call(self.fabric.now, self.sink, |machine, cx| machine.handle_timeout(cx));
            self.drain(index);
        } else {
            self.set_alarm(index);
        }
    }

    /// Tells a machine that its application wants to end.
    pub(crate) fn close(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        agent.call(self.fabric.now, self.sink, |machine, cx| machine.handle_close(cx));
        self.drain(index);
    }

    /// Takes everything that a machine wants to send and say, and arms its timer.
    #[inline]
    pub(crate) fn drain(&mut self, index: u32) {
        while let Some(machine) = &mut self.agents[index as usize].machine
            && let Some(change) = machine.poll_membership()
        {
            self.change_membership(index, change);
        }
        loop {
            let agent = &mut self.agents[index as usize];
            let transmit = agent.call(self.fabric.now, self.sink, |machine, cx| {
                machine.poll_transmit(cx, &mut self.scratch)
            });
            let Some(transmit) = transmit.flatten() else { break };
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
                    AppEvent::Completed => agent.delivery.completed = Some(self.fabric.now),
                    _ => {}
                }
            }
        }
        self.arm(index);
    }

    /// Lets a machine join and leave groups.
    #[cold]
    fn change_membership(&mut self, index: u32, change: Membership) {
        let Agent { flow, node, .. } = self.agents[index as usize];
        match change {
            Membership::Join(group) => self.fabric.join(flow, group, node),
            Membership::Leave(group) => self.fabric.leave(flow, group, node),
        };
    }

    /// Asks a machine for its timer, after anything has happened to it.
    #[inline]
    pub(crate) fn arm(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        let Some(machine) = &agent.machine else { return };
        agent.wants = machine.next_timeout().unwrap_or(Time::MAX);
        self.set_alarm(index);
    }

    /// Schedules the next timer event, unless one that is not later is already scheduled.
    #[inline]
    fn set_alarm(&mut self, index: u32) {
        let agent = &mut self.agents[index as usize];
        // Where it wants none, no event is earlier than that.
        let at = agent.wants.max(self.fabric.now);
        if agent.alarm.set(at) {
            self.fabric.network.wheel.push(at, ScheduledEvent::new(EventKind::Timer, index));
        }
    }

    /// Puts a machine's packet, written into `scratch`, on the wire.
    fn transmit(&mut self, index: u32, transmit: Transmit) {
        let agent = &self.agents[index as usize];
        let (flow, from) = (agent.flow, agent.node);
        self.fabric.transmit((flow, from), &self.scratch, transmit, 0, self.sink);
        self.scratch.clear();
    }
}
