//! Netlink requests to the kernel: an address, a route, an interface up or down.

use std::io;
use std::net::Ipv4Addr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

pub(crate) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

pub(crate) struct Routing {
    socket: Socket,
}

impl Routing {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { socket: open(NETLINK_ROUTE)? })
    }

    pub(crate) fn set(&self, interface: u32, up: bool) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        message.header.change_mask = LinkFlags::Up;
        self.ask(RouteNetlinkMessage::SetLink(message))
    }

    pub(crate) fn add_address(&self, interface: u32, address: Ipv4Addr) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::NewAddress(Self::address(interface, address)))
    }

    pub(crate) fn remove_address(&self, interface: u32, address: Ipv4Addr) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::DelAddress(Self::address(interface, address)))
    }

    fn address(interface: u32, address: Ipv4Addr) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 32;
        message.header.index = interface;
        message.attributes = vec![
            AddressAttribute::Address(address.into()),
            AddressAttribute::Local(address.into()),
        ];
        message
    }

    pub(crate) fn add_route(
        &self,
        interface: u32,
        (block, prefix_len): (Ipv4Addr, u8),
        source: Ipv4Addr,
        metrics: Vec<RouteMetric>,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: AddressFamily::Inet,
            destination_prefix_length: prefix_len,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Link,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet(block)),
            RouteAttribute::Oif(interface),
            RouteAttribute::PrefSource(RouteAddress::Inet(source)),
            // With equal priorities hosts and groups might share a route with a wrong time to live.
            RouteAttribute::Priority(prefix_len.into()),
        ];
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        self.ask(RouteNetlinkMessage::NewRoute(message))
    }

    fn ask(&self, request: RouteNetlinkMessage) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
        match answer.map_err(io::Error::other)?.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(()),
        }
    }
}
