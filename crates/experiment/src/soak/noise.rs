//! Outsider that floods a session with garbage, replayed packets and altered packets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use faircast_base::{NodeId, Purpose, Rng};

const HEARD_MAX: usize = 2_000;
const BURST: u64 = 20;
const PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Noise {
    pub(super) seed: u64,
    /// True to alter packets so that a checksum may miss it (docs/security.md).
    pub(super) forges: bool,
    pub(super) own: Ipv4Addr,
    pub(super) group: SocketAddrV4,
    pub(super) sender: SocketAddrV4,
}

impl Noise {
    pub(super) fn socket(&self) -> io::Result<UdpSocket> {
        let socket = socket2::Socket::new(
            socket2::Domain::IPV4,
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        )?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.group.port()).into())?;
        socket.join_multicast_v4(self.group.ip(), &self.own)?;
        socket.set_multicast_if_v4(&self.own)?;
        socket.set_multicast_loop_v4(false)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    }

    pub(super) fn flood(&self, socket: &UdpSocket, stop: &Arc<AtomicBool>, sent: &AtomicU64) {
        let mut rng = Rng::new(self.seed, NodeId(2), Purpose::Fault);
        let mut heard: Vec<Vec<u8>> = Vec::new();
        let mut buffer = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            while let Ok(len) = socket.recv(&mut buffer) {
                let packet = buffer[..len].to_vec();
                if heard.len() < HEARD_MAX {
                    heard.push(packet);
                } else {
                    let place = rng.below(HEARD_MAX as u64) as usize;
                    heard[place] = packet;
                }
            }
            for _ in 0..BURST {
                let packet = packet(&heard, self.forges, &mut rng);
                let to = if rng.chance(0.5) { self.group } else { self.sender };
                sent.fetch_add(u64::from(socket.send_to(&packet, to).is_ok()), Ordering::Relaxed);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn packet(heard: &[Vec<u8>], forges: bool, rng: &mut Rng) -> Vec<u8> {
    if heard.is_empty() || rng.chance(0.3) {
        return (0..rng.below(1400)).map(|_| rng.bits() as u8).collect();
    }
    let mut packet = heard[rng.below(heard.len() as u64) as usize].clone();
    if !forges {
        if rng.chance(0.5) {
            return packet;
        }
        // One flipped bit, which every checksum detects.
        let bit = rng.below(packet.len().max(1) as u64 * 8);
        if let Some(byte) = packet.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
        return packet;
    }
    match rng.below(4) {
        0 => {}
        1 => packet.truncate(rng.below(packet.len() as u64 + 1) as usize),
        2 => packet.extend((0..rng.below(40)).map(|_| rng.bits() as u8)),
        _ => {
            for _ in 0..=rng.below(4) {
                let len = packet.len().max(1) as u64;
                if let Some(byte) = packet.get_mut(rng.below(len) as usize) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    packet
}
