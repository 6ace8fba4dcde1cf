//! The groups of open sockets: the session's, and others that machines join and leave.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use faircast_base::GroupId;
use faircast_proto::Membership;
use socket2::Socket;

use super::{Sockets, Way, aim, bind, local_address, open, share, zoned};
use crate::address::{Resolved, is_link_local};
use crate::{Interface, Multicast, NetError, SessionId};

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    /// None where a list of receivers stands for the session's group.
    pub(super) address: Option<SocketAddr>,
    /// Where packets for it go, and by which way; none at a receiver without a group.
    pub(crate) destinations: Vec<(usize, SocketAddr)>,
    /// Hears it, where somebody here is a member: in the session's group receivers are from the start.
    pub(super) socket: Option<Socket>,
    /// Drops that the kernel has counted at the socket; wraps.
    pub(super) overflowed: u32,
    /// From where packets to it leave here, while it is heard.
    own: Vec<SocketAddr>,
    members: BTreeSet<SessionId>,
}

impl Group {
    pub(super) fn new(id: GroupId, address: Option<SocketAddr>) -> Self {
        Self { id, address, ..Self::default() }
    }

    pub(crate) fn leave(&mut self, of: SessionId) {
        if self.members.remove(&of) && self.members.is_empty() {
            // The kernel leaves with the socket.
            self.socket = None;
        }
    }
}

impl Sockets {
    /// Says at which address and port a group beside the session's is; before that nobody can join it
    /// or send there. It is on the interfaces of the session's group.
    ///
    /// # Errors
    /// The session has no group, `at` is no multicast address, is of another family than that or of one
    /// link alone where no interface is named, or it or `id` is that of another group.
    pub fn add_group(&mut self, id: GroupId, at: SocketAddr) -> Result<(), NetError> {
        let session = self.multicast.as_ref().ok_or(NetError::NoGroup)?;
        Multicast { group: at, source: None, ..session.clone() }.check()?;
        if at.is_ipv4() != session.group.is_ipv4() {
            return Err(NetError::Family(session.group.ip(), at.ip()));
        }
        // Its zone is that of the interface.
        let at = SocketAddr::new(at.ip(), at.port());
        if self.groups.iter().any(|group| group.id == id || group.address == Some(at)) {
            return Err(NetError::SameGroup(at));
        }
        let mut group = Group::new(id, Some(at));
        let ways = if self.is_source { self.interfaces.len() } else { 1 };
        group.destinations.extend((0..ways).map(|way| (way, at)));
        self.groups.push(group);
        Ok(())
    }

    /// Replaces a receiver of the list by the address at which it is now. Returns whether it was on the list.
    pub(crate) fn retarget(&mut self, old: SocketAddr, new: SocketAddr) -> bool {
        let group = &mut self.groups[0];
        let session = group.address;
        let mut listed = false;
        for (_, to) in &mut group.destinations {
            if *to == old && session != Some(old) && old.is_ipv4() == new.is_ipv4() {
                (*to, listed) = (new, true);
            }
        }
        listed
    }

    /// The place of a group among all, where packets can be sent to it.
    pub(crate) fn group(&self, id: GroupId) -> Option<usize> {
        let place = self.groups.iter().position(|group| group.id == id)?;
        (!self.groups[place].destinations.is_empty()).then_some(place)
    }

    /// Whether the machine of a session hears what comes to a group.
    pub(crate) fn is_member(&self, id: GroupId, session: SessionId) -> bool {
        let mut groups = self.groups.iter();
        id == GroupId::SESSION
            || groups.any(|group| group.id == id && group.members.contains(&session))
    }

    /// True if these sockets sent a packet to the group: where it is heard too, it comes back.
    pub(crate) fn is_own(&self, id: GroupId, from: SocketAddr) -> bool {
        self.groups.iter().any(|group| group.id == id && group.own.contains(&from))
    }

    /// From where packets to a group leave, as who hears them sees it; nothing where that is not known, or
    /// another socket of this host may have the same address and port.
    fn leaves_from(&self, to: SocketAddr) -> Vec<SocketAddr> {
        let of = |(way, (_, at)): (&Way, &(Interface, Option<Resolved>))| {
            if way.shared || !way.local.ip().is_unspecified() {
                return (!way.shared).then_some(way.local);
            }
            // A connected UDP socket has been routed, and has sent nothing.
            let probe = open(to.ip(), &self.settings).ok()?;
            aim(&probe, to.ip(), at.unwrap_or_default()).ok()?;
            probe.connect(&to.into()).ok()?;
            let mut from = local_address(&probe).ok()?;
            from.set_port(way.local.port());
            Some(from)
        };
        self.ways.iter().zip(&self.interfaces).filter_map(of).collect()
    }

    /// A machine joins or leaves a group. Nothing changes where it is in it already, or is not, or where
    /// it is the session's.
    ///
    /// # Errors
    /// The group has no address, or the system refuses to join it; then it is tried again.
    pub(crate) fn change(&mut self, of: SessionId, change: Membership) -> Result<(), NetError> {
        let (Membership::Join(id) | Membership::Leave(id)) = change;
        if id == GroupId::SESSION {
            return Ok(());
        }
        let place = self.groups.iter().position(|group| group.id == id);
        let place = place.ok_or(NetError::UnknownGroup(id))?;
        let group = &mut self.groups[place];
        match change {
            Membership::Leave(_) => {
                group.leave(of);
                Ok(())
            }
            Membership::Join(_) => {
                group.members.insert(of);
                if group.socket.is_some() { Ok(()) } else { self.hear(place) }
            }
        }
    }

    /// Tries once more to hear groups that the system refused, and learns from where packets leave now.
    /// Sockets of groups of one link are bound to its interface: where that `moved` they are made anew.
    pub(super) fn hear_again(&mut self, moved: bool) {
        for place in 0..self.groups.len() {
            let group = &mut self.groups[place];
            let on_one_link = |address: SocketAddr| match address.ip() {
                IpAddr::V6(ip) => is_link_local(ip),
                IpAddr::V4(_) => false,
            };
            if moved && group.address.is_some_and(on_one_link) {
                group.socket = None;
            }
            let is_sessions = group.id == GroupId::SESSION && !self.is_source;
            let is_wanted = is_sessions || !group.members.is_empty();
            match group.address.filter(|_| is_wanted) {
                Some(address) if group.socket.is_some() => {
                    self.groups[place].own = self.leaves_from(address);
                }
                Some(_) => drop(self.hear(place)),
                None => {}
            }
        }
    }

    /// Opens the socket of a group and joins it on all interfaces.
    pub(super) fn hear(&mut self, place: usize) -> Result<(), NetError> {
        let address = self.groups[place].address.ok_or(NetError::NoGroup)?;
        let at = self.interfaces.iter().find_map(|(_, at)| *at).unwrap_or_default();
        let socket = open(address.ip(), &self.settings)?;
        share(&socket)?;
        bind(&socket, zoned(address.ip(), address.port(), at.index))?;
        let own = self.leaves_from(address);
        let group = &mut self.groups[place];
        (group.socket, group.overflowed, group.own) = (Some(socket), 0, own);
        for at in self.interfaces.iter().filter_map(|(_, at)| *at) {
            let joined = self.join(&self.groups[place], at);
            joined.map_err(|error| NetError::Join { group: address, error })?;
        }
        Ok(())
    }
}
