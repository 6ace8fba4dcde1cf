//! Targets of a source, addresses of a receiver, and network interfaces of this host.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::NetError;

/// Most receivers of a unicast target: every packet is sent to each.
pub const RECEIVERS_MAX: usize = 4096;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// Interface selected by the system's routes; the default.
    #[default]
    Any,
    /// By name, such as `eth0`.
    Name(String),
    /// By one of its addresses.
    Address(IpAddr),
    /// By index.
    Index(u32),
}

/// Multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// Group and UDP port of packets. An IPv6 zone must match `interfaces`, unless these are empty.
    pub group: SocketAddr,
    /// At a receiver: the only accepted source, by a source-specific membership (IGMPv3, MLDv2);
    /// required for groups in 232.0.0.0/8 and ff3x::/32. At a source: the source address.
    pub source: Option<IpAddr>,
    /// Interfaces to join on and to send to, once each; if empty, routes choose.
    pub interfaces: Vec<Interface>,
}

impl Multicast {
    /// Makes a group with any source, on the interface that routes choose.
    pub const fn new(group: SocketAddr) -> Self {
        Self { group, source: None, interfaces: Vec::new() }
    }

    pub(crate) fn check(&self) -> Result<(), NetError> {
        let ip = self.group.ip();
        if !ip.is_multicast() {
            return Err(NetError::NotMulticast(ip));
        }
        if let IpAddr::V6(group) = ip
            && is_link_local(group)
            && self.interfaces().contains(&Interface::Any)
        {
            return Err(NetError::NeedsInterface(ip));
        }
        match self.source {
            Some(source) if source.is_ipv4() != ip.is_ipv4() => Err(NetError::Family(ip, source)),
            _ => Ok(()),
        }
    }

    fn interfaces(&self) -> Vec<Interface> {
        match (&*self.interfaces, self.zone()) {
            ([] | [Interface::Any], Some(zone)) => vec![Interface::Index(zone)],
            ([], None) => vec![Interface::Any],
            (named, _) => named.to_vec(),
        }
    }

    fn zone(&self) -> Option<u32> {
        match self.group {
            SocketAddr::V6(group) if group.scope_id() != 0 => Some(group.scope_id()),
            _ => None,
        }
    }

    fn check_zone(&self, found: &[(Interface, Resolved)]) -> Result<(), NetError> {
        let Some(zone) = self.zone() else { return Ok(()) };
        let ip = self.group.ip();
        let Some(name) = interface_name(zone) else {
            let wanted = Interface::Index(zone).to_string();
            return Err(NetError::Interface { wanted, present: present_interfaces(ip) });
        };
        match found.iter().find(|(_, at)| at.index != zone) {
            None => Ok(()),
            Some((other, _)) => Err(NetError::Addresses(format!(
                "the zone of {ip}%{name} says another interface than {other}: name one of them, in the address or with \
                 --interface"
            ))),
        }
    }

    pub(crate) fn resolve(&self) -> Result<Vec<(Interface, Resolved)>, NetError> {
        let (mut found, mut missing, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        let ip = self.group.ip();
        for interface in self.interfaces() {
            match interface.resolve(ip) {
                Ok(at) if seen.insert(at.index) => found.push((interface.lasting(at), at)),
                Ok(_) => {}
                Err(NetError::Interface { wanted, .. }) => missing.push(wanted),
                Err(error) => return Err(error),
            }
        }
        if missing.is_empty() {
            self.check_zone(&found)?;
            return Ok(found);
        }
        let wanted = missing.join(", nor ");
        Err(NetError::Interface { wanted, present: present_interfaces(ip) })
    }
}

/// Destinations of a source's packets to its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Multicast group.
    Multicast(Multicast),
    /// Unicast receivers without multicast: 1 to [`RECEIVERS_MAX`] addresses of one family.
    Unicast(Vec<SocketAddr>),
    /// Multicast group and unicast receivers in one session.
    Both(Multicast, Vec<SocketAddr>),
}

impl Target {
    pub(crate) fn into_parts(self) -> (Option<Multicast>, Vec<SocketAddr>) {
        match self {
            Self::Multicast(group) => (Some(group), Vec::new()),
            Self::Unicast(receivers) => (None, receivers),
            Self::Both(group, receivers) => (Some(group), receivers),
        }
    }
}

/// Addresses at which a receiver listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Multicast group.
    Multicast(Multicast),
    /// Local address and port for unicast packets of sources.
    Unicast(SocketAddr),
    /// Both.
    Both(Multicast, SocketAddr),
}

/// Destination of a receiver's packets to the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upstream {
    /// UDP address and port that the source's packets come from; the default.
    #[default]
    FromPacket,
    /// Source's address with this port. OpenPGM and ZeroMQ do not listen where they send from.
    Port(u16),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) index: u32,
    pub(crate) address: Option<IpAddr>,
}

impl Interface {
    /// Returns an identifier that stays valid when the interface's addresses change.
    fn lasting(&self, at: Resolved) -> Self {
        match self {
            Self::Address(_) => interface_name(at.index).map_or_else(|| self.clone(), Self::Name),
            other => other.clone(),
        }
    }

    pub(crate) fn resolve(&self, like: IpAddr) -> Result<Resolved, NetError> {
        let missing =
            || NetError::Interface { wanted: self.to_string(), present: present_interfaces(like) };
        let (index, wanted) = match self {
            Self::Any => return Ok(Resolved { index: 0, address: None }),
            Self::Name(name) => (if_nametoindex(name.as_str()).map_err(|_| missing())?, None),
            Self::Index(index) => {
                interface_name(*index).ok_or_else(missing)?;
                (*index, None)
            }
            Self::Address(address) => (0, Some(*address)),
        };
        let mut found: Option<Resolved> = None;
        let unready = unready_addresses();
        for entry in getifaddrs().map_err(NetError::doing("list interfaces"))? {
            let Some(address) = entry.address.and_then(ip_of) else { continue };
            let Ok(at) = if_nametoindex(entry.interface_name.as_str()) else { continue };
            let chosen = wanted.map_or(at == index, |wanted| wanted == address);
            if !chosen || address.is_ipv4() != like.is_ipv4() {
                continue;
            }
            let rank = |address| (suits(address, like), !unready.contains(&address));
            let better = found
                .and_then(|found| found.address)
                .is_none_or(|other| rank(address) > rank(other));
            if better {
                found = Some(Resolved { index: at, address: Some(address) });
            }
        }
        match (found, wanted) {
            (Some(found), _) => Ok(found),
            (None, None) => Ok(Resolved { index, address: None }),
            (None, Some(_)) => Err(missing()),
        }
    }
}

/// Returns the name of the interface with this index; `None` for an unknown index.
pub fn interface_name(index: u32) -> Option<String> {
    // nix returns an empty name for an unknown index, and no error.
    let name = if_indextoname(index).ok()?.into_string().ok()?;
    Some(name).filter(|name| !name.is_empty())
}

fn present_interfaces(like: IpAddr) -> String {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in getifaddrs().into_iter().flatten() {
        let addresses = all.entry(entry.interface_name).or_default();
        let address = entry.address.and_then(ip_of);
        addresses
            .extend(address.filter(|ip| ip.is_ipv4() == like.is_ipv4()).map(|ip| ip.to_string()));
    }
    let shown = all.into_iter().map(|(name, addresses)| match addresses.is_empty() {
        true => name,
        false => format!("{name} ({})", addresses.join(", ")),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn suits(from: IpAddr, to: IpAddr) -> bool {
    match (from, to) {
        (IpAddr::V6(from), IpAddr::V6(to)) => from.is_unicast_link_local() == is_link_local(to),
        _ => true,
    }
}

pub(crate) fn has_address(index: u32, address: IpAddr) -> bool {
    let mut all = getifaddrs().into_iter().flatten();
    all.any(|entry| {
        entry.address.and_then(ip_of) == Some(address)
            && (index == 0 || if_nametoindex(entry.interface_name.as_str()) == Ok(index))
    })
}

pub(crate) fn interface_of(address: IpAddr) -> Option<u32> {
    let mut all = getifaddrs().into_iter().flatten();
    let found = all.find(|entry| entry.address.and_then(ip_of) == Some(address))?;
    if_nametoindex(found.interface_name.as_str()).ok()
}

/// IPv6 addresses that the kernel avoids as a source: temporary, deprecated or not usable yet.
fn unready_addresses() -> BTreeSet<IpAddr> {
    let table = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    table.lines().filter_map(unready_address).collect()
}

/// Parses the address of a line of `if_inet6` with such flags (src: linux/if_addr.h).
fn unready_address(line: &str) -> Option<IpAddr> {
    const UNREADY: u8 = 0x01 | 0x08 | 0x20 | 0x40;
    let mut fields = line.split_whitespace();
    let address = u128::from_str_radix(fields.next()?, 16).ok()?;
    let flags = u8::from_str_radix(fields.nth(3)?, 16).ok()?;
    (flags & UNREADY != 0).then(|| Ipv6Addr::from(address).into())
}

pub(crate) fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || ip.is_multicast() && ip.segments()[0] & 0x000f <= 2
}

pub(crate) fn ip_of(storage: nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    socket_address(&storage).map(|address| address.ip())
}

pub(crate) fn socket_address(storage: &nix::sys::socket::SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(IpAddr::V4(v4.ip()), v4.port()));
    }
    let v6 = storage.as_sockaddr_in6()?;
    let zone = if is_link_local(v6.ip()) { v6.scope_id() } else { 0 };
    Some(SocketAddr::V6(std::net::SocketAddrV6::new(v6.ip(), v6.port(), 0, zone)))
}

pub(crate) fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Name(name) => write!(f, "\"{name}\""),
            Self::Address(address) => write!(f, "with address {address}"),
            Self::Index(index) => write!(f, "number {index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_of_a_group_is_its_interface() {
        let lo = if_nametoindex("lo").unwrap();
        let group = |zone: u32| {
            let address = std::net::SocketAddrV6::new("ff12::7".parse().unwrap(), 7500, 0, zone);
            Multicast::new(address.into())
        };
        assert!(matches!(group(0).check(), Err(NetError::NeedsInterface(_))));
        group(lo).check().unwrap();
        let named = |name: &str| Multicast { interfaces: vec![name_of(name)], ..group(lo) };
        for multicast in [group(lo), named("lo")] {
            assert_eq!(multicast.resolve().unwrap()[0].1.index, lo);
        }
        let absent = group(lo + 100_000).resolve().unwrap_err().to_string();
        assert!(absent.contains("interface number 100001"), "{absent}");
        let other = Multicast { interfaces: vec![name_of("lo"), Interface::Any], ..group(lo) };
        let error = other.resolve().unwrap_err().to_string();
        assert!(error.contains("ff12::7%lo") && error.contains("--interface"), "{error}");
    }

    fn name_of(name: &str) -> Interface {
        Interface::Name(name.to_string())
    }

    #[test]
    fn the_loopback_interface_is_found_in_every_way() {
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        let by_name = Interface::Name("lo".to_string()).resolve(localhost).unwrap();
        assert_eq!(by_name.address, Some(localhost));
        for other in [Interface::Index(by_name.index), Interface::Address(localhost)] {
            assert_eq!(other.resolve(localhost).unwrap(), by_name);
        }
        assert_eq!(Interface::Any.resolve(localhost).unwrap().index, 0);
    }

    #[test]
    fn an_interface_that_is_not_there_is_named_in_the_error() {
        let error = Interface::Name("none0".into()).resolve(Ipv4Addr::LOCALHOST.into());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("none0") && error.contains("lo (127.0.0.1"), "{error}");
        let foreign = Interface::Address("192.0.2.77".parse().unwrap());
        let error = foreign.resolve(Ipv4Addr::LOCALHOST.into()).unwrap_err().to_string();
        assert!(error.contains("192.0.2.77; there are ") && error.contains("lo ("), "{error}");
    }

    #[test]
    fn each_interface_counts_once_and_all_that_are_missing_are_named() {
        let group = Multicast::new("239.1.2.3:3056".parse().unwrap());
        let name = |text: &str| Interface::Name(text.to_string());
        let lo = Interface::Address(Ipv4Addr::LOCALHOST.into());
        let twice = Multicast { interfaces: vec![name("lo"), lo], ..group.clone() };
        assert_eq!(twice.resolve().unwrap().len(), 1);
        let interfaces = vec![name("none0"), name("lo"), name("none1")];
        let error = Multicast { interfaces, ..group }.resolve().unwrap_err().to_string();
        assert!(error.contains("\"none0\", nor \"none1\"; there are "), "{error}");
    }

    #[test]
    fn temporary_and_deprecated_addresses_come_last() {
        for (flags, unready) in
            [("80", false), ("00", false), ("01", true), ("20", true), ("c0", true)]
        {
            let line = format!("fd770000000000000000000000000001 02 40 00 {flags}       e0");
            assert_eq!(unready_address(&line).is_some(), unready, "{flags}");
        }
        assert_eq!(unready_address("fd77"), None);
    }

    #[test]
    fn groups_are_checked() {
        let group = |text: &str| Multicast::new(text.parse().unwrap());
        assert!(group("239.1.2.3:3056").check().is_ok());
        assert!(group("[ff15::1]:3056").check().is_ok());
        assert!(group("10.0.0.1:3056").check().is_err());
        let link = group("[ff02::1]:3056");
        assert!(matches!(link.check(), Err(NetError::NeedsInterface(_))));
        let named = Multicast { interfaces: vec![Interface::Name("lo".into())], ..link };
        assert!(named.check().is_ok());
        let mixed = Multicast { source: Some("::1".parse().unwrap()), ..group("239.1.2.3:1") };
        assert!(matches!(mixed.check(), Err(NetError::Family(..))));
    }
}
