//! A relay: takes frames from its neighbours, finds where they go, and lets a router's program hold and share what it
//! forwards, as in the simulator (src: credits s3.1).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use faircast_base::{BadInput, Cx, Duration, FlowId, NodeId, Time};

use super::attach::{Attach, Attachment};
use super::frame::{Frame, FrameKind, HopPacket};
use super::guard::Guard;
use super::held::Packets;
use super::lan::{Lan, Lans};
use super::link::HopLink;
use super::neighbours::{Neighbours, PARENT};
use super::status::{HopRefused, HopSettings, HopStatus, NeighbourStatus};
use super::window::Ack;
use crate::relay::{Egress, Handling, PortId, Relay, RelayPacket};
use crate::{Datagram, Destination};

/// Interval between sweeps of memberships.
const SWEEP: Duration = Duration::from_secs(1);
/// For how long a node is where it was heard, though somebody else says to be it.
const ROUTE_STAYS: Duration = Duration::from_secs(3);
/// After how long without a word it is forgotten where a node is.
const ROUTE_KEPT: Duration = Duration::from_secs(60);
/// Nodes of which it is known where they are.
const ROUTES_MAX: usize = 1 << 16;
/// Most routes behind one neighbour, so that no neighbour takes all.
const ROUTES_AT_PORT_MAX: usize = ROUTES_MAX / 4;
/// Relays that a frame may pass.
const HOPS_MAX: u8 = 64;

/// Where frames are put that leave.
pub trait Sends {
    /// Whether more may leave now.
    fn has_room(&self) -> bool;

    /// A frame leaves for this neighbour, which `write` appends.
    fn send(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>));

    /// One leaves by multicast, on this network of those that were [set](HopNode::set_multicast), from 0 on.
    fn send_to_network(&mut self, network: usize, write: impl FnOnce(&mut Vec<u8>));
}

/// Where a node is.
#[derive(Clone, Copy, Debug)]
struct Route {
    port: PortId,
    heard_at: Time,
}

/// The relay.
pub struct HopNode {
    pub(super) guard: Guard,
    pub(super) secret: [u8; 32],
    pub(super) settings: HopSettings,
    pub(super) neighbours: Neighbours,
    pub(super) lans: Lans,
    pub(super) parent: Option<Attach>,
    routes: BTreeMap<(u64, NodeId), Route>,
    /// Number of routes to each port.
    routes_at: BTreeMap<PortId, usize>,
    pub(super) flows: BTreeMap<u64, FlowId>,
    pub(super) next_flow: u32,
    packets: Packets,
    program: Box<dyn Relay + Send>,
    /// Ports whose links have no room, and of which the program wants to be told when they have.
    pub(super) awaiting: BTreeSet<PortId>,
    /// Ports to report as writable.
    pub(super) ready: VecDeque<PortId>,
    /// No link has anything to do before.
    pub(super) links_at: Time,
    ports_out: Vec<PortId>,
    buf: Vec<u8>,
    sweep_at: Time,
    received: u64,
    sent: u64,
    sent_bytes: u64,
    pub(super) refused: HopRefused,
    /// Of whom its program has not been told yet that they are reached by a port no more.
    pub(super) gone: Vec<(FlowId, PortId, NodeId)>,
}

impl HopNode {
    /// A relay whose frames `guard` writes, below `parent` where there is one, with this program. `secret` is known to
    /// nobody else.
    pub fn new(
        guard: Guard,
        secret: [u8; 32],
        parent: Option<Attach>,
        settings: HopSettings,
        program: Box<dyn Relay + Send>,
    ) -> Self {
        Self {
            guard,
            secret,
            settings,
            neighbours: Neighbours::default(),
            lans: Lans::default(),
            parent,
            routes: BTreeMap::new(),
            routes_at: BTreeMap::new(),
            flows: BTreeMap::new(),
            next_flow: 0,
            packets: Packets::default(),
            program,
            awaiting: BTreeSet::new(),
            ready: VecDeque::new(),
            links_at: Time::MAX,
            ports_out: Vec::new(),
            buf: Vec::new(),
            sweep_at: Time::ZERO,
            received: 0,
            sent: 0,
            sent_bytes: 0,
            refused: HopRefused::default(),
            gone: Vec::new(),
        }
    }

    /// Returns the status.
    pub fn status(&self) -> HopStatus {
        let neighbours = self.neighbours.iter().map(|(_, of)| NeighbourStatus {
            address: of.address,
            is_relay: of.is_relay,
            groups: of.groups.len(),
            receivers: of.groups.values().map(|member| member.receivers).sum(),
            multicast: of.groups.values().any(|member| member.lan.is_some()),
        });
        HopStatus {
            node: self.guard.node(),
            parent: self.parent.as_ref().map(|parent| (parent.relay(), parent.state())),
            neighbours: neighbours.collect(),
            received: self.received,
            sent: self.sent,
            sent_bytes: self.sent_bytes,
            held: self.packets.len(),
            served: self.program.served(),
            refused: self.refused,
        }
    }

    /// Takes what has come from an address.
    pub fn handle_datagram<S: Sends>(
        &mut self,
        cx: &mut Cx<'_>,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut S,
    ) {
        let guard = self.guard.clone();
        let frame = match guard.read(bytes) {
            Ok(frame) => frame,
            Err(BadInput::Checksum | BadInput::Truncated) => return self.refused.forged += 1,
            Err(_) => return self.refused.malformed += 1,
        };
        let now = cx.now;
        let above = self.parent.as_ref().is_some_and(|parent| parent.relay() == from);
        let port = if above { Some(PARENT) } else { self.neighbours.port(from) };
        match frame.kind {
            FrameKind::Join => self.on_join(now, from, &frame, out),
            FrameKind::Leave => {
                let is_own = port.and_then(|port| self.node_at(port)) == Some(frame.sender);
                if let Some(port) = port.filter(|_| is_own && self.is_newest(port, &frame)) {
                    self.neighbours.leave(port, frame.group);
                    self.forget_gone();
                    self.tell_above(now);
                }
            }
            FrameKind::Challenge | FrameKind::Accept | FrameKind::Refuse => {
                if let Some(parent) = self.parent.as_mut().filter(|_| above) {
                    parent.handle(now, &frame);
                } else {
                    self.refused.unknown += 1;
                }
            }
            // A relay takes nothing by multicast.
            FrameKind::Beacon => self.refused.unknown += 1,
            FrameKind::Data | FrameKind::Ack => {
                let node = port.and_then(|port| self.node_at(port));
                let Some(port) = port.filter(|_| node == Some(frame.sender)) else {
                    return self.refused.unknown += 1;
                };
                self.on_link(cx, port, &frame, out);
            }
        }
        self.poll_parent(now, out);
        if !self.gone.is_empty() || !self.ready.is_empty() {
            self.drain(cx, out);
        }
    }

    fn node_at(&self, port: PortId) -> Option<NodeId> {
        match port {
            PARENT => self.parent.as_ref().map(Attach::relay_node),
            port => self.neighbours.get(port).map(|of| of.node),
        }
    }

    /// The link of a port, and who is at its other end.
    fn link(&mut self, port: PortId) -> Option<(&mut HopLink, SocketAddr)> {
        match port {
            PARENT => {
                let parent = self.parent.as_mut()?;
                let to = parent.relay();
                Some((parent.link()?, to))
            }
            port => self.neighbours.get_mut(port).map(|of| (&mut of.link, of.address)),
        }
    }

    /// Something has come over a link.
    fn on_link<S: Sends>(&mut self, cx: &mut Cx<'_>, port: PortId, frame: &Frame<'_>, out: &mut S) {
        let now = cx.now;
        let Some((link, _)) = self.link(port).filter(|(link, _)| link.id() == frame.link.0) else {
            let is_ack = frame.kind == FrameKind::Ack;
            match is_ack.then(|| self.on_lan_ack(now, port, frame)).flatten() {
                Some(on) => {
                    self.serve_lan(now, on, Some(port), out);
                    self.drain(cx, out);
                }
                None => self.refused.unknown += 1,
            }
            return;
        };
        if frame.kind == FrameKind::Ack {
            let ack = Ack::decode(frame.body).ok_or(BadInput::Malformed);
            if ack.and_then(|ack| link.on_ack(now, &ack)).is_err() {
                self.refused.malformed += 1;
            }
        } else if !link.on_frame(now, frame) {
            self.refused.repeated += 1;
        }
        self.take_from(cx, port, out);
        self.serve_link(now, port, out);
        self.drain(cx, out);
    }

    /// Takes what has come over a link, in order.
    fn take_from<S: Sends>(&mut self, cx: &mut Cx<'_>, port: PortId, out: &mut S) {
        while let Some(parcel) = self.link(port).and_then(|(link, _)| link.take()) {
            self.on_data(cx, port, parcel, out);
        }
    }

    /// Sends what is due on a link, and notes when it has something to do next.
    pub(super) fn serve_link<S: Sends>(&mut self, now: Time, port: PortId, out: &mut S) {
        let mut guard = self.guard.clone();
        let Some((link, to)) = self.link(port) else { return };
        let mut frame = Vec::new();
        while link.poll(now, &mut guard, &mut frame) {
            out.send(to, |buf| buf.extend_from_slice(&frame));
            frame.clear();
        }
        let (has_room, at) = (link.has_room(), link.next_timeout());
        self.guard = guard;
        self.links_at = at.map_or(self.links_at, |at| self.links_at.min(at));
        if has_room && self.awaiting.remove(&port) {
            self.ready.push_back(port);
        }
    }

    fn poll_parent<S: Sends>(&mut self, now: Time, out: &mut S) {
        let Self { parent, guard, .. } = self;
        let Some(parent) = parent else { return };
        let mut frame = Vec::new();
        while parent.poll(now, guard, &mut frame) {
            out.send(parent.relay(), |buf| buf.extend_from_slice(&frame));
            frame.clear();
        }
        // The link may have room now, or be another one.
        let has_room = parent.link().is_none_or(|link| link.has_room());
        if has_room && self.awaiting.remove(&PARENT) {
            self.ready.push_back(PARENT);
        }
    }

    /// Whether a packet comes from where it says, of somebody who may send to its group.
    fn admit(&mut self, now: Time, port: PortId, parcel: &HopPacket) -> bool {
        let refused = &mut self.refused;
        let (member, own) = if port == PARENT {
            (self.parent.as_ref().is_some_and(|it| it.state() == Attachment::Attached), None)
        } else {
            let Some(of) = self.neighbours.get(port) else { return false };
            (of.groups.contains_key(&parcel.group), (!of.is_relay).then_some(of.node))
        };
        if !member {
            refused.unknown += 1;
            return false;
        }
        let is_own = parcel.origin == self.guard.node();
        if is_own || own.is_some_and(|own| own != parcel.origin) {
            refused.misplaced += 1;
            return false;
        }
        let key = (parcel.group, parcel.origin);
        match self.routes.get_mut(&key) {
            Some(route) if route.port == port => route.heard_at = now,
            Some(route) if now.since(route.heard_at) < ROUTE_STAYS => {
                refused.misplaced += 1;
                return false;
            }
            known => {
                let was_known = known.is_some();
                let at_port = self.routes_at.entry(port).or_default();
                let full =
                    *at_port >= ROUTES_AT_PORT_MAX || !was_known && self.routes.len() >= ROUTES_MAX;
                if full {
                    refused.full += 1;
                    return false;
                }
                *at_port += 1;
                let before = self.routes.insert(key, Route { port, heard_at: now });
                if let Some(count) = before.and_then(|it| self.routes_at.get_mut(&it.port)) {
                    *count = count.saturating_sub(1);
                }
            }
        }
        true
    }

    fn on_data<S: Sends>(&mut self, cx: &mut Cx<'_>, port: PortId, parcel: HopPacket, out: &mut S) {
        if !self.admit(cx.now, port, &parcel) {
            return;
        }
        let Some(flow) = self.flows.get(&parcel.group).copied() else {
            return self.refused.unknown += 1;
        };
        self.received += 1;
        self.find_ports_out(port, &parcel);
        let own = parcel.to == Destination::Node(self.guard.node());
        if parcel.hops == 0 || self.ports_out.is_empty() && !own {
            self.refused.lost += u64::from(!matches!(parcel.to, Destination::Group(_)));
            return;
        }
        let packet = RelayPacket {
            key: self.packets.next_key(),
            flow,
            port,
            ports_out: &self.ports_out,
            datagram: Datagram::new(parcel.origin, parcel.to, &parcel.body),
            time_to_live: parcel.hops,
        };
        let mut buf = core::mem::take(&mut self.buf);
        buf.clear();
        let handling = self.program.handle_packet(cx, &packet, &mut buf);
        let parcel = HopPacket { hops: parcel.hops - 1, ..parcel };
        match handling {
            Handling::Hold => self.packets.hold(parcel),
            Handling::Forward | Handling::Alter => {
                let body = match handling {
                    Handling::Alter => Arc::from(&buf[..]),
                    _ => parcel.body.clone(),
                };
                for port in core::mem::take(&mut self.ports_out) {
                    let copy = HopPacket { body: body.clone(), ..parcel };
                    self.forward(cx.now, port, copy, &[], out);
                }
            }
            Handling::Drop => {}
        }
        self.buf = buf;
        self.drain(cx, out);
    }

    /// To which neighbours a packet goes.
    fn find_ports_out(&mut self, port: PortId, parcel: &HopPacket) {
        let Self { ports_out, neighbours, lans, parent, routes, .. } = self;
        ports_out.clear();
        match parcel.to {
            Destination::Group(_) => {
                let wants = parent.as_ref().is_some_and(|it| it.elsewhere(parcel.group) > 0);
                if wants && port != PARENT {
                    ports_out.push(PARENT);
                }
                let below = neighbours.iter().filter(|(other, of)| {
                    let member = of.groups.get(&parcel.group);
                    let wants = member.is_some_and(|it| it.receivers > 0 && it.lan.is_none());
                    *other != port && wants
                });
                ports_out.extend(below.map(|(port, _)| port));
                ports_out.extend(lans.ports(parcel.group, port));
            }
            Destination::Node(node) if node == self.guard.node() => {}
            Destination::Node(node) => {
                let known = routes.get(&(parcel.group, node)).map(|route| route.port);
                let up = parent.as_ref().map(|_| PARENT);
                ports_out.extend(known.or(up).filter(|other| *other != port));
            }
        }
    }

    /// A packet leaves by a port.
    fn forward<S: Sends>(
        &mut self,
        now: Time,
        port: PortId,
        parcel: HopPacket,
        begun: &[u8],
        out: &mut S,
    ) {
        let bytes = (parcel.body.len() + self.guard.overhead()) as u64;
        if self.lans.get(port).is_some() {
            let sent = self.forward_to_lan(now, port, (parcel, begun), out);
            self.count(sent.then_some(bytes));
            return;
        }
        let mut guard = self.guard.clone();
        let sent = self.link(port).and_then(|(link, to)| {
            let seq = link.send_begun(now, parcel, begun)?;
            out.send(to, |buf| link.write(seq, &mut guard, buf));
            Some(link.next_timeout())
        });
        self.guard = guard;
        self.count(sent.map(|_| bytes));
        let at = sent.flatten();
        self.links_at = at.map_or(self.links_at, |at| self.links_at.min(at));
    }

    /// A frame of so many bytes has left, or found no place.
    const fn count(&mut self, bytes: Option<u64>) {
        match bytes {
            None => self.refused.lost += 1,
            Some(bytes) => {
                self.sent += 1;
                self.sent_bytes += bytes;
            }
        }
    }

    /// Whether more may leave by a port. Where nobody is any more there is always room.
    fn has_room(&mut self, port: PortId) -> bool {
        let has_room = self.lans.get(port).map(Lan::has_room);
        has_room.unwrap_or_else(|| self.link(port).is_none_or(|(link, _)| link.has_room()))
    }

    /// Does what the program asks for, as far as there is room.
    fn drain<S: Sends>(&mut self, cx: &mut Cx<'_>, out: &mut S) {
        for (flow, port, node) in core::mem::take(&mut self.gone) {
            self.program.handle_gone(cx, flow, port, node);
        }
        let mut buf = core::mem::take(&mut self.buf);
        loop {
            buf.clear();
            let Some(egress) = self.program.poll_transmit(cx, &mut buf) else {
                match self.ready.pop_front() {
                    Some(port) if out.has_room() => self.program.handle_writable(cx, port),
                    Some(port) => {
                        self.ready.push_front(port);
                        break;
                    }
                    None => break,
                }
                continue;
            };
            match egress {
                Egress::Copy(key, port) => {
                    if let Some(held) = self.packets.get(key) {
                        let copy = held.clone();
                        self.forward(cx.now, port, copy, &buf, out);
                    }
                }
                Egress::Release(key) => self.packets.release(key),
                Egress::Await(port) => {
                    if self.has_room(port) {
                        self.ready.push_back(port);
                    } else {
                        self.awaiting.insert(port);
                    }
                }
                Egress::Send(transmit) => {
                    let group = self.flows.iter().find(|(_, flow)| **flow == transmit.flow);
                    if let (Some((group, _)), Some(port)) = (group, transmit.port) {
                        let (hops, group, body) = (HOPS_MAX, *group, Arc::from(&buf[..]));
                        let (origin, to) = (transmit.from, transmit.to);
                        let parcel = HopPacket { hops, group, origin, to, body };
                        self.forward(cx.now, port, parcel, &[], out);
                    }
                }
            }
        }
        self.buf = buf;
    }

    /// There may be room again for what waits.
    pub fn handle_writable<S: Sends>(&mut self, cx: &mut Cx<'_>, out: &mut S) {
        self.drain(cx, out);
    }

    /// Whether something waits for room.
    pub fn waits_for_room(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the passing of time.
    pub fn handle_timeout<S: Sends>(&mut self, cx: &mut Cx<'_>, out: &mut S) {
        let now = cx.now;
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP;
            if self.neighbours.expire(now) {
                self.forget_gone();
                self.tell_above(now);
            }
            self.routes.retain(|_, route| now.since(route.heard_at) < ROUTE_KEPT);
            self.routes_at.clear();
            for route in self.routes.values() {
                *self.routes_at.entry(route.port).or_default() += 1;
            }
        }
        if let Some(parent) = &mut self.parent {
            parent.handle_timeout(now);
        }
        self.poll_parent(now, out);
        if self.links_at <= now {
            self.links_at = Time::MAX;
            let due = self.neighbours.iter_mut().filter_map(|(port, of)| {
                let at = of.link.next_timeout()?;
                if at > now {
                    self.links_at = self.links_at.min(at);
                    return None;
                }
                of.link.handle_timeout(now);
                Some(port)
            });
            let due: Vec<PortId> = due.chain([PARENT]).collect();
            for port in due {
                self.take_from(cx, port, out);
                self.serve_link(now, port, out);
            }
            self.handle_lan_timeouts(now, out);
        }
        self.send_beacons(now, out);
        if self.program.next_timeout().is_some_and(|at| at <= now) {
            self.program.handle_timeout(cx);
        }
        self.drain(cx, out);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Time {
        let parent = self.parent.as_ref().and_then(Attach::next_timeout);
        let beacon = Some(self.lans.next_timeout());
        let all = [parent, self.program.next_timeout(), Some(self.links_at), beacon];
        all.into_iter().flatten().fold(self.sweep_at, Time::min)
    }

    /// Says goodbye to the relay above.
    pub fn leave<S: Sends>(&mut self, out: &mut S) {
        let Self { parent, guard, .. } = self;
        if let Some(parent) = parent {
            let to = parent.relay();
            parent.leave(guard, |frame| out.send(to, |buf| buf.extend_from_slice(&frame)));
        }
    }
}

impl core::fmt::Debug for HopNode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HopNode").field("status", &self.status()).finish_non_exhaustive()
    }
}
