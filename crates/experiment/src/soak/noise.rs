//! Outsider that floods a session with garbage, replayed packets and altered packets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use faircast_base::{NodeId, Purpose, Rng};

const CAPTURED_MAX: usize = 2_000;
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

/// Outsider at work, until dropped.
pub(super) struct Flood {
    running: Arc<()>,
    thread: JoinHandle<u64>,
}

impl Flood {
    /// Starts the outsider at the host of the calling thread.
    pub(super) fn start(noise: Noise) -> io::Result<Self> {
        let running = Arc::new(());
        let (socket, is_wanted) = (noise.socket()?, Arc::downgrade(&running));
        let thread = std::thread::Builder::new()
            .name("outsider".into())
            .spawn(move || noise.flood(&socket, &is_wanted))?;
        Ok(Self { running, thread })
    }

    /// Returns the number of sent packets; `None` if the thread has panicked.
    pub(super) fn end(self) -> Option<u64> {
        drop(self.running);
        self.thread.join().ok()
    }
}

impl Noise {
    fn socket(&self) -> io::Result<UdpSocket> {
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

    fn flood(&self, socket: &UdpSocket, is_wanted: &Weak<()>) -> u64 {
        let mut rng = Rng::new(self.seed, NodeId(2), Purpose::Fault);
        let (mut captured, mut sent) = (Vec::<Vec<u8>>::new(), 0);
        let mut buffer = [0; 2048];
        while is_wanted.strong_count() > 0 {
            while let Ok(len) = socket.recv(&mut buffer) {
                let packet = buffer[..len].to_vec();
                if captured.len() < CAPTURED_MAX {
                    captured.push(packet);
                } else {
                    captured[rng.below(CAPTURED_MAX as u64) as usize] = packet;
                }
            }
            for _ in 0..BURST {
                let packet = packet(&captured, self.forges, &mut rng);
                let to = if rng.chance(0.5) { self.group } else { self.sender };
                sent += u64::from(socket.send_to(&packet, to).is_ok());
            }
            std::thread::sleep(PAUSE);
        }
        sent
    }
}

fn packet(captured: &[Vec<u8>], forges: bool, rng: &mut Rng) -> Vec<u8> {
    if captured.is_empty() || rng.chance(0.3) {
        return (0..rng.below(1400)).map(|_| rng.bits() as u8).collect();
    }
    let mut packet = captured[rng.below(captured.len() as u64) as usize].clone();
    let len = packet.len() as u64;
    if !forges {
        if rng.chance(0.5) {
            return packet;
        }
        // One flipped bit, which every checksum detects.
        let bit = rng.below(len.max(1) * 8);
        if let Some(byte) = packet.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
        return packet;
    }
    match rng.below(4) {
        0 => {}
        1 => packet.truncate(rng.below(len + 1) as usize),
        2 => packet.extend((0..rng.below(40)).map(|_| rng.bits() as u8)),
        _ => {
            for _ in 0..=rng.below(4) {
                if let Some(byte) = packet.get_mut(rng.below(len.max(1)) as usize) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    packet
}
