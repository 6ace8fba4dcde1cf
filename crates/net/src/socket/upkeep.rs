//! The interfaces of open sockets: memberships of groups, and what becomes of an interface that goes
//! away.

use std::io;
use std::net::IpAddr;

use faircast_base::GroupId;
use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use socket2::InterfaceIndexOrAddress;

use super::options::{JoinSourceV4, JoinSourceV6, LeaveSourceV4, LeaveSourceV6, SourceRequest};
use super::{Group, Health, Sockets, aim};
use crate::address::Resolved;

impl Sockets {
    /// Finds the interfaces again, joins again where one was taken away and came back, and tries those by
    /// which nothing left. To be called now and then.
    pub(crate) fn maintain(&mut self) {
        let Some(multicast) = &self.multicast else { return };
        let ip = multicast.group.ip();
        let mut any_moved = false;
        for index in 0..self.interfaces.len() {
            let (interface, before) = &self.interfaces[index];
            let (found, before) = (interface.resolve(ip).ok(), *before);
            let moved = found.map(|at| at.index) != before.map(|at| at.index);
            any_moved |= moved && found.is_some();
            if moved && let Some(old) = before {
                // The kernel remembers memberships of interfaces that are gone, and allows few.
                for group in &self.groups {
                    let _ = self.change_membership(group, old, false);
                }
            }
            self.interfaces[index].1 = found;
            let Some(at) = found else { continue };
            // Joining twice fails and changes nothing; both fail while the interface has no
            // address, and are tried again.
            for group in &self.groups {
                let _ = self.join(group, at);
            }
            let Some(way) = self.ways.get_mut(index) else { continue };
            if moved {
                let _ = aim(&way.socket, way.local.ip(), at);
            }
            if way.health == Health::Down {
                way.health = Health::Tried;
            }
        }
        self.hear_again(any_moved);
    }

    /// Nothing leaves by a way for this reason: whether its interface is left out for now, which is said
    /// once. The others go on.
    pub(crate) fn leave_out(&mut self, way: usize, error: Errno) -> bool {
        let (Some((interface, _)), Some(of)) = (self.interfaces.get(way), self.ways.get_mut(way))
        else {
            return false;
        };
        let is_there = |at: Resolved| at.address.is_none_or(|address| address == of.local.ip());
        // Without its address the kernel calls what is sent from there invalid.
        let gone = || !interface.resolve(of.local.ip()).is_ok_and(is_there);
        let passes = passes(error) || error == Errno::EINVAL && gone();
        if self.groups[0].destinations.len() < 2 || !passes {
            return false;
        }
        if of.health == Health::Up {
            tracing::warn!(
                "nothing leaves by the interface {interface}: {error}; the others go on, and it is \
                 used again when it is back"
            );
        }
        of.health = Health::Down;
        true
    }

    /// Something has left by a way.
    pub(crate) fn use_again(&mut self, way: usize) {
        let Some(of) = self.ways.get_mut(way).filter(|way| way.health != Health::Up) else {
            return;
        };
        of.health = Health::Up;
        if let Some((interface, _)) = self.interfaces.get(way) {
            tracing::warn!("the interface {interface} is used again");
        }
    }

    pub(super) fn join(&self, group: &Group, at: Resolved) -> io::Result<()> {
        match self.change_membership(group, at, true) {
            // It is a member already, of the group or of the group from this source.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
                ) =>
            {
                Ok(())
            }
            joined => joined,
        }
    }

    /// Where nobody hears the group nothing changes. The source that was named is that of the session's
    /// group alone.
    fn change_membership(&self, group: &Group, at: Resolved, join: bool) -> io::Result<()> {
        let (Some(socket), Some(address)) = (&group.socket, group.address) else { return Ok(()) };
        let ip = address.ip();
        let named = self.multicast.as_ref().and_then(|multicast| multicast.source);
        if let Some(source) = named.filter(|_| group.id == GroupId::SESSION) {
            let one = SourceRequest::new(at.index, address, source);
            return Ok(match (ip, join) {
                (IpAddr::V4(_), true) => setsockopt(socket, JoinSourceV4, &one),
                (IpAddr::V4(_), false) => setsockopt(socket, LeaveSourceV4, &one),
                (IpAddr::V6(_), true) => setsockopt(socket, JoinSourceV6, &one),
                (IpAddr::V6(_), false) => setsockopt(socket, LeaveSourceV6, &one),
            }?);
        }
        let interface = InterfaceIndexOrAddress::Index(at.index);
        match (ip, join) {
            (IpAddr::V4(ip), true) => socket.join_multicast_v4_n(&ip, &interface),
            (IpAddr::V4(ip), false) => socket.leave_multicast_v4_n(&ip, &interface),
            (IpAddr::V6(ip), true) => socket.join_multicast_v6(&ip, at.index),
            (IpAddr::V6(ip), false) => socket.leave_multicast_v6(&ip, at.index),
        }
    }
}

/// Whether the reason why something could not be sent is one that passes: the network is down.
pub(crate) const fn passes(error: Errno) -> bool {
    matches!(
        error,
        Errno::ENETDOWN
            | Errno::ENETUNREACH
            | Errno::EHOSTUNREACH
            | Errno::EPERM
            | Errno::ENODEV
            | Errno::EADDRNOTAVAIL
    )
}
