//! TCP_INFO of a connection over netlink: `struct tcp_info`, to which newer kernels only append.
//! src: linux, include/uapi/linux/inet_diag.h and tcp.h

use std::io;
use std::net::SocketAddrV4;

use netlink_packet_core::{Emitable as _, NLM_F_REQUEST, NetlinkHeader, NlasIterator};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::netlink;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const AF_INET: u8 = 2;
const TCP: u8 = 6;
const HEADER_LEN: usize = 16;
const MESSAGE_LEN: usize = 72;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// 0 open, 1 disorder, 2 reduced, 3 recovery, 4 loss.
    pub(crate) state: u8,
    /// Consecutive timeouts of the first unacknowledged segment.
    pub(crate) retransmits: u8,
    pub(crate) rto_us: u32,
    pub(crate) rtt_us: u32,
    pub(crate) window: u32,
    pub(crate) threshold: u32,
    pub(crate) flight: u32,
    pub(crate) bytes_acked: u64,
    /// Total of timeouts, if the kernel counts them (from 6.7 on).
    pub(crate) timeouts: Option<u16>,
}

pub(crate) struct Diagnosis {
    socket: Socket,
    request: [u8; HEADER_LEN + 56],
    answer: Vec<u8>,
}

impl Diagnosis {
    pub(crate) fn new(local: SocketAddrV4, peer: SocketAddrV4) -> io::Result<Self> {
        let socket = netlink::open(NETLINK_SOCK_DIAG)?;
        let mut request = [0; HEADER_LEN + 56];
        let mut header = NetlinkHeader::default();
        header.length = request.len() as u32;
        header.message_type = SOCK_DIAG_BY_FAMILY;
        header.flags = NLM_F_REQUEST;
        header.emit(&mut request);
        let body = &mut request[HEADER_LEN..];
        body[0] = AF_INET;
        body[1] = TCP;
        body[2] = 1 << (INET_DIAG_INFO - 1);
        body[4..8].fill(0xff);
        body[8..10].copy_from_slice(&local.port().to_be_bytes());
        body[10..12].copy_from_slice(&peer.port().to_be_bytes());
        body[12..16].copy_from_slice(&local.ip().octets());
        body[28..32].copy_from_slice(&peer.ip().octets());
        body[48..56].fill(0xff);
        Ok(Self { socket, request, answer: Vec::with_capacity(4096) })
    }

    pub(crate) fn ask(&mut self) -> io::Result<TcpInfo> {
        self.socket.send(&self.request, 0)?;
        self.answer.clear();
        self.socket.recv(&mut self.answer, 0)?;
        read(&self.answer).ok_or_else(|| io::Error::other("no TCP_INFO in the answer"))
    }
}

/// Finds TCP_INFO in an answer. An error message has another type and repeats the request.
fn read(answer: &[u8]) -> Option<TcpInfo> {
    if answer.get(4..6)? != SOCK_DIAG_BY_FAMILY.to_ne_bytes() {
        return None;
    }
    let mut attributes = NlasIterator::new(answer.get(HEADER_LEN + MESSAGE_LEN..)?).flatten();
    info(attributes.find(|attribute| attribute.kind() == INET_DIAG_INFO)?.value())
}

fn info(bytes: &[u8]) -> Option<TcpInfo> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (unacked, sacked, lost, resent) = (word(24)?, word(28)?, word(32)?, word(36)?);
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(TcpInfo {
        state: *bytes.get(1)?,
        retransmits: *bytes.get(2)?,
        rto_us: word(8)?,
        rtt_us: word(68)?,
        threshold: word(76)?,
        window: word(80)?,
        flight: (unacked + resent).saturating_sub(sacked + lost),
        bytes_acked: long(120)?,
        timeouts: bytes
            .get(240..242)
            .and_then(|count| count.try_into().ok())
            .map(u16::from_ne_bytes),
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLMSG_ERROR;

    use super::*;

    #[test]
    fn an_answer_is_read_and_half_an_answer_is_not() {
        let mut answer = vec![0; HEADER_LEN + MESSAGE_LEN];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer.extend(8u16.to_ne_bytes());
        answer.extend(9u16.to_ne_bytes());
        answer.extend([0; 4]);
        answer.extend(252u16.to_ne_bytes());
        answer.extend(INET_DIAG_INFO.to_ne_bytes());
        let mut info = vec![0u8; 248];
        info[1] = 3;
        info[24..28].copy_from_slice(&20u32.to_ne_bytes());
        info[28..32].copy_from_slice(&5u32.to_ne_bytes());
        info[68..72].copy_from_slice(&40_000u32.to_ne_bytes());
        info[80..84].copy_from_slice(&17u32.to_ne_bytes());
        info[240..242].copy_from_slice(&2u16.to_ne_bytes());
        answer.extend(info);
        let read_info = read(&answer).unwrap();
        assert_eq!((read_info.state, read_info.flight, read_info.window), (3, 15, 17));
        assert_eq!((read_info.rtt_us, read_info.timeouts), (40_000, Some(2)));
        for len in 0..answer.len() {
            assert_eq!(read(&answer[..len]), None, "{len}");
        }
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(read(&answer), None, "an error");
    }
}
