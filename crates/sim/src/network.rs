//! Links, routes and multicast trees: the network between the ends.

use std::cmp::Ordering;

use faircast_base::{DropReason, Duration, Event, LinkId, NodeId, Purpose, Rng, Time};
use faircast_link::{FaultyCopy, Link, Outcome, Streams};
use faircast_proto::Destination;
use faircast_scenario::{LinkSpec, Scenario};
use faircast_trace::{Record, Sink, Subject};

use crate::groups::Groups;
use crate::packets::{Packets, Route};
use crate::topology::{NO_LINK, Topology};
use crate::wheel::Wheel;

/// Packet counts of a link direction. Offered and duplicated packets together are as many as
/// dropped packets, arrived packets and packets under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBalance {
    pub arrived: u64,
    /// Packets queued, in transmission or in propagation when the run ends.
    pub under_way: u64,
    /// Copies that the link made by duplicating packets.
    pub duplicated: u64,
}

/// Entry of the event queue, as small as possible: a large run has 100 million entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledEvent {
    /// Index in the table of the event's kind: a packet, an agent, a relay or an action.
    pub(crate) index: u32,
    /// Link over which the packet arrives; the first link of a run of links.
    pub(crate) link: u32,
    /// Number of arrivals in the run of links; 0 for other kinds.
    pub(crate) count: u16,
    /// Links that the packet has crossed on arrival.
    pub(crate) hops: u8,
    pub(crate) kind: EventKind,
}

const _: () = assert!(size_of::<ScheduledEvent>() == 16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// Copies of one multicast packet that arrive over links `link`, `link + stride` ... at one
    /// time: replaces `count` consecutive events.
    Arrival {
        stride: u8,
    },
    Timer,
    RelayTimer,
    /// A link for which a relay waits may have an empty queue.
    Writable,
    Action,
    Sample,
}

impl ScheduledEvent {
    pub(crate) fn new(kind: EventKind, index: u32) -> Self {
        Self { index, link: 0, count: 0, hops: 0, kind }
    }

    /// Creates the arrival of one copy of `packet` over `link`, after `hops` links.
    #[inline]
    fn arrival(packet: u32, link: u32, hops: u8) -> Self {
        let kind = EventKind::Arrival { stride: 0 };
        Self { index: packet, link, count: 1, hops, kind }
    }

    /// Adds an arrival `distance` links after the last one. False if no run holds both.
    #[inline]
    fn extend(&mut self, distance: u32) -> bool {
        let EventKind::Arrival { stride } = &mut self.kind else { return false };
        if self.count == 1 {
            let Ok(distance) = u8::try_from(distance) else { return false };
            *stride = distance;
        } else if u32::from(*stride) != distance || self.count == u16::MAX {
            return false;
        }
        self.count += 1;
        true
    }
}

/// Sending end of one direction of a link, in cache lines that it shares with no neighbour.
#[repr(align(64))]
struct LinkStart {
    link: Link,
    rng: Rng,
    duplicated: u64,
}

/// Receiving end of a link, apart from [`LinkStart`], whose cache lines are evicted by the arrival.
struct LinkEnd {
    node: NodeId,
    arrived: u64,
}

/// Arrivals of one packet that have not entered the event queue yet.
struct ArrivalRun {
    at: Time,
    event: ScheduledEvent,
    last: u32,
}

pub(crate) struct Network {
    starts: Vec<LinkStart>,
    ends: Vec<LinkEnd>,
    pub(crate) topology: Topology,
    pub(crate) groups: Groups,
    pub(crate) packets: Packets,
    pub(crate) wheel: Wheel<ScheduledEvent>,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let start = |(index, spec): (usize, &LinkSpec)| LinkStart {
            link: Link::new(
                &spec.config,
                Streams { seed: scenario.seed, node: spec.from, link: index as u32 },
            ),
            rng: Rng::new(scenario.seed, spec.from, Purpose::Link(index as u32)),
            duplicated: 0,
        };
        let end = |spec: &LinkSpec| LinkEnd { node: spec.to, arrived: 0 };
        let mut topology = Topology::new(scenario.nodes.len(), &scenario.links);
        let relayed = scenario.nodes.iter().any(|node| node.program.is_some());
        Self {
            groups: Groups::new(&mut topology, &scenario.flows, relayed),
            starts: scenario.links.iter().enumerate().map(start).collect(),
            ends: scenario.links.iter().map(end).collect(),
            topology,
            packets: Packets::default(),
            wheel: Wheel::default(),
        }
    }

    /// Counts a packet at the end of `link`, and returns the node there.
    #[inline]
    pub(crate) fn arrive(&mut self, link: u32) -> NodeId {
        let end = &mut self.ends[link as usize];
        end.arrived += 1;
        end.node
    }

    /// Sends a packet on from `node` by its route after `hops` links. Takes the reference.
    #[inline]
    pub(crate) fn forward(
        &mut self,
        now: Time,
        node: NodeId,
        packet: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) {
        let info = self.packets.get(packet);
        let (from, has_expired) = (info.from, hops >= info.time_to_live);
        let dropped = match info.route {
            Route::Tree(tree) if has_expired => {
                self.leads_on(tree, node, from).then_some(DropReason::TimeToLive)
            }
            Route::Tree(tree) => {
                self.fan_out(now, node, packet, tree, hops, sink);
                None
            }
            Route::Neighbours(_) => None,
            Route::Node { .. } if has_expired => Some(DropReason::TimeToLive),
            Route::Node { node: destination, .. } => {
                match self.topology.next_link(node, destination) {
                    NO_LINK => Some(DropReason::NoRoute),
                    link => return self.send_over(now, link, packet, hops, sink),
                }
            }
        };
        if let Some(reason) = dropped {
            self.record_drop(now, packet, Subject::Node(node), reason, sink);
        }
        self.packets.release(packet);
    }

    /// Sends a new packet from its sender by its route. Takes the caller's reference.
    pub(crate) fn emit(&mut self, now: Time, from: NodeId, packet: u32, sink: &mut dyn Sink) {
        match self.packets.get(packet).route {
            Route::Tree(tree) => match self.groups.link_to_tree(&self.topology, tree, from) {
                NO_LINK => self.forward(now, from, packet, 0, sink),
                link => self.send_over(now, link, packet, 0, sink),
            },
            Route::Neighbours(_) => {
                for port in 0..self.topology.ports(from).len() {
                    let link = self.topology.ports(from)[port];
                    self.packets.copy(packet);
                    self.send_over(now, link, packet, 0, sink);
                }
                self.packets.release(packet);
            }
            Route::Node { .. } => self.forward(now, from, packet, 0, sink),
        }
    }

    /// True if packets of `from` leave `node` on the tree.
    fn leads_on(&mut self, tree: u32, node: NodeId, from: NodeId) -> bool {
        let back = self.groups.back(&mut self.topology, tree, (node, from));
        let above = self.groups.above(tree, node);
        let goes_on = |link: u32| link != back;
        above != NO_LINK && goes_on(above)
            || self.groups.children(tree, node).iter().any(|link| goes_on(*link))
    }

    pub(crate) fn destination(&self, route: Route) -> Destination {
        match route {
            Route::Tree(tree) => Destination::Group(self.groups.group(tree)),
            Route::Neighbours(group) => Destination::Group(group),
            Route::Node { node, .. } => Destination::Node(node),
        }
    }

    /// Offers a packet to `link` after `hops` links. Takes the caller's reference, for the arrival.
    #[inline]
    pub(crate) fn send_over(
        &mut self,
        now: Time,
        link: u32,
        packet: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) {
        match self.offer(now, link, (packet, hops), sink) {
            Some(at) => self.wheel.push(at, ScheduledEvent::arrival(packet, link, hops + 1)),
            None => self.packets.release(packet),
        }
    }

    /// Offers a packet to `link`. Returns the time of its arrival, which the caller schedules with
    /// a reference; `None` if it is dropped, or if faults altered it and its copies are scheduled.
    #[inline]
    fn offer(
        &mut self,
        now: Time,
        link: u32,
        (packet, hops): (u32, u8),
        sink: &mut dyn Sink,
    ) -> Option<Time> {
        let info = self.packets.get(packet);
        let start = &mut self.starts[link as usize];
        match start.link.offer(now, info.wire_len, info.payload_len > 0, &mut start.rng) {
            Outcome::Arrives(at) => return Some(at),
            Outcome::Altered { first, second } => {
                self.send_altered(now, link, (packet, hops), (first, second), sink);
            }
            Outcome::Dropped(reason) => {
                self.record_drop(now, packet, Subject::Link(LinkId(link)), reason, sink);
            }
        }
        None
    }

    /// Reports the faults of a packet and schedules its copies, each with an own reference.
    #[cold]
    fn send_altered(
        &mut self,
        now: Time,
        link: u32,
        (packet, hops): (u32, u8),
        (first, second): (FaultyCopy, Option<FaultyCopy>),
        sink: &mut dyn Sink,
    ) {
        let info = self.packets.get(packet);
        let (flow, bytes, own_len) = (info.flow, info.wire_len, info.own_len());
        let subject = Subject::Link(LinkId(link));
        let mut report = |event| sink.record(&Record { at: now, subject, event });
        if second.is_some() {
            report(Event::PacketDuplicated { flow, bytes });
            self.starts[link as usize].duplicated += 1;
        }
        for copy in [Some(first), second].into_iter().flatten() {
            if copy.extra > Duration::ZERO {
                let delay_ns = copy.extra.as_nanos();
                report(Event::PacketDelayed { flow, bytes, delay_ns });
            }
            let packet = match copy.bit(own_len) {
                Some(bit) => {
                    report(Event::PacketCorrupted { flow, bytes, bit });
                    self.packets.insert_flipped(packet, bit)
                }
                None => {
                    self.packets.copy(packet);
                    packet
                }
            };
            self.wheel.push(copy.at, ScheduledEvent::arrival(packet, link, hops + 1));
        }
    }

    /// Copies a packet to its tree's links at `node`. The caller keeps its own reference.
    fn fan_out(
        &mut self,
        now: Time,
        node: NodeId,
        packet: u32,
        tree: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) {
        let from = self.packets.get(packet).from;
        let back = self.groups.back(&mut self.topology, tree, (node, from));
        let above = self.groups.above(tree, node);
        let children = self.groups.children(tree, node);
        // Copies are sent in the order of the link numbers.
        let above_at = match above {
            NO_LINK => children.len(),
            above => children.partition_point(|link| *link < above),
        };
        let mut run = None;
        for place in 0..children.len() + usize::from(above != NO_LINK) {
            let link = match place.cmp(&above_at) {
                Ordering::Less => self.groups.children(tree, node)[place],
                Ordering::Equal => above,
                Ordering::Greater => self.groups.children(tree, node)[place - 1],
            };
            if link == back {
                continue;
            }
            if let Some(at) = self.offer(now, link, (packet, hops), sink) {
                self.packets.copy(packet);
                let event = ScheduledEvent::arrival(packet, link, hops + 1);
                self.add_to_run(&mut run, at, event);
            }
        }
        if let Some(run) = run {
            self.wheel.push(run.at, run.event);
        }
    }

    /// Adds an arrival to the run, or schedules the run and begins another with the arrival.
    /// Arrivals at one time over links at equal strides share a run.
    #[inline]
    fn add_to_run(&mut self, run: &mut Option<ArrivalRun>, at: Time, event: ScheduledEvent) {
        let link = event.link;
        if let Some(run) = run {
            if run.at == at && run.event.extend(link - run.last) {
                run.last = link;
                return;
            }
            self.wheel.push(run.at, run.event);
        }
        *run = Some(ArrivalRun { at, event, last: link });
    }

    /// Reports a dropped packet. The reference to it stays with the caller.
    #[cold]
    pub(crate) fn record_drop(
        &mut self,
        now: Time,
        packet: u32,
        subject: Subject,
        reason: DropReason,
        sink: &mut dyn Sink,
    ) {
        let info = self.packets.get(packet);
        let event = Event::PacketDropped { flow: info.flow, bytes: info.wire_len, reason };
        sink.record(&Record { at: now, subject, event });
    }

    pub(crate) fn idle_at(&self, link: u32) -> Time {
        self.starts[link as usize].link.idle_at()
    }

    pub(crate) fn sample(&mut self, now: Time, sink: &mut dyn Sink) {
        for (index, start) in self.starts.iter_mut().enumerate() {
            let counters = start.link.sample(now);
            if counters.offered_packets > 0 {
                let subject = Subject::Link(LinkId(index as u32));
                sink.record(&Record { at: now, subject, event: Event::LinkSample(counters) });
            }
        }
    }

    /// Returns each link's balance and empties the event queue; `first` is already taken from it.
    pub(crate) fn balances(&mut self, first: Option<ScheduledEvent>) -> Vec<LinkBalance> {
        let balance = |(start, end): (&LinkStart, &LinkEnd)| LinkBalance {
            arrived: end.arrived,
            under_way: 0,
            duplicated: start.duplicated,
        };
        let mut balances: Vec<_> = self.starts.iter().zip(&self.ends).map(balance).collect();
        let mut next = first;
        while let Some(event) = next.or_else(|| self.wheel.pop().map(|(_, event)| event)) {
            next = None;
            if let EventKind::Arrival { stride } = event.kind {
                for copy in 0..u32::from(event.count) {
                    balances[(event.link + copy * u32::from(stride)) as usize].under_way += 1;
                    self.packets.release(event.index);
                }
            }
        }
        assert_eq!(self.packets.held(), 0, "every packet that is held is under way");
        balances
    }

    pub(crate) fn packet_hops(&mut self, now: Time) -> u64 {
        self.starts.iter_mut().map(|start| start.link.sample(now).sent_packets).sum()
    }
}
