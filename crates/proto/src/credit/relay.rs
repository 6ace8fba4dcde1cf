//! The relay of credits: what a router does for sessions under credits, and how it shares its links between them and
//! all others (src: credits s3.1).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Event, FlowId, GroupId, NodeId, Time};

use super::drr::RoundRobin;
use super::node::FlowNode;
use super::settings::{AnyPolicy, RelaySettings};
use super::tag_of;
use super::upstream::Upstream;
use super::wire::{self, Capsule, Credit, Packet};
use crate::Destination;
use crate::options::Options;
use crate::relay::{
    Egress, Handling, Interest, PacketKey, PortId, Relay, RelayPacket, RelayTransmit,
};

/// Bytes of the headers of IPv4 and UDP, with which packets count.
const IP_UDP_BYTES: u32 = 28;

/// Whose turn it is at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Session(u64),
    Other(FlowId),
}

/// One of the router's links.
#[derive(Debug, Default)]
struct Port {
    /// Something was sent, and the link has not said yet that it is free.
    busy: bool,
    turns: RoundRobin<Turn>,
    /// What a slow host has to do before more leaves, once nothing leaves, and until when it does that.
    work: Duration,
    works_until: Option<Time>,
    /// Packets of flows that are not under credits.
    others: BTreeMap<FlowId, VecDeque<(PacketKey, u32)>>,
}

impl Port {
    fn begin_work(&mut self, now: Time) {
        if !self.busy && self.work > Duration::ZERO {
            let begins = self.works_until.map_or(now, |at| at.max(now));
            self.works_until = Some(begins + core::mem::take(&mut self.work));
        }
    }
}

/// The relay. See the module's documentation.
#[derive(Debug)]
pub(crate) struct CreditRelay {
    node: NodeId,
    settings: RelaySettings,
    sessions: BTreeMap<u64, Session>,
    ports: BTreeMap<PortId, Port>,
    /// At how many ports each packet that is held still waits.
    held: BTreeMap<PacketKey, u32>,
    out: VecDeque<(Egress, Vec<u8>)>,
}

#[derive(Debug)]
struct Session {
    flow: FlowId,
    source: NodeId,
    node: FlowNode<PacketKey>,
}

impl CreditRelay {
    /// The relay of the router `node`.
    pub(crate) fn new(node: NodeId, options: &Options) -> Self {
        Self {
            node,
            settings: RelaySettings::from_options(options),
            sessions: BTreeMap::new(),
            ports: BTreeMap::new(),
            held: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// A packet of credits costs a slow host its time: before more leaves at `port`, or at all. While a packet leaves there
    /// nothing is done for that port: the paper's throughputs, which lie below that of the slowest link, are those of such
    /// hosts.
    fn works(&mut self, now: Time, port: Option<PortId>) {
        let time = self.settings.capsule_time;
        if time > Duration::ZERO {
            for (_, state) in
                self.ports.iter_mut().filter(|(id, _)| port.is_none_or(|it| it == **id))
            {
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
    ) -> Result<Handling, BadInput> {
        let (now, id) = (cx.now, capsule.session);
        let Some(hops) = capsule.hops.checked_sub(1) else { return Err(BadInput::Absurd) };
        if !self.sessions.contains_key(&id) {
            let full = self.sessions.len() >= self.settings.sessions_max as usize;
            let known = AnyPolicy::of(&capsule).filter(|_| !full);
            // It passes as by any router: those below are the next of whoever is above.
            let Some(policy) = known else { return Ok(Handling::Forward) };
            let upstream = Upstream::new(now, tag_of(self.node, id), &capsule, packet.port);
            let header = Capsule { hops, probe: false, node: self.node, ..capsule };
            let node = FlowNode::new(now, upstream, policy, header);
            let (flow, source) = (packet.flow, packet.datagram.from);
            self.sessions.insert(id, Session { flow, source, node });
        } else if let Some(session) = self.sessions.get_mut(&id) {
            session.node.upstream.on_capsule(now, &capsule, packet.port);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(Handling::Drop) };
        let gone = session.node.set_ports(now, packet.ports_out);
        let handling = if capsule.probe {
            session.node.on_probe(now);
            Handling::Drop
        } else {
            let bytes = packet.datagram.bytes.len() as u32 + packet.datagram.zeros + IP_UDP_BYTES;
            let waits = session.node.on_data(now, packet.key, bytes, capsule.layer);
            if waits > 0 {
                self.held.insert(packet.key, waits);
                Handling::Hold
            } else {
                Handling::Drop
            }
        };
        gone.into_iter().for_each(|key| self.let_go(key));
        self.serve_session(cx, id);
        Ok(handling)
    }

    fn take_credit(&mut self, cx: &mut Cx<'_>, credit: &Credit) -> Result<(), BadInput> {
        let session = self.sessions.get_mut(&credit.session).ok_or(BadInput::Foreign)?;
        if let Some(port) = session.node.on_credit(cx.now, credit)? {
            self.ports.entry(port).or_default().turns.join(Turn::Session(credit.session));
            self.serve(cx, port);
        }
        Ok(())
    }

    /// Packets of a session may have become free to leave, and a credit may be due.
    fn serve_session(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let ports: Vec<PortId> = session.node.ports().collect();
        for port in ports {
            self.ports.entry(port).or_default().turns.join(Turn::Session(id));
            self.serve(cx, port);
        }
        self.tell(cx.now, id);
    }

    /// Sends the credit that is due, if there is one. Credits go before everything else.
    fn tell(&mut self, now: Time, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let mut bytes = Vec::new();
        if session.node.upstream.poll(&mut bytes) {
            let upstream = &session.node.upstream;
            let to = Destination::Node(upstream.node);
            let transmit = control(session.flow, upstream.port, to, self.node);
            self.out.push_back((Egress::Send(transmit), bytes));
            self.works(now, None);
        }
    }

    /// Sends what has its turn at a port that is free.
    fn serve(&mut self, cx: &mut Cx<'_>, port: PortId) {
        let Self { ports, sessions, out, .. } = self;
        let Some(state) = ports.get_mut(&port).filter(|port| !port.busy) else { return };
        if state.works_until.is_some_and(|until| cx.now < until) {
            return;
        }
        state.works_until = None;
        let others = &state.others;
        let turn = state.turns.next(|turn| match turn {
            Turn::Session(id) => sessions.get_mut(&id)?.node.next_bytes(cx.now, port),
            Turn::Other(flow) => Some(others.get(&flow)?.front()?.1),
        });
        let key = match turn {
            None => return,
            Some(Turn::Other(flow)) => {
                let waiting = state.others.get_mut(&flow);
                let first = waiting.and_then(VecDeque::pop_front);
                state.others.retain(|_, waiting| !waiting.is_empty());
                let Some((key, _)) = first else { return };
                state.busy = true;
                out.push_back((Egress::Copy(key, port), Vec::new()));
                key
            }
            Some(Turn::Session(id)) => {
                let Some((key, header)) =
                    sessions.get_mut(&id).and_then(|session| session.node.send(cx.now, port))
                else {
                    return;
                };
                state.busy = true;
                let mut bytes = Vec::new();
                header.encode(&mut bytes);
                out.push_back((Egress::Copy(key, port), bytes));
                self.works(cx.now, Some(port));
                self.tell(cx.now, id);
                key
            }
        };
        self.out.push_back((Egress::Await(port), Vec::new()));
        self.let_go(key);
    }

    /// A packet waits at one port less.
    fn let_go(&mut self, key: PacketKey) {
        if let Some(waits) = self.held.get_mut(&key) {
            *waits -= 1;
            if *waits == 0 {
                self.held.remove(&key);
                self.out.push_back((Egress::Release(key), Vec::new()));
            }
        }
    }

    /// A packet that is under no credits waits for its turn at each port, as in the queue of any router.
    fn queue_other(&mut self, cx: &mut Cx<'_>, packet: &RelayPacket<'_>) -> Handling {
        let bytes = packet.datagram.bytes.len() as u32 + packet.datagram.zeros + IP_UDP_BYTES;
        let mut waits = 0;
        for &port in packet.ports_out {
            let state = self.ports.entry(port).or_default();
            let waiting = state.others.entry(packet.flow).or_default();
            if waiting.len() < self.settings.others_max as usize {
                waiting.push_back((packet.key, bytes));
                state.turns.join(Turn::Other(packet.flow));
                waits += 1;
            }
        }
        if waits == 0 {
            return Handling::Drop;
        }
        self.held.insert(packet.key, waits);
        packet.ports_out.iter().for_each(|port| self.serve(cx, *port));
        Handling::Hold
    }
}

/// A packet of the relay's own without payload.
const fn control(flow: FlowId, port: PortId, to: Destination, from: NodeId) -> RelayTransmit {
    RelayTransmit {
        flow,
        port: Some(port),
        to,
        from,
        zeros: 0,
        payload_len: 0,
        time_to_live: 255,
        router_alert: false,
    }
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
            // What is for this router goes nowhere.
            return match packet.ports_out {
                [] => Handling::Forward,
                _ => self.queue_other(cx, packet),
            };
        }
        let outcome = match wire::decode(bytes) {
            Err(reason) => Err(reason),
            Ok(Packet::Capsule(capsule)) => {
                self.works(cx.now, None);
                self.take_capsule(cx, packet, capsule)
            }
            Ok(Packet::Credit(credit)) if packet.datagram.to == Destination::Node(self.node) => {
                self.works(cx.now, Some(packet.port));
                self.take_credit(cx, &credit).map(|()| Handling::Drop)
            }
            // It is for another node further up, and waits for nothing.
            Ok(Packet::Credit(_)) => Ok(Handling::Forward),
        };
        outcome.unwrap_or_else(|reason| {
            cx.emit(Event::BadInput { reason });
            Handling::Drop
        })
    }

    fn handle_writable(&mut self, cx: &mut Cx<'_>, port: PortId) {
        if let Some(state) = self.ports.get_mut(&port) {
            state.busy = false;
            state.begin_work(cx.now);
        }
        self.serve(cx, port);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let due = |session: &Session| session.node.next_timeout() <= now;
        let all: Vec<u64> =
            self.sessions.iter().filter(|(_, it)| due(it)).map(|(id, _)| *id).collect();
        for id in all {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if now.since(session.node.heard_at()) >= self.settings.session_timeout {
                let gone = session.node.set_ports(now, &[]);
                self.sessions.remove(&id);
                gone.into_iter().for_each(|key| self.let_go(key));
                continue;
            }
            let (gone, probes) = session.node.on_timeout(now);
            let (flow, from) = (session.flow, session.source);
            for (port, probe) in probes {
                let mut bytes = Vec::new();
                probe.encode(&mut bytes);
                let transmit = control(flow, port, Destination::Group(GroupId::SESSION), from);
                self.out.push_back((Egress::Send(transmit), bytes));
            }
            gone.into_iter().for_each(|key| self.let_go(key));
            self.serve_session(cx, id);
        }
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
        sessions.chain(self.ports.values().filter_map(|port| port.works_until)).min()
    }
}
