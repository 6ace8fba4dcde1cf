//! Fuzz target of the network element of PGM; the corpus test runs the same.
//!
//! Packets made of the fuzzer's bytes come in by any port and time passes: no panic, what one packet
//! makes the element send is bounded, and it comes to rest.

use faircast_base::{Cx, Duration, GroupId, NodeId, NullTrace, Purpose, Rng, Time};
use faircast_proto::catalog::PROGRAMS;
use faircast_proto::options::Options;
use faircast_proto::relay::{PortId, RelayPacket, RelayTransmit};
use faircast_proto::{Datagram, Destination};

use super::endpoints::dress;

const ME: NodeId = NodeId(10);
const PORTS: [PortId; 4] = [PortId(0), PortId(1), PortId(2), PortId(3)];
/// Timeouts in which an element comes to rest: more than it keeps of anything.
const TIMEOUTS_MAX: u32 = 200_000;
/// Packets that one packet may cause at most: a confirmation and a repair for each port and each of
/// the 63 packets that a NAK names.
const CAUSED_MAX: usize = 2 * 64 * PORTS.len();

/// Runs the steps that `data` spells: each is a time, where the packet comes from, its bytes.
pub(crate) fn element(mut data: &[u8]) {
    for program in PROGRAMS {
        let mut relay = (program.program)(ME, &Options::default());
        let mut rng = Rng::new(1, ME, Purpose::Machine(0));
        let mut now = Time::ZERO;
        let mut out: Vec<RelayTransmit> = Vec::new();
        while let Some((&[wait, port, len], rest)) = data.split_first_chunk() {
            let (bytes, rest) = rest.split_at(usize::from(len).min(rest.len()));
            data = rest;
            let end = now + Duration::from_micros(u64::from(wait) * 400);
            for _ in 0.. {
                let Some(at) = relay.next_timeout().filter(|at| *at <= end) else { break };
                now = now.max(at);
                let cx = &mut Cx { now, rng: &mut rng, trace: &mut NullTrace };
                relay.handle_timeout(cx, &mut out);
            }
            now = end;
            out.clear();
            let bytes = dress(bytes.to_vec());
            let port_in = usize::from(port & 3);
            let to = match port & 4 {
                0 => Destination::Node(ME),
                _ => Destination::Group(GroupId::SESSION),
            };
            let ports_out: Vec<PortId> =
                PORTS.iter().copied().filter(|port| port.0 as usize != port_in).collect();
            let datagram = Datagram {
                from: NodeId(u32::from(port >> 3)),
                to,
                bytes: &bytes,
                zeros: 0,
                congestion_experienced: false,
            };
            let packet = RelayPacket {
                port: PORTS[port_in],
                ports_out: &ports_out,
                datagram,
                time_to_live: 16,
            };
            let cx = &mut Cx { now, rng: &mut rng, trace: &mut NullTrace };
            let _ = relay.handle_packet(cx, &packet, &mut out);
            assert!(out.len() <= CAUSED_MAX, "{} packets for one", out.len());
        }
        for _ in 0..TIMEOUTS_MAX {
            let Some(at) = relay.next_timeout() else { break };
            now = now.max(at);
            let cx = &mut Cx { now, rng: &mut rng, trace: &mut NullTrace };
            relay.handle_timeout(cx, &mut out);
            out.clear();
        }
        let next = relay.next_timeout();
        assert!(next.is_none(), "{} waits for {next:?}", program.name);
    }
}
