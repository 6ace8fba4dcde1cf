//! Event loop of the simulator: takes the earliest event and handles it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use faircast_base::{Event, FlowId, GroupId, NodeFaultKind, NodeId, Purpose, Rng, Time};
use faircast_proto::transport::Role;
use faircast_scenario::{Flow, Join, NodeFault, Scenario};
use faircast_trace::{Record, Sink};

use crate::agents::{Agent, AgentRole};
use crate::delivery::{Delivery, SentContent, SimError};
use crate::fabric::{Fabric, Protocols};
use crate::faults::Stopped;
use crate::network::{EventKind, LinkBalance, ScheduledEvent};
use crate::topology::NO_AGENT;

const OBSERVE_EVERY: u64 = 1 << 14;

/// Observer of a run, which can end the run.
pub trait Observer {
    /// Called every 16384 events with the current simulated time. `Break` ends the run.
    fn observe(&mut self, now: Time, events: u64) -> ControlFlow<()>;
}

/// Observer that never ends a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&mut self, _now: Time, _events: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct SimOutcome {
    /// Time at which the run ended.
    pub at: Time,
    /// Number of handled events.
    pub events: u64,
    /// Packets transmitted over a link, counted once for each link.
    pub packet_hops: u64,
    /// True if an observer ended the run early.
    pub interrupted: bool,
    /// Hash of all events in their order: equal for equal runs, on every platform.
    pub event_hash: u64,
    /// Deliveries by flow and receiver, in the scenario's order; true if intact.
    pub deliveries: Vec<Vec<(Delivery, bool)>>,
    /// Packet balance of each direction of each link.
    pub balances: Vec<LinkBalance>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Stop(FlowId),
    Join { agent: u32 },
    Leave { agent: u32 },
    Fault(NodeFault),
    Recover(NodeId, NodeFaultKind),
}

/// One run of a scenario.
pub struct Simulation<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) protocols: &'a dyn Protocols,
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) fabric: Fabric<'a>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) sent: Vec<SentContent>,
    actions: Vec<Action>,
    pub(crate) stopped: BTreeMap<u32, Stopped>,
    pub(crate) dead: BTreeSet<u32>,
    pub(crate) scratch: Vec<u8>,
}

impl<'a> Simulation<'a> {
    /// Prepares a run. Events are recorded to `sink` as they happen.
    ///
    /// # Errors
    /// A file to send cannot be read, or a flow uses a protocol that only the lab supports.
    pub fn new(
        scenario: &'a Scenario,
        protocols: &'a dyn Protocols,
        sink: &'a mut dyn Sink,
    ) -> Result<Self, SimError> {
        let mut simulation = Self {
            scenario,
            protocols,
            sink,
            fabric: Fabric::new(scenario, protocols),
            agents: Vec::new(),
            sent: Vec::new(),
            actions: Vec::new(),
            stopped: BTreeMap::new(),
            dead: BTreeSet::new(),
            scratch: Vec::new(),
        };
        for (index, flow) in scenario.flows.iter().enumerate() {
            if !flow.stack.is_simulated() {
                let reason = format!(
                    "protocol = \"{}\" is the kernel's own TCP, which only the lab runs; use --on \
                     lab, or tcp-reno, tcp-newreno or tcp-sack in the simulator",
                    flow.stack.name()
                );
                return Err(SimError { flow: flow.name.clone(), reason });
            }
            simulation.add_flow(FlowId(index as u32), flow)?;
        }
        simulation.add_programs();
        scenario.faults.iter().for_each(|it| simulation.schedule(it.at, Action::Fault(*it)));
        Ok(simulation)
    }

    /// Runs to the scenario's end, or until the observer ends the run.
    pub fn run(mut self, observer: &mut dyn Observer) -> SimOutcome {
        let end = Time::ZERO + self.scenario.duration;
        self.fabric.schedule_samples();
        let (mut events, mut hash, mut interrupted) = (0u64, 0u64, false);
        let mut beyond_end = None;
        while let Some((at, event)) = self.fabric.network.wheel.pop() {
            if at > end {
                beyond_end = Some(event);
                break;
            }
            events += 1;
            hash = fold(hash, at, event);
            self.fabric.now = at;
            self.handle(event);
            if events.is_multiple_of(OBSERVE_EVERY) && observer.observe(at, events).is_break() {
                interrupted = true;
                break;
            }
        }
        if !interrupted {
            self.fabric.now = end;
        }
        self.fabric.sample(self.sink);
        self.fabric.release_held();
        let stopped = std::mem::take(&mut self.stopped);
        stopped.into_values().for_each(|it| it.release(&mut self.fabric));
        let balances = self.fabric.network.balances(beyond_end);
        SimOutcome {
            at: self.fabric.now,
            events,
            packet_hops: self.fabric.network.packet_hops(self.fabric.now),
            interrupted,
            event_hash: hash,
            deliveries: self.deliveries(),
            balances,
        }
    }

    #[inline]
    fn handle(&mut self, event: ScheduledEvent) {
        match event.kind {
            EventKind::Arrival { stride } => {
                let mut link = event.link;
                for _ in 0..event.count {
                    self.arrive(event.index, link, event.hops);
                    link += u32::from(stride);
                }
            }
            EventKind::Timer => self.run_timer(event.index),
            EventKind::RelayTimer => self.fabric.run_relay_timer(event.index, self.sink),
            EventKind::Writable => self.fabric.tell_writable(event.index, event.link, self.sink),
            EventKind::Action => self.act(self.actions[event.index as usize]),
            EventKind::Sample => self.fabric.sample(self.sink),
        }
    }

    #[inline]
    fn arrive(&mut self, packet: u32, link: u32, hops: u8) {
        let Some(arrival) = self.fabric.arrive(packet, link, hops, self.sink) else { return };
        if arrival.agent != NO_AGENT {
            self.deliver(arrival.agent, arrival.packet);
        }
        self.fabric.send_on(arrival, self.sink);
    }

    fn add_flow(&mut self, id: FlowId, flow: &'a Flow) -> Result<(), SimError> {
        let sent = SentContent::of(flow)?;
        let senders = self.fabric.senders(id);
        for (index, node) in (senders.start..).zip(flow.ends()) {
            let rng = Rng::new(self.scenario.seed, node, Purpose::Machine(index));
            let only_sends = senders.contains(&index) && !flow.receives(node);
            let kind = if only_sends { AgentRole::Sender } else { AgentRole::Receiver };
            let mut agent = Agent::new(id, node, kind, rng, sent.is_real());
            if only_sends {
                let role = Role::Source(sent.content());
                agent.machine = Some(self.protocols.end(flow, id, node, role, flow.start));
            }
            self.agents.push(agent);
        }
        self.sent.push(sent);
        let mut joins: Vec<&Join> = flow.join.iter().collect();
        joins.sort_by_key(|join| join.node);
        for node in &flow.to {
            let agent = self.fabric.end_at(id, *node).expect("a receiver is an end");
            self.add_membership(&joins, agent);
        }
        if let Some(stop) = flow.stop {
            self.schedule(stop, Action::Stop(id));
        }
        senders.for_each(|sender| self.arm(sender));
        Ok(())
    }

    /// Schedules joins and leaves; a receiver without an entry in `joins` (by node) stays a member.
    fn add_membership(&mut self, joins: &[&Join], agent: u32) {
        let node = self.agents[agent as usize].node;
        let start = joins.partition_point(|join| join.node < node);
        let end = joins.partition_point(|join| join.node <= node);
        if start == end {
            self.join(agent);
        }
        for Join { at, leave, .. } in &joins[start..end] {
            self.schedule(*at, Action::Join { agent });
            if let Some(leave) = leave {
                self.schedule(*leave, Action::Leave { agent });
            }
        }
    }

    pub(crate) fn schedule(&mut self, at: Time, action: Action) {
        let index = self.actions.len() as u32;
        self.actions.push(action);
        self.fabric.network.wheel.push(at, ScheduledEvent::new(EventKind::Action, index));
    }

    fn act(&mut self, action: Action) {
        let mut agents = match action {
            Action::Stop(flow) => self.fabric.senders(flow),
            Action::Join { agent } | Action::Leave { agent } => agent..agent + 1,
            Action::Fault(_) | Action::Recover(..) => 0..0,
        };
        // A paused program handles the action when it resumes.
        if let Some(stopped) = agents.find_map(|agent| self.stopped.get(&agent)) {
            return self.schedule(stopped.until, action);
        }
        match action {
            Action::Fault(fault) => self.suffer(fault),
            Action::Recover(node, kind) => self.recover(node, kind),
            Action::Stop(flow) => self.fabric.senders(flow).for_each(|sender| self.close(sender)),
            Action::Join { agent } if self.dead.contains(&agent) => {}
            Action::Join { agent } => self.join(agent),
            Action::Leave { agent } => {
                self.close(agent);
                let Agent { flow, node, .. } = self.agents[agent as usize];
                self.fabric.leave_others(flow, node);
                if self.fabric.leave(flow, GroupId::SESSION, node) {
                    self.say(agent, Event::Left);
                }
            }
        }
    }

    pub(crate) fn join(&mut self, index: u32) {
        let Agent { flow: id, node, .. } = self.agents[index as usize];
        let flow = &self.scenario.flows[id.index()];
        if !self.fabric.join(id, GroupId::SESSION, node) {
            return;
        }
        let now = self.fabric.now;
        let (role, start) = match flow.sends(node, now) {
            true => (Role::Both(self.sent[id.index()].content()), now.max(flow.start)),
            false => (Role::Receiver, now),
        };
        let machine = self.protocols.end(flow, id, node, role, start);
        self.agents[index as usize].machine = Some(machine);
        self.say(index, Event::Joined);
        self.drain(index);
    }

    fn say(&mut self, agent: u32, event: Event) {
        let subject = self.agents[agent as usize].subject();
        self.sink.record(&Record { at: self.fabric.now, subject, event });
    }

    fn deliveries(&self) -> Vec<Vec<(Delivery, bool)>> {
        let of_flow = |(flow, id): (&Flow, FlowId)| {
            let checked = |node: &NodeId| {
                let end = self.fabric.end_at(id, *node).expect("a receiver is an end");
                let delivery = &self.agents[end as usize].delivery;
                let intact = delivery.intact(&self.sent[id.index()], flow.heard_at(*node));
                (delivery.clone(), intact)
            };
            flow.to.iter().map(checked).collect()
        };
        self.scenario.flows.iter().zip((0..).map(FlowId)).map(of_flow).collect()
    }
}

#[inline]
fn fold(hash: u64, at: Time, event: ScheduledEvent) -> u64 {
    let what = u64::from(event.index) << 32 | u64::from(event.link) ^ u64::from(event.count) << 20;
    (hash.rotate_left(5) ^ at.as_nanos() ^ what.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
