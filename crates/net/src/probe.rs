//! Interface towards a group, and plain sockets for network tests.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use faircast_base::Bytes;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use crate::address::ip_of;
use crate::{Buffers, Interface, Listen, Multicast, NetError, SocketSettings, Sockets, Target};

/// Interface by which a group is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct InterfaceState {
    pub name: String,
    /// Address of the group's family, if any.
    pub address: Option<IpAddr>,
    /// True if the interface is up and has a carrier.
    pub is_up: bool,
    pub is_multicast: bool,
}

impl Multicast {
    /// Finds the interface by which the group is reached.
    pub fn interface_state(&self) -> Result<InterfaceState, NetError> {
        self.check()?;
        let ip = self.group.ip();
        let mut at = self.resolve()?[0].1;
        if at.index == 0 {
            at = Interface::Address(crate::socket::route_to(self.group)?).resolve(ip)?;
        }
        let all = getifaddrs().map_err(NetError::doing("list interfaces"))?;
        let mut all = all.filter(|it| if_nametoindex(&*it.interface_name) == Ok(at.index));
        let entry = all.next().ok_or(nix::Error::ENODEV);
        let entry = entry.map_err(NetError::doing("find the interface"))?;
        // The loopback interface supports multicast without the flag.
        let multicast = InterfaceFlags::IFF_MULTICAST | InterfaceFlags::IFF_LOOPBACK;
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        Ok(InterfaceState {
            name: entry.interface_name,
            address: at.address,
            is_up: entry.flags.contains(up),
            is_multicast: entry.flags.intersects(multicast),
        })
    }
}

/// Returns the addresses of all interfaces that are up, with the interfaces' names.
pub fn interface_addresses() -> Result<Vec<(String, IpAddr)>, NetError> {
    let all = getifaddrs().map_err(NetError::doing("list interfaces"))?;
    let up = all.filter(|entry| entry.flags.contains(InterfaceFlags::IFF_UP));
    let named = up.filter_map(|it| Some((it.interface_name, it.address.and_then(ip_of)?)));
    Ok(named.collect())
}

/// Opens a socket that never fragments, with read timeout `wait`. Returns its longest packet, too.
pub fn probe_socket(
    to: SocketAddr,
    settings: SocketSettings,
    wait: Duration,
) -> Result<(UdpSocket, Option<Bytes>), NetError> {
    let sockets = Sockets::source(Target::Unicast(vec![to]), settings)?;
    sockets.send_whole()?;
    let link_mtu = sockets.link_mtu();
    let socket = sockets.into_parts().0;
    let waits = socket.set_nonblocking(false).and_then(|()| socket.set_read_timeout(Some(wait)));
    waits.map_err(NetError::doing("wait for packets"))?;
    Ok((socket, link_mtu))
}

/// Sockets of a group member without a driver. Sent packets are never fragmented.
#[derive(Debug)]
pub struct ProbeSockets {
    /// Sends, and receives unicast.
    pub node: UdpSocket,
    /// Receives the group.
    pub group: UdpSocket,
    /// Longest packet that this host can send unfragmented.
    pub link_mtu: Option<Bytes>,
    /// Kernel buffer sizes.
    pub buffers: Buffers,
}

impl ProbeSockets {
    /// Joins a group.
    pub fn join(multicast: Multicast, settings: SocketSettings) -> Result<Self, NetError> {
        let settings = SocketSettings { offload: false, ..settings };
        let sockets = Sockets::receiver(Listen::Multicast(multicast), settings)?;
        sockets.send_whole()?;
        let (link_mtu, buffers) = (sockets.link_mtu(), sockets.buffers());
        let (node, group) = sockets.into_parts();
        let group = group.expect("a receiver of a group has a socket for it");
        Ok(Self { node, group, link_mtu, buffers })
    }
}
