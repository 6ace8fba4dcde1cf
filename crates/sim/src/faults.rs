//! Programs of nodes, and faults of nodes: pauses, kills, restarts and changed addresses.

use faircast_base::{DropReason, Event, GroupId, NodeFaultKind, NodeId, Purpose, Rng, Time};
use faircast_scenario::{FaultKind, NodeFault};
use faircast_trace::{Record, Subject};

use crate::agents::{Agent, AgentRole};
use crate::delivery::Delivery;
use crate::engine::{Action, Simulation};
use crate::fabric::Fabric;

/// Receive buffer of a paused program's socket in bytes: Linux's default (net.core.rmem_default).
const SOCKET_BYTES: u64 = 212_992;

pub(crate) struct Stopped {
    pub(crate) until: Time,
    packets: Vec<(Time, u32)>,
    bytes: u64,
}

impl Stopped {
    pub(crate) fn release(self, fabric: &mut Fabric<'_>) {
        self.packets.into_iter().for_each(|(_, packet)| fabric.network.packets.release(packet));
    }
}

impl Simulation<'_> {
    pub(crate) fn add_programs(&mut self) {
        for program in self.scenario.programs() {
            let (index, node) = (self.agents.len() as u32, program.node());
            let rng = Rng::new(self.scenario.seed, node, Purpose::Machine(index));
            let flow = self.scenario.programs_flow();
            let mut agent = Agent::new(flow, node, AgentRole::Program, rng, false);
            agent.machine = Some(self.protocols.node_program(program, Time::ZERO));
            self.agents.push(agent);
            self.arm(index);
        }
    }

    pub(crate) fn keep(&mut self, index: u32, packet: u32) -> bool {
        let Some(stopped) = self.stopped.get_mut(&index) else { return false };
        let about = self.fabric.network.packets.get(packet);
        let (flow, bytes) = (about.flow, about.wire_len);
        if stopped.bytes + u64::from(bytes) <= SOCKET_BYTES {
            stopped.bytes += u64::from(bytes);
            stopped.packets.push((self.fabric.now, packet));
            self.fabric.network.packets.copy(packet);
        } else {
            let event = Event::PacketDropped { flow, bytes, reason: DropReason::QueueFull };
            self.say_at(self.agents[index as usize].node, event);
        }
        true
    }

    fn say_at(&mut self, node: NodeId, event: Event) {
        let subject = Subject::Node(node);
        self.sink.record(&Record { at: self.fabric.now, subject, event });
    }

    pub(crate) fn suffer(&mut self, NodeFault { node, kind, .. }: NodeFault) {
        let now = self.fabric.now;
        self.say_at(node, Event::NodeFault { kind: kind.begins() });
        for end in self.fabric.ends_at(node) {
            match kind {
                FaultKind::Stop(span) => {
                    let until = now + span;
                    let new = Stopped { until, packets: Vec::new(), bytes: 0 };
                    let stopped = self.stopped.entry(end).or_insert(new);
                    stopped.until = stopped.until.max(until);
                }
                FaultKind::Kill | FaultKind::Restart(_) => self.kill(end),
                FaultKind::Move => {}
            }
        }
        if kind == FaultKind::Move {
            self.fabric.change_address(node);
        }
        if let Some((span, said)) = kind.ends() {
            self.schedule(now + span, Action::Recover(node, said));
        }
    }

    fn kill(&mut self, end: u32) {
        if let Some(stopped) = self.stopped.remove(&end) {
            stopped.release(&mut self.fabric);
        }
        let agent = &mut self.agents[end as usize];
        if agent.machine.is_some() {
            self.dead.insert(end);
        }
        agent.kill();
        let (flow, node, role) = (agent.flow, agent.node, agent.role);
        if role != AgentRole::Program {
            self.fabric.leave_others(flow, node);
            self.fabric.leave(flow, GroupId::SESSION, node);
        }
    }

    pub(crate) fn recover(&mut self, node: NodeId, kind: NodeFaultKind) {
        let now = self.fabric.now;
        self.say_at(node, Event::NodeFault { kind });
        for end in self.fabric.ends_at(node) {
            if kind == NodeFaultKind::Started && self.dead.remove(&end) {
                self.start(end);
            } else if self.stopped.get(&end).is_some_and(|stopped| stopped.until <= now) {
                let stopped = self.stopped.remove(&end);
                for (at, packet) in stopped.into_iter().flat_map(|stopped| stopped.packets) {
                    self.deliver_late(end, packet, at);
                    self.fabric.network.packets.release(packet);
                }
                self.run_due_timer(end);
            }
        }
    }

    fn start(&mut self, end: u32) {
        let Agent { flow, node, role, .. } = self.agents[end as usize];
        if role == AgentRole::Program {
            let program = self.scenario.programs().find(|program| program.node() == node);
            let program = program.expect("a program's agent has its entry");
            let machine = self.protocols.node_program(program, self.fabric.now);
            self.agents[end as usize].machine = Some(machine);
            self.drain(end);
        } else {
            let is_real = self.sent[flow.index()].is_real();
            self.agents[end as usize].delivery = Delivery::new(is_real);
            self.join(end);
        }
    }
}
