//! Sockets of a source or of a receiver.
//!
//! Each [group](Group) has a socket bound to its address and port with address reuse: all receivers
//! on a host share the port, and no other packets arrive there. Groups other than the session's
//! have a socket while a machine is a member.
//!
//! Other sockets, the *ways*, send everything and receive unicast. A receiver has one, with any
//! port. A source has one for each interface of its group, bound to its address there, and an
//! unbound one for its unicast list, so that routes choose. Each has the target's port if free. A
//! source's unicast answers leave from the same address and port by a further socket. If the
//! address disappears, the sockets move to another address of the interface (`upkeep`).

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
pub(crate) use self::watch::{AddressWatch, LostInterfaces};
use crate::address::{Resolved, is_link_local, unspecified};
use crate::{Interface, Listen, Multicast, NetError, RECEIVERS_MAX, SocketSettings, Target};

/// Open sockets of one source or one receiver.
#[derive(Debug)]
pub struct Sockets {
    pub(crate) ways: Vec<Way>,
    /// Session's group, without an address for a mere unicast list, then other groups.
    pub(crate) groups: Vec<Group>,
    pub(crate) is_source: bool,
    pub(crate) settings: SocketSettings,
    multicast: Option<Multicast>,
    /// Interfaces as last found, `None` if missing; at a source each has the way of its index.
    interfaces: Vec<(Interface, Option<Resolved>)>,
    /// At a source: reason why the socket does not have the target's port.
    port_error: Option<NetError>,
    /// Start of the time without any sent packet, and the last error.
    pub(crate) down_since: Option<(Time, Option<Errno>)>,
    /// Interface that routes choose for the group, if none is named.
    routed: Option<u32>,
    /// Start of the time without any sent unicast packet; true after the warning.
    unreachable: (Option<Time>, bool),
    pub(crate) watch: Option<AddressWatch>,
}

/// Socket that sends, and receives unicast.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) socket: Socket,
    /// Socket of a source for unicast answers, which thus take no buffer from data.
    pub(crate) answers: Option<Socket>,
    pub(crate) local: SocketAddr,
    shared: bool,
    overflowed: u32,
    pub(crate) hops: u8,
    pub(crate) health: Health,
    pub(crate) address_lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Up,
    /// Failed and skipped, after a warning.
    Down,
    Tried,
}

/// Kernel buffer sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Receive buffer of the main receiving socket.
    pub receive: Bytes,
    /// Send buffer.
    pub send: Bytes,
}

impl Way {
    fn new(socket: Socket, settings: &SocketSettings) -> Result<Self, NetError> {
        let local = local_address(&socket)?;
        let (hops, health) = (settings.hops, Health::Up);
        let (shared, address_lost, answers) = (false, false, None);
        Ok(Self { socket, answers, local, shared, overflowed: 0, hops, health, address_lost })
    }

    /// Makes a way whose packets are never fragmented: QUIC finds their length itself.
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

    pub(crate) fn set_hops(&mut self, hops: u8) -> io::Result<()> {
        self.hops = hops;
        match self.local {
            SocketAddr::V4(_) => self.socket.set_multicast_ttl_v4(hops.into()),
            SocketAddr::V6(_) => self.socket.set_multicast_hops_v6(hops.into()),
        }
    }
}

impl Sockets {
    /// Opens the sockets of a source.
    pub fn source(target: Target, settings: SocketSettings) -> Result<Self, NetError> {
        let (multicast, mut receivers) = target.into_parts();
        let mut seen = BTreeSet::new();
        receivers.retain(|to| seen.insert(*to));
        let group = multicast.as_ref().map(|multicast| multicast.group);
        let Some(first) = group.or(receivers.first().copied()) else {
            let text = "a unicast target needs at least one address";
            return Err(NetError::Addresses(text.to_string()));
        };
        if receivers.len() > RECEIVERS_MAX {
            let text = format!("{} receivers by unicast; at most {RECEIVERS_MAX}", receivers.len());
            return Err(NetError::Addresses(text));
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
            let port_error = bind_source(&socket, zone, first.port(), &[], &sockets.settings)?;
            sockets.port_error = sockets.port_error.take().or(port_error);
            let mut way = Way::new(socket, &sockets.settings)?;
            way.answers = beside(&way.socket, first.ip(), &sockets.settings).ok();
            way.set_multicast(at, &sockets.settings)?;
            sockets.ways.push(way);
            sockets.groups[0].destinations.push((index, first));
        }
        if let Some(to) = receivers.first() {
            let socket = open(first.ip(), &sockets.settings)?;
            let any = |port| SocketAddr::new(unspecified(first.ip()), port);
            let others = sockets.ways.iter();
            let others = others.flat_map(|way| [Some(&way.socket), way.answers.as_ref()]);
            let others: Vec<&Socket> = others.flatten().collect();
            let port_error = bind_source(&socket, any, first.port(), &others, &sockets.settings)?;
            sockets.port_error = sockets.port_error.take().or(port_error);
            let mut way = Way::new(socket, &sockets.settings)?;
            way.local.set_ip(route_to(*to)?);
            let index = sockets.ways.len();
            sockets.ways.push(way);
            let to_each = receivers.into_iter().map(|to| (index, to));
            sockets.groups[0].destinations.extend(to_each);
        }
        Ok(sockets)
    }

    /// Opens the sockets of a host behind relays: one for each address family, at any port.
    pub fn via(is_source: bool, settings: SocketSettings) -> Result<Self, NetError> {
        let mut sockets = Self::new(is_source, None, settings)?;
        let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut error = None;
        for address in any {
            let port = sockets.settings.port.unwrap_or(0);
            match Way::whole(SocketAddr::new(address, port), &sockets.settings) {
                Ok(way) => sockets.ways.push(way),
                Err(failed) => error = Some(failed),
            }
        }
        match error {
            Some(error) if sockets.ways.is_empty() => Err(error),
            _ => Ok(sockets),
        }
    }

    /// Opens a relay's sockets: one for each network of its group, then the listening one.
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
            // Bound to no address of the interface, which may change.
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

    pub(crate) fn way_to(&self, to: SocketAddr) -> Option<usize> {
        self.ways.iter().rposition(|way| way.local.is_ipv4() == to.is_ipv4())
    }

    pub(crate) fn join_relay(
        &mut self,
        multicast: Option<(SocketAddr, SocketAddr)>,
    ) -> Result<(), NetError> {
        let group = &mut self.groups[0];
        (group.socket, group.address) = (None, multicast.map(|(_, at)| at));
        (self.multicast, self.interfaces) = (None, Vec::new());
        let Some((relay, at)) = multicast else { return Ok(()) };
        let interfaces = [Interface::Address(route_to(relay)?)].into();
        let multicast = Multicast { group: at, source: None, interfaces };
        multicast.check()?;
        self.interfaces = multicast.resolve()?.into_iter().map(|(it, at)| (it, Some(at))).collect();
        self.multicast = Some(multicast);
        self.open_group(0)
    }

    /// Opens the sockets of a receiver.
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
        sockets.open_group(0)?;
        Ok(sockets)
    }

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
            port_error: None,
            down_since: None,
            routed: None,
            unreachable: (None, false),
            watch: AddressWatch::open(),
        })
    }

    pub(crate) fn receiving(&self) -> impl Iterator<Item = &Socket> {
        let groups = self.groups.iter().filter_map(|group| group.socket.as_ref());
        self.ways.iter().map(|way| &way.socket).chain(groups)
    }

    pub(crate) fn receiving_at(
        &mut self,
        index: usize,
    ) -> Option<(&Socket, &mut u32, Option<GroupId>)> {
        let ways = self.ways.len();
        if let Some(way) = self.ways.get_mut(index) {
            return Some((&way.socket, &mut way.overflowed, None));
        }
        let mut groups = self.groups.iter_mut().filter_map(|group| {
            Some((group.socket.as_ref()?, &mut group.overflowed, Some(group.id)))
        });
        groups.nth(index - ways)
    }

    pub(crate) fn accepts_source(&self, from: IpAddr) -> bool {
        let named = self.multicast.as_ref().and_then(|multicast| multicast.source);
        named.is_none_or(|source| source == from)
    }

    /// Returns why answers arrive at the local address's port instead of the target's, at a source.
    pub const fn port_refused(&self) -> Option<&NetError> {
        self.port_error.as_ref()
    }

    /// Returns the sending address and port; at a receiver the unspecified address.
    pub fn local_address(&self) -> SocketAddr {
        self.ways[0].local
    }

    /// Returns the destinations of packets to the group, or at a receiver the joined group, if any.
    pub fn targets(&self) -> impl Iterator<Item = SocketAddr> {
        self.groups[0].destinations.iter().map(|(_, to)| *to)
    }

    /// Returns the granted buffers: without privilege up to `net.core.rmem_max` and `wmem_max`.
    pub fn buffers(&self) -> Buffers {
        let size = |size: io::Result<usize>| Bytes::new(size.unwrap_or(0) as u64);
        let node = &self.ways[0].socket;
        let receiver = self.groups[0].socket.as_ref().unwrap_or(node);
        Buffers { receive: size(receiver.recv_buffer_size()), send: size(node.send_buffer_size()) }
    }

    /// Disables fragmentation: too long packets are lost, or port_error for this host's own link.
    pub(crate) fn send_whole(&self) -> Result<(), NetError> {
        let Way { socket, local, .. } = &self.ways[0];
        send_whole(socket, local.ip())
    }

    pub(crate) fn into_parts(mut self) -> (UdpSocket, Option<UdpSocket>) {
        let group = self.groups.swap_remove(0).socket;
        (self.ways.swap_remove(0).socket.into(), group.map(Into::into))
    }

    pub(crate) fn is_crowded(socket: &Socket) -> bool {
        // Without a value from the kernel the socket counts as not crowded.
        getsockopt(socket, Memory)
            .is_ok_and(|memory| memory[RECEIVE_USED] > crowd(memory[RECEIVE_MAX]))
    }

    /// Returns the link MTU to all targets in bytes; `None` if unknown. Later links may be smaller.
    pub fn link_mtu(&self) -> Option<Bytes> {
        let of = |(way, to): &(usize, SocketAddr)| {
            // A connected UDP socket has a route, and has sent nothing.
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

fn open(like: IpAddr, settings: &SocketSettings) -> Result<Socket, NetError> {
    let domain = if like.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
        .map_err(NetError::doing("open a socket"))?;
    set_up(&socket, like, settings).map_err(NetError::doing("set up a socket"))?;
    grow_buffers(&socket, settings);
    if settings.offload {
        // Without GRO the kernel passes packets one by one.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
    }
    Ok(socket)
}

/// Opens another socket at `node`'s address, connected to a silent port so that it never receives.
fn beside(node: &Socket, like: IpAddr, settings: &SocketSettings) -> Result<Socket, NetError> {
    let socket = open(like, settings)?;
    let connected = local_address(node).and_then(|mut address| {
        bind_beside(&socket, address, &[node])?;
        address.set_port(DISCARD_PORT);
        socket.connect(&address.into()).map_err(NetError::doing("answer"))
    });
    connected.map(|()| socket)
}

fn share(socket: &Socket) -> Result<(), NetError> {
    socket.set_reuse_address(true).map_err(NetError::doing("share the group's port"))
}

/// Binds a socket to a port shared with `others`. For other programs the port is taken.
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

/// Binds to the requested port, or else to `wanted`, or to any port with the error of `wanted`.
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

const DISCARD_PORT: u16 = 9;

fn set_up(socket: &Socket, like: IpAddr, settings: &SocketSettings) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    setsockopt(socket, sockopt::RxqOvfl, &1)?;
    // Excludes packets of other sockets' memberships; old kernels deliver them as foreign ones.
    let _ = match like {
        IpAddr::V4(_) => socket.set_multicast_all_v4(false),
        IpAddr::V6(_) => socket.set_multicast_all_v6(false),
    };
    let class = if settings.ecn { ECT0 } else { 0 };
    // Packets longer than a link are fragmented: with "don't fragment" a slightly wrong packet size
    // would lose all of them. Linux's multicast router drops large GSO packets, too.
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

/// Bytes in use at which a buffer is crowded. A quarter, since the sender learns of it only after
/// those are read; half of a small buffer, in which a single read makes room.
const fn crowd(buffer: u32) -> u32 {
    if buffer >= LARGE_BUFFER { buffer / 4 } else { buffer / 2 }
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<(), NetError> {
    socket.bind(&address.into()).map_err(|error| NetError::Bind { address, error })
}

fn zoned(ip: IpAddr, port: u16, zone: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if is_link_local(ip) => SocketAddrV6::new(ip, port, 0, zone).into(),
        ip => SocketAddr::new(ip, port),
    }
}

fn local_address(socket: &Socket) -> Result<SocketAddr, NetError> {
    let address = socket.local_addr().map_err(NetError::doing("read an address"))?;
    let other = || io::Error::other("it is no internet address");
    address.as_socket().ok_or_else(other).map_err(NetError::doing("read an address"))
}

pub(crate) fn route_to(to: SocketAddr) -> Result<IpAddr, NetError> {
    let probe = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind(SocketAddr::new(unspecified(to.ip()), 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    probe().map_err(NetError::doing("find a route to the target"))
}

/// ECN-capable, in the two low bits of the traffic class (src: RFC 3168 s5).
const ECT0: u32 = 0b10;

/// Kernel size in bytes from which a buffer holds many reads.
const LARGE_BUFFER: u32 = 4 << 20;

/// Buffer sizes are `int`s, and the kernel doubles them.
const BUFFER_MAX: usize = 1 << 30;
