//! The sockets of a source or of a receiver: opening them, and keeping them on their group.
//!
//! Which socket gets which packets: a [group](Group) is heard on a socket that is bound to the group's
//! own address and port with address reuse, so that any number of receivers on a host hear it and
//! nothing else comes there; groups beside the session's have one while a machine is a member.
//! Everything is sent from others, the *ways*, and unicast comes to them: a
//! receiver has one with any port. A source has one for each interface of its group, bound to its own
//! address there, and one for its list of receivers, bound to no address, so that the system's routes
//! choose; each has the target's port where nobody has it. What a source of a group answers to single
//! hosts leaves from the same address and port by another socket beside. A source whose own address goes
//! away gets new sockets at another address of the same interface (`upkeep`).

mod groups;
mod options;
mod upkeep;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use faircast_base::{Bytes, GroupId, Time};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

pub(crate) use self::groups::Group;
use self::options::{
    Memory, MulticastInterfaceV4, PathMtuV4, PathMtuV6, RECEIVE_MAX, RECEIVE_USED, WayMtuV6,
    interface_request,
};
use self::watch::AddressWatch;
pub(crate) use self::watch::{Changes, Gone};
use crate::address::{Resolved, is_link_local, unspecified};
use crate::{Interface, Listen, Multicast, NetError, RECEIVERS_MAX, SocketSettings, Target};

/// The open sockets of one source or one receiver.
#[derive(Debug)]
pub struct Sockets {
    /// By which everything is sent; they hear unicast.
    pub(crate) ways: Vec<Way>,
    /// The session's group, which has no address where there is a list alone, and those beside it.
    pub(crate) groups: Vec<Group>,
    pub(crate) is_source: bool,
    pub(crate) settings: SocketSettings,
    multicast: Option<Multicast>,
    /// The interfaces that the groups are on, as they were last found; `None` while one is gone. At a source
    /// each has the way of its number.
    interfaces: Vec<(Interface, Option<Resolved>)>,
    /// At a source: why it does not have the port of its target.
    refused: Option<NetError>,
    /// Time since which nothing has left this host, and the last error.
    down_since: Option<(Time, Option<Errno>)>,
    /// Interface that routes choose for the group where none is named.
    routed: Option<u32>,
    /// Since when no single host could be sent anything, and whether that was told.
    unreachable: (Option<Time>, bool),
    watch: Option<AddressWatch>,
}

/// A socket that sends, and hears what is sent to its address.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) socket: Socket,
    /// At a source of a group: sends to single hosts, whose packets take no room from data.
    pub(crate) answers: Option<Socket>,
    pub(crate) local: SocketAddr,
    /// Whether other sockets of this host may have its address and port too.
    shared: bool,
    /// Drops that the kernel has counted at the socket; wraps.
    overflowed: u32,
    /// The hops that the socket now gives multicast packets.
    pub(crate) hops: u8,
    pub(crate) health: Health,
    /// True while this host does not have the address that the socket is bound to, nor another one for it.
    pub(crate) homeless: bool,
}

/// Whether multicast leaves by an interface, where there are other destinations beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Up,
    /// Nothing left, which was said; it is left out.
    Down,
    /// It was down, and may be up again.
    Tried,
}

/// Sizes of the kernel's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// For receiving, of the socket that hears most.
    pub receive: Bytes,
    /// For sending.
    pub send: Bytes,
}

impl Way {
    fn new(socket: Socket, settings: &SocketSettings) -> Result<Self, NetError> {
        let local = local_address(&socket)?;
        let (hops, health) = (settings.hops, Health::Up);
        let (shared, homeless, answers) = (false, false, None);
        Ok(Self { socket, answers, local, shared, overflowed: 0, hops, health, homeless })
    }

    /// A way at this address whose packets are never cut: QUIC finds their length itself.
    fn whole(address: SocketAddr, settings: &SocketSettings) -> Result<Self, NetError> {
        let socket = open(address.ip(), settings)?;
        bind(&socket, address)?;
        send_whole(&socket, address.ip())?;
        Self::new(socket, settings)
    }

    fn set_multicast(&mut self, at: Resolved, settings: &SocketSettings) -> Result<(), NetError> {
        aim(&self.socket, self.local.ip(), at).map_err(NetError::doing("choose an interface"))?;
        self.set_hops(settings.hops).map_err(NetError::doing("set the hops"))?;
        let done = match self.local {
            SocketAddr::V4(_) => self.socket.set_multicast_loop_v4(settings.loopback),
            SocketAddr::V6(_) => self.socket.set_multicast_loop_v6(settings.loopback),
        };
        done.map_err(NetError::doing("set loopback"))
    }

    /// Gives the multicast packets that follow so many hops.
    pub(crate) fn set_hops(&mut self, hops: u8) -> io::Result<()> {
        self.hops = hops;
        match self.local {
            SocketAddr::V4(_) => self.socket.set_multicast_ttl_v4(hops.into()),
            SocketAddr::V6(_) => self.socket.set_multicast_hops_v6(hops.into()),
        }
    }

    /// The socket by which packets leave that are for one host alone.
    pub(crate) fn for_one(&self) -> &Socket {
        self.answers.as_ref().unwrap_or(&self.socket)
    }
}

impl Sockets {
    /// The sockets of a source.
    pub fn source(target: Target, settings: SocketSettings) -> Result<Self, NetError> {
        let (multicast, mut receivers) = target.into_parts();
        let mut seen = BTreeSet::new();
        receivers.retain(|to| seen.insert(*to));
        let group = multicast.as_ref().map(|multicast| multicast.group);
        let first = group.or(receivers.first().copied()).ok_or(NetError::NoReceivers)?;
        if receivers.len() > RECEIVERS_MAX {
            return Err(NetError::TooManyReceivers(receivers.len()));
        }
        if let Some(other) = receivers.iter().find(|other| other.is_ipv4() != first.is_ipv4()) {
            return Err(NetError::Family(first.ip(), other.ip()));
        }
        let mut sockets = Self::new(true, multicast, settings)?;
        let given = sockets.multicast.as_ref().and_then(|group| group.source);
        let given = given.filter(|_| sockets.interfaces.len() == 1);
        for (index, at) in sockets.interfaces.iter().filter_map(|(_, at)| *at).enumerate() {
            let address = match given.or(at.address) {
                Some(address) => address,
                None => route_to(first)?,
            };
            let socket = open(first.ip(), &sockets.settings)?;
            let zone = |port| zoned(address, port, at.index);
            let refused = bind_source(&socket, zone, first.port(), &[], &sockets.settings)?;
            sockets.refused = sockets.refused.take().or(refused);
            let mut way = Way::new(socket, &sockets.settings)?;
            way.answers = beside(&way.socket, first.ip(), &sockets.settings).ok();
            way.set_multicast(at, &sockets.settings)?;
            sockets.ways.push(way);
            sockets.groups[0].destinations.push((index, first));
        }
        if let Some(to) = receivers.first() {
            let socket = open(first.ip(), &sockets.settings)?;
            // A list may span several networks.
            let any = |port| SocketAddr::new(unspecified(first.ip()), port);
            let others = sockets.ways.iter();
            let others = others.flat_map(|way| [Some(&way.socket), way.answers.as_ref()]);
            let others: Vec<&Socket> = others.flatten().collect();
            let refused = bind_source(&socket, any, first.port(), &others, &sockets.settings)?;
            sockets.refused = sockets.refused.take().or(refused);
            let mut way = Way::new(socket, &sockets.settings)?;
            way.local.set_ip(route_to(*to)?);
            let index = sockets.ways.len();
            sockets.ways.push(way);
            let to_each = receivers.into_iter().map(|to| (index, to));
            sockets.groups[0].destinations.extend(to_each);
        }
        Ok(sockets)
    }

    /// Sockets of a host behind relays: one of each address family that it has, at any port.
    pub fn via(is_source: bool, settings: SocketSettings) -> Result<Self, NetError> {
        let mut sockets = Self::new(is_source, None, settings)?;
        let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut refused = None;
        for address in any {
            let port = sockets.settings.port.unwrap_or(0);
            match Way::whole(SocketAddr::new(address, port), &sockets.settings) {
                Ok(way) => sockets.ways.push(way),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if sockets.ways.is_empty() => Err(error),
            _ => Ok(sockets),
        }
    }

    /// Sockets of a relay: a way to each network of its group, numbered as packets for the group
    /// are, and behind those the way at which the relay listens.
    pub fn relay(
        listen: SocketAddr,
        multicast: Option<Multicast>,
        settings: SocketSettings,
    ) -> Result<Self, NetError> {
        let group = multicast.as_ref().map(|multicast| multicast.group);
        if let Some(other) = group.filter(|group| group.is_ipv4() != listen.is_ipv4()) {
            return Err(NetError::Family(listen.ip(), other.ip()));
        }
        let mut sockets = Self::new(true, multicast, settings)?;
        for (index, at) in sockets.interfaces.iter().filter_map(|(_, at)| *at).enumerate() {
            let socket = open(listen.ip(), &sockets.settings)?;
            // To no address of the interface, which may get another.
            bind(&socket, SocketAddr::new(unspecified(listen.ip()), 0))?;
            let mut way = Way::new(socket, &sockets.settings)?;
            way.set_multicast(at, &sockets.settings)?;
            sockets.ways.push(way);
            let network = GroupId(index as u32);
            if network != GroupId::SESSION {
                sockets.groups.push(Group::new(network, None));
            }
            sockets.groups[index].destinations.extend(group.map(|to| (index, to)));
        }
        sockets.ways.push(Way::whole(listen, &sockets.settings)?);
        Ok(sockets)
    }

    /// Number of networks to which a relay multicasts.
    pub(crate) const fn networks(&self) -> usize {
        self.ways.len() - 1
    }

    /// The way to a single host of a relay, or of a host behind relays; `None` if this host does not
    /// have the address family.
    pub(crate) fn way_to(&self, to: SocketAddr) -> Option<usize> {
        // The ways of multicast stand in front.
        self.ways.iter().rposition(|way| way.local.is_ipv4() == to.is_ipv4())
    }

    /// Hears the multicast of a relay from now on: `heard` is the relay and the group, on the
    /// interface that leads to the relay. `None` ends that.
    pub(crate) fn hear_relay(
        &mut self,
        heard: Option<(SocketAddr, SocketAddr)>,
    ) -> Result<(), NetError> {
        let group = &mut self.groups[0];
        (group.socket, group.address) = (None, heard.map(|(_, at)| at));
        (self.multicast, self.interfaces) = (None, Vec::new());
        let Some((relay, at)) = heard else { return Ok(()) };
        let interfaces = [Interface::Address(route_to(relay)?)].into();
        let multicast = Multicast { group: at, source: None, interfaces };
        multicast.check()?;
        self.interfaces = multicast.resolve()?.into_iter().map(|(it, at)| (it, Some(at))).collect();
        self.multicast = Some(multicast);
        self.hear(0)
    }

    /// The sockets of a receiver.
    pub fn receiver(listen: Listen, settings: SocketSettings) -> Result<Self, NetError> {
        let (multicast, address) = match listen {
            Listen::Unicast(address) => (None, address),
            Listen::Both(multicast, address) => (Some(multicast), address),
            Listen::Multicast(multicast) => {
                let any = unspecified(multicast.group.ip());
                (Some(multicast), SocketAddr::new(any, settings.port.unwrap_or(0)))
            }
        };
        let mut sockets = Self::new(false, multicast, settings)?;
        let node = open(address.ip(), &sockets.settings)?;
        let Some(multicast) = &sockets.multicast else {
            bind(&node, address)?;
            sockets.ways.push(Way::new(node, &sockets.settings)?);
            return Ok(sockets);
        };
        let (to, ip) = (multicast.group, multicast.group.ip());
        if address.is_ipv4() != ip.is_ipv4() {
            return Err(NetError::Family(ip, address.ip()));
        }
        let at = sockets.interfaces[0].1.unwrap_or_default();
        let shared = address.port() == to.port() && address.ip().is_unspecified();
        if shared {
            share(&node)?;
        }
        bind(&node, address)?;
        let mut way = Way { shared, ..Way::new(node, &sockets.settings)? };
        way.set_multicast(at, &sockets.settings)?;
        sockets.ways.push(way);
        sockets.groups[0].destinations.push((0, to));
        sockets.hear(0)?;
        Ok(sockets)
    }

    /// None yet, and the interfaces.
    fn new(
        is_source: bool,
        multicast: Option<Multicast>,
        settings: SocketSettings,
    ) -> Result<Self, NetError> {
        let interfaces = match &multicast {
            None => Vec::new(),
            Some(multicast) => {
                multicast.check()?;
                multicast.resolve()?.into_iter().map(|(it, at)| (it, Some(at))).collect()
            }
        };
        let address = multicast.as_ref().map(|multicast| multicast.group);
        Ok(Self {
            ways: Vec::new(),
            groups: vec![Group::new(GroupId::SESSION, address)],
            is_source,
            settings,
            multicast,
            interfaces,
            refused: None,
            down_since: None,
            routed: None,
            unreachable: (None, false),
            watch: AddressWatch::open(),
        })
    }

    /// All sockets that hear: those of the ways, then those of groups.
    pub(crate) fn hearing(&self) -> impl Iterator<Item = &Socket> {
        let groups = self.groups.iter().filter_map(|group| group.socket.as_ref());
        self.ways.iter().map(|way| &way.socket).chain(groups)
    }

    /// One of them by its place, with the drops that were counted there and the group that it hears.
    pub(crate) fn hearer(&mut self, index: usize) -> Option<(&Socket, &mut u32, Option<GroupId>)> {
        let ways = self.ways.len();
        if let Some(way) = self.ways.get_mut(index) {
            return Some((&way.socket, &mut way.overflowed, None));
        }
        let mut heard = self.groups.iter_mut().filter_map(|group| {
            Some((group.socket.as_ref()?, &mut group.overflowed, Some(group.id)))
        });
        heard.nth(index - ways)
    }

    /// Whether sessions from this address are wanted: where a source was named, its own alone.
    pub(crate) fn hears(&self, from: IpAddr) -> bool {
        let named = self.multicast.as_ref().and_then(|multicast| multicast.source);
        named.is_none_or(|source| source == from)
    }

    /// At a source: why answers do not come to the target's port, but to the local address's.
    pub const fn port_refused(&self) -> Option<&NetError> {
        self.refused.as_ref()
    }

    /// The address and port from which it sends; at a receiver the unspecified address.
    pub fn local_address(&self) -> SocketAddr {
        self.ways[0].local
    }

    /// Where packets for the group go, or the group that is heard; none at a receiver without one.
    pub fn targets(&self) -> impl Iterator<Item = SocketAddr> {
        self.groups[0].destinations.iter().map(|(_, to)| *to)
    }

    /// The buffers that the kernel gave, which may be less than was asked for: without the
    /// privilege to do so `net.core.rmem_max` and `wmem_max` are the limits.
    pub fn buffers(&self) -> Buffers {
        let size = |size: io::Result<usize>| Bytes::new(size.unwrap_or(0) as u64);
        let node = &self.ways[0].socket;
        let hears = self.groups[0].socket.as_ref().unwrap_or(node);
        Buffers { receive: size(hears.recv_buffer_size()), send: size(node.send_buffer_size()) }
    }

    /// From now on what a receiver sends is not cut into pieces, whatever a link takes: it is lost
    /// instead, and what the own link does not take is refused.
    pub(crate) fn send_whole(&self) -> Result<(), NetError> {
        let Way { socket, local, .. } = &self.ways[0];
        send_whole(socket, local.ip())
    }

    /// The sockets themselves: the first that sends, and that which hears the group.
    pub(crate) fn into_parts(mut self) -> (UdpSocket, Option<UdpSocket>) {
        let group = self.groups.swap_remove(0).socket;
        (self.ways.swap_remove(0).socket.into(), group.map(Into::into))
    }

    /// Whether so much waits to be read from a socket that the next pause may cost packets.
    pub(crate) fn is_crowded(socket: &Socket) -> bool {
        // What the kernel does not tell is not used.
        getsockopt(socket, Memory)
            .is_ok_and(|memory| memory[RECEIVE_USED] > crowd(memory[RECEIVE_MAX]))
    }

    /// Bytes of the largest IP packet that leaves here whole, to each of the target's addresses;
    /// `None` where that is not known. Links further on may take less.
    pub fn link_mtu(&self) -> Option<Bytes> {
        let of = |(way, to): &(usize, SocketAddr)| {
            // A connected UDP socket has been routed, and has sent nothing.
            let probe = open(to.ip(), &self.settings).ok()?;
            if let Some((_, Some(at))) = self.interfaces.get(*way) {
                aim(&probe, to.ip(), *at).ok()?;
            }
            probe.connect(&(*to).into()).ok()?;
            let mtu = match to {
                SocketAddr::V4(_) => getsockopt(&probe, sockopt::IpMtu),
                SocketAddr::V6(_) => getsockopt(&probe, WayMtuV6),
            };
            u64::try_from(mtu.ok()?).ok()
        };
        self.groups[0].destinations.iter().filter_map(of).min().map(Bytes::new)
    }
}

fn send_whole(socket: &Socket, like: IpAddr) -> Result<(), NetError> {
    let done = match like {
        IpAddr::V4(_) => setsockopt(socket, PathMtuV4, &libc::IP_PMTUDISC_PROBE),
        IpAddr::V6(_) => setsockopt(socket, PathMtuV6, &libc::IPV6_PMTUDISC_PROBE),
    };
    done.map_err(NetError::doing("keep packets whole"))
}

/// Lets multicast packets of the family of `like` leave by an interface.
fn aim(socket: &Socket, like: IpAddr, at: Resolved) -> nix::Result<()> {
    match like {
        IpAddr::V4(_) if at.index > 0 => {
            setsockopt(socket, MulticastInterfaceV4, &interface_request(at.index))
        }
        IpAddr::V6(_) if at.index > 0 => socket
            .set_multicast_if_v6(at.index)
            .map_err(|error| nix::Error::from_raw(error.raw_os_error().unwrap_or(0))),
        _ => Ok(()),
    }
}

/// A socket of the family of `like` with all that all sockets have.
fn open(like: IpAddr, settings: &SocketSettings) -> Result<Socket, NetError> {
    let domain = if like.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
        .map_err(NetError::doing("open a socket"))?;
    set_up(&socket, like, settings).map_err(NetError::doing("set up a socket"))?;
    grow_buffers(&socket, settings);
    if settings.offload {
        // A kernel without it gives packets one by one.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
    }
    Ok(socket)
}

/// Another socket with the address and the port of `node`, to which nothing comes: it is connected to a
/// port that nobody sends from.
fn beside(node: &Socket, like: IpAddr, settings: &SocketSettings) -> Result<Socket, NetError> {
    let socket = open(like, settings)?;
    let connected = local_address(node).and_then(|mut address| {
        bind_beside(&socket, address, &[node])?;
        address.set_port(DISCARD_PORT);
        socket.connect(&address.into()).map_err(NetError::doing("answer"))
    });
    connected.map(|()| socket)
}

/// Lets other sockets of this host have a group's port too.
fn share(socket: &Socket) -> Result<(), NetError> {
    socket.set_reuse_address(true).map_err(NetError::doing("share the group's port"))
}

/// Binds a socket to a port that `others` have. Other programs are told that the port is taken.
fn bind_beside(socket: &Socket, address: SocketAddr, others: &[&Socket]) -> Result<(), NetError> {
    let share = |share| {
        let mut all = others.iter().copied().chain([socket]);
        let shared = all.try_for_each(|socket| socket.set_reuse_address(share));
        shared.map_err(NetError::doing("share a port"))
    };
    if others.is_empty() {
        return bind(socket, address);
    }
    let bound = share(true).and_then(|()| bind(socket, address));
    share(false).and(bound)
}

/// Binds a socket of a source to the port that was asked for, or else to `wanted` and where that is taken
/// to any; then it returns why.
fn bind_source(
    socket: &Socket,
    address: impl Fn(u16) -> SocketAddr,
    wanted: u16,
    others: &[&Socket],
    settings: &SocketSettings,
) -> Result<Option<NetError>, NetError> {
    let bound = bind_beside(socket, address(settings.port.unwrap_or(wanted)), others);
    match (bound, settings.port) {
        (Ok(()), _) => Ok(None),
        (Err(error), Some(_)) => Err(error),
        (Err(error), None) => bind(socket, address(0)).map(|()| Some(error)),
    }
}

/// That of the discard service, which answers nothing.
const DISCARD_PORT: u16 = 9;

fn set_up(socket: &Socket, like: IpAddr, settings: &SocketSettings) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    setsockopt(socket, sockopt::RxqOvfl, &1)?;
    // Not what others on this host have joined. Where the kernel knows no such setting it comes too, as
    // duplicates or of sessions in which nobody here takes part.
    let _ = match like {
        IpAddr::V4(_) => socket.set_multicast_all_v4(false),
        IpAddr::V6(_) => socket.set_multicast_all_v6(false),
    };
    let class = if settings.ecn { ECT0 } else { 0 };
    // Packets longer than a link takes are cut there: with "don't fragment", routers and path MTU
    // discovery make of a setting that is a little wrong a session that never gets anything, and
    // Linux's multicast router drops what leaves here as one large packet.
    match like {
        IpAddr::V4(_) => {
            socket.set_recv_tos_v4(true)?;
            socket.set_tos_v4(class)?;
            setsockopt(socket, PathMtuV4, &libc::IP_PMTUDISC_DONT)?;
        }
        IpAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_recv_tclass_v6(true)?;
            socket.set_tclass_v6(class)?;
            setsockopt(socket, PathMtuV6, &libc::IPV6_PMTUDISC_DONT)?;
        }
    }
    Ok(())
}

/// Asks for the buffers with privilege, and then for what is allowed.
fn grow_buffers(socket: &Socket, settings: &SocketSettings) {
    let size = |bytes: Bytes| usize::try_from(bytes.count()).unwrap_or(usize::MAX).min(BUFFER_MAX);
    let (receive, send) = (size(settings.receive_buffer), size(settings.send_buffer));
    if setsockopt(socket, sockopt::RcvBufForce, &receive).is_err() {
        let _ = socket.set_recv_buffer_size(receive);
    }
    if setsockopt(socket, sockopt::SndBufForce, &send).is_err() {
        let _ = socket.set_send_buffer_size(send);
    }
}

/// With how many bytes that wait a buffer of so many is crowded: a quarter, since whoever sends learns
/// of it only after that has been read; in small ones, where a single read makes room, half.
const fn crowd(buffer: u32) -> u32 {
    if buffer >= LARGE_BUFFER { buffer / 4 } else { buffer / 2 }
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<(), NetError> {
    socket.bind(&address.into()).map_err(|error| NetError::Bind { address, error })
}

/// `ip` and `port`, on interface `zone` where the address means something on one link only.
fn zoned(ip: IpAddr, port: u16, zone: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if is_link_local(ip) => SocketAddrV6::new(ip, port, 0, zone).into(),
        ip => SocketAddr::new(ip, port),
    }
}

fn local_address(socket: &Socket) -> Result<SocketAddr, NetError> {
    let address = socket.local_addr().map_err(NetError::doing("read an address"))?;
    address.as_socket().ok_or_else(|| {
        NetError::socket("read an address", io::Error::other("it is no internet address"))
    })
}

/// The address from which packets to `to` leave.
pub(crate) fn route_to(to: SocketAddr) -> Result<IpAddr, NetError> {
    // A connected UDP socket has been routed, and has sent nothing.
    let probe = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind(SocketAddr::new(unspecified(to.ip()), 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    probe().map_err(NetError::doing("find a route to the target"))
}

/// ECN-capable, in the two low bits of the traffic class (src: RFC 3168 s5).
const ECT0: u32 = 0b10;

/// Buffers from this size on, in bytes as the kernel counts them, hold many reads.
const LARGE_BUFFER: u32 = 4 << 20;

/// Sizes of buffers are `int`s, and the kernel doubles them.
const BUFFER_MAX: usize = 1 << 30;
