//! IPv4, UDP and TCP headers, as far as the emulator must know them.

use std::net::Ipv4Addr;

use faircast_proto::pgm::wire;

/// Bytes of an IPv4 header without options, which is what all hosts send.
const IP_LEN: usize = 20;
/// Bytes of both headers in front of a scheme's packet.
const UDP_IP_LEN: usize = 28;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// A packet that a host has sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame<'a> {
    pub(crate) to: Ipv4Addr,
    pub(crate) time_to_live: u8,
    /// The whole packet.
    pub(crate) bytes: &'a [u8],
    pub(crate) transport: Transport<'a>,
}

/// What is in a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Transport<'a> {
    Udp { ports: Ports, payload: &'a [u8] },
    Tcp(Segment),
    Other,
}

/// Where a datagram is from and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

impl Ports {
    /// Both in one number.
    pub(crate) fn tag(self) -> u32 {
        u32::from(self.from) << 16 | u32::from(self.to)
    }

    /// From what [`tag`](Self::tag) gave; zero stands for the ports of every flow.
    pub(crate) fn from_tag(tag: u32, default: u16) -> Self {
        match tag {
            0 => Self { from: default, to: default },
            _ => Self { from: (tag >> 16) as u16, to: tag as u16 },
        }
    }
}

/// What a TCP segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) payload_len: u32,
}

impl<'a> Frame<'a> {
    /// Reads a packet; `None` for what is no whole IPv4 packet.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.get(..IP_LEN)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
        if header[0] >> 4 != 4 || header_len < IP_LEN || fragment != 0 {
            return None;
        }
        let bytes = bytes.get(..total_len)?;
        let body = bytes.get(header_len..)?;
        let transport = match header[9] {
            UDP => udp(body)?,
            TCP => Transport::Tcp(segment(body)?),
            _ => Transport::Other,
        };
        let to = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
        Some(Self { to, time_to_live: header[8], bytes, transport })
    }
}

fn udp(body: &[u8]) -> Option<Transport<'_>> {
    let port = |at: usize| Some(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]));
    let ports = Ports { from: port(0)?, to: port(2)? };
    Some(Transport::Udp { ports, payload: body.get(8..usize::from(port(4)?))? })
}

fn segment(body: &[u8]) -> Option<Segment> {
    let header = body.get(..20)?;
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i]));
    let header_len = usize::from(header[12] >> 4) * 4;
    let flags = header[13];
    Some(Segment {
        sequence: word(4),
        acknowledgement: (flags & 0x10 != 0).then(|| word(8)),
        syn: flags & 0x02 != 0,
        payload_len: body.len().checked_sub(header_len)? as u32,
    })
}

/// What a packet of PGM tells by itself that the simulator is told by the machine that sends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PgmFacts {
    /// Payload of the application.
    pub(crate) payload_len: u32,
    /// Whether elements on its way must see it.
    pub(crate) router_alert: bool,
}

impl PgmFacts {
    /// Reads a packet; what is no packet of PGM is control traffic that no element sees.
    /// src: RFC 3208 s8 for the header, s3.6.3 and s3.7 for the packets with a router alert
    pub(crate) fn read(packet: &[u8]) -> Self {
        if packet.len() < wire::HEADER_LEN {
            return Self::default();
        }
        let kind = packet[4] & 0x0f;
        let is = |wanted: wire::PacketType| kind == wanted as u8;
        let data = is(wire::PacketType::Odata) || is(wire::PacketType::Rdata);
        Self {
            payload_len: if data {
                u32::from(u16::from_be_bytes([packet[14], packet[15]]))
            } else {
                0
            },
            router_alert: is(wire::PacketType::Spm)
                || is(wire::PacketType::Ncf)
                || is(wire::PacketType::Rdata),
        }
    }
}

/// Writes a scheme's packet with its headers. The UDP checksum is left out, which RFC 768 allows: a
/// bit that the scenario flips is for the checksum of the scheme itself to find.
pub(crate) fn write_udp(
    out: &mut Vec<u8>,
    from: Ipv4Addr,
    to: Ipv4Addr,
    ports: Ports,
    time_to_live: u8,
    payload: &[u8],
) {
    let total_len = (UDP_IP_LEN + payload.len()) as u16;
    out.clear();
    out.extend_from_slice(&[0x45, 0]);
    out.extend_from_slice(&total_len.to_be_bytes());
    // No identification is needed where nothing may be fragmented.
    out.extend_from_slice(&[0, 0, 0x40, 0, time_to_live, UDP, 0, 0]);
    out.extend_from_slice(&from.octets());
    out.extend_from_slice(&to.octets());
    out.extend_from_slice(&ports.from.to_be_bytes());
    out.extend_from_slice(&ports.to.to_be_bytes());
    out.extend_from_slice(&(total_len - IP_LEN as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(payload);
    seal(out);
}

/// Writes a whole packet as it was sent, with what is left of its time to live.
pub(crate) fn write_again(out: &mut Vec<u8>, packet: &[u8], time_to_live: u8) {
    out.clear();
    out.extend_from_slice(packet);
    if out.len() >= IP_LEN {
        out[8] = time_to_live;
        seal(out);
    }
}

/// Puts the checksum into an IPv4 header.
fn seal(packet: &mut [u8]) {
    let header_len = (usize::from(packet[0] & 0x0f) * 4).min(packet.len());
    packet[10..12].fill(0);
    let words = packet[..header_len].chunks_exact(2);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let (from, to) = ("10.0.0.1".parse().unwrap(), "239.192.0.1".parse().unwrap());
        let ports = Ports { from: 4000, to: 3056 };
        let mut out = Vec::new();
        write_udp(&mut out, from, to, ports, 7, b"hello");
        let frame = Frame::read(&out).unwrap();
        assert_eq!((frame.to, frame.time_to_live), (to, 7));
        assert_eq!(frame.transport, Transport::Udp { ports, payload: b"hello" });
        assert_eq!(Ports::from_tag(ports.tag(), 1), ports);
        let first = out.clone();
        let mut again = Vec::new();
        write_again(&mut again, &first, 6);
        assert_eq!(Frame::read(&again).unwrap().time_to_live, 6);
        // The sum over a header with its checksum is all ones.
        let words = again[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn what_is_cut_short_is_refused_and_nothing_panics() {
        let mut out = Vec::new();
        let address = Ipv4Addr::LOCALHOST;
        write_udp(&mut out, address, address, Ports { from: 1, to: 2 }, 1, &[0; 30]);
        for len in 0..out.len() {
            assert_eq!(Frame::read(&out[..len]), None, "{len}");
        }
        for at in 0..out.len() {
            for value in [0, 1, 6, 0x45, 0x4f, 0xff] {
                let mut damaged = out.clone();
                damaged[at] = value;
                let _ = Frame::read(&damaged);
            }
        }
        assert_eq!(PgmFacts::read(&[4; 15]), PgmFacts::default());
    }

    #[test]
    fn a_segment_tells_its_payload() {
        let mut packet = vec![0x45, 0, 0, 50, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 7, 0x60, 0x10, 0, 0, 0, 0, 0, 0]);
        packet.extend([1, 1, 1, 1, 1, 2, 3, 4, 5, 6]);
        let want = Segment { sequence: 9, acknowledgement: Some(7), syn: false, payload_len: 6 };
        assert_eq!(Frame::read(&packet).unwrap().transport, Transport::Tcp(want));
    }
}
