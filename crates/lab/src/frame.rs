//! IPv4, UDP, TCP and IGMP headers, as far as the emulator needs them.

use std::net::Ipv4Addr;

use etherparse::igmp::ReportGroupRecordType;
use etherparse::{IgmpSlice, IpNumber, Ipv4Header, Ipv4Slice, TcpSlice, UdpHeader, UdpSlice};
use faircast_sim::Parcel;

use crate::address;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame<'a> {
    pub(crate) to: Ipv4Addr,
    pub(crate) time_to_live: u8,
    pub(crate) bytes: &'a [u8],
    pub(crate) transport: Transport<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Transport<'a> {
    Udp { ports: Ports, payload: &'a [u8] },
    Tcp(Segment),
    Igmp(&'a [u8]),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

impl Ports {
    pub(crate) fn tag(self) -> u32 {
        u32::from(self.from) << 16 | u32::from(self.to)
    }

    /// Decodes the result of [`tag`](Self::tag); zero means the ports of every flow.
    pub(crate) fn from_tag(tag: u32, default: u16) -> Self {
        match tag {
            0 => Self { from: default, to: default },
            _ => Self { from: (tag >> 16) as u16, to: tag as u16 },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) payload_len: u32,
}

impl<'a> Frame<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let packet = Ipv4Slice::from_slice(bytes).ok()?;
        if packet.is_payload_fragmented() {
            return None;
        }
        let (header, body) = (packet.header(), packet.payload().payload);
        let transport = match packet.payload_ip_number() {
            IpNumber::UDP => {
                let udp = UdpSlice::from_slice(body).ok()?;
                let ports = Ports { from: udp.source_port(), to: udp.destination_port() };
                Transport::Udp { ports, payload: udp.payload() }
            }
            IpNumber::TCP => {
                let tcp = TcpSlice::from_slice(body).ok()?;
                Transport::Tcp(Segment {
                    sequence: tcp.sequence_number(),
                    acknowledgement: tcp.ack().then(|| tcp.acknowledgment_number()),
                    syn: tcp.syn(),
                    payload_len: tcp.payload().len() as u32,
                })
            }
            IpNumber::IGMP => Transport::Igmp(body),
            _ => Transport::Other,
        };
        let (to, time_to_live) = (header.destination_addr(), header.ttl());
        Some(Self { to, time_to_live, bytes: &bytes[..header.total_len().into()], transport })
    }
}

/// Returns a report's any-source groups: true if joined, false if left. src: RFC 3376 s4.2.12
pub(crate) fn memberships(igmp: &[u8]) -> impl Iterator<Item = (Ipv4Addr, bool)> {
    let records = match IgmpSlice::from_slice(igmp) {
        Ok(IgmpSlice::MembershipReportV3(report)) => Some(report.group_records()),
        _ => None,
    };
    records.into_iter().flatten().map_while(Result::ok).filter_map(|record| {
        use ReportGroupRecordType as Type;
        let joined = match record.record_type() {
            Type::MODE_IS_EXCLUDE | Type::CHANGE_TO_EXCLUDE_MODE => true,
            Type::CHANGE_TO_INCLUDE_MODE if record.num_of_sources() == 0 => false,
            _ => return None,
        };
        Some((record.multicast_address().into(), joined))
    })
}

/// Writes a datagram without a UDP checksum (RFC 768): the scheme's own must detect flipped bits.
pub(crate) fn write_udp(
    out: &mut Vec<u8>,
    parcel: &Parcel<'_>,
    (from, to): (Ipv4Addr, Ipv4Addr),
    time_to_live: u8,
) {
    let ports = Ports::from_tag(parcel.tag, address::UDP_PORT);
    let udp = UdpHeader::without_ipv4_checksum(ports.from, ports.to, parcel.bytes.len());
    let udp = udp.expect("it came in a packet");
    let (from, to) = (from.octets(), to.octets());
    let header = Ipv4Header::new(udp.length, time_to_live, IpNumber::UDP, from, to);
    write(out, header.expect("it came in a packet"), &[&udp.to_bytes(), parcel.bytes]);
}

/// Writes a packet with a new time to live; nothing if a flipped bit has destroyed the header.
pub(crate) fn write_again(out: &mut Vec<u8>, packet: &[u8], time_to_live: u8) {
    match Ipv4Header::from_slice(packet) {
        Ok((header, body)) => write(out, Ipv4Header { time_to_live, ..header }, &[body]),
        Err(_) => out.clear(),
    }
}

fn write(out: &mut Vec<u8>, mut header: Ipv4Header, body: &[&[u8]]) {
    header.header_checksum = header.calc_header_checksum();
    out.clear();
    out.extend_from_slice(&header.to_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use faircast_base::{FlowId, NodeId, Time};
    use faircast_proto::Destination;

    use super::*;

    fn datagram(ports: Ports, time_to_live: u8, bytes: &[u8]) -> Vec<u8> {
        let (from, to) = (NodeId(0), Destination::Node(NodeId(1)));
        let (at, flow, tag) = (Time::ZERO, FlowId(0), ports.tag());
        let (end, zeros, payload_len) = (1, 0, 0);
        let parcel =
            Parcel { at, end, flow, from, to, bytes, zeros, payload_len, time_to_live, tag };
        let mut out = Vec::new();
        let ends = (address::of_node(from), address::of_node(NodeId(1)));
        write_udp(&mut out, &parcel, ends, time_to_live);
        out
    }

    #[test]
    fn what_is_written_can_be_read() {
        let ports = Ports { from: 4000, to: 3056 };
        let mut out = datagram(ports, 7, b"hello");
        let frame = Frame::read(&out).unwrap();
        assert_eq!((frame.to, frame.time_to_live), (address::of_node(NodeId(1)), 7));
        assert_eq!(frame.transport, Transport::Udp { ports, payload: b"hello" });
        assert_eq!(out[26..28], [0, 0], "no checksum");
        let first = out.clone();
        write_again(&mut out, &first, 6);
        assert_eq!(Frame::read(&out).unwrap().time_to_live, 6);
        // The sum over a header with its checksum is all ones.
        let words = out[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let out = datagram(Ports { from: 1, to: 2 }, 1, &[0; 30]);
        for len in 0..out.len() {
            assert_eq!(Frame::read(&out[..len]), None, "{len}");
        }
    }

    #[test]
    fn the_kernel_tells_what_groups_its_host_joins_and_leaves() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return;
        }
        let host = std::thread::spawn(|| {
            let device = crate::host::make(NodeId(0), 1500, None).unwrap();
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            let (group, own) = (Ipv4Addr::new(239, 128, 0, 1), address::of_node(NodeId(0)));
            let waiter = crate::emulator::Waiter::new([&device].into_iter()).unwrap();
            let (mut buffer, mut ready) = ([0; 1500], crate::emulator::Waiter::ready());
            for joined in [true, false] {
                match joined {
                    true => socket.join_multicast_v4(&group, &own).unwrap(),
                    false => socket.leave_multicast_v4(&group, &own).unwrap(),
                }
                let mut told = |(other, now)| other == group && now == joined;
                let mut heard = || {
                    drop(waiter.wait(std::time::Duration::from_millis(20), &mut ready));
                    device.recv(&mut buffer).is_ok_and(|len| {
                        matches!(Frame::read(&buffer[..len]), Some(Frame { transport: Transport::Igmp(body), .. })
                            if memberships(body).any(&mut told))
                    })
                };
                // The kernel delays its report, and sends it twice.
                assert!((0..1000).any(|_| heard()), "joined: {joined}");
            }
        });
        host.join().unwrap();
        let cut = [0x22, 0, 0, 0, 0, 0, 0, 9, 4, 0, 0, 0, 239, 128, 0, 1, 4, 0, 0];
        let whole = [(Ipv4Addr::new(239, 128, 0, 1), true)];
        assert_eq!(
            memberships(&cut).collect::<Vec<_>>(),
            whole,
            "nine records, of which one is there"
        );
        assert_eq!(memberships(&cut[..7]).count(), 0);
    }

    fn segment() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 50, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 7, 0x60, 0x10, 0, 0, 0, 0, 0, 0]);
        packet.extend([1, 1, 1, 1, 1, 2, 3, 4, 5, 6]);
        packet
    }

    #[test]
    fn a_segment_tells_its_payload() {
        let want = Segment { sequence: 9, acknowledgement: Some(7), syn: false, payload_len: 6 };
        assert_eq!(Frame::read(&segment()).unwrap().transport, Transport::Tcp(want));
    }

    #[test]
    fn a_flipped_bit_costs_the_packet_at_the_most() {
        let (packet, mut out, mut gone) = (segment(), Vec::new(), 0);
        for bit in 0..8 * packet.len() {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = Frame::read(&damaged);
            write_again(&mut out, &damaged, 1);
            let _ = Frame::read(&out);
            gone += u32::from(out.is_empty());
            assert!(out.is_empty() || out.len() == packet.len(), "{bit}");
        }
        assert_eq!(gone, 4 + 3);
    }
}
