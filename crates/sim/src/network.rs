//! Links, routes and multicast trees: the network between the ends.

use std::cmp::Ordering;

use faircast_base::{DropReason, Duration, Event, LinkId, NodeId, Purpose, Rng, Time};
use faircast_link::{Copy, Link, Outcome, Streams};
use faircast_proto::Destination;
use faircast_scenario::{LinkSpec, Scenario};
use faircast_trace::{Record, Sink, Subject};

use crate::groups::Groups;
use crate::packets::{Packets, Route};
use crate::topology::{NONE, Topology};
use crate::wheel::Wheel;

/// Balance of a link direction: every offered or copied packet is dropped, arrives or is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBalance {
    /// Packets that reached the end of the link.
    pub arrived: u64,
    /// Packets queued, in transmission or in propagation when the run ends.
    pub under_way: u64,
    /// Copies that the link made by duplicating packets.
    pub duplicated: u64,
}

/// Entry of the event queue: 12 bytes, because a run has 100 million entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledEvent {
    pub(crate) subject: u32,
    /// Link over which the packet arrives; the first link of a run of links.
    pub(crate) link: u32,
    pub(crate) count: u16,
    pub(crate) hops: u8,
    pub(crate) kind: EventKind,
}

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
    pub(crate) fn new(kind: EventKind, subject: u32) -> Self {
        Self { subject, link: 0, count: 0, hops: 0, kind }
    }
}

/// Sending end of one direction of a link, in cache lines that it shares with no neighbour.
#[repr(align(64))]
struct Hop {
    link: Link,
    rng: Rng,
    duplicated: u64,
}

/// Receiving end of a link, apart from [`Hop`], whose cache lines are evicted by the arrival.
struct LinkEnd {
    node: NodeId,
    arrived: u64,
}

pub(crate) struct Network {
    hops: Vec<Hop>,
    ends: Vec<LinkEnd>,
    pub(crate) topology: Topology,
    pub(crate) groups: Groups,
    pub(crate) packets: Packets,
    pub(crate) wheel: Wheel<ScheduledEvent>,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let hop = |(index, spec): (usize, &LinkSpec)| Hop {
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
            hops: scenario.links.iter().enumerate().map(hop).collect(),
            ends: scenario.links.iter().map(end).collect(),
            topology,
            packets: Packets::default(),
            wheel: Wheel::default(),
        }
    }

    #[inline]
    pub(crate) fn arrive(&mut self, link: u32) -> NodeId {
        let end = &mut self.ends[link as usize];
        end.arrived += 1;
        end.node
    }

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
        let from = info.from;
        match info.route {
            Route::Tree(tree) => {
                if hops < info.time_to_live {
                    self.fan_out(now, node, packet, tree, hops, sink);
                } else if self.leads_on(tree, node, from) {
                    self.drop(now, packet, Subject::Node(node), DropReason::TimeToLive, sink);
                }
            }
            Route::Neighbours(_) => {}
            Route::Node { node: destination, .. } => {
                if hops >= info.time_to_live {
                    self.drop(now, packet, Subject::Node(node), DropReason::TimeToLive, sink);
                } else {
                    let link = self.topology.next_link(node, destination);
                    if link == NONE {
                        self.drop(now, packet, Subject::Node(node), DropReason::NoRoute, sink);
                    } else {
                        return self.send_over(now, link, packet, hops, sink);
                    }
                }
            }
        }
        self.packets.release(packet);
    }

    pub(crate) fn emit(&mut self, now: Time, from: NodeId, packet: u32, sink: &mut dyn Sink) {
        match self.packets.get(packet).route {
            Route::Tree(tree) => match self.groups.link_to_tree(&self.topology, tree, from) {
                NONE => self.forward(now, from, packet, 0, sink),
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

    fn leads_on(&mut self, tree: u32, node: NodeId, from: NodeId) -> bool {
        let back = self.groups.back(&mut self.topology, tree, (node, from));
        let above = self.groups.above(tree, node);
        let goes_on = |link: u32| link != back;
        above != NONE && goes_on(above)
            || self.groups.children(tree, node).iter().any(|link| goes_on(*link))
    }

    pub(crate) fn destination(&self, route: Route) -> Destination {
        match route {
            Route::Tree(tree) => Destination::Group(self.groups.group(tree)),
            Route::Neighbours(group) => Destination::Group(group),
            Route::Node { node, .. } => Destination::Node(node),
        }
    }

    #[inline]
    pub(crate) fn send_over(
        &mut self,
        now: Time,
        link: u32,
        packet: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) {
        match self.offer(now, link, packet) {
            Outcome::Arrives(at) => {
                let kind = EventKind::Arrival { stride: 0 };
                let event =
                    ScheduledEvent { subject: packet, link, count: 1, hops: hops + 1, kind };
                self.wheel.push(at, event);
            }
            Outcome::Altered { first, second } => {
                self.send_altered(now, link, (packet, hops), (first, second), sink);
                self.packets.release(packet);
            }
            Outcome::Dropped(reason) => {
                self.drop(now, packet, Subject::Link(LinkId(link)), reason, sink);
                self.packets.release(packet);
            }
        }
    }

    #[cold]
    fn send_altered(
        &mut self,
        now: Time,
        link: u32,
        (packet, hops): (u32, u8),
        (first, second): (Copy, Option<Copy>),
        sink: &mut dyn Sink,
    ) {
        let info = self.packets.get(packet);
        let (flow, bytes, own_len) = (info.flow, info.wire_len, info.own_len());
        let subject = Subject::Link(LinkId(link));
        let mut say = |event| sink.record(&Record { at: now, subject, event });
        if second.is_some() {
            say(Event::PacketDuplicated { flow, bytes });
            self.hops[link as usize].duplicated += 1;
        }
        for copy in [Some(first), second].into_iter().flatten() {
            if copy.extra > Duration::ZERO {
                let delay_ns = copy.extra.as_nanos();
                say(Event::PacketDelayed { flow, bytes, delay_ns });
            }
            let subject = match copy.bit(own_len) {
                Some(bit) => {
                    say(Event::PacketCorrupted { flow, bytes, bit });
                    self.packets.insert_flipped(packet, bit)
                }
                None => {
                    self.packets.copy(packet);
                    packet
                }
            };
            let kind = EventKind::Arrival { stride: 0 };
            let event = ScheduledEvent { subject, link, count: 1, hops: hops + 1, kind };
            self.wheel.push(copy.at, event);
        }
    }

    /// Copies a packet to its tree's links; simultaneous arrivals at equal strides share an event.
    fn fan_out(
        &mut self,
        now: Time,
        node: NodeId,
        packet: u32,
        tree: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) {
        let mut run: Option<(Time, ScheduledEvent, u32)> = None;
        let back =
            self.groups.back(&mut self.topology, tree, (node, self.packets.get(packet).from));
        let above = self.groups.above(tree, node);
        let children = self.groups.children(tree, node);
        // Copies are sent in the order of the link numbers.
        let above_at = match above {
            NONE => children.len(),
            above => children.partition_point(|link| *link < above),
        };
        for place in 0..children.len() + usize::from(above != NONE) {
            let link = match place.cmp(&above_at) {
                Ordering::Less => self.groups.children(tree, node)[place],
                Ordering::Equal => above,
                Ordering::Greater => self.groups.children(tree, node)[place - 1],
            };
            if link == back {
                continue;
            }
            let at = match self.offer(now, link, packet) {
                Outcome::Arrives(at) => at,
                Outcome::Altered { first, second } => {
                    self.send_altered(now, link, (packet, hops), (first, second), sink);
                    continue;
                }
                Outcome::Dropped(reason) => {
                    self.drop(now, packet, Subject::Link(LinkId(link)), reason, sink);
                    continue;
                }
            };
            self.packets.copy(packet);
            if let Some((run_at, event, last)) = &mut run {
                if *run_at == at && extend(event, link - *last) {
                    *last = link;
                    continue;
                }
                self.wheel.push(*run_at, *event);
            }
            let kind = EventKind::Arrival { stride: 0 };
            run = Some((
                at,
                ScheduledEvent { subject: packet, link, count: 1, hops: hops + 1, kind },
                link,
            ));
        }
        if let Some((at, event, _)) = run {
            self.wheel.push(at, event);
        }
    }

    #[inline]
    fn offer(&mut self, now: Time, link: u32, packet: u32) -> Outcome {
        let info = self.packets.get(packet);
        let hop = &mut self.hops[link as usize];
        hop.link.offer(now, info.wire_len, info.payload_len > 0, &mut hop.rng)
    }

    #[cold]
    pub(crate) fn drop(
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
        self.hops[link as usize].link.idle_at()
    }

    pub(crate) fn sample(&mut self, now: Time, sink: &mut dyn Sink) {
        for (index, hop) in self.hops.iter_mut().enumerate() {
            let counters = hop.link.sample(now);
            if counters.offered_packets > 0 {
                let subject = Subject::Link(LinkId(index as u32));
                sink.record(&Record { at: now, subject, event: Event::LinkSample(counters) });
            }
        }
    }

    /// Returns each link's balance and empties the event queue; `first` is already taken from it.
    pub(crate) fn balances(&mut self, first: Option<ScheduledEvent>) -> Vec<LinkBalance> {
        let balance = |(hop, end): (&Hop, &LinkEnd)| LinkBalance {
            arrived: end.arrived,
            under_way: 0,
            duplicated: hop.duplicated,
        };
        let mut balances: Vec<_> = self.hops.iter().zip(&self.ends).map(balance).collect();
        let mut next = first;
        while let Some(event) = next.or_else(|| self.wheel.pop().map(|(_, event)| event)) {
            next = None;
            if let EventKind::Arrival { stride } = event.kind {
                for copy in 0..u32::from(event.count) {
                    balances[(event.link + copy * u32::from(stride)) as usize].under_way += 1;
                    self.packets.release(event.subject);
                }
            }
        }
        assert_eq!(self.packets.held(), 0, "every packet that is held is under way");
        balances
    }

    pub(crate) fn packet_hops(&mut self, now: Time) -> u64 {
        self.hops.iter_mut().map(|hop| hop.link.sample(now).sent_packets).sum()
    }
}

#[inline]
fn extend(run: &mut ScheduledEvent, distance: u32) -> bool {
    let EventKind::Arrival { stride } = &mut run.kind else { return false };
    if run.count == 1 {
        let Ok(distance) = u8::try_from(distance) else { return false };
        *stride = distance;
    } else if u32::from(*stride) != distance || run.count == u16::MAX {
        return false;
    }
    run.count += 1;
    true
}
