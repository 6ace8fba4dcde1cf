//! Groups of open sockets: the session's, and others that machines join and leave.

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
    /// `None` if a unicast list replaces the session's group.
    pub(super) address: Option<SocketAddr>,
    /// Destinations of packets to the group, with the socket index; empty at a mere receiver.
    pub(crate) destinations: Vec<(usize, SocketAddr)>,
    /// Socket while a machine is a member; receivers are members of the session's group at once.
    pub(super) socket: Option<Socket>,
    pub(super) overflowed: u32,
    own_addresses: Vec<SocketAddr>,
    members: BTreeSet<SessionId>,
}

impl Group {
    pub(super) fn new(id: GroupId, address: Option<SocketAddr>) -> Self {
        Self { id, address, ..Self::default() }
    }

    pub(crate) fn leave(&mut self, of: SessionId) {
        if self.members.remove(&of) && self.members.is_empty() {
            // The kernel leaves the group when the socket closes.
            self.socket = None;
        }
    }
}

impl Sockets {
    /// Adds a group that machines can join and send to, on the interfaces of the session's group.
    ///
    /// # Errors
    /// The session has no group, `at` is not like it, or the address or number is taken.
    pub fn add_group(&mut self, id: GroupId, at: SocketAddr) -> Result<(), NetError> {
        let session = self.multicast.as_ref().ok_or_else(|| {
            let text = "groups beside the session's need one of the session, and it has none";
            NetError::Addresses(text.to_string())
        })?;
        Multicast { group: at, source: None, ..session.clone() }.check()?;
        if at.is_ipv4() != session.group.is_ipv4() {
            return Err(NetError::Family(session.group.ip(), at.ip()));
        }
        let at = SocketAddr::new(at.ip(), at.port());
        if self.groups.iter().any(|group| group.id == id || group.address == Some(at)) {
            let text = format!("{at}: there is a group with this name or this address already");
            return Err(NetError::Addresses(text));
        }
        let mut group = Group::new(id, Some(at));
        let ways = if self.is_source { self.interfaces.len() } else { 1 };
        group.destinations.extend((0..ways).map(|way| (way, at)));
        self.groups.push(group);
        Ok(())
    }

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

    pub(crate) fn group(&self, id: GroupId) -> Option<usize> {
        let index = self.groups.iter().position(|group| group.id == id)?;
        (!self.groups[index].destinations.is_empty()).then_some(index)
    }

    pub(crate) fn is_member(&self, id: GroupId, session: SessionId) -> bool {
        let mut groups = self.groups.iter();
        id == GroupId::SESSION
            || groups.any(|group| group.id == id && group.members.contains(&session))
    }

    pub(crate) fn is_own(&self, id: GroupId, from: SocketAddr) -> bool {
        self.groups.iter().any(|group| group.id == id && group.own_addresses.contains(&from))
    }

    /// Returns the sources of packets to a group; empty if unknown or possibly another socket's.
    fn source_addresses(&self, to: SocketAddr) -> Vec<SocketAddr> {
        let of = |(way, (_, at)): (&Way, &(Interface, Option<Resolved>))| {
            if way.shared || !way.local.ip().is_unspecified() {
                return (!way.shared).then_some(way.local);
            }
            let probe = open(to.ip(), &self.settings).ok()?;
            aim(&probe, to.ip(), at.unwrap_or_default()).ok()?;
            probe.connect(&to.into()).ok()?;
            let mut from = local_address(&probe).ok()?;
            from.set_port(way.local.port());
            Some(from)
        };
        self.ways.iter().zip(&self.interfaces).filter_map(of).collect()
    }

    /// Changes a membership, except of the session's group. A join that fails is retried.
    pub(crate) fn change(&mut self, of: SessionId, change: Membership) -> Result<(), NetError> {
        let (Membership::Join(id) | Membership::Leave(id)) = change;
        if id == GroupId::SESSION {
            return Ok(());
        }
        let index = self.groups.iter().position(|group| group.id == id);
        let unknown = || NetError::Addresses(format!("group {} has no address here", id.0));
        let index = index.ok_or_else(unknown)?;
        let group = &mut self.groups[index];
        match change {
            Membership::Leave(_) => {
                group.leave(of);
                Ok(())
            }
            Membership::Join(_) => {
                group.members.insert(of);
                if group.socket.is_some() { Ok(()) } else { self.open_group(index) }
            }
        }
    }

    /// Retries failed joins, and reopens sockets bound to a link-local interface that has `moved`.
    pub(super) fn rejoin(&mut self, moved: bool) {
        for index in 0..self.groups.len() {
            let group = &mut self.groups[index];
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
                    self.groups[index].own_addresses = self.source_addresses(address);
                }
                Some(_) => drop(self.open_group(index)),
                None => {}
            }
        }
    }

    pub(super) fn open_group(&mut self, index: usize) -> Result<(), NetError> {
        let Some(address) = self.groups[index].address else { return Ok(()) };
        let at = self.interfaces.iter().find_map(|(_, at)| *at).unwrap_or_default();
        let socket = open(address.ip(), &self.settings)?;
        share(&socket)?;
        bind(&socket, zoned(address.ip(), address.port(), at.index))?;
        let own_addresses = self.source_addresses(address);
        let group = &mut self.groups[index];
        (group.socket, group.overflowed) = (Some(socket), 0);
        group.own_addresses = own_addresses;
        for at in self.interfaces.iter().filter_map(|(_, at)| *at) {
            let joined = self.join(&self.groups[index], at);
            joined.map_err(|error| NetError::Join { group: address, error })?;
        }
        Ok(())
    }
}
