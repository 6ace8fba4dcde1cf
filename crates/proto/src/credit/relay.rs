//! Credit relay of a router: serves sessions and shares the links (src: credits s3.1).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Event, FlowId, GroupId, NodeId, Time};

use super::node::FlowNode;
use super::port::{Port, Turn};
use super::programs::{Found, ProgramHost, Programs};
use super::settings::{AnyPolicy, PolicyId, RelaySettings};
use super::tag_of;
use super::upstream::Upstream;
use super::wire::{self, Capsule, Credit, Packet, Pull};
use crate::Destination;
use crate::options::Options;
use crate::relay::{
    BranchPace, Egress, Handling, Interest, PacketKey, PortId, Relay, RelayPacket, RelayTransmit,
    Served,
};

/// Length of the IPv4 and UDP headers, which count as part of packets.
const IP_UDP_BYTES: u32 = 28;

/// Silence after which a session is removed: 30 s.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest queue of a flow without credits at a link, in packets; chosen, not given by the paper.
const OTHERS_MAX: usize = 50;

#[derive(Default)]
pub(crate) struct CreditRelay {
    node: NodeId,
    settings: RelaySettings,
    sessions: BTreeMap<u64, Session>,
    parked: BTreeMap<u64, ParkedSession>,
    /// Sessions that are forwarded without credits, with the time of their latest capsule.
    plain: BTreeMap<u64, Time>,
    /// Time at which silent sessions are removed from `plain`.
    sweep_at: Option<Time>,
    programs: Programs,
    failed: u64,
    ports: BTreeMap<PortId, Port>,
    /// Number of ports at which idle ones are removed.
    ports_room: usize,
    /// Copies of each packet that are still to be sent.
    copies: BTreeMap<PacketKey, u32>,
    /// Requests to the router, with the bytes to write.
    out: VecDeque<(Egress, Vec<u8>)>,
}

struct Session {
    flow: FlowId,
    source: NodeId,
    node: FlowNode<PacketKey>,
}

struct ParkedSession {
    policy: PolicyId,
    flow: FlowId,
    source: NodeId,
    ports: Vec<PortId>,
    packets: Vec<ParkedPacket>,
}

#[derive(Clone, Copy, Debug)]
struct ParkedPacket {
    key: PacketKey,
    bytes: u32,
    capsule: Capsule,
    port: PortId,
}

/// Most packets held for programs; further ones are dropped.
const PARKED_MAX: usize = 4096;

const PORTS_ROOM_MIN: usize = 1024;

impl CreditRelay {
    pub(crate) fn new(node: NodeId, options: &Options, host: Option<Arc<dyn ProgramHost>>) -> Self {
        Self {
            node,
            settings: RelaySettings::from_options(options),
            programs: Programs::new(host),
            ports_room: PORTS_ROOM_MIN,
            ..Self::default()
        }
    }

    /// Returns the state of a port. Idle ports, as of departed neighbours, are removed when many.
    fn port(&mut self, id: PortId) -> &mut Port {
        if self.ports.len() >= self.ports_room && !self.ports.contains_key(&id) {
            self.ports.retain(|_, port| !port.is_idle());
            self.ports_room = PORTS_ROOM_MIN.max(2 * self.ports.len());
        }
        self.ports.entry(id).or_default()
    }

    /// Adds processing time to `port`, or to all. A slow host does not process while it sends: the
    /// paper's throughputs are below the slowest link's rate.
    fn add_work(&mut self, now: Time, port: Option<PortId>) {
        let time = self.settings.capsule_time;
        if time > Duration::ZERO {
            let is_meant = |(id, _): &(&PortId, &mut Port)| port.is_none_or(|port| port == **id);
            for (_, state) in self.ports.iter_mut().filter(is_meant) {
                state.work += time;
                state.begin_work(now);
            }
        }
    }

    fn take_capsule(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        capsule: Capsule,
    ) -> Checked<Handling> {
        let (now, id) = (cx.now, capsule.session);
        if capsule.hops == 0 {
            return Err(BadInput::Absurd);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            // The session's group may have been empty, and have a new flow number since.
            session.flow = packet.flow;
            session.node.upstream.on_capsule(now, &capsule, packet.port);
        } else if self.parked.contains_key(&id) {
            return Ok(self.park(packet, capsule));
        } else {
            let known = self.sessions.len() + self.parked.len() + self.plain.len();
            let is_full = known >= self.settings.sessions_max as usize;
            let plain = self.plain.get_mut(&id).map(|last_capsule_at| *last_capsule_at = now);
            if plain.is_some() || is_full {
                return Ok(self.queue_other(cx, packet));
            }
            if let Some(handling) = self.begin_session(cx, packet, capsule) {
                return Ok(handling);
            }
        }
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(Handling::Drop) };
        let stuck = |port: PortId| self.ports.get(&port).is_some_and(|port| port.stuck);
        let dropped = session.node.set_ports(now, packet.ports_out, stuck);
        let handling = if capsule.probe {
            session.node.on_probe(now);
            Handling::Drop
        } else {
            let waits = session.node.on_data(now, packet.key, bytes_of(packet), capsule.layer);
            self.hold(packet.key, waits)
        };
        dropped.into_iter().for_each(|key| self.release_copy(key));
        self.serve_session(cx, id);
        Ok(handling)
    }

    fn hold(&mut self, key: PacketKey, copies: u32) -> Handling {
        if copies == 0 {
            return Handling::Drop;
        }
        self.copies.insert(key, copies);
        Handling::Hold
    }

    /// Begins a session. Returns the handling of the packet if the session cannot begin yet.
    fn begin_session(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        capsule: Capsule,
    ) -> Option<Handling> {
        let (now, id) = (cx.now, capsule.session);
        let policy = match AnyPolicy::of(&capsule) {
            Some(policy) => Found::Here(policy),
            None if self.has_all_programs() => Found::Never,
            None => self.programs.find(now, &capsule, (packet.flow, packet.port)),
        };
        match policy {
            Found::Here(policy) => {
                let ends = (packet.flow, packet.datagram.from);
                let session = self.new_session(now, policy, ends, packet.port, &capsule);
                self.sessions.insert(id, session);
                None
            }
            Found::Later => {
                self.send_pulls(now);
                Some(self.park(packet, capsule))
            }
            Found::Never => {
                // Forwarded without credits: the downstream nodes become next to the upstream node.
                if self.programs.host.is_some() && !self.has_all_programs() {
                    self.fail(cx, id);
                } else {
                    self.forward_plainly(now, id);
                }
                Some(self.queue_other(cx, packet))
            }
        }
    }

    fn has_all_programs(&self) -> bool {
        let runs = |session: &&Session| matches!(session.node.policy, AnyPolicy::Program(_));
        let running = self.sessions.values().filter(runs);
        let all = running.count() + self.parked.len();
        self.programs.host.is_some() && all >= self.settings.program_sessions_max as usize
    }

    fn new_session(
        &self,
        now: Time,
        policy: AnyPolicy,
        (flow, source): (FlowId, NodeId),
        port: PortId,
        capsule: &Capsule,
    ) -> Session {
        let upstream = Upstream::new(now, tag_of(self.node, capsule.session), capsule, port);
        let hops = capsule.hops - 1;
        let header = Capsule { hops, probe: false, node: self.node, ..*capsule };
        Session { flow, source, node: FlowNode::new(now, upstream, policy, header) }
    }

    fn park(&mut self, packet: &RelayPacket<'_>, capsule: Capsule) -> Handling {
        let all: usize = self.parked.values().map(|parked| parked.packets.len()).sum();
        let parked = self.parked.entry(capsule.session).or_insert_with(|| ParkedSession {
            policy: capsule.policy,
            flow: packet.flow,
            source: packet.datagram.from,
            ports: Vec::new(),
            packets: Vec::new(),
        });
        parked.ports.clear();
        parked.ports.extend_from_slice(packet.ports_out);
        if capsule.probe || all >= PARKED_MAX {
            return Handling::Drop;
        }
        let (key, bytes, port) = (packet.key, bytes_of(packet), packet.port);
        parked.packets.push(ParkedPacket { key, bytes, capsule, port });
        self.hold(key, 1)
    }

    fn unpark(&mut self, cx: &mut Cx<'_>, policy: PolicyId) {
        let waited = self.parked.iter().filter(|(_, parked)| parked.policy == policy);
        let waited: Vec<u64> = waited.map(|(id, _)| *id).collect();
        for id in waited {
            let Some(parked) = self.parked.remove(&id) else { continue };
            let Some(first) = parked.packets.first() else { continue };
            let (now, ends) = (cx.now, (parked.flow, parked.source));
            let Found::Here(policy) = self.programs.start(now, &first.capsule) else {
                self.fail(cx, id);
                for ParkedPacket { key, bytes, .. } in parked.packets {
                    let waiting: Vec<_> =
                        parked.ports.iter().map(|port| (*port, key, bytes)).collect();
                    self.copies.entry(key).and_modify(|held| *held += waiting.len() as u32);
                    self.queue_again(cx, parked.flow, waiting);
                    self.release_copy(key);
                }
                continue;
            };
            let mut session = self.new_session(now, policy, ends, first.port, &first.capsule);
            session.node.set_ports(now, &parked.ports, |_| false);
            for ParkedPacket { key, bytes, capsule, port } in &parked.packets {
                session.node.upstream.on_capsule(now, capsule, *port);
                let waits = session.node.on_data(now, *key, *bytes, capsule.layer);
                self.copies.entry(*key).and_modify(|held| *held += waits);
                self.release_copy(*key);
            }
            self.sessions.insert(id, session);
            self.serve_session(cx, id);
        }
    }

    fn queue_again(
        &mut self,
        cx: &mut Cx<'_>,
        flow: FlowId,
        waiting: Vec<(PortId, PacketKey, u32)>,
    ) {
        for &(port, key, bytes) in &waiting {
            self.port(port).queue(flow, key, bytes);
        }
        waiting.into_iter().for_each(|(port, ..)| self.serve(cx, port));
    }

    fn fail(&mut self, cx: &mut Cx<'_>, id: u64) {
        cx.emit(Event::BadInput { reason: BadInput::Program });
        self.failed += 1;
        self.forward_plainly(cx.now, id);
        if let Some(session) = self.sessions.remove(&id) {
            let waiting = session.node.into_waiting();
            let waiting = waiting.map(|(port, it)| (port, it.packet, it.bytes)).collect();
            self.queue_again(cx, session.flow, waiting);
        }
    }

    fn forward_plainly(&mut self, now: Time, id: u64) {
        self.plain.insert(id, now);
        self.sweep_at.get_or_insert(now + SESSION_TIMEOUT);
    }

    fn send_pulls(&mut self, now: Time) {
        while let Some((pull, flow, port, node)) = self.programs.poll(now) {
            let transmit = RelayTransmit::control(flow, port, Destination::Node(node), self.node);
            self.out.push_back((Egress::Send(transmit), Packet::Pull(pull).encoded()));
        }
    }

    fn answer(&mut self, now: Time, packet: &RelayPacket<'_>, pull: &Pull) {
        let to = Destination::Node(packet.datagram.from);
        let transmit = RelayTransmit::control(packet.flow, packet.port, to, self.node);
        for part in self.programs.answer(now, pull) {
            self.out.push_back((Egress::Send(transmit), Packet::Part(part).encoded()));
        }
    }

    fn take_credit(&mut self, cx: &mut Cx<'_>, port: PortId, credit: &Credit) -> Checked {
        if credit.branch != port.0 {
            return Err(BadInput::Foreign);
        }
        let session = self.sessions.get_mut(&credit.session).ok_or(BadInput::Foreign)?;
        if let Some(port) = session.node.on_credit(cx.now, credit)? {
            self.port(port).turns.join(Turn::Session(credit.session));
            self.serve(cx, port);
        }
        Ok(())
    }

    fn serve_session(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let ports: Vec<PortId> = session.node.ports().collect();
        for port in ports {
            self.port(port).turns.join(Turn::Session(id));
            let sent = self.send(cx.now, port);
            if let Some(other) = sent.filter(|sent| *sent != id) {
                self.send_credit(cx, other);
            }
        }
        self.send_credit(cx, id);
    }

    fn send_credit(&mut self, cx: &mut Cx<'_>, id: u64) {
        let now = cx.now;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let mut bytes = Vec::new();
        if session.node.poll_credit(now, &mut bytes) {
            let upstream = &session.node.upstream;
            let to = Destination::Node(upstream.node);
            let transmit = RelayTransmit::control(session.flow, upstream.port, to, self.node);
            self.out.push_back((Egress::Send(transmit), bytes));
            self.add_work(now, None);
        }
        let policy = self.sessions.get(&id).map(|session| &session.node.policy);
        if matches!(policy, Some(AnyPolicy::Program(program)) if program.failed) {
            self.fail(cx, id);
        }
    }

    fn serve(&mut self, cx: &mut Cx<'_>, port: PortId) {
        if let Some(id) = self.send(cx.now, port) {
            self.send_credit(cx, id);
        }
    }

    fn send(&mut self, now: Time, port: PortId) -> Option<u64> {
        let Self { ports, sessions, out, settings, .. } = self;
        let state = ports.get_mut(&port).filter(|port| port.busy_since.is_none())?;
        if state.works_until.is_some_and(|until| now < until) {
            return None;
        }
        state.works_until = None;
        let others = &state.others;
        let turn = state.turns.next(|turn| match turn {
            Turn::Session(id) => sessions.get_mut(&id)?.node.next_bytes(now, port),
            Turn::Other(flow) => Some(others.get(&flow)?.front()?.1),
        })?;
        let (session, key, bytes, content) = match turn {
            Turn::Other(flow) => {
                let first = state.others.get_mut(&flow).and_then(VecDeque::pop_front);
                state.others.retain(|_, waiting| !waiting.is_empty());
                let (key, bytes) = first?;
                (None, key, bytes, Vec::new())
            }
            Turn::Session(id) => {
                let (sent, header) = sessions.get_mut(&id)?.node.send(port)?;
                (Some(id), sent.packet, sent.bytes, Packet::Capsule(header).encoded())
            }
        };
        state.busy_since = Some(now);
        state.pace(now, bytes, settings.rate_max);
        out.push_back((Egress::Copy(key, port), content));
        if session.is_some() {
            self.add_work(now, Some(port));
        }
        self.out.push_back((Egress::Await(port), Vec::new()));
        self.release_copy(key);
        session
    }

    fn sessions_that(&self, matches: impl Fn(&Session) -> bool) -> Vec<u64> {
        self.sessions.iter().filter(|(_, session)| matches(session)).map(|(id, _)| *id).collect()
    }

    fn set_stuck(&mut self, cx: &mut Cx<'_>, port: PortId, stuck: bool) {
        for id in self.sessions_that(|session| session.node.ports().any(|other| other == port)) {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let dropped = session.node.set_stuck(port, stuck);
            dropped.into_iter().for_each(|key| self.release_copy(key));
            self.serve_session(cx, id);
        }
    }

    fn release_copy(&mut self, key: PacketKey) {
        if let Some(waits) = self.copies.get_mut(&key) {
            *waits -= 1;
            if *waits == 0 {
                self.copies.remove(&key);
                self.out.push_back((Egress::Release(key), Vec::new()));
            }
        }
    }

    fn queue_other(&mut self, cx: &mut Cx<'_>, packet: &RelayPacket<'_>) -> Handling {
        let mut waits = 0;
        for &port in packet.ports_out {
            let state = self.port(port);
            let waiting = state.others.get(&packet.flow).map_or(0, VecDeque::len);
            if waiting < OTHERS_MAX {
                state.queue(packet.flow, packet.key, bytes_of(packet));
                waits += 1;
            }
        }
        let handling = self.hold(packet.key, waits);
        if waits > 0 {
            packet.ports_out.iter().for_each(|port| self.serve(cx, *port));
        }
        handling
    }
}

const fn bytes_of(packet: &RelayPacket<'_>) -> u32 {
    packet.datagram.bytes.len() as u32 + packet.datagram.zeros + IP_UDP_BYTES
}

impl Relay for CreditRelay {
    fn interest(&self) -> Interest {
        Interest::Everything
    }

    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        _buf: &mut Vec<u8>,
    ) -> Handling {
        let bytes = packet.datagram.bytes;
        if !wire::is_ours(bytes) {
            // A packet to this router has no output ports.
            return match packet.ports_out {
                [] => Handling::Forward,
                _ => self.queue_other(cx, packet),
            };
        }
        let outcome = match wire::decode(bytes) {
            Err(reason) => Err(reason),
            Ok(Packet::Capsule(capsule)) => {
                self.add_work(cx.now, None);
                self.take_capsule(cx, packet, capsule)
            }
            Ok(_) if packet.datagram.to != Destination::Node(self.node) => Ok(Handling::Forward),
            Ok(Packet::Credit(credit)) => {
                self.add_work(cx.now, Some(packet.port));
                self.take_credit(cx, packet.port, &credit).map(|()| Handling::Drop)
            }
            Ok(Packet::Pull(pull)) => {
                self.answer(cx.now, packet, &pull);
                Ok(Handling::Drop)
            }
            Ok(Packet::Part(part)) => {
                let done = self.programs.on_part(cx.now, packet.datagram.from, &part);
                done.map(|done| {
                    done.into_iter().for_each(|policy| self.unpark(cx, policy));
                    self.send_pulls(cx.now);
                    Handling::Drop
                })
            }
        };
        outcome.unwrap_or_else(|reason| {
            cx.emit(Event::BadInput { reason });
            Handling::Drop
        })
    }

    fn handle_writable(&mut self, cx: &mut Cx<'_>, port: PortId) {
        if let Some(state) = self.ports.get_mut(&port) {
            state.busy_since = None;
            state.begin_work(cx.now);
            if core::mem::take(&mut state.stuck) {
                self.set_stuck(cx, port, false);
            }
        }
        self.serve(cx, port);
    }

    fn handle_gone(&mut self, cx: &mut Cx<'_>, flow: FlowId, port: PortId, node: NodeId) {
        for id in self.sessions_that(|session| session.flow == flow) {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let dropped = session.node.forget(cx.now, port, tag_of(node, id));
            dropped.into_iter().for_each(|key| self.release_copy(key));
            self.serve_session(cx, id);
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        for id in self.sessions_that(|session| session.node.next_timeout() <= now) {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if now.since(session.node.last_packet_at) >= SESSION_TIMEOUT {
                let dropped = session.node.set_ports(now, &[], |_| false);
                self.sessions.remove(&id);
                dropped.into_iter().for_each(|key| self.release_copy(key));
                continue;
            }
            let (dropped, probes) = session.node.on_timeout(now);
            let (flow, from) = (session.flow, session.source);
            for (port, probe) in probes {
                let transmit =
                    RelayTransmit::control(flow, port, Destination::Group(GroupId::SESSION), from);
                self.out.push_back((Egress::Send(transmit), Packet::Capsule(probe).encoded()));
            }
            dropped.into_iter().for_each(|key| self.release_copy(key));
            self.serve_session(cx, id);
        }
        let is_stuck = |port: &Port| port.stuck_at().is_some_and(|at| at <= now);
        let stuck = self.ports.iter_mut().filter(|(_, port)| is_stuck(port));
        let mark_stuck = |(id, port): (&PortId, &mut Port)| {
            port.stuck = true;
            *id
        };
        let stuck: Vec<PortId> = stuck.map(mark_stuck).collect();
        stuck.into_iter().for_each(|port| self.set_stuck(cx, port, true));
        if self.sweep_at.take_if(|at| *at <= now).is_some() {
            let timeout = SESSION_TIMEOUT;
            self.plain.retain(|_, last_capsule_at| now.since(*last_capsule_at) < timeout);
            let oldest = self.plain.values().min();
            self.sweep_at = oldest.map(|last_capsule_at| *last_capsule_at + timeout);
        }
        let timed_out = self.programs.on_timeout(now);
        timed_out.into_iter().for_each(|policy| self.unpark(cx, policy));
        self.send_pulls(now);
        let done = |port: &Port| port.works_until.is_some_and(|until| until <= now);
        let done: Vec<PortId> =
            self.ports.iter().filter(|(_, port)| done(port)).map(|(id, _)| *id).collect();
        done.into_iter().for_each(|port| self.serve(cx, port));
    }

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Egress> {
        let (egress, bytes) = self.out.pop_front()?;
        buf.extend_from_slice(&bytes);
        Some(egress)
    }

    fn next_timeout(&self) -> Option<Time> {
        let sessions = self.sessions.values().map(|session| session.node.next_timeout());
        let ports = self.ports.values().map(Port::next_timeout);
        let all = sessions.chain(ports).chain(self.programs.next_timeout()).chain(self.sweep_at);
        all.min().filter(|at| *at < Time::MAX)
    }

    fn served(&self) -> Served {
        Served {
            sessions: self.sessions.len(),
            plain: self.plain.len() + self.parked.len(),
            programs: self.programs.kept(),
            failed: self.failed,
        }
    }

    fn queued(&self) -> BTreeMap<PortId, u64> {
        let mut all = BTreeMap::new();
        let sessions = self.sessions.values().flat_map(|session| session.node.queued());
        let others = self.ports.iter().flat_map(|(id, port)| {
            let waiting = port.others.values().flatten();
            waiting.map(|(_, bytes)| (*id, u64::from(*bytes)))
        });
        sessions.chain(others).for_each(|(port, bytes)| *all.entry(port).or_default() += bytes);
        all
    }

    fn paces(&mut self, now: Time) -> Vec<BranchPace> {
        let sessions = self.sessions.values_mut();
        sessions.flat_map(|session| session.node.paces(now, session.flow)).collect()
    }
}

#[cfg(test)]
mod tests;
