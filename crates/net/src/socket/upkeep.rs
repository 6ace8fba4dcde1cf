//! Maintenance of open sockets: memberships, and lost interfaces and addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};

use faircast_base::{Duration, GroupId, Time};
use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use socket2::InterfaceIndexOrAddress;

use super::options::{JoinSourceV4, JoinSourceV6, LeaveSourceV4, LeaveSourceV6, SourceRequest};
use super::watch::LostInterfaces;
use super::{Group, Health, Sockets, Way, aim, beside, bind, bind_beside, open, route_to, zoned};
use crate::address::{Resolved, has_address, interface_of, is_link_local};
use crate::{Interface, NetError};

impl Sockets {
    /// Joins again on interfaces that came back or are `lost`, moves a source's
    /// sockets from lost addresses, and retries failed interfaces.
    pub(crate) fn maintain(&mut self, now: Time, lost: &LostInterfaces) {
        let Some(multicast) = &self.multicast else { return };
        let ip = multicast.group.ip();
        let routed = self.routed;
        if self.interfaces.iter().any(|(interface, _)| *interface == Interface::Any) {
            self.routed = route_to(multicast.group).ok().and_then(interface_of);
        }
        // Without a named interface, the one last chosen by routes counts.
        let is_lost = |at: Resolved| match at.index {
            0 => !lost.is_empty() && routed.is_none_or(|index| lost.has(index, ip)),
            index => lost.has(index, ip),
        };
        let mut any_moved = false;
        for index in 0..self.interfaces.len() {
            let (interface, before) = &self.interfaces[index];
            let (found, before) = (interface.resolve(ip).ok(), *before);
            let moved = found.map(|at| at.index) != before.map(|at| at.index);
            any_moved |= moved && found.is_some();
            if let Some(old) = before
                && (moved || is_lost(old))
            {
                // The kernel keeps memberships of lost interfaces, and allows few. It does not
                // restore those of an interface that lost its last address.
                for group in &self.groups {
                    let _ = self.change_membership(group, old, false);
                }
            }
            self.interfaces[index].1 = found;
            if self.is_source {
                self.follow_address(now, index, moved);
            }
            let Some(at) = found else { continue };
            // A second join has no effect. Joins fail without an address, and are retried.
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
        self.rejoin(any_moved);
    }

    fn follow_address(&mut self, now: Time, index: usize, moved: bool) {
        let at = self.interfaces[index].1;
        let (Some(multicast), Some(way)) = (&self.multicast, self.ways.get_mut(index)) else {
            return;
        };
        let (group, local) = (multicast.group, way.local.ip());
        if local.is_unspecified() {
            return;
        }
        let wanted = match at {
            Some(at) if at.index > 0 => at.address,
            Some(_) => route_to(group).ok(),
            None => None,
        };
        let is_any = at.is_some_and(|at| at.index == 0);
        let zone_moved = moved && matches!(local, IpAddr::V6(ip) if is_link_local(ip));
        let stays = at.is_some_and(|at| has_address(at.index, local))
            && (!is_any || wanted.is_none_or(|wanted| wanted == local));
        if stays && !zone_moved {
            way.address_lost = false;
            return;
        }
        if let Some((address, at)) = wanted.zip(at)
            && self.move_way(index, address, at).is_ok()
        {
            let interface = &self.interfaces[index].0;
            if address == local {
                tracing::warn!(
                    "the interface {interface} is back: packets leave from {address} again"
                );
                return;
            }
            let cause = match has_address(at.index, local) {
                false => "this host has lost the address",
                true => "the route to the group does not leave any more from the address",
            };
            tracing::warn!(
                "{cause} {local}: packets leave from {address} now (interface {interface}), and receivers follow within \
                 some seconds; a receiver that names the old address (recv --from {local}) must be started again with \
                 --from {address}"
            );
            return;
        }
        let way = &mut self.ways[index];
        if !std::mem::replace(&mut way.address_lost, true) {
            let interface = &self.interfaces[index].0;
            tracing::warn!(
                "this host has lost the address {local}, and has no other one to send from (interface {interface}): \
                 give it an address or a route; the session goes on then"
            );
        }
        if self.ways[..self.interfaces.len()].iter().all(|way| way.address_lost) {
            self.down_since.get_or_insert((now, None));
        }
    }

    fn move_way(&mut self, index: usize, address: IpAddr, at: Resolved) -> Result<(), NetError> {
        let like = address;
        let socket = open(like, &self.settings)?;
        let others = self.ways.iter().enumerate().filter(|(other, _)| *other != index);
        let others = others.flat_map(|(_, way)| [Some(&way.socket), way.answers.as_ref()]);
        let others: Vec<_> = others.flatten().collect();
        let old = &self.ways[index];
        let zone = |port| zoned(address, port, at.index);
        bind_beside(&socket, zone(old.local.port()), &others)
            .or_else(|_| bind(&socket, zone(0)))?;
        let mut way = Way::new(socket, &self.settings)?;
        way.answers = beside(&way.socket, like, &self.settings).ok();
        way.set_multicast(at, &self.settings)?;
        way.health = old.health;
        self.ways[index] = way;
        Ok(())
    }

    pub(crate) fn is_temporary(&self, way: usize, error: Errno) -> bool {
        let address_is_gone = || {
            let local = self.ways.get(way).map(|way| way.local.ip());
            local.is_some_and(|local| !local.is_unspecified() && !has_address(0, local))
        };
        match error {
            Errno::ENETDOWN | Errno::ENETUNREACH | Errno::EHOSTUNREACH => true,
            Errno::EPERM | Errno::ENODEV | Errno::EADDRNOTAVAIL => true,
            Errno::EINVAL => address_is_gone(),
            _ => false,
        }
    }

    /// Notes a result of sending; at a source not for single hosts, which may be anywhere.
    pub(crate) fn note_sent(&mut self, now: Time, way: usize, error: Option<Errno>) {
        match error {
            None if self.ways[way].address_lost => {}
            None => self.down_since = None,
            Some(error) if self.is_temporary(way, error) => {
                let error = Some(error).filter(|_| !self.ways[way].address_lost);
                self.down_since.get_or_insert((now, error)).1 = error;
            }
            Some(_) => {}
        }
    }

    /// Warns once if unicast fails while group packets are sent: repairs and answers are unicast.
    pub(crate) fn note_unicast(
        &mut self,
        now: Time,
        (way, to): (usize, SocketAddr),
        error: Option<Errno>,
    ) {
        let (since, is_reported) = &mut self.unreachable;
        let Some(error) = error.filter(|error| !matches!(error, Errno::EAGAIN | Errno::EINTR))
        else {
            *since = None;
            return;
        };
        let since = *since.get_or_insert(now);
        let is_address_lost = self.ways.get(way).is_some_and(|way| way.address_lost);
        let is_long = |at: Time| now.since(at) >= UNREACHABLE_AFTER;
        if !*is_reported
            && !is_address_lost
            && is_long(since)
            && !self.down_since.is_some_and(|(at, _)| is_long(at))
        {
            *is_reported = true;
            tracing::warn!(
                "nothing can be sent to {to}: {error}; packets to the group leave, but repairs and answers do not: \
                 give this host a route there, or look at its firewall"
            );
        }
    }

    /// True if this error makes the way's interface skipped, logged once. The others continue.
    pub(crate) fn skip_interface(&mut self, way: usize, error: Errno) -> bool {
        let is_temporary = self.is_temporary(way, error);
        let (Some((interface, _)), Some(of)) = (self.interfaces.get(way), self.ways.get_mut(way))
        else {
            return false;
        };
        if self.groups[0].destinations.len() < 2 || !is_temporary {
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
        let known = [io::ErrorKind::AddrInUse, io::ErrorKind::AddrNotAvailable];
        match self.change_membership(group, at, true) {
            // The socket is a member already, of the group or of the group with this source.
            Err(error) if known.contains(&error.kind()) => Ok(()),
            joined => joined,
        }
    }

    /// Without members nothing changes. The named source applies to the session's group only.
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

const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);
