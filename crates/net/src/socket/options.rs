//! Socket options that no library provides in a suitable form.

#![expect(
    unreachable_pub,
    reason = "the macro makes its options public, and so must be their values"
)]

use std::net::{IpAddr, SocketAddr};

use libc::{IPPROTO_IP, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_SOURCE_GROUP};
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

sockopt_impl!(JoinSourceV4, SetOnly, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, SourceRequest);
sockopt_impl!(JoinSourceV6, SetOnly, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, SourceRequest);
sockopt_impl!(LeaveSourceV4, SetOnly, IPPROTO_IP, MCAST_LEAVE_SOURCE_GROUP, SourceRequest);
sockopt_impl!(LeaveSourceV6, SetOnly, IPPROTO_IPV6, MCAST_LEAVE_SOURCE_GROUP, SourceRequest);
sockopt_impl!(MulticastInterfaceV4, SetOnly, IPPROTO_IP, libc::IP_MULTICAST_IF, libc::ip_mreqn);
sockopt_impl!(
    /// Path MTU of a connected IPv6 socket in bytes, as far as known.
    WayMtuV6, GetOnly, IPPROTO_IPV6, libc::IPV6_MTU, libc::c_int
);
sockopt_impl!(PathMtuV4, SetOnly, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int);
sockopt_impl!(PathMtuV6, SetOnly, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int);

sockopt_impl!(Memory, GetOnly, libc::SOL_SOCKET, libc::SO_MEMINFO, [u32; 9]);

/// Index in [`Memory`]: bytes of unread packets, with the kernel's overhead.
pub(crate) const RECEIVE_USED: usize = 0;
/// Index in [`Memory`]: limit of these bytes.
pub(crate) const RECEIVE_MAX: usize = 1;

impl SourceRequest {
    pub(crate) fn new(interface: u32, group: SocketAddr, source: IpAddr) -> Self {
        Self { interface, group: group.into(), source: SocketAddr::new(source, 0).into() }
    }
}

pub(crate) fn interface_request(number: u32) -> libc::ip_mreqn {
    let any = libc::in_addr { s_addr: 0 };
    // Interface indices are positive `int`s.
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
