//! Relays in routers.

use std::collections::BTreeMap;

use faircast_base::{Cx, DropReason, NodeId, Purpose, Rng, Time};
use faircast_proto::Datagram;
use faircast_proto::relay::{
    Egress, Handling, Interest, PacketKey, PortId, Relay, RelayPacket, RelayTransmit,
};
use faircast_trace::{Sink, Subject, Tagged};

use crate::alarm::Alarm;
use crate::fabric::Fabric;
use crate::network::{EventKind, ScheduledEvent};
use crate::packets::{About, Route};
use crate::topology::NO_LINK;

const NO_RELAY: u32 = u32::MAX;

struct Entry {
    node: NodeId,
    relay: Box<dyn Relay>,
    interest: Interest,
    rng: Rng,
    alarm: Alarm,
    held: BTreeMap<PacketKey, (u32, u8)>,
    next_key: u64,
}

impl Entry {
    fn call<R>(
        &mut self,
        now: Time,
        sink: &mut dyn Sink,
        call: impl FnOnce(&mut dyn Relay, &mut Cx<'_>) -> R,
    ) -> R {
        let mut trace = Tagged { sink, subject: Subject::Node(self.node) };
        call(&mut *self.relay, &mut Cx::new(now, &mut self.rng, &mut trace))
    }
}

#[derive(Default)]
pub(crate) struct Relays {
    entries: Vec<Entry>,
    /// By node: index of its relay, made at its first packet, or [`NO_RELAY`].
    index: Vec<u32>,
    ports_out: Vec<PortId>,
    buf: Vec<u8>,
}

impl Fabric<'_> {
    /// Offers a packet to the router's relay, if wanted. Returns the packet to forward, if any.
    pub(crate) fn relay(
        &mut self,
        node: NodeId,
        packet: u32,
        link: u32,
        hops: u8,
        sink: &mut dyn Sink,
    ) -> Option<u32> {
        let info = self.network.packets.get(packet);
        let addressed = matches!(info.route, Route::Node { node: to, .. } if to == node);
        let asks = info.router_alert || addressed;
        let index = self.relay_index(node);
        if !asks && self.relays.entries[index as usize].interest == Interest::Alerted {
            return Some(packet);
        }
        let Some(port) = self.network.topology.port_back(link) else { return Some(packet) };
        self.find_ports_out(node, packet);
        let info = self.network.packets.get(packet);
        let to = self.network.destination(info.route);
        let Relays { entries, ports_out, buf, .. } = &mut self.relays;
        let entry = &mut entries[index as usize];
        let view = RelayPacket {
            key: PacketKey(entry.next_key),
            flow: info.flow,
            port: PortId(port),
            ports_out,
            datagram: Datagram { zeros: info.zeros, ..Datagram::new(info.from, to, &info.bytes) },
            time_to_live: info.time_to_live.saturating_sub(hops),
        };
        buf.clear();
        let handling = entry.call(self.now, sink, |relay, cx| relay.handle_packet(cx, &view, buf));
        let goes_on = match handling {
            Handling::Forward => Some(packet),
            Handling::Alter => {
                let altered = self.network.packets.insert_altered(packet, buf);
                self.network.packets.release(packet);
                Some(altered)
            }
            Handling::Hold => {
                entry.held.insert(view.key, (packet, hops));
                entry.next_key += 1;
                None
            }
            Handling::Drop => {
                self.network.packets.release(packet);
                None
            }
        };
        self.drain_relay(index, sink);
        goes_on
    }

    pub(crate) fn run_relay_timer(&mut self, index: u32, sink: &mut dyn Sink) {
        let entry = &mut self.relays.entries[index as usize];
        entry.alarm.ring(self.now);
        if entry.relay.next_timeout().is_some_and(|at| at <= self.now) {
            entry.call(self.now, sink, |relay, cx| relay.handle_timeout(cx));
        }
        self.drain_relay(index, sink);
    }

    pub(crate) fn tell_writable(&mut self, index: u32, link: u32, sink: &mut dyn Sink) {
        if self.network.idle_at(link) > self.now {
            return self.await_idle(index, link);
        }
        let entry = &mut self.relays.entries[index as usize];
        let port = PortId(self.network.topology.port_of(link));
        entry.call(self.now, sink, |relay, cx| relay.handle_writable(cx, port));
        self.drain_relay(index, sink);
    }

    fn await_idle(&mut self, index: u32, link: u32) {
        let at = self.network.idle_at(link).max(self.now);
        let event = ScheduledEvent { link, ..ScheduledEvent::new(EventKind::Writable, index) };
        self.network.wheel.push(at, event);
    }

    pub(crate) fn release_held(&mut self) {
        for entry in &mut self.relays.entries {
            for (packet, _) in std::mem::take(&mut entry.held).into_values() {
                self.network.packets.release(packet);
            }
        }
    }

    fn relay_index(&mut self, node: NodeId) -> u32 {
        let Relays { entries, index, .. } = &mut self.relays;
        if index.is_empty() {
            index.resize(self.scenario.nodes.len(), NO_RELAY);
        }
        let place = &mut index[node.index()];
        if *place == NO_RELAY {
            *place = entries.len() as u32;
            let spec = self.scenario.nodes[node.index()].program.as_ref();
            let spec = spec.expect("only routers with a relay are asked");
            let relay = self.protocols.relay(spec, node);
            entries.push(Entry {
                node,
                interest: relay.interest(),
                relay,
                rng: Rng::new(self.scenario.seed, node, Purpose::Relay),
                alarm: Alarm::default(),
                held: BTreeMap::new(),
                next_key: 0,
            });
        }
        *place
    }

    fn find_ports_out(&mut self, node: NodeId, packet: u32) {
        self.relays.ports_out.clear();
        let route = self.network.packets.get(packet).route;
        let single;
        let links = match route {
            Route::Tree(tree) => self.network.groups.children(tree, node),
            Route::Neighbours(_) => &[],
            Route::Node { node: to, .. } if to == node => &[],
            Route::Node { node: to, .. } => {
                single = [self.network.topology.next_link(node, to)];
                if single[0] == NO_LINK { &[] } else { &single[..] }
            }
        };
        // Links and ports are numbered in the same order, so the ports ascend too.
        let port = |link: &u32| PortId(self.network.topology.port_of(*link));
        self.relays.ports_out.extend(links.iter().map(port));
    }

    fn drain_relay(&mut self, index: u32, sink: &mut dyn Sink) {
        let mut buf = std::mem::take(&mut self.relays.buf);
        loop {
            let entry = &mut self.relays.entries[index as usize];
            let node = entry.node;
            buf.clear();
            let egress = entry.call(self.now, sink, |relay, cx| relay.poll_transmit(cx, &mut buf));
            let link_of =
                |port: PortId| self.network.topology.ports(node).get(port.0 as usize).copied();
            let Some(egress) = egress else { break };
            match egress {
                Egress::Send(transmit) => self.send_from_relay(node, &buf, transmit, sink),
                Egress::Copy(key, port) => {
                    let held = entry.held.get(&key).copied();
                    if let (Some((packet, hops)), Some(link)) = (held, link_of(port)) {
                        self.send_copy(node, (packet, hops), link, &buf, sink);
                    }
                }
                Egress::Release(key) => {
                    if let Some((packet, _)) = entry.held.remove(&key) {
                        self.network.packets.release(packet);
                    }
                }
                Egress::Await(port) => {
                    if let Some(link) = link_of(port) {
                        self.await_idle(index, link);
                    }
                }
            }
        }
        self.relays.buf = buf;
        let entry = &mut self.relays.entries[index as usize];
        if let Some(at) = entry.relay.next_timeout() {
            let at = at.max(self.now);
            if entry.alarm.set(at) {
                self.network.wheel.push(at, ScheduledEvent::new(EventKind::RelayTimer, index));
            }
        }
    }

    fn send_copy(
        &mut self,
        node: NodeId,
        (packet, hops): (u32, u8),
        link: u32,
        beginning: &[u8],
        sink: &mut dyn Sink,
    ) {
        if hops >= self.network.packets.get(packet).time_to_live {
            let reason = DropReason::TimeToLive;
            return self.network.record_drop(self.now, packet, Subject::Node(node), reason, sink);
        }
        let packet = match beginning {
            [] => {
                self.network.packets.copy(packet);
                packet
            }
            _ => self.network.packets.insert_begun(packet, beginning),
        };
        self.network.send_over(self.now, link, packet, hops, sink);
    }

    fn send_from_relay(
        &mut self,
        node: NodeId,
        bytes: &[u8],
        transmit: RelayTransmit,
        sink: &mut dyn Sink,
    ) {
        let RelayTransmit { flow, from, zeros, payload_len, time_to_live, .. } = transmit;
        let own_len = bytes.len() as u32 + zeros;
        let about = About {
            zeros,
            wire_len: self.wire_len(flow, own_len, payload_len),
            payload_len,
            flow,
            from,
            route: self.route(flow, transmit.to, (from, time_to_live)),
            time_to_live,
            router_alert: transmit.router_alert,
            tag: 0,
            flipped: false,
        };
        let packet = self.network.packets.insert(bytes, about);
        let ports = self.network.topology.ports(node);
        match transmit.port.map(|port| ports.get(port.0 as usize).copied()) {
            None => self.network.forward(self.now, node, packet, 0, sink),
            Some(Some(link)) => self.network.send_over(self.now, link, packet, 0, sink),
            Some(None) => self.network.packets.release(packet),
        }
    }
}
