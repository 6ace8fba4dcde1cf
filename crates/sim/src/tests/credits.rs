//! A relay that holds packets and grants credits, in little: a source sends what it has credits for, and
//! the relay gives one back for each packet that has left it towards its slowest branch.

use std::collections::VecDeque;

use faircast_proto::options::Options;
use faircast_proto::relay::{Egress, Handling, Interest, PacketKey, PortId, RelayPacket};
use faircast_proto::relay::{Relay, RelayTransmit};

use super::*;

/// Packets that the relay holds for each flow: so many credits a source begins with.
const HELD_MAX: u64 = 4;

/// Sends as long as it has credits.
struct Source(u64);

impl Machine for Source {
    fn handle_datagram(&mut self, _cx: &mut Cx<'_>, _credit: Datagram<'_>) {
        self.0 += 1;
    }
    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}
    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _buf: &mut Vec<u8>) -> Option<Transmit> {
        self.0 = self.0.checked_sub(1)?;
        Some(packet(Destination::Group(GroupId::SESSION)))
    }
    fn poll_event(&mut self) -> Option<AppEvent> {
        None
    }
    fn next_timeout(&self) -> Option<Time> {
        (self.0 == HELD_MAX).then_some(Time::ZERO)
    }
}

/// A packet that waits until each branch has had it.
struct Held {
    key: PacketKey,
    flow: FlowId,
    source: NodeId,
    ports: Vec<PortId>,
}

/// One packet at a time goes to each branch, when nothing waits there.
#[derive(Default)]
struct CreditRelay {
    node: NodeId,
    held: Vec<Held>,
    busy: Vec<PortId>,
    out: VecDeque<Egress>,
}

impl CreditRelay {
    /// Sends to each branch that is free the oldest packet that it lacks.
    fn serve(&mut self) {
        let Self { held, busy, out, .. } = self;
        for packet in held.iter_mut() {
            packet.ports.retain(|port| {
                if busy.contains(port) {
                    return true;
                }
                busy.push(*port);
                out.extend([Egress::Copy(packet.key, *port), Egress::Await(*port)]);
                false
            });
        }
        for done in held.extract_if(.., |packet| packet.ports.is_empty()) {
            let credit = RelayTransmit {
                flow: done.flow,
                port: None,
                to: Destination::Node(done.source),
                from: self.node,
                zeros: 1,
                payload_len: 0,
                time_to_live: 255,
                router_alert: false,
            };
            out.extend([Egress::Release(done.key), Egress::Send(credit)]);
        }
    }
}

impl Relay for CreditRelay {
    fn interest(&self) -> Interest {
        Interest::Everything
    }
    fn handle_packet(
        &mut self,
        _cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        _buf: &mut Vec<u8>,
    ) -> Handling {
        if !matches!(packet.datagram.to, Destination::Group(_)) {
            return Handling::Forward;
        }
        let RelayPacket { key, flow, ports_out, datagram, .. } = *packet;
        if self.held.iter().filter(|held| held.flow == flow).count() as u64 >= HELD_MAX {
            return Handling::Drop; // Beyond its credits: what it holds is bounded for each flow.
        }
        let (source, ports) = (datagram.from, ports_out.to_vec());
        self.held.push(Held { key, flow, source, ports });
        self.serve();
        Handling::Hold
    }
    fn handle_writable(&mut self, _cx: &mut Cx<'_>, port: PortId) {
        self.busy.retain(|busy| *busy != port);
        self.serve();
    }
    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _buf: &mut Vec<u8>) -> Option<Egress> {
        self.out.pop_front()
    }
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

struct Credits;

impl Protocols for Credits {
    fn end(&self, _: &Flow, _: FlowId, _: NodeId, role: Role, _: Time) -> Box<dyn Machine> {
        match role {
            Role::Source(_) => Box::new(Source(HELD_MAX)),
            _ => Box::new(Counter::default()),
        }
    }
    fn relay(&self, _: &Program, node: NodeId) -> Box<dyn Relay> {
        Box::new(CreditRelay { node, ..CreditRelay::default() })
    }
}

#[test]
fn a_source_with_credits_goes_as_fast_as_its_slowest_branch_and_loses_nothing() {
    // Two flows over one relay; the second one has a branch that is ten times as slow.
    let mut scenario = scenario(STAR, "multicast", &[2, 3]);
    scenario.nodes[1].program = Some(Program { name: String::new(), options: Options::default() });
    let mut other = scenario.flows[0].clone();
    other.to = vec![NodeId(4)];
    scenario.flows.push(other);
    for (link, kbit_per_s) in [(2, 1000), (4, 2000), (6, 100)] {
        scenario.links[link].config.rate = Bitrate::from_bits_per_s(kbit_per_s * 1000);
        scenario.links[link].config.queue = QueueConfig::DropTail { packets_max: 1 };
    }
    let (_, log) = run_with(&scenario, &Credits, &mut Unobserved);
    assert_eq!(log.drops(DropReason::QueueFull), 0, "nothing is sent that has no place");
    let heard = [2, 3, 4].map(|node| log.delivered_at(node).len());
    // A packet takes 8 ms, 4 ms and 80 ms; the second branch is ahead by what is held for the first.
    assert_eq!(heard, [124, 128, 12]);
}
