//! Socket options that no library has in a form that serves here.

#![expect(
    unreachable_pub,
    reason = "the macro makes its options public, and so must be their values"
)]

use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::SockaddrStorage;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

/// `struct group_source_req` of RFC 3678: a group on an interface, from one source.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SourceRequest {
    interface: u32,
    group: SockaddrStorage,
    source: SockaddrStorage,
}

sockopt_impl!(
    /// Joins one source of an IPv4 group.
    JoinSourceV4, SetOnly, libc::IPPROTO_IP, libc::MCAST_JOIN_SOURCE_GROUP, SourceRequest
);
sockopt_impl!(
    /// Joins one source of an IPv6 group.
    JoinSourceV6, SetOnly, libc::IPPROTO_IPV6, libc::MCAST_JOIN_SOURCE_GROUP, SourceRequest
);
sockopt_impl!(
    /// Leaves one source of an IPv4 group.
    LeaveSourceV4, SetOnly, libc::IPPROTO_IP, libc::MCAST_LEAVE_SOURCE_GROUP, SourceRequest
);
sockopt_impl!(
    /// Leaves one source of an IPv6 group.
    LeaveSourceV6, SetOnly, libc::IPPROTO_IPV6, libc::MCAST_LEAVE_SOURCE_GROUP, SourceRequest
);
sockopt_impl!(
    /// Where IPv4 multicast leaves, by number.
    MulticastInterfaceV4, SetOnly, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, libc::ip_mreqn
);
sockopt_impl!(
    /// Bytes of the largest IPv6 packet on the way of a connected socket, as far as is known.
    WayMtuV6, GetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU, libc::c_int
);
sockopt_impl!(
    /// What becomes of IPv4 packets longer than a link takes.
    PathMtuV4, SetOnly, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int
);
sockopt_impl!(
    /// What becomes of IPv6 packets longer than a link takes.
    PathMtuV6, SetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int
);

sockopt_impl!(
    /// How much memory a socket uses and may use, by the numbers below.
    Memory, GetOnly, libc::SOL_SOCKET, libc::SO_MEMINFO, [u32; 9]
);

/// In what [`Memory`] gives: bytes of packets that wait to be read, with the kernel's overhead.
pub(crate) const RECEIVE_USED: usize = 0;
/// How many there may be.
pub(crate) const RECEIVE_MAX: usize = 1;

impl SourceRequest {
    pub(crate) fn new(interface: u32, group: SocketAddr, source: IpAddr) -> Self {
        Self { interface, group: group.into(), source: SocketAddr::new(source, 0).into() }
    }
}

pub(crate) fn interface_request(number: u32) -> libc::ip_mreqn {
    let any = libc::in_addr { s_addr: 0 };
    // Numbers of interfaces are positive `int`s.
    libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex: number as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_those_of_the_system() {
        assert_eq!(size_of::<SourceRequest>(), size_of::<libc::group_source_req>());
        assert_eq!(align_of::<SourceRequest>(), align_of::<libc::group_source_req>());
        let offset = core::mem::offset_of!(libc::group_source_req, gsr_source);
        assert_eq!(core::mem::offset_of!(SourceRequest, source), offset);
    }
}
