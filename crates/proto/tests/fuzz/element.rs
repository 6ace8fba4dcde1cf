//! Fuzz target of the PGM network element: never panics, sends bounded numbers, becomes idle.

use faircast_base::{Cx, Duration, FlowId, GroupId, NodeId, Purpose, Rng, Time};
use faircast_proto::catalog::RELAYS;
use faircast_proto::options::Options;
use faircast_proto::relay::{Egress, Handling, PacketKey, PortId, Relay, RelayPacket};
use faircast_proto::{Datagram, Destination};

use super::endpoints::dress;

const ME: NodeId = NodeId(10);
const PORTS: [PortId; 4] = [PortId(0), PortId(1), PortId(2), PortId(3)];
/// Timeouts after which an element is idle: more than the limit of any of its tables.
const TIMEOUTS_MAX: u32 = 200_000;
/// Most packets caused by one: NCF and repair for each port and each of 63 packets in a NAK.
const CAUSED_MAX: usize = 2 * 64 * PORTS.len();

fn drain(relay: &mut dyn Relay, cx: &mut Cx<'_>) -> (usize, usize) {
    let (mut asked, mut released, mut buf) = (0, 0, Vec::new());
    while let Some(egress) = relay.poll_transmit(cx, &mut buf) {
        asked += 1;
        released += usize::from(matches!(egress, Egress::Release(_)));
        buf.clear();
    }
    (asked, released)
}

/// Runs the steps of `data`: each is a time, a port, a sender and the bytes of a packet.
pub(crate) fn element(mut data: &[u8]) {
    for entry in RELAYS {
        let mut relay = (entry.relay)(ME, &Options::default(), None);
        let mut rng = Rng::new(1, ME, Purpose::Machine(0));
        let mut now = Time::ZERO;
        let (mut packets, mut held) = (0, 0);
        while let Some((&[wait, port, len], rest)) = data.split_first_chunk() {
            let (bytes, rest) = rest.split_at(usize::from(len).min(rest.len()));
            data = rest;
            let end = now + Duration::from_micros(u64::from(wait) * 400);
            for _ in 0.. {
                let Some(at) = relay.next_timeout().filter(|at| *at <= end) else { break };
                now = now.max(at);
                let cx = &mut Cx::untraced(now, &mut rng);
                relay.handle_timeout(cx);
                held -= drain(relay.as_mut(), cx).1;
            }
            now = end;
            let bytes = dress(bytes.to_vec());
            let port_in = usize::from(port & 3);
            let to = match port & 4 {
                0 => Destination::Node(ME),
                _ => Destination::Group(GroupId::SESSION),
            };
            let ports_out: Vec<PortId> =
                PORTS.iter().copied().filter(|port| port.0 as usize != port_in).collect();
            let datagram = Datagram::new(NodeId(u32::from(port >> 3)), to, &bytes);
            packets += 1;
            let (key, flow, port) = (PacketKey(packets), FlowId(0), PORTS[port_in]);
            let packet =
                RelayPacket { key, flow, port, ports_out: &ports_out, datagram, time_to_live: 16 };
            let cx = &mut Cx::untraced(now, &mut rng);
            let handling = relay.handle_packet(cx, &packet, &mut Vec::new());
            held += usize::from(handling == Handling::Hold);
            let (caused, released) = drain(relay.as_mut(), cx);
            held -= released;
            assert!(caused <= CAUSED_MAX, "{caused} packets for one");
        }
        for _ in 0..TIMEOUTS_MAX {
            let Some(at) = relay.next_timeout() else { break };
            now = now.max(at);
            let cx = &mut Cx::untraced(now, &mut rng);
            relay.handle_timeout(cx);
            held -= drain(relay.as_mut(), cx).1;
        }
        let next = relay.next_timeout();
        assert!(next.is_none(), "{} waits for {next:?}", entry.name);
        assert_eq!(held, 0, "{} holds packets for nothing", entry.name);
    }
}
