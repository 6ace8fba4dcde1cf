//! Network between the ends of flows: links, routes, trees, memberships, relays in routers.
//!
//! The caller advances the time: the simulator event by event, the lab in real time. Ends are
//! numbered in the scenario's order: for each flow senders, then other receivers; then relay nodes.

use std::collections::BTreeMap;

use faircast_base::{BadInput, Duration, Event, FlowId, GroupId, NodeId, Time};
use faircast_proto::relay::Relay;
use faircast_proto::transport::Role;
use faircast_proto::{Destination, FlowMachine, Transmit};
use faircast_scenario::{Flow, NodeProgram, Program, Scenario};
use faircast_trace::{Record, Sink, Subject};

use crate::builtin;
use crate::network::{EventKind, Network, ScheduledEvent};
use crate::packets::{About, Route};
use crate::relays::Relays;
use crate::topology::NO_AGENT;

/// IPv4 and UDP headers in bytes: default for every packet of a multicast scheme.
const UDP_IP_BYTES: u32 = 28;
/// Most records of link counters in a run, over all links.
const LINK_SAMPLES_MAX: u64 = 2_000_000;

/// Factory of machines and relays by the names in a scenario, which are valid.
pub trait Protocols {
    /// Makes the end of a flow at `node`, starting at `start`.
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine;
    /// Makes the program of a node, starting at `start`. Default: faircast's own program.
    fn node_program(&self, program: NodeProgram<'_>, start: Time) -> FlowMachine {
        builtin::node_program(program, start)
    }
    /// Makes the relay of a router.
    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay>;
    /// True if a flow's machines detect flipped bits; otherwise the kernel discards. Default: true.
    fn sees_corruption(&self, _flow: &Flow) -> bool {
        true
    }
}

/// Links, routers and trees of a scenario, with the packets under way.
pub struct Fabric<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) protocols: &'a dyn Protocols,
    pub(crate) now: Time,
    pub(crate) network: Network,
    pub(crate) relays: Relays,
    has_relay: Vec<bool>,
    ends_by_node: Vec<Vec<(NodeId, u32)>>,
    firsts: Vec<u32>,
    sees_corruption: Vec<bool>,
    /// Node programs and ends behind relays, by address: the node's number until the node moves.
    addresses: BTreeMap<NodeId, (NodeId, u32)>,
    /// Addresses of moved nodes, outside the range of node numbers.
    moved: BTreeMap<NodeId, NodeId>,
}

/// Packet that has arrived at an end of its flow.
#[derive(Clone, Copy, Debug)]
pub struct Parcel<'a> {
    /// Arrival time.
    pub at: Time,
    /// Number of the receiving end.
    pub end: u32,
    /// Flow of the packet.
    pub flow: FlowId,
    /// Source node according to the network.
    pub from: NodeId,
    /// Destination: the group or this node alone.
    pub to: Destination,
    /// Header and real payload.
    pub bytes: &'a [u8],
    /// Zero bytes that follow `bytes`.
    pub zeros: u32,
    /// Payload in bytes.
    pub payload_len: u32,
    /// Hops left.
    pub time_to_live: u8,
    /// Tag of the sending driver; 0 for packets of a relay.
    pub tag: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) packet: u32,
    pub(crate) node: NodeId,
    pub(crate) hops: u8,
    pub(crate) agent: u32,
    pub(crate) ends: bool,
}

impl<'a> Fabric<'a> {
    /// Makes the network of a scenario at time zero, without members. `protocols` makes the relays.
    pub fn new(scenario: &'a Scenario, protocols: &'a dyn Protocols) -> Self {
        let (mut firsts, mut ends_by_node) = (Vec::new(), Vec::new());
        let mut addresses = BTreeMap::new();
        let mut next = 0;
        for flow in &scenario.flows {
            firsts.push(next);
            let mut by_node: Vec<_> = flow.ends().zip(next..).collect();
            let behind = by_node.iter().filter(|(node, _)| flow.via.contains_key(node));
            addresses.extend(behind.map(|(node, end)| (*node, (*node, *end))));
            next += by_node.len() as u32;
            by_node.sort_unstable();
            ends_by_node.push(by_node);
        }
        let programs = scenario.programs().map(|program| program.node()).zip(next..);
        addresses.extend(programs.map(|(node, end)| (node, (node, end))));
        Self {
            scenario,
            protocols,
            now: Time::ZERO,
            network: Network::new(scenario),
            relays: Relays::default(),
            has_relay: scenario.nodes.iter().map(|node| node.program.is_some()).collect(),
            ends_by_node,
            firsts,
            sees_corruption: scenario.flows.iter().map(|f| protocols.sees_corruption(f)).collect(),
            addresses,
            moved: BTreeMap::new(),
        }
    }

    pub(crate) fn ends_at(&self, node: NodeId) -> Vec<u32> {
        let flows = (0..self.scenario.flows.len() as u32).map(FlowId);
        let ends = flows.filter_map(|flow| self.end_at(flow, node));
        let first_program: usize = self.ends_by_node.iter().map(Vec::len).sum();
        let program = self.scenario.programs().position(|program| program.node() == node);
        ends.chain(program.map(|place| (first_program + place) as u32)).collect()
    }

    /// Gives a node a new address. Packets to its old address are lost.
    pub(crate) fn change_address(&mut self, node: NodeId) {
        let before = self.moved.get(&node).copied().unwrap_or(node);
        let Some(of) = self.addresses.remove(&before) else { return };
        let last =
            self.moved.values().max().map_or(self.scenario.nodes.len() as u32 - 1, |it| it.0);
        self.moved.insert(node, NodeId(last + 1));
        self.addresses.insert(NodeId(last + 1), of);
    }

    fn goes_through_programs(&self, flow: FlowId) -> bool {
        self.scenario.flows.get(flow.index()).is_none_or(|flow| !flow.via.is_empty())
    }

    /// Returns the current simulated time.
    pub fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn senders(&self, flow: FlowId) -> std::ops::Range<u32> {
        let first = self.firsts[flow.index()];
        first..first + self.scenario.flows[flow.index()].from.len() as u32
    }

    /// Returns the number of a flow's end at a node.
    pub fn end_at(&self, flow: FlowId, node: NodeId) -> Option<u32> {
        let ends = &self.ends_by_node[flow.index()];
        let place = ends.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(ends[place].1)
    }

    /// Makes the end of a flow at `node` a member of a group. False if it is one or does not exist.
    pub fn join(&mut self, flow: FlowId, group: GroupId, node: NodeId) -> bool {
        let Some(end) = self.end_at(flow, node) else { return false };
        self.network.groups.join(flow, group, node, end)
    }

    /// Ends a membership. False if there is none.
    pub fn leave(&mut self, flow: FlowId, group: GroupId, node: NodeId) -> bool {
        self.network.groups.leave(flow, group, node)
    }

    /// Ends the memberships of a flow's end in all groups but the session's.
    pub fn leave_others(&mut self, flow: FlowId, node: NodeId) {
        self.network.groups.leave_others(flow, node);
    }

    /// Schedules samples of the link counters: at the end of the warm-up and at regular intervals.
    pub fn schedule_samples(&mut self) {
        let links = self.scenario.links.len().max(1) as u64;
        let samples = (LINK_SAMPLES_MAX / links).clamp(20, 1000);
        let end = self.scenario.duration;
        let every = Duration::from_nanos((end.as_nanos() / samples).max(1));
        let mut at = Time::ZERO + every;
        while at < Time::ZERO + end {
            self.network.wheel.push(at, ScheduledEvent::new(EventKind::Sample, 0));
            at += every;
        }
        let warm = Time::ZERO + self.scenario.warmup;
        self.network.wheel.push(warm, ScheduledEvent::new(EventKind::Sample, 0));
    }

    /// Records the counters of every link that was offered at least one packet.
    pub fn sample(&mut self, sink: &mut dyn Sink) {
        self.network.sample(self.now, sink);
    }

    /// Returns the number of link transmissions that have ended.
    pub fn packet_hops(&mut self) -> u64 {
        self.network.packet_hops(self.now)
    }

    /// Returns the time of the next event; `None` without an event.
    pub fn next_time(&self) -> Option<Time> {
        self.network.wheel.next_time()
    }

    /// Handles all events up to `now`, or up to the current time if `now` is past. Passes packets
    /// that arrive at an end to `deliver`. Returns the number of events.
    pub fn advance(
        &mut self,
        now: Time,
        sink: &mut dyn Sink,
        deliver: &mut dyn FnMut(Parcel<'_>),
    ) -> u64 {
        let mut events = 0;
        while self.next_time().is_some_and(|at| at <= now) {
            let Some((at, event)) = self.network.wheel.pop() else { break };
            self.now = at;
            events += 1;
            match event.kind {
                EventKind::Arrival { stride } => {
                    let mut link = event.link;
                    for _ in 0..event.count {
                        let arrival = self.arrive(event.index, link, event.hops, sink);
                        if let Some(arrival) = arrival {
                            if arrival.agent != NO_AGENT {
                                deliver(self.parcel(&arrival));
                            }
                            self.send_on(arrival, sink);
                        }
                        link += u32::from(stride);
                    }
                }
                EventKind::RelayTimer => self.run_relay_timer(event.index, sink),
                EventKind::Writable => self.tell_writable(event.index, event.link, sink),
                EventKind::Sample => self.sample(sink),
                EventKind::Timer | EventKind::Action => {}
            }
        }
        self.now = self.now.max(now);
        events
    }

    /// Sends a packet of a flow's end at the current time.
    pub fn transmit(
        &mut self,
        (flow, from): (FlowId, NodeId),
        bytes: &[u8],
        transmit: Transmit,
        tag: u32,
        sink: &mut dyn Sink,
    ) {
        let own_len = bytes.len() as u32 + transmit.zeros;
        let wire_len =
            transmit.wire_len.unwrap_or_else(|| self.wire_len(flow, own_len, transmit.payload_len));
        let is_addressed = !self.moved.is_empty() && self.goes_through_programs(flow);
        let address = self.moved.get(&from).filter(|_| is_addressed).copied().unwrap_or(from);
        let about = About {
            zeros: transmit.zeros,
            wire_len,
            payload_len: transmit.payload_len,
            flow,
            from: address,
            route: self.route(flow, transmit.to, (from, transmit.time_to_live)),
            time_to_live: transmit.time_to_live,
            router_alert: transmit.router_alert,
            tag,
            flipped: false,
        };
        let packet = self.network.packets.insert(bytes, about);
        self.network.emit(self.now, from, packet, sink);
    }

    /// Handles an arriving copy; [`send_on`](Self::send_on) must follow. `None` if a relay kept it.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        packet: u32,
        link: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) -> Option<Arrival> {
        let node = self.network.arrive(link);
        let packet = match self.has_relay[node.index()] {
            true => self.relay(node, packet, link, hops, sink)?,
            false => packet,
        };
        let arrival = Arrival { packet, node, hops, agent: NO_AGENT, ends: true };
        let info = self.network.packets.get(packet);
        let flipped = info.flipped;
        let arrival = match info.route {
            Route::Tree(tree) => {
                let (agent, ends) = self.network.groups.member(tree, node);
                Arrival { agent, ends, ..arrival }
            }
            Route::Neighbours(group) => {
                let agent = self.network.groups.member_of(info.flow, group, node);
                Arrival { agent, ..arrival }
            }
            Route::Node { node: destination, agent } if destination == node => {
                Arrival { agent: agent.unwrap_or(NO_AGENT), ..arrival }
            }
            Route::Node { .. } => Arrival { ends: false, ..arrival },
        };
        Some(if flipped { self.refuse(arrival, sink) } else { arrival })
    }

    #[cold]
    fn refuse(&self, arrival: Arrival, sink: &mut dyn Sink) -> Arrival {
        let Arrival { packet, node, agent, .. } = arrival;
        let flow = self.network.packets.get(packet).flow;
        if agent == NO_AGENT || self.sees_corruption.get(flow.index()) != Some(&false) {
            return arrival;
        }
        let sender = self.senders(flow).contains(&agent)
            && !self.scenario.flows[flow.index()].receives(node);
        let subject = Subject::Endpoint { flow, node, sender };
        let event = Event::BadInput { reason: BadInput::Checksum };
        sink.record(&Record { at: self.now, subject, event });
        Arrival { agent: NO_AGENT, ..arrival }
    }

    #[inline]
    pub(crate) fn send_on(&mut self, arrival: Arrival, sink: &mut dyn Sink) {
        let Arrival { packet, node, hops, ends, .. } = arrival;
        if ends {
            self.network.packets.release(packet);
        } else {
            self.network.forward(self.now, node, packet, hops, sink);
        }
    }

    fn parcel(&self, arrival: &Arrival) -> Parcel<'_> {
        let packet = self.network.packets.get(arrival.packet);
        Parcel {
            at: self.now,
            end: arrival.agent,
            flow: packet.flow,
            from: packet.from,
            to: self.network.destination(packet.route),
            bytes: &packet.bytes,
            zeros: packet.zeros,
            payload_len: packet.payload_len,
            time_to_live: packet.time_to_live.saturating_sub(arrival.hops),
            tag: packet.tag,
        }
    }

    pub(crate) fn route(
        &mut self,
        flow: FlowId,
        to: Destination,
        (from, time_to_live): (NodeId, u8),
    ) -> Route {
        match to {
            Destination::Group(group) => {
                let ends = self.ends_by_node[flow.index()].iter().map(|(node, _)| *node);
                let Network { groups, topology, .. } = &mut self.network;
                groups.route(topology, (flow, group), (from, time_to_live), ends)
            }
            Destination::Node(at) if self.goes_through_programs(flow) => {
                match self.addresses.get(&at) {
                    Some(&(node, agent)) => Route::Node { node, agent: Some(agent) },
                    // A packet to an unused address has no receiver.
                    None => {
                        let is_node = at.index() < self.scenario.nodes.len();
                        Route::Node { node: if is_node { at } else { from }, agent: None }
                    }
                }
            }
            Destination::Node(node) => Route::Node { node, agent: self.end_at(flow, node) },
        }
    }

    /// Returns the size on the wire in bytes. A header size set by the scenario is added to the
    /// payload of data packets; control packets then have their encoded length, as in ns-2.
    pub(crate) fn wire_len(&self, flow: FlowId, own_len: u32, payload_len: u32) -> u32 {
        match self.scenario.flows.get(flow.index()).and_then(|flow| flow.header) {
            None => own_len + UDP_IP_BYTES,
            Some(header) if payload_len > 0 => payload_len + header.count() as u32,
            Some(_) => own_len,
        }
    }
}
