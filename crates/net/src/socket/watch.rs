//! Kernel notices of changed addresses and interfaces.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::libc::{
    AF_INET, AF_INET6, AF_UNSPEC, IFA_F_SECONDARY, RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE,
    RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE, RTMGRP_LINK,
};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

#[derive(Debug)]
pub(crate) struct AddressWatch {
    socket: OwnedFd,
}

/// Indices of interfaces that were removed or lost an address: memberships there may be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostInterfaces {
    pub(crate) any_change: bool,
    /// True if notices were lost, so that any interface may be affected.
    all: bool,
    v4: BTreeSet<u32>,
    v6: BTreeSet<u32>,
}

impl LostInterfaces {
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.v4.is_empty() && self.v6.is_empty()
    }

    pub(crate) fn has(&self, index: u32, group: IpAddr) -> bool {
        let lost = if group.is_ipv4() { &self.v4 } else { &self.v6 };
        self.all || lost.contains(&index)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.any_change |= other.any_change;
        self.all |= other.all;
        self.v4.extend(other.v4);
        self.v6.extend(other.v6);
        if self.v4.len().max(self.v6.len()) > LOST_MAX {
            *self = Self { any_change: self.any_change, all: true, ..Self::default() };
        }
    }
}

const LOST_MAX: usize = 256;

impl AddressWatch {
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

    pub(crate) fn take(&self) -> LostInterfaces {
        let (mut changes, mut bytes) = (LostInterfaces::default(), [0; 8192]);
        for _ in 0..READS_MAX {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(len) => changes.add(read(&bytes[..len])),
                Err(nix::Error::ENOBUFS) => {
                    (changes.any_change, changes.all) = (true, true);
                }
                Err(_) => break,
            }
        }
        changes
    }
}

fn read(mut bytes: &[u8]) -> LostInterfaces {
    let mut changes = LostInterfaces::default();
    while let (Some(&len), Some(&kind)) =
        (bytes.first_chunk(), bytes.get(4..).and_then(<[u8]>::first_chunk))
    {
        let (len, kind) = (u32::from_ne_bytes(len) as usize, u16::from_ne_bytes(kind));
        let any = [RTM_DELADDR, RTM_DELLINK, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTM_DELROUTE];
        changes.any_change |= any.contains(&kind);
        changes.add(lost(kind, &bytes[HEADER_BYTES.min(bytes.len())..]));
        // Messages start at multiples of four bytes.
        let Some(rest) = bytes.get(len.next_multiple_of(4).max(HEADER_BYTES)..) else { break };
        bytes = rest;
    }
    changes
}

fn lost(kind: u16, body: &[u8]) -> LostInterfaces {
    let mut lost = LostInterfaces::default();
    // `struct ifaddrmsg` and `struct ifinfomsg` start with the family, and have the index at 4.
    let (Some(&[family, _, flags, _]), Some(index)) =
        (body.first_chunk(), body.get(4..).and_then(<[u8]>::first_chunk))
    else {
        lost.all = [RTM_DELADDR, RTM_DELLINK].contains(&kind);
        return lost;
    };
    let (family, index) = (i32::from(family), u32::from_ne_bytes(*index));
    // A port that leaves a bridge is a removed link of the bridge family, but remains an interface.
    let is_link = kind == RTM_DELLINK && family == AF_UNSPEC;
    // A secondary or temporary address is never the last one.
    let is_address = kind == RTM_DELADDR && u32::from(flags) & IFA_F_SECONDARY == 0;
    if is_link || is_address && family == AF_INET {
        lost.v4.insert(index);
    }
    if is_link || is_address && family == AF_INET6 {
        lost.v6.insert(index);
    }
    lost
}

const HEADER_BYTES: usize = 16;

const READS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, len: u32) -> Vec<u8> {
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        bytes.resize((len as usize).next_multiple_of(4).max(bytes.len()), 0);
        bytes
    }

    fn notice(kind: u16, (family, flags): (i32, u32), index: u32) -> Vec<u8> {
        let mut bytes = message(kind, 32);
        (bytes[16], bytes[18]) = (family as u8, flags as u8);
        bytes[20..24].copy_from_slice(&index.to_ne_bytes());
        bytes
    }

    fn lost(v4: &[u32], v6: &[u32]) -> LostInterfaces {
        let [v4, v6] = [v4, v6].map(|all| all.iter().copied().collect());
        LostInterfaces { any_change: true, all: false, v4, v6 }
    }

    #[test]
    fn notices_are_read_one_after_the_other() {
        let none = LostInterfaces::default();
        let came = lost(&[], &[]);
        let unknown = LostInterfaces { all: true, ..came.clone() };
        let address = |family, flags, index| notice(RTM_DELADDR, (family, flags), index);
        for (bytes, want) in [
            (Vec::new(), none.clone()),
            (message(RTM_NEWADDR, 29), came.clone()),
            ([message(99, 20), address(AF_INET, 0, 7)].concat(), lost(&[7], &[])),
            ([address(AF_INET6, 0, 7), address(AF_INET, 0, 3)].concat(), lost(&[3], &[7])),
            (address(AF_INET6, IFA_F_SECONDARY, 7), came.clone()),
            (notice(RTM_DELLINK, (7, 0), 5), came.clone()),
            ([message(RTM_NEWLINK, 16), notice(RTM_DELLINK, (0, 0), 5)].concat(), lost(&[5], &[5])),
            (message(RTM_NEWROUTE, 60), came),
            (message(99, 60), none.clone()),
            (message(99, 0), none.clone()),
            (message(RTM_DELLINK, 16), unknown),
            (
                [u32::MAX.to_ne_bytes().to_vec(), vec![99; 12], message(RTM_DELADDR, 16)].concat(),
                none.clone(),
            ),
            (vec![1; 5], none),
        ] {
            assert_eq!(read(&bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn more_interfaces_than_are_noted_count_as_all() {
        let mut all = LostInterfaces::default();
        for index in 0..=LOST_MAX as u32 {
            assert!(!all.has(1000, IpAddr::from([224, 0, 0, 1])), "{index}");
            all.add(lost(&[index], &[]));
        }
        assert!(all.has(1000, IpAddr::from([224, 0, 0, 1])));
    }

    #[test]
    fn the_kernel_says_which_interface_has_gone() {
        if !nix::unistd::Uid::effective().is_root() {
            println!("passed over: not root");
            return;
        }
        let alone = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let run = |words: &str| {
                let done = std::process::Command::new("ip").args(words.split(' ')).status();
                assert!(done.unwrap().success(), "{words}");
            };
            let index = |name| nix::net::if_::if_nametoindex(name).unwrap();
            run("link add e0 type veth peer name e1");
            run("addr add 10.9.0.1/16 dev e0");
            run("addr add 10.9.0.2/16 dev e0");
            run("link set e0 up");
            run("link add other type veth peer name far");
            run("addr add 10.8.0.1/16 dev other");
            let (e0, other) = (index("e0"), index("other"));
            let watch = AddressWatch::open().unwrap();
            let [v4, v6] = ["224.1.1.1", "ff15::1"].map(|text| text.parse().unwrap());
            run("addr del 10.9.0.2/16 dev e0");
            assert!(watch.take().is_empty(), "a secondary address");
            run("link del other");
            let gone = watch.take();
            assert!(gone.has(other, v4) && gone.has(other, v6) && !gone.has(e0, v4), "{gone:?}");
            run("addr del 10.9.0.1/16 dev e0");
            let gone = watch.take();
            assert!(gone.has(e0, v4) && !gone.has(e0, v6), "{gone:?}");
        });
        alone.join().unwrap();
    }
}
