//! Opens the sockets of a source or of a receiver and keeps them on their group.
//!
//! Which socket gets which packets: a group is heard on a socket that is bound to the group's own
//! address and port with address reuse, so that any number of receivers on a host hear it and
//! nothing else comes there. Everything is sent from a second socket, and unicast comes to it: a
//! source binds its own address and the target's port where nobody has it, a receiver any port. What
//! a source of a group answers to single hosts leaves by a third one, from the same address and port.

mod options;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

use faircast_base::Bytes;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use self::options::{
    GroupRequest, InterfaceRequest, JoinSourceV4, JoinSourceV6, JoinV4, JoinV6, LeaveSourceV4,
    LeaveSourceV6, LeaveV4, LeaveV6, Memory, MulticastInterfaceV4, PathMtuV4, PathMtuV6,
    RECEIVE_MAX, RECEIVE_USED, SourceRequest, WayMtuV4, WayMtuV6,
};
use crate::address::{Resolved, is_link_local, unspecified};
use crate::{Listen, Multicast, NetError, RECEIVERS_MAX, SocketSettings, Target};

/// The open sockets of one source or one receiver.
#[derive(Debug)]
pub struct Sockets {
    /// Sends everything, and hears unicast.
    pub(crate) node: Socket,
    /// Hears the group.
    pub(crate) group: Option<Socket>,
    /// At a source of a group: sends to single hosts, and hears nothing. What waits there for the
    /// link's address of a host, which may be nobody's, takes no room from data.
    answers: Option<Socket>,
    /// Where packets for the group go; none at a receiver without a group.
    pub(crate) receivers: Vec<SocketAddr>,
    pub(crate) is_source: bool,
    pub(crate) settings: SocketSettings,
    multicast: Option<Multicast>,
    /// The interface that the group is on, as it was last found; `None` while it is gone.
    at: Option<Resolved>,
    local: SocketAddr,
    /// The hops that the socket now gives multicast packets.
    hops: u8,
    /// At a source: why it does not have the port of its target.
    refused: Option<NetError>,
}

/// Sizes of the kernel's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// For receiving, of the socket that hears most.
    pub receive: Bytes,
    /// For sending.
    pub send: Bytes,
}

impl Sockets {
    /// The sockets of a source.
    ///
    /// # Errors
    /// Bad addresses, an interface that is not there, and what the system refuses.
    pub fn source(target: Target, settings: SocketSettings) -> Result<Self, NetError> {
        let (receivers, multicast) = match target {
            Target::Multicast(multicast) => {
                multicast.check()?;
                (vec![multicast.group], Some(multicast))
            }
            Target::Unicast(receivers) => (receivers, None),
        };
        let first = *receivers.first().ok_or(NetError::NoReceivers)?;
        if receivers.len() > RECEIVERS_MAX {
            return Err(NetError::TooManyReceivers(receivers.len()));
        }
        if let Some(other) = receivers.iter().find(|other| other.is_ipv4() != first.is_ipv4()) {
            return Err(NetError::Family(first.ip(), other.ip()));
        }
        let at = multicast.as_ref().map(|group| group.interface.resolve(first.ip())).transpose()?;
        let given = multicast.as_ref().and_then(|group| group.source);
        let address = match given.or(at.and_then(|at| at.address)) {
            Some(address) => address,
            None => route_to(first)?,
        };
        // A list may span several networks.
        let bound = if multicast.is_some() { address } else { unspecified(address) };
        let zone = at.map_or(0, |at| at.index);
        let node = open(first.ip(), &settings)?;
        let mut refused = None;
        match settings.port {
            Some(port) => bind(&node, zoned(bound, port, zone))?,
            None => {
                if let Err(error) = bind(&node, zoned(bound, first.port(), zone)) {
                    bind(&node, zoned(bound, 0, zone))?;
                    refused = Some(error);
                }
            }
        }
        let answers = multicast.as_ref().and_then(|_| beside(&node, first.ip(), &settings).ok());
        let mut sockets = Self::new(node, None, receivers, true, multicast, at, settings)?;
        sockets.local.set_ip(address);
        (sockets.refused, sockets.answers) = (refused, answers);
        Ok(sockets)
    }

    /// The sockets of a receiver.
    ///
    /// # Errors
    /// Bad addresses, an interface that is not there, and what the system refuses.
    pub fn receiver(listen: Listen, settings: SocketSettings) -> Result<Self, NetError> {
        let multicast = match listen {
            Listen::Unicast(address) => {
                let node = open(address.ip(), &settings)?;
                bind(&node, address)?;
                return Self::new(node, None, Vec::new(), false, None, None, settings);
            }
            Listen::Multicast(multicast) => multicast,
        };
        multicast.check()?;
        let ip = multicast.group.ip();
        let at = multicast.interface.resolve(ip)?;
        let node = open(ip, &settings)?;
        bind(&node, SocketAddr::new(unspecified(ip), settings.port.unwrap_or(0)))?;
        let group = open(ip, &settings)?;
        let reuse = group.set_reuse_address(true);
        reuse.map_err(|error| NetError::socket("share the group's port", error))?;
        bind(&group, zoned(ip, multicast.group.port(), at.index))?;
        let only = match ip {
            IpAddr::V4(_) => group.set_multicast_all_v4(false),
            IpAddr::V6(_) => group.set_multicast_all_v6(false),
        };
        only.map_err(|error| NetError::socket("hear only this group", error))?;
        let receivers = vec![multicast.group];
        let (group, multicast, at) = (Some(group), Some(multicast), Some(at));
        Self::new(node, group, receivers, false, multicast, at, settings)
    }

    fn new(
        node: Socket,
        group: Option<Socket>,
        receivers: Vec<SocketAddr>,
        is_source: bool,
        multicast: Option<Multicast>,
        at: Option<Resolved>,
        settings: SocketSettings,
    ) -> Result<Self, NetError> {
        let local = local_address(&node)?;
        let hops = settings.hops;
        let mut sockets = Self {
            node,
            group,
            receivers,
            is_source,
            settings,
            multicast,
            at,
            local,
            hops,
            refused: None,
            answers: None,
        };
        if let Some(at) = sockets.at {
            sockets.aim(at).map_err(|error| NetError::socket("choose an interface", error))?;
            sockets.set_hops(hops).map_err(|error| NetError::socket("set the hops", error))?;
            let loopback = sockets.settings.loopback;
            let done = match sockets.local {
                SocketAddr::V4(_) => sockets.node.set_multicast_loop_v4(loopback),
                SocketAddr::V6(_) => sockets.node.set_multicast_loop_v6(loopback),
            };
            done.map_err(|error| NetError::socket("set loopback", error))?;
            sockets.join(at).map_err(|error| NetError::Join {
                group: sockets.receivers[0],
                error: error.into(),
            })?;
        }
        Ok(sockets)
    }

    /// Whether sessions from this address are wanted: where a source was named, its own alone.
    pub(crate) fn hears(&self, from: IpAddr) -> bool {
        let named = self.multicast.as_ref().and_then(|multicast| multicast.source);
        named.is_none_or(|source| source == from)
    }

    /// At a source: why answers do not come to the port of the target, which was asked for first, but
    /// to that of [`local_address`](Self::local_address).
    pub const fn port_refused(&self) -> Option<&NetError> {
        self.refused.as_ref()
    }

    /// The address and port from which it sends. At a receiver the address is the unspecified one.
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Where packets for the group go, or the group that is heard; empty at a receiver without one.
    pub fn targets(&self) -> &[SocketAddr] {
        &self.receivers
    }

    /// The buffers that the kernel gave, which may be less than was asked for: without the
    /// privilege to do so `net.core.rmem_max` and `wmem_max` are the limits.
    pub fn buffers(&self) -> Buffers {
        let size = |size: io::Result<usize>| Bytes::new(size.unwrap_or(0) as u64);
        let hears = self.group.as_ref().unwrap_or(&self.node);
        Buffers {
            receive: size(hears.recv_buffer_size()),
            send: size(self.node.send_buffer_size()),
        }
    }

    /// From now on what is sent is not cut into pieces, whatever a link takes: it is lost instead, and
    /// what the own link does not take is refused.
    pub(crate) fn send_whole(&self) -> Result<(), NetError> {
        let done = match self.local {
            SocketAddr::V4(_) => setsockopt(&self.node, PathMtuV4, &libc::IP_PMTUDISC_PROBE),
            SocketAddr::V6(_) => setsockopt(&self.node, PathMtuV6, &libc::IPV6_PMTUDISC_PROBE),
        };
        done.map_err(|error| NetError::socket("keep packets whole", error))
    }

    /// The sockets themselves: that which sends, and that which hears the group.
    pub(crate) fn into_parts(self) -> (UdpSocket, Option<UdpSocket>) {
        (self.node.into(), self.group.map(Into::into))
    }

    /// The socket by which packets leave that are for one host alone.
    pub(crate) fn for_one(&self) -> &Socket {
        self.answers.as_ref().unwrap_or(&self.node)
    }

    /// Whether that is another one than the socket for all others.
    pub(crate) const fn has_own_for_one(&self) -> bool {
        self.answers.is_some()
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
        let of = |to: &SocketAddr| {
            // A connected UDP socket has been routed, and has sent nothing.
            let probe = open(to.ip(), &self.settings).ok()?;
            if let Some(at) = self.at {
                aim(&probe, to.ip(), at).ok()?;
            }
            probe.connect(&(*to).into()).ok()?;
            let mtu = match to {
                SocketAddr::V4(_) => getsockopt(&probe, WayMtuV4),
                SocketAddr::V6(_) => getsockopt(&probe, WayMtuV6),
            };
            u64::try_from(mtu.ok()?).ok()
        };
        self.receivers.iter().filter_map(of).min().map(Bytes::new)
    }

    /// Gives the multicast packets that follow so many hops.
    pub(crate) fn set_hops(&mut self, hops: u8) -> io::Result<()> {
        self.hops = hops;
        match self.local {
            SocketAddr::V4(_) => self.node.set_multicast_ttl_v4(hops.into()),
            SocketAddr::V6(_) => self.node.set_multicast_hops_v6(hops.into()),
        }
    }

    pub(crate) const fn hops(&self) -> u8 {
        self.hops
    }

    /// Joins again where the interface was taken away and came back. To be called now and then.
    pub(crate) fn maintain(&mut self) {
        let Some(multicast) = &self.multicast else { return };
        let found = multicast.interface.resolve(multicast.group.ip()).ok();
        let moved = found.map(|at| at.index) != self.at.map(|at| at.index);
        if moved && let Some(old) = self.at {
            // The kernel remembers memberships of interfaces that are gone, and allows few.
            let _ = self.leave(old);
        }
        self.at = found;
        if let Some(at) = found {
            // Joining twice fails and changes nothing; both fail while the interface has no
            // address, and are tried again.
            let _ = self.join(at);
            if moved {
                let _ = self.aim(at);
            }
        }
    }

    fn aim(&self, at: Resolved) -> nix::Result<()> {
        aim(&self.node, self.local.ip(), at)
    }

    fn join(&self, at: Resolved) -> nix::Result<()> {
        let (Some(socket), Some(multicast)) = (&self.group, &self.multicast) else { return Ok(()) };
        let group = multicast.group;
        let all = GroupRequest::new(at.index, group);
        let joined = match (multicast.source, group) {
            (None, SocketAddr::V4(_)) => setsockopt(socket, JoinV4, &all),
            (None, SocketAddr::V6(_)) => setsockopt(socket, JoinV6, &all),
            (Some(source), _) => {
                let one = SourceRequest::new(at.index, group, source);
                if group.is_ipv4() {
                    setsockopt(socket, JoinSourceV4, &one)
                } else {
                    setsockopt(socket, JoinSourceV6, &one)
                }
            }
        };
        match joined {
            // It is a member already, of the group or of the group from this source.
            Err(nix::Error::EADDRINUSE | nix::Error::EADDRNOTAVAIL) => Ok(()),
            joined => joined,
        }
    }

    fn leave(&self, at: Resolved) -> nix::Result<()> {
        let (Some(socket), Some(multicast)) = (&self.group, &self.multicast) else { return Ok(()) };
        let group = multicast.group;
        let all = GroupRequest::new(at.index, group);
        match (multicast.source, group) {
            (None, SocketAddr::V4(_)) => setsockopt(socket, LeaveV4, &all),
            (None, SocketAddr::V6(_)) => setsockopt(socket, LeaveV6, &all),
            (Some(source), _) => {
                let one = SourceRequest::new(at.index, group, source);
                if group.is_ipv4() {
                    setsockopt(socket, LeaveSourceV4, &one)
                } else {
                    setsockopt(socket, LeaveSourceV6, &one)
                }
            }
        }
    }
}

/// Lets multicast packets of the family of `like` leave by an interface.
fn aim(socket: &Socket, like: IpAddr, at: Resolved) -> nix::Result<()> {
    match like {
        IpAddr::V4(_) if at.index > 0 => {
            setsockopt(socket, MulticastInterfaceV4, &InterfaceRequest::new(at.index))
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
        .map_err(|error| NetError::socket("open a socket", error))?;
    set_up(&socket, like, settings).map_err(|error| NetError::socket("set up a socket", error))?;
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
    let share = |share| node.set_reuse_address(share).and(socket.set_reuse_address(share));
    let bound = share(true).and_then(|()| {
        let address = node.local_addr()?;
        socket.bind(&address)?;
        let mut nobody = address.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        nobody.set_port(DISCARD_PORT);
        socket.connect(&nobody.into())
    });
    // Other programs are told that the port is taken.
    bound.and(share(false)).map_err(|error| NetError::socket("answer apart from data", error))?;
    Ok(socket)
}

/// That of the discard service, which answers nothing.
const DISCARD_PORT: u16 = 9;

fn set_up(socket: &Socket, like: IpAddr, settings: &SocketSettings) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    setsockopt(socket, sockopt::RxqOvfl, &1)?;
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
    let address =
        socket.local_addr().map_err(|error| NetError::socket("read an address", error))?;
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
    probe().map_err(|error| NetError::socket("find a route to the target", error))
}

/// ECN-capable, in the two low bits of the traffic class (src: RFC 3168 s5).
const ECT0: u32 = 0b10;

/// Buffers from this size on, in bytes as the kernel counts them, hold many reads.
const LARGE_BUFFER: u32 = 4 << 20;

/// Sizes of buffers are `int`s, and the kernel doubles them.
const BUFFER_MAX: usize = 1 << 30;
