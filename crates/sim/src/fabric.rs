//! The fabric between the ends of flows: links, routes, trees, memberships, relays in routers.
//!
//! Whoever drives it gives it time: the simulator takes its events one after the other, the lab
//! when their moment has come. Ends are known by number: for each flow its senders, then its
//! other receivers, in the scenario's order; then relay nodes.

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
use crate::topology::NONE;

/// Bytes of IPv4 and UDP headers, which every packet of a multicast scheme has on the wire unless
/// the scenario says otherwise.
const UDP_IP_BYTES: u32 = 28;
/// Records of link counters that a run writes at the most, over all links.
const LINK_SAMPLES_MAX: u64 = 2_000_000;

/// Factory of machines and relays by the names in a scenario. Names and options were checked when
/// the scenario was read.
pub trait Protocols {
    /// Makes the end of a flow at `node`, from `start` on.
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine;
    /// Makes the program of a node that starts at this moment. Default: that of faircast.
    fn node_program(&self, program: NodeProgram<'_>, start: Time) -> FlowMachine {
        builtin::node_program(program, start)
    }
    /// Makes the relay of a router.
    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay>;
    /// True if the machines of a flow recognise packets with flipped bits. Otherwise the kernels of
    /// their hosts do, and a damaged packet is refused before the machine. Default: true.
    fn sees_corruption(&self, _flow: &Flow) -> bool {
        true
    }
}

/// All links, routers and trees of a scenario, and the packets on them.
pub struct Fabric<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) protocols: &'a dyn Protocols,
    pub(crate) now: Time,
    pub(crate) network: Network,
    pub(crate) relays: Relays,
    /// For each node whether a relay runs there.
    has_relay: Vec<bool>,
    /// For each flow its ends, sorted by node.
    ends_by_node: Vec<Vec<(NodeId, u32)>>,
    /// For each flow the number of its first end.
    firsts: Vec<u32>,
    /// For each flow whether its ends see that a packet was corrupted.
    sees_corruption: Vec<bool>,
    /// Node programs and ends behind relays, by address: the node's number until the node moves.
    addresses: BTreeMap<NodeId, (NodeId, u32)>,
    /// Addresses of nodes that have moved, each another number than those of nodes.
    moved: BTreeMap<NodeId, NodeId>,
}

/// A packet that has come to an end of its flow.
#[derive(Clone, Copy, Debug)]
pub struct Parcel<'a> {
    /// When it came.
    pub at: Time,
    /// The number of the end that it came to.
    pub end: u32,
    /// Whose packet it is.
    pub flow: FlowId,
    /// Whom the network says it is from.
    pub from: NodeId,
    /// Whether it came to the group or to this node alone.
    pub to: Destination,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Zero bytes that follow them.
    pub zeros: u32,
    /// Bytes of payload in it.
    pub payload_len: u32,
    /// Hops that it may still travel.
    pub time_to_live: u8,
    /// What its sender's driver gave with it; 0 where a relay sent it.
    pub tag: u32,
}

/// A copy of a packet at a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) packet: u32,
    pub(crate) node: NodeId,
    pub(crate) hops: u8,
    /// Who gets it, or [`NONE`].
    pub(crate) agent: u32,
    /// Whether it ends here.
    pub(crate) ends: bool,
}

impl<'a> Fabric<'a> {
    /// The network of a scenario at time zero, without members. Relays come from
    /// `protocols`.
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

    /// Numbers of the ends at a node, its program among them.
    pub(crate) fn ends_at(&self, node: NodeId) -> Vec<u32> {
        let flows = (0..self.scenario.flows.len() as u32).map(FlowId);
        let ends = flows.filter_map(|flow| self.end_at(flow, node));
        ends.chain(self.program_at(node)).collect()
    }

    fn program_at(&self, node: NodeId) -> Option<u32> {
        let place = self.scenario.programs().position(|program| program.node() == node)?;
        let ends: usize = self.ends_by_node.iter().map(Vec::len).sum();
        Some((ends + place) as u32)
    }

    /// Gives a node another address. Packets to the one before go nowhere.
    pub(crate) fn change_address(&mut self, node: NodeId) {
        let before = self.moved.get(&node).copied().unwrap_or(node);
        let Some(of) = self.addresses.remove(&before) else { return };
        let last =
            self.moved.values().max().map_or(self.scenario.nodes.len() as u32 - 1, |it| it.0);
        self.moved.insert(node, NodeId(last + 1));
        self.addresses.insert(NodeId(last + 1), of);
    }

    /// True if packets of a flow go between node programs, or relays and those below them.
    fn goes_through_programs(&self, flow: FlowId) -> bool {
        self.scenario.flows.get(flow.index()).is_none_or(|flow| !flow.via.is_empty())
    }

    /// The moment that it has reached.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The numbers of a flow's senders.
    pub(crate) fn senders(&self, flow: FlowId) -> std::ops::Range<u32> {
        let first = self.firsts[flow.index()];
        first..first + self.scenario.flows[flow.index()].from.len() as u32
    }

    /// The number of the end of a flow at a node.
    pub fn end_at(&self, flow: FlowId, node: NodeId) -> Option<u32> {
        let ends = &self.ends_by_node[flow.index()];
        let place = ends.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(ends[place].1)
    }

    /// Makes the end of a flow at `node` a member of a group. False where it is one, or there is no
    /// such end.
    pub fn join(&mut self, flow: FlowId, group: GroupId, node: NodeId) -> bool {
        let Some(end) = self.end_at(flow, node) else { return false };
        self.network.groups.join(flow, group, node, end)
    }

    /// Ends its membership. False where it is no member.
    pub fn leave(&mut self, flow: FlowId, group: GroupId, node: NodeId) -> bool {
        self.network.groups.leave(flow, group, node)
    }

    /// Ends its memberships in all groups but that of the session.
    pub fn leave_others(&mut self, flow: FlowId, node: NodeId) {
        self.network.groups.leave_others(flow, node);
    }

    /// Asks for the counters of the links at the end of the warm-up and at regular moments.
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
        // Averages begin at the end of the warm-up, so the counters of that moment are needed.
        let warm = Time::ZERO + self.scenario.warmup;
        self.network.wheel.push(warm, ScheduledEvent::new(EventKind::Sample, 0));
    }

    /// Records the counters of every link that has been offered anything.
    pub fn sample(&mut self, sink: &mut dyn Sink) {
        self.network.sample(self.now, sink);
    }

    /// Packets whose transmission over any link has ended.
    pub fn packet_hops(&mut self) -> u64 {
        self.network.packet_hops(self.now)
    }

    /// When something happens next; nothing does where it is `None`.
    pub fn next_time(&self) -> Option<Time> {
        self.network.wheel.next_time()
    }

    /// Lets everything happen that is due by `now`, each thing at its own moment, and goes on to
    /// that moment. Packets that come to an end of their flow go to `deliver`. Returns how many
    /// things happened. Moments before the one reached are taken as that.
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
                        let arrival = self.arrive(event.subject, link, event.hops, sink);
                        if let Some(arrival) = arrival {
                            if arrival.agent != NONE {
                                deliver(self.parcel(&arrival));
                            }
                            self.send_on(arrival, sink);
                        }
                        link += u32::from(stride);
                    }
                }
                EventKind::RelayTimer => self.run_relay_timer(event.subject, sink),
                EventKind::Writable => self.tell_writable(event.subject, event.link, sink),
                EventKind::Sample => self.sample(sink),
                // The simulator's own.
                EventKind::Timer | EventKind::Action => {}
            }
        }
        self.now = self.now.max(now);
        events
    }

    /// Puts a packet of a flow's end on the wire, at the moment reached.
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

    /// A copy of a packet reaches the end of a link. [`send_on`](Self::send_on) must follow, once
    /// whoever is to get it has it; unless a relay there keeps it: then there is no arrival.
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
        let arrival = Arrival { packet, node, hops, agent: NONE, ends: true };
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
                Arrival { agent: agent.unwrap_or(NONE), ..arrival }
            }
            Route::Node { .. } => Arrival { ends: false, ..arrival },
        };
        Some(if flipped { self.refuse(arrival, sink) } else { arrival })
    }

    /// Keeps a corrupted packet from an end that cannot see that it is, as the kernel's checksum
    /// would.
    #[cold]
    fn refuse(&self, arrival: Arrival, sink: &mut dyn Sink) -> Arrival {
        let Arrival { packet, node, agent, .. } = arrival;
        let flow = self.network.packets.get(packet).flow;
        if agent == NONE || self.sees_corruption.get(flow.index()) != Some(&false) {
            return arrival;
        }
        let sender = self.senders(flow).contains(&agent)
            && !self.scenario.flows[flow.index()].receives(node);
        let subject = Subject::Endpoint { flow, node, sender };
        let event = Event::BadInput { reason: BadInput::Checksum };
        sink.record(&Record { at: self.now, subject, event });
        Arrival { agent: NONE, ..arrival }
    }

    /// Sends a packet on from where it has arrived, unless it ends there.
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

    /// How a packet gets from a node to its destination, by the hops that it may travel.
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
                let to = self.addresses.get(&at);
                // An address that nobody has any more leads nowhere.
                let node = to
                    .map_or(if at.index() < self.scenario.nodes.len() { at } else { from }, |to| {
                        to.0
                    });
                Route::Node { node, agent: to.map(|to| to.1) }
            }
            Destination::Node(node) => Route::Node { node, agent: self.end_at(flow, node) },
        }
    }

    /// Bytes on the wire of a packet of `own_len` bytes. With the scenario's own header size, data
    /// packets count payload and that, and control packets what the protocol encodes: ns-2 counts
    /// so.
    pub(crate) fn wire_len(&self, flow: FlowId, own_len: u32, payload_len: u32) -> u32 {
        match self.scenario.flows.get(flow.index()).and_then(|flow| flow.header) {
            None => own_len + UDP_IP_BYTES,
            Some(header) if payload_len > 0 => payload_len + header.count() as u32,
            Some(_) => own_len,
        }
    }
}
