//! Batches of datagrams from a socket, many in one system call.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg,
};
use socket2::Socket;

use crate::address::socket_address;
use crate::counters::{Received, Refused};

#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    batch: Vec<Arrived>,
}

/// One or several datagrams, all but the last of one length, that came from one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) from: SocketAddr,
    slot: usize,
    len: usize,
    /// Bytes of each but the last.
    segment: usize,
    pub(crate) marked: bool,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; SLOTS * SLOT_BYTES], batch: Vec::with_capacity(SLOTS) }
    }

    /// One that cannot receive, and costs nothing.
    pub(crate) fn none() -> Self {
        Self { bytes: Vec::new(), batch: Vec::new() }
    }

    /// Takes what has come to `socket`. Returns how many entries the batch has, and whether there
    /// may be more; `overflowed` is the socket's own count of drops, which wraps.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        overflowed: &mut u32,
        received: &mut Received,
        refused: &mut Refused,
    ) -> Result<(usize, bool), Errno> {
        self.batch.clear();
        // The control buffer has room for all that the socket can tell, and more: where it had
        // not, the kernel would leave out marks of congestion without a word.
        let control = cmsg_space!(i32, u8, i32, u32, [u8; 128]);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(SLOTS, Some(control));
        let mut slices: Vec<_> =
            self.bytes.chunks_exact_mut(SLOT_BYTES).map(|slot| [IoSliceMut::new(slot)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let messages = recvmmsg(socket.as_raw_fd(), &mut headers, &mut slices, flags, None)?;
        let mut count = 0;
        for (slot, message) in messages.enumerate() {
            count += 1;
            if let Some(arrived) = read(slot, &message, overflowed, received, refused) {
                self.batch.push(arrived);
            }
        }
        received.calls += 1;
        Ok((self.batch.len(), count == SLOTS))
    }

    pub(crate) fn entry(&self, index: usize) -> Arrived {
        self.batch[index]
    }

    pub(crate) fn datagrams(&mut self, entry: Arrived) -> impl Iterator<Item = &mut [u8]> {
        let start = entry.slot * SLOT_BYTES;
        self.bytes[start..start + entry.len].chunks_mut(entry.segment)
    }
}

/// What a message is, or nothing where it is refused.
fn read(
    slot: usize,
    message: &RecvMsg<'_, '_, SockaddrStorage>,
    overflowed: &mut u32,
    received: &mut Received,
    refused: &mut Refused,
) -> Option<Arrived> {
    let Ok(control) = message.cmsgs() else {
        // It does not say whether this is one datagram or several.
        refused.truncated += 1;
        return None;
    };
    let (mut segment, mut marked) = (message.bytes, false);
    for item in control {
        match item {
            ControlMessageOwned::UdpGroSegments(bytes) => {
                segment = usize::try_from(bytes).unwrap_or(0);
            }
            ControlMessageOwned::Ipv4Tos(class) => marked = class & ECN == ECN,
            ControlMessageOwned::Ipv6TClass(class) => {
                marked = class & i32::from(ECN) == i32::from(ECN);
            }
            ControlMessageOwned::RxqOvfl(total) => {
                received.overflowed += u64::from(total.wrapping_sub(*overflowed));
                *overflowed = total;
            }
            _ => {}
        }
    }
    if message.bytes == 0 {
        refused.empty += 1;
        return None;
    }
    if message.flags.contains(MsgFlags::MSG_TRUNC) || message.bytes > SLOT_BYTES || segment == 0 {
        refused.truncated += 1;
        return None;
    }
    let from = message.address.as_ref().and_then(socket_address)?;
    Some(Arrived { from, slot, len: message.bytes, segment, marked })
}

/// Congestion experienced, in the two low bits of the traffic class (src: RFC 3168 s5).
const ECN: u8 = 0b11;

const SLOTS: usize = 16;

/// Bytes of a message: the kernel joins datagrams up to this.
const SLOT_BYTES: usize = 65_536;
