//! Relay node: connections to neighbours, routes to nodes, and the relay program, which buffers and
//! schedules the forwarded packets as in the simulator's routers (src: credits s3.1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use faircast_base::{Cx, Duration, FlowId, GroupId, NodeId, Time};
use faircast_proto::relay::{BranchPace, Egress, Handling, PortId, Relay, RelayPacket};
use faircast_proto::{Datagram, Destination, Machine, Transmit};

use crate::buffer::{PacketBuffer, Parcel};
use crate::dial::SILENCE_MAX;
use crate::endpoint::{ConnectionHandle, ConnectionStats, Down, Endpoint};
use crate::message::{Channel, Hello, Message, PATH_MAX, ParcelHead};
use crate::multicast_link::MulticastLink;
use crate::multicast_relay::MulticastLinks;
use crate::neighbours::{Claim, Groups, Neighbours, PARENT, Routes};
use crate::peers::{PeerEvent, Peers};
use crate::status::{NodeEvent, NodeLimits, NodeRefused, NodeStatus, PeerStatus, SlowLink};
use crate::uplink::{FULL, LOOP, Uplink, UplinkState};

pub(crate) const HOPS_MAX: u8 = 64;
/// Interval of reports of slow links, and of the removal of expired state: 1 s.
const SWEEP: Duration = Duration::from_secs(1);
/// Silence after which a neighbour with the same node number replaces the old one: 500 ms. Chosen:
/// a session in progress has packets or acknowledgements every few milliseconds.
const SILENCE_AGAIN: Duration = Duration::from_millis(500);

/// Relay.
pub struct RelayNode {
    pub(crate) peers: Peers,
    uplink: Uplink,
    pub(crate) neighbours: Neighbours,
    pub(crate) groups: Groups,
    pub(crate) multicast: MulticastLinks,
    routes: Routes,
    buffer: PacketBuffer,
    pub(crate) program: Box<dyn Relay + Send>,
    /// Ports at which the program waits for room, and ports that have room again.
    awaited: BTreeSet<PortId>,
    writable: VecDeque<PortId>,
    sweep_at: Time,
    /// Groups and neighbours whose last report names a slow link.
    reported_slow: BTreeSet<(u64, PortId)>,
    received: u64,
    sent: u64,
    refused: NodeRefused,
    events: VecDeque<NodeEvent>,
}

impl std::fmt::Debug for RelayNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayNode").field("node", &self.peers.hello.node).finish_non_exhaustive()
    }
}

impl RelayNode {
    /// Creates the relay `node` with a program, below the first of `parents` that answers.
    pub fn new(
        endpoint: Endpoint,
        (node, name): (NodeId, &str),
        parents: Vec<NodeId>,
        limits: NodeLimits,
        program: Box<dyn Relay + Send>,
    ) -> Self {
        let hello = Hello::new(node, endpoint.run(), true, name);
        let multicast = MulticastLinks::new(endpoint.multicast_key());
        fresh! {
            Self {
                peers: Peers::new(endpoint, hello),
                uplink: Uplink::new(parents, Time::ZERO),
                neighbours: Neighbours::new(limits),
                multicast,
                program,
            }
            groups, routes, buffer, awaited, writable, sweep_at, reported_slow, received, sent, refused, events
        }
    }

    /// Replaces the candidates for the parent relay, maybe by none. The connection in use stays.
    pub fn set_parents(&mut self, parents: Vec<NodeId>) {
        self.uplink.dialer.set_nodes(parents);
    }

    /// Sets the function that maps an address to its host. By default every address is a host.
    pub const fn set_hosts(&mut self, of: fn(NodeId) -> u32) {
        self.neighbours.host_of = of;
    }

    /// Enables multicast on networks 0 to `networks` - 1 to hosts that attach from now on. `at` is
    /// the multicast address in the format of the hosts' drivers, at most 64 bytes.
    pub fn set_multicast(&mut self, at: &[u8], networks: u16) {
        self.multicast.set(at, networks);
    }

    /// Returns the state of the path to the parent relay.
    pub const fn above(&self) -> &UplinkState {
        &self.uplink.state
    }

    /// True during the search for a parent relay: none is attached, or the attached one is silent.
    pub const fn is_searching(&self) -> bool {
        self.uplink.dialer.is_searching()
    }

    /// Returns the state of the relay for display.
    pub fn status(&self) -> NodeStatus {
        let above = self.uplink.connection();
        let queued = self.program.queued();
        let queued = |port: &PortId| queued.get(port).copied().unwrap_or_default();
        let of = |connection, queued_bytes| {
            Some(ConnectionStats { queued_bytes, ..self.peers.endpoint.stats(connection)? })
        };
        let neighbours = self.neighbours.by_port.iter().filter_map(|(port, it)| {
            let members = it
                .groups
                .iter()
                .filter_map(|group| self.groups.by_id.get(group)?.members.get(port));
            let receivers = members.clone().fold(0u32, |sum, it| sum.saturating_add(it.receivers));
            let links: BTreeSet<PortId> = members.filter_map(|member| member.link).collect();
            Some(PeerStatus {
                at: self.peers.endpoint.peer(it.connection)?,
                name: it.hello.name.clone(),
                software: it.hello.software.clone(),
                is_relay: it.hello.is_relay,
                groups: it.groups.len(),
                receivers,
                multicast: !links.is_empty(),
                connection: of(it.connection, links.iter().chain([port]).map(queued).sum())?,
            })
        });
        NodeStatus {
            above: self.uplink.exists().then(|| self.uplink.state.clone()),
            above_at: above.and_then(|above| self.peers.endpoint.peer(above)),
            above_connection: above.and_then(|above| of(above, queued(&PARENT))),
            neighbours: neighbours.collect(),
            received: self.received,
            sent: self.sent,
            held: self.buffer.len(),
            served: self.program.served(),
            refused: self.refused,
        }
    }

    pub(crate) fn fulfil(&mut self, port: PortId) {
        self.writable.extend(self.awaited.take(&port));
    }

    fn settle(&mut self, cx: &mut Cx<'_>) {
        while let Some(event) = self.peers.poll_event(cx.now) {
            self.on_event(cx, event);
            self.run_program(cx);
        }
        self.run_program(cx);
        self.uplink.trace(cx, &self.peers);
    }

    fn on_event(&mut self, cx: &mut Cx<'_>, event: PeerEvent) {
        let now = cx.now;
        match event {
            PeerEvent::Up { connection, is_own: true, .. } => {
                if self.uplink.on_up(now, &mut self.peers, connection) {
                    self.change_above(cx);
                }
            }
            PeerEvent::Up { connection, at, is_own: false } => {
                if !self.neighbours.welcome(now, connection, at) {
                    self.refused.full += 1;
                    self.peers.close(now, connection, FULL);
                }
            }
            PeerEvent::Hello { connection, hello } => self.on_hello(cx, connection, hello),
            PeerEvent::Message { connection, message } => {
                if self.uplink.is(connection) {
                    self.on_answer(cx, connection, message);
                } else if let Some(port) = self.neighbours.port(connection) {
                    self.on_message_below(cx, port, message);
                }
            }
            PeerEvent::Parcel { connection, group, head, body } => {
                if let Some(port) = self.port(connection) {
                    self.on_parcel(cx, port, group, head, body);
                }
            }
            PeerEvent::Room { connection } => {
                self.port(connection).into_iter().for_each(|port| self.fulfil(port));
            }
            PeerEvent::Repair { .. } => {}
            PeerEvent::Down { connection, reason } => self.on_down(cx, connection, reason),
            PeerEvent::Bad { connection, reason } => {
                self.refused.malformed += 1;
                self.on_down(cx, connection, reason);
            }
        }
    }

    fn port(&self, connection: ConnectionHandle) -> Option<PortId> {
        let above = self.uplink.is(connection).then_some(PARENT);
        above.or_else(|| self.neighbours.port(connection))
    }

    fn on_hello(&mut self, cx: &mut Cx<'_>, connection: ConnectionHandle, hello: Hello) {
        let now = cx.now;
        if self.uplink.is(connection) {
            self.uplink.on_hello(now, &mut self.peers, connection, hello);
            return self.change_above(cx);
        }
        let Some((at, _)) = self.neighbours.unnamed.remove(&connection) else { return };
        if hello.node == self.peers.hello.node || self.uplink.path.contains(&hello.node) {
            self.refused.loops += 1;
            self.neighbours.hosts.remove(&connection);
            return self.peers.close(now, connection, LOOP);
        }
        let Hello { is_relay, ref name, .. } = hello;
        self.events.push_back(NodeEvent::Attached { at, name: name.clone(), is_relay });
        let (port, replaced) = self.neighbours.add(connection, hello);
        if let Some(before) = replaced {
            // Sessions continue at the same port, first by unicast.
            self.leave_links(cx, port);
            self.peers.close(now, before, "replaced");
            self.fulfil(port);
        }
        if is_relay {
            let path = Message::Path(self.path());
            self.peers.send_message(now, connection, &path);
        } else if let Some(offer) = self.multicast.offer(now) {
            self.peers.send_message(now, connection, &offer);
        }
    }

    fn path(&self) -> Vec<NodeId> {
        let own = self.peers.hello.node;
        [own].iter().chain(&self.uplink.path).copied().take(PATH_MAX).collect()
    }

    fn change_above(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.routes.forget_port(PARENT);
        self.fulfil(PARENT);
        let path = Message::Path(self.path());
        for of in self.neighbours.by_port.values() {
            self.peers.send_message(now, of.connection, &path);
        }
        self.events.push_back(NodeEvent::Above(self.uplink.state.clone()));
        let groups: Vec<u64> = self.groups.by_id.keys().copied().collect();
        groups.into_iter().for_each(|group| self.send_members(now, group));
    }

    fn on_answer(&mut self, cx: &mut Cx<'_>, connection: ConnectionHandle, message: Message) {
        let uplink = &mut self.uplink;
        let before = (uplink.state.clone(), uplink.path.clone());
        let changed = uplink.on_message(cx.now, &mut self.peers, connection, message);
        if uplink.state != before.0 || uplink.path != before.1 {
            self.change_above(cx);
        }
        if let Some(group) = changed {
            self.send_members(cx.now, group);
        }
    }

    fn on_message_below(&mut self, cx: &mut Cx<'_>, port: PortId, message: Message) {
        let (now, groups_max) = (cx.now, self.neighbours.limits.groups);
        let Some(of) = self.neighbours.by_port.get_mut(&port) else { return };
        match message {
            Message::Join { group, receivers } => {
                if !of.groups.contains(&group) && of.groups.len() >= groups_max {
                    self.refused.full += 1;
                    let refusal = Message::Member { group, elsewhere: 0, is_refused: true };
                    return self.peers.send_message(now, of.connection, &refusal);
                }
                of.groups.insert(group);
                of.unconfirmed_groups.remove(&group);
                self.set_member(cx, port, group, Some(receivers));
            }
            Message::EndOfJoins => {
                for group in std::mem::take(&mut of.unconfirmed_groups) {
                    self.on_message_below(cx, port, Message::Leave { group });
                }
            }
            Message::Leave { group } if of.groups.remove(&group) => {
                self.set_member(cx, port, group, None);
            }
            Message::MulticastHeard { network } => {
                let is_right = self.on_multicast_heard(now, port, network);
                self.refused.malformed += u64::from(!is_right);
            }
            Message::LinkAck { link, next, multicast_frames, runs } => {
                let is_right =
                    self.on_link_ack(now, port, PortId(link), (next, multicast_frames, &runs));
                self.refused.malformed += u64::from(!is_right);
            }
            Message::Slow { group, link } if of.hello.is_relay => {
                if let Some(member) = self.groups.member_mut(group, port) {
                    member.slow = link;
                }
            }
            _ => {}
        }
    }

    fn set_member(&mut self, cx: &mut Cx<'_>, port: PortId, group: u64, receivers: Option<u32>) {
        let now = cx.now;
        let above = self.uplink.elsewhere(group);
        if receivers.unwrap_or(0) == 0 {
            self.leave_link(cx, port, group);
        }
        let change = self.groups.set(group, port, receivers, above);
        self.uplink.set(now, &mut self.peers, group, change.receivers);
        self.join_link(now, port, group);
        if receivers.is_none()
            && let Some(of) = self.neighbours.by_port.get(&port)
        {
            self.peers.end_channel(of.connection, Channel::Group(group));
            self.program.handle_gone(cx, change.flow, port, of.hello.node);
        }
        if change.concerns_all {
            self.send_members(now, group);
        } else if receivers.is_some() {
            self.send_member(now, port, group);
        }
    }

    fn send_members(&mut self, now: Time, group: u64) {
        let members = self.groups.by_id.get(&group).map(|of| of.members.keys().copied());
        let members: Vec<PortId> = members.into_iter().flatten().collect();
        members.into_iter().for_each(|port| self.send_member(now, port, group));
    }

    fn send_member(&mut self, now: Time, port: PortId, group: u64) {
        let above = self.uplink.elsewhere(group);
        let (Some(of), Some(neighbour)) =
            (self.groups.by_id.get(&group), self.neighbours.by_port.get(&port))
        else {
            return;
        };
        let (elsewhere, is_refused) = (of.elsewhere(port, above), self.uplink.is_refused(group));
        let member = Message::Member { group, elsewhere, is_refused };
        self.peers.send_message(now, neighbour.connection, &member);
    }

    fn on_down(&mut self, cx: &mut Cx<'_>, connection: ConnectionHandle, reason: Down) {
        let now = cx.now;
        self.refused.unauthenticated += u64::from(reason == Down::Unauthenticated);
        if let Some(port) = self.neighbours.port(connection) {
            let Some(of) = self.neighbours.by_port.get(&port) else { return };
            for group in of.groups.clone() {
                self.set_member(cx, port, group, None);
            }
            self.routes.forget_port(port);
            self.fulfil(port);
        }
        if let Some(of) = self.neighbours.remove(connection) {
            return self.events.push_back(NodeEvent::Detached { name: of.hello.name, reason });
        }
        let before = self.uplink.state.clone();
        if self.uplink.on_down(now, &mut self.peers, connection, reason)
            || self.uplink.state != before
        {
            self.change_above(cx);
        }
    }

    /// Checks that the origin of a packet is at the port where the packet has arrived. Returns the
    /// flow of the packet, or counts the refusal.
    fn admit(&mut self, now: Time, port: PortId, group: u64, origin: NodeId) -> Option<FlowId> {
        let Some(flow) = self.groups.by_id.get(&group).map(|of| of.flow) else {
            self.refused.unknown += 1;
            return None;
        };
        let other = self.routes.port(group, origin).filter(|at| *at != port);
        let node = |port| self.neighbours.by_port.get(&port).map(|of| of.hello.node);
        let is_same_node = other.and_then(node).is_some_and(|other| node(port) == Some(other));
        let silence = if is_same_node { SILENCE_AGAIN } else { SILENCE_MAX };
        let received_at = other.and_then(|at| {
            let connection = self.connection(at)?;
            self.peers.endpoint.received_at(connection)
        });
        let refused = &mut self.refused;
        let mut moves = received_at.is_some_and(|at| now.since(at) > silence);
        if port != PARENT {
            let neighbour = self.neighbours.by_port.get(&port)?;
            if !neighbour.groups.contains(&group) {
                refused.unknown += 1;
                return None;
            }
            // A host sends only packets with its own origin.
            let is_own = neighbour.hello.node == origin;
            if !neighbour.hello.is_relay && !is_own {
                refused.misplaced += 1;
                return None;
            }
            // If two neighbours claim the same node number, the one that is not silent keeps it.
            moves |= is_own && other.and_then(node) != Some(origin);
        }
        if origin == self.peers.hello.node {
            refused.misplaced += 1;
            return None;
        }
        match self.routes.claim(now, (group, origin), port, moves) {
            Claim::Right => return Some(flow),
            Claim::Elsewhere => refused.misplaced += 1,
            Claim::Full => refused.full += 1,
        }
        None
    }

    fn on_parcel(
        &mut self,
        cx: &mut Cx<'_>,
        port: PortId,
        group: u64,
        head: ParcelHead,
        body: Bytes,
    ) {
        let Some(flow) = self.admit(cx.now, port, group, head.origin) else { return };
        self.received += 1;
        let ports_out = self.ports_out(port, group, head.to);
        let is_mine = head.to == Destination::Node(self.peers.hello.node);
        if head.hops == 0 || ports_out.is_empty() && !is_mine {
            self.refused.lost += u64::from(!matches!(head.to, Destination::Group(_)));
            return;
        }
        // A packet from a host on a multicast link counts for the link's branch.
        let link = self.groups.by_id.get(&group).and_then(|of| of.members.get(&port)?.link);
        let packet = RelayPacket {
            key: self.buffer.next_key(),
            flow,
            port: link.filter(|_| is_mine).unwrap_or(port),
            ports_out: &ports_out,
            datagram: Datagram::new(head.origin, head.to, &body),
            time_to_live: head.hops,
        };
        let mut buf = Vec::new();
        let handling = self.program.handle_packet(cx, &packet, &mut buf);
        let head = ParcelHead { hops: head.hops - 1, ..head };
        match handling {
            Handling::Hold => self.buffer.insert(Parcel { group, head, body }),
            Handling::Forward | Handling::Alter => {
                let body = if handling == Handling::Alter { Bytes::from(buf) } else { body };
                for port in ports_out {
                    self.forward(cx.now, port, Parcel { group, head, body: body.clone() }, &[]);
                }
            }
            Handling::Drop => {}
        }
    }

    fn ports_out(&self, port: PortId, group: u64, to: Destination) -> Vec<PortId> {
        match to {
            Destination::Group(_) => {
                let up = (self.uplink.elsewhere(group) > 0 && port != PARENT).then_some(PARENT);
                let members = self.groups.by_id.get(&group).into_iter().flat_map(|of| &of.members);
                let others = members.filter(|(other, it)| {
                    **other != port && it.receivers > 0 && !self.is_stalled(**other)
                });
                let below: BTreeSet<PortId> =
                    others.map(|(other, it)| it.link.unwrap_or(*other)).collect();
                up.into_iter().chain(below).collect()
            }
            Destination::Node(node) if node == self.peers.hello.node => Vec::new(),
            Destination::Node(node) => {
                let up = self.uplink.exists().then_some(PARENT);
                let port_of = self.routes.port(group, node).or(up);
                port_of.into_iter().filter(|other| *other != port).collect()
            }
        }
    }

    fn report_slow_links(&mut self, now: Time) {
        let mut links = BTreeMap::new();
        for pace in self.program.paces(now) {
            let Some(&group) = self.groups.by_flow.get(&pace.flow) else { continue };
            let Some(link) = self.slow_link(group, &pace) else { continue };
            // A branch that waits takes precedence over branches with a slow link below.
            if pace.waits || !links.contains_key(&(group, pace.from)) {
                links.insert((group, pace.from), link);
            }
        }
        let reported = std::mem::take(&mut self.reported_slow);
        for (group, port) in
            reported.into_iter().chain(links.keys().copied()).collect::<BTreeSet<_>>()
        {
            let link = links.remove(&(group, port));
            let Some(to) = self.connection(port) else { continue };
            self.reported_slow.extend(link.is_some().then_some((group, port)));
            // If the node does not read, the next report replaces this one.
            if link.is_none() || self.peers.endpoint.has_room_for_all(to) {
                self.peers.send_message(now, to, &Message::Slow { group, link });
            }
        }
    }

    /// A relay on the branch reports a slower link further down.
    fn slow_link(&self, group: u64, pace: &BranchPace) -> Option<SlowLink> {
        let BranchPace { port, bits_per_s, .. } = *pace;
        let reported = match port {
            PARENT => self.uplink.slow(group),
            port => {
                self.groups.by_id.get(&group)?.members.get(&port).and_then(|it| it.slow.as_ref())
            }
        };
        if reported.is_some() || !pace.waits {
            return reported.cloned();
        }
        let host = self.multicast.links.get(&port).and_then(MulticastLink::slowest);
        let (is, to) = match &self.uplink.state {
            UplinkState::Attached(name) if port == PARENT => ("relay", name),
            _ => {
                let hello = &self.neighbours.by_port.get(&host.unwrap_or(port))?.hello;
                (if hello.is_relay { "relay" } else { "receiver" }, &hello.name)
            }
        };
        Some(SlowLink {
            name: format!("relay {} → {is} {to}", self.peers.hello.name), bits_per_s
        })
    }

    /// True for a host that stalled on a multicast link and is silent: it would delay others.
    fn is_stalled(&self, port: PortId) -> bool {
        let of = self.neighbours.by_port.get(&port);
        let stalled = of.and_then(|of| Some((of.connection, of.stalled_at?)));
        stalled
            .is_some_and(|(connection, at)| self.peers.endpoint.received_at(connection) <= Some(at))
    }

    fn connection(&self, port: PortId) -> Option<ConnectionHandle> {
        match port {
            PARENT => self.uplink.connection(),
            port => self.neighbours.by_port.get(&port).map(|it| it.connection),
        }
    }

    fn has_room(&self, port: PortId) -> bool {
        match self.multicast.links.get(&port) {
            Some(link) => link.has_room(),
            None => self.connection(port).is_none_or(|to| self.peers.endpoint.has_room_for_all(to)),
        }
    }

    /// `begun` replaces the first bytes of the body.
    fn forward(&mut self, now: Time, port: PortId, parcel: Parcel, begun: &[u8]) {
        let Parcel { group, head, body } = parcel;
        let rest = body.slice(begun.len().min(body.len())..);
        let head = [&head.encode(), begun].concat();
        let sent = if self.multicast.links.contains_key(&port) {
            self.multicast.send(now, port, &[&head[..], &rest].concat())
        } else {
            let channel = Channel::Group(group);
            self.connection(port).is_some_and(|to| self.peers.send_packet(to, channel, &head, rest))
        };
        if sent {
            self.sent += 1;
        } else {
            self.refused.lost += 1;
        }
    }

    fn run_program(&mut self, cx: &mut Cx<'_>) {
        let mut buf = Vec::new();
        loop {
            buf.clear();
            let Some(egress) = self.program.poll_transmit(cx, &mut buf) else {
                let Some(port) = self.writable.pop_front() else { break };
                self.program.handle_writable(cx, port);
                continue;
            };
            match egress {
                Egress::Copy(key, port) => {
                    if let Some(parcel) = self.buffer.get(key).cloned() {
                        self.forward(cx.now, port, parcel, &buf);
                    }
                }
                Egress::Release(key) => self.buffer.release(key),
                Egress::Await(port) if self.has_room(port) => {
                    self.writable.push_back(port);
                }
                Egress::Await(port) => {
                    self.connection(port).into_iter().for_each(|to| self.peers.await_room(to));
                    self.awaited.insert(port);
                }
                Egress::Send(transmit) => {
                    let group = self.groups.by_flow.get(&transmit.flow);
                    if let (Some(&group), Some(port)) = (group, transmit.port) {
                        let head =
                            ParcelHead { hops: HOPS_MAX, origin: transmit.from, to: transmit.to };
                        let body = Bytes::copy_from_slice(&buf);
                        let parcel = Parcel { group, head, body };
                        self.forward(cx.now, port, parcel, &[]);
                    }
                }
            }
        }
    }
}

impl Machine for RelayNode {
    type Event = NodeEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let Datagram { from, congestion_experienced, bytes, .. } = datagram;
        let endpoint = &mut self.peers.endpoint;
        if !endpoint.handle_datagram(cx.now, from, congestion_experienced, bytes) {
            self.refused.foreign += 1;
        }
        self.settle(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.peers.endpoint.handle_timeout(now);
        self.uplink.dialer.handle_timeout(now, &mut self.peers.endpoint);
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP;
            self.routes.expire(now);
            self.report_slow_links(now);
            for connection in self.neighbours.expire(now) {
                self.peers.close(now, connection, "no presentation");
            }
        }
        self.handle_multicast_timeouts(cx);
        if self.program.next_timeout().is_some_and(|at| at <= now) {
            self.program.handle_timeout(cx);
        }
        self.settle(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        let below = self.neighbours.by_port.values().map(|of| of.connection);
        let all: Vec<_> = below.chain(self.uplink.connection()).collect();
        for connection in all {
            self.peers.close(cx.now, connection, "the relay ends");
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((network, datagram)) = self.multicast.out.pop_front() {
            *buf = datagram;
            return Some(Transmit::control(Destination::Group(GroupId(network.into()))));
        }
        let to = self.peers.endpoint.poll_transmit(cx.now, buf)?;
        Some(Transmit::control(Destination::Node(to)))
    }

    fn poll_event(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        let above = self.uplink.dialer.next_timeout(&self.peers.endpoint);
        let multicast = self.multicast.next_timeout();
        let own =
            [self.peers.endpoint.next_timeout(), above, multicast, self.program.next_timeout()];
        own.into_iter().flatten().chain([self.sweep_at]).min()
    }
}
