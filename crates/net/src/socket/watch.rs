//! Watch over the addresses of this host: the kernel's notices of addresses and interfaces that change.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::libc::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE,
    RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE, RTMGRP_LINK,
};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// Subscription to the kernel's notices, of which rtnetlink(7) has the format.
#[derive(Debug)]
pub(crate) struct AddressWatch {
    socket: OwnedFd,
}

/// Changes since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// True if an address, an interface or a route came, changed or went.
    pub(crate) any: bool,
    /// True if one went: the kernel forgets memberships of interfaces that lose their last address.
    pub(crate) gone: bool,
}

impl AddressWatch {
    /// Subscribes in the namespace of the calling thread; `None` where the system refuses.
    pub(crate) fn open() -> Option<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).ok()?;
        let routes = RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
        let groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | routes;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups as u32)).ok()?;
        Some(Self { socket })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads what the kernel has told.
    pub(crate) fn take(&self) -> Changes {
        let (mut changes, mut bytes) = (Changes::default(), [0; 8192]);
        for _ in 0..READS_MAX {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(len) => changes = changes.and(read(&bytes[..len])),
                // Notices were lost: anything may have changed.
                Err(nix::Error::ENOBUFS) => changes = Changes { any: true, gone: true },
                Err(_) => break,
            }
        }
        changes
    }
}

impl Changes {
    const fn and(self, other: Self) -> Self {
        Self { any: self.any || other.any, gone: self.gone || other.gone }
    }
}

/// The changes that a datagram of netlink messages tells.
fn read(mut bytes: &[u8]) -> Changes {
    let mut changes = Changes::default();
    while let (Some(&len), Some(&kind)) =
        (bytes.first_chunk(), bytes.get(4..).and_then(<[u8]>::first_chunk))
    {
        let (len, kind) = (u32::from_ne_bytes(len) as usize, u16::from_ne_bytes(kind));
        let gone = kind == RTM_DELADDR || kind == RTM_DELLINK;
        let any = gone || [RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTM_DELROUTE].contains(&kind);
        changes = changes.and(Changes { any, gone });
        // Messages begin at multiples of four bytes.
        let Some(rest) = bytes.get(len.next_multiple_of(4).max(HEADER_BYTES)..) else { break };
        bytes = rest;
    }
    changes
}

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// Most datagrams that are read at a time.
const READS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, len: u32) -> Vec<u8> {
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        bytes.resize((len as usize).next_multiple_of(4).max(bytes.len()), 0);
        bytes
    }

    #[test]
    fn notices_are_read_one_after_the_other() {
        let none = Changes::default();
        let came = Changes { any: true, gone: false };
        let went = Changes { any: true, gone: true };
        for (bytes, want) in [
            (Vec::new(), none),
            (message(RTM_NEWADDR, 29), came),
            ([message(99, 20), message(RTM_DELADDR, 29)].concat(), went),
            ([message(RTM_NEWLINK, 16), message(RTM_DELLINK, 16)].concat(), went),
            (message(24, 60), Changes { any: true, gone: false }),
            (message(99, 60), none),
            // Lengths that lie.
            (message(99, 0), none),
            (
                [u32::MAX.to_ne_bytes().to_vec(), vec![99; 12], message(RTM_DELADDR, 16)].concat(),
                none,
            ),
            (vec![1; 5], none),
        ] {
            assert_eq!(read(&bytes), want, "{bytes:?}");
        }
    }
}
