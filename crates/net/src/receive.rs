//! Batches of received datagrams: several for each system call.

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

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    batch: Vec<Arrived>,
}

/// Message in a slot of the buffers: datagrams of one source, which the kernel may have joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) from: SocketAddr,
    slot: usize,
    len: usize,
    /// Length of each datagram in the slot but the last.
    segment: usize,
    pub(crate) marked: bool,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; SLOTS * SLOT_BYTES], batch: Vec::with_capacity(SLOTS) }
    }

    /// Reads a batch; true if more may wait. `overflowed` wraps.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        overflowed: &mut u32,
        received: &mut Received,
        refused: &mut Refused,
    ) -> Result<bool, Errno> {
        self.batch.clear();
        // Room for every possible control message, or the kernel would silently omit ECN marks.
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
        Ok(count == SLOTS)
    }

    pub(crate) fn for_each(&mut self, mut take: impl FnMut(&Arrived, &mut [u8])) {
        for arrived in &self.batch {
            let start = arrived.slot * SLOT_BYTES;
            let bytes = &mut self.bytes[start..start + arrived.len];
            bytes.chunks_mut(arrived.segment).for_each(|datagram| take(arrived, datagram));
        }
    }
}

fn read(
    slot: usize,
    message: &RecvMsg<'_, '_, SockaddrStorage>,
    overflowed: &mut u32,
    received: &mut Received,
    refused: &mut Refused,
) -> Option<Arrived> {
    let Ok(control) = message.cmsgs() else {
        // Without this control message the number of datagrams is unknown.
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

const SLOT_BYTES: usize = 65_536;
