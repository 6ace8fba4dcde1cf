//! Findings about this host: interface, socket buffers, kernel settings and key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use faircast_net::{Buffers, InterfaceState};

use super::finding::{self as f, Finding};

#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) group: Option<SocketAddr>,
    pub(super) interface: Option<Result<InterfaceState, String>>,
    /// Other interfaces with addresses of the group's family, without loopback.
    pub(super) others: Vec<String>,
    pub(super) link_mtu: Option<u64>,
    pub(super) buffers: Option<Buffers>,
    pub(super) rmem_max: Option<u64>,
    pub(super) wmem_max: Option<u64>,
    pub(super) is_root: bool,
    /// `rp_filter` and `force_igmp_version`, each of `all` and of the interface.
    pub(super) reverse_path: [Option<u64>; 2],
    pub(super) igmp: [Option<u64>; 2],
    pub(super) key: Option<String>,
}

/// Least buffers for fast transfers: some milliseconds at 1 Gbit/s.
const RECEIVE_MIN: u64 = 1_600_000;
const SEND_MIN: u64 = 400_000;
const MTU_USUAL: u64 = 1500;

impl Facts {
    pub(super) fn read_settings(&mut self) {
        let number = |path: String| {
            std::fs::read_to_string(Path::new("/proc/sys/net").join(path)).ok()?.trim().parse().ok()
        };
        self.rmem_max = number("core/rmem_max".into());
        self.wmem_max = number("core/wmem_max".into());
        self.is_root = nix::unistd::geteuid().is_root();
        let name =
            self.interface.as_ref().and_then(|used| used.as_ref().ok()).map(|used| &used.name);
        let of = |key: &str| {
            let at = |name: &str| number(format!("ipv4/conf/{name}/{key}"));
            [at("all"), name.and_then(|name| at(name))]
        };
        (self.reverse_path, self.igmp) = (of("rp_filter"), of("force_igmp_version"));
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(self.interface());
        findings.extend(self.group.map(address));
        for (check, granted, max, least) in [
            (&f::RECEIVE_BUFFER, self.buffers.map(|it| it.receive), self.rmem_max, RECEIVE_MIN),
            (&f::SEND_BUFFER, self.buffers.map(|it| it.send), self.wmem_max, SEND_MIN),
        ] {
            // The kernel grants twice the requested size, half of it for its own use.
            findings.extend(match (granted.map(|bytes| bytes.count() / 2), max) {
                (None, None) => None,
                (None, Some(_)) if self.is_root => Some(check.found(true, "as root, any")),
                (Some(bytes), _) | (None, Some(bytes)) => {
                    Some(check.found(bytes >= least, format!("{} kB", bytes / 1000)))
                }
            });
        }
        findings.extend(self.reverse_path_found());
        if let Some(mtu) = self.link_mtu {
            findings.push(f::LINK_MTU.found(mtu >= MTU_USUAL, format!("{mtu} bytes")));
        }
        findings.extend(self.igmp_found());
        findings.push(match &self.key {
            Some(id) => f::KEY.found(true, format!("id {id}; compare it with the other hosts'")),
            None => f::KEY.untested("none given: everybody on the network can read and forge"),
        });
        findings
    }

    fn interface(&self) -> Vec<Finding> {
        let used = match &self.interface {
            None => return Vec::new(),
            Some(Err(error)) => return vec![f::ROUTE.found(false, error.clone())],
            Some(Ok(used)) => used,
        };
        let address = used.address.map_or_else(|| "no address".into(), |ip| ip.to_string());
        let state = match (used.is_up, used.is_multicast) {
            (false, _) => "down, or without a carrier",
            (true, false) => "does not carry multicast",
            (true, true) => "up",
        };
        let is_right = used.is_up && used.is_multicast && used.address.is_some();
        let found = format!("{}, {address}, {state}", used.name);
        let mut findings = vec![f::INTERFACE.found(is_right, found)];
        let route = match self.others.is_empty() {
            true => format!("leads to the group by {}", used.name),
            false => format!(
                "leads to the group by {}; there are also {}: name one with --interface if it is \
                 not this",
                used.name,
                self.others.join(", ")
            ),
        };
        findings.push(f::ROUTE.found(true, route));
        findings
    }

    fn is_v6(&self) -> bool {
        self.group.is_some_and(|group| group.is_ipv6())
    }

    fn reverse_path_found(&self) -> Option<Finding> {
        let [all, own] = self.reverse_path;
        let mode = all.max(own)?;
        if self.is_v6() {
            return None;
        }
        let found = match mode {
            0 => "off".to_string(),
            1 if self.others.is_empty() => "strict, with one interface".to_string(),
            1 => {
                "strict: what comes by another interface than leads to the sender is dropped".into()
            }
            _ => "loose".to_string(),
        };
        Some(f::REVERSE_PATH.found(mode != 1 || self.others.is_empty(), found))
    }

    fn igmp_found(&self) -> Option<Finding> {
        let mut versions = self.igmp.into_iter().flatten().peekable();
        if self.is_v6() || versions.peek().is_none() {
            return None;
        }
        Some(match versions.find(|version| *version != 0) {
            None | Some(3) => f::IGMP.found(true, "as the network asks for"),
            Some(version) => f::IGMP.found(false, format!("forced to {version}")),
        })
    }
}

pub(super) fn address(group: SocketAddr) -> Finding {
    let shown = group.to_string();
    let wrong = |what: &str| f::ADDRESS.found(false, format!("{shown}: {what}"));
    if group.port() < 1024 {
        return wrong("ports below 1024 belong to services of the system and need root");
    }
    match group.ip() {
        IpAddr::V4(ip) => lint_v4(ip).map_or_else(|| f::ADDRESS.found(true, shown.clone()), wrong),
        IpAddr::V6(ip) => lint_v6(ip).map_or_else(|| f::ADDRESS.found(true, shown.clone()), wrong),
    }
}

fn lint_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = ip.octets();
    // The low 23 bits make the Ethernet address, 01:00:5e:00:00:xx for these. src: RFC 1112 s6.4
    let is_flooded = b & 0x7f == 0 && c == 0;
    match (a, b, c) {
        (224, 0, 0) => Some("belongs to the network's own protocols, and never leaves the link"),
        _ if is_flooded => Some(
            "has the Ethernet address of 224.0.0.x (01:00:5e:00:00:xx), which switches send to all \
             ports",
        ),
        (232, ..) => Some("is source-specific: it takes `recv --from SENDER` and IGMPv3"),
        (224, 0, 1) => Some("belongs to protocols of the whole Internet"),
        _ => None,
    }
}

fn lint_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let [first, ..] = ip.segments();
    match (first & 0x00f0, first & 0x000f) {
        (0x30, _) => Some("is source-specific: it takes `recv --from SENDER` and MLDv2"),
        (_, 1) => Some("stays on this host"),
        (0x00, 2) => Some("belongs to the network's own protocols"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::Bytes;

    use super::*;
    use f::State;

    #[test]
    fn groups_that_switches_flood_and_others_that_will_not_do_are_named() {
        for (group, want) in [
            ("239.192.7.1:7500", None),
            ("[ff15::7:1]:7500", None),
            ("[ff12::7:1]:7500", None),
            ("224.0.0.77:7500", Some("never leaves the link")),
            ("230.0.0.5:7500", Some("01:00:5e:00:00:xx")),
            ("239.128.0.5:7500", Some("01:00:5e:00:00:xx")),
            ("239.0.0.5:7500", Some("01:00:5e:00:00:xx")),
            ("232.1.2.3:7500", Some("recv --from")),
            ("224.0.1.1:7500", Some("whole Internet")),
            ("239.192.7.1:1023", Some("below 1024")),
            ("[ff3e::1]:7500", Some("MLDv2")),
            ("[ff02::1]:7500", Some("own protocols")),
            ("[ff11::1]:7500", Some("this host")),
        ] {
            let found = address(group.parse().unwrap());
            assert_eq!(found.state == State::Wrong, want.is_some(), "{group}: {found:?}");
            assert_eq!(found.advice.is_some(), want.is_some(), "{group}");
            assert!(found.found.contains(want.unwrap_or("")), "{group}: {found:?}");
        }
    }

    fn good() -> Facts {
        Facts {
            group: Some("239.192.7.1:7500".parse().unwrap()),
            interface: Some(Ok(InterfaceState {
                name: "eth0".into(),
                address: Some("10.0.0.1".parse().unwrap()),
                is_up: true,
                is_multicast: true,
            })),
            others: vec!["eth1".into()],
            link_mtu: Some(1500),
            buffers: Some(Buffers { receive: Bytes::new(33_554_432), send: Bytes::new(8_388_608) }),
            rmem_max: Some(212_992),
            wmem_max: Some(212_992),
            is_root: false,
            reverse_path: [Some(0), Some(2)],
            igmp: [Some(0), Some(0)],
            key: Some("0123".into()),
        }
    }

    #[test]
    fn each_thing_that_is_wrong_is_found_and_nothing_else() {
        let used = |change: fn(&mut InterfaceState)| {
            let mut facts = good();
            if let Some(Ok(used)) = &mut facts.interface {
                change(used);
            }
            facts
        };
        let small = Buffers { receive: Bytes::new(425_984), send: Bytes::new(8_388_608) };
        for (facts, want) in [
            (good(), None),
            (Facts { interface: Some(Err("no route".into())), ..good() }, Some("route")),
            (used(|used| used.is_up = false), Some("interface")),
            (used(|used| used.is_multicast = false), Some("interface")),
            (used(|used| used.address = None), Some("interface")),
            (Facts { link_mtu: Some(1400), ..good() }, Some("MTU of the link")),
            (Facts { buffers: Some(small), ..good() }, Some("receive buffer")),
            (Facts { reverse_path: [Some(1), Some(0)], ..good() }, Some("reverse-path filter")),
            (Facts { reverse_path: [Some(1), Some(2)], ..good() }, None),
            (Facts { reverse_path: [Some(1), None], others: Vec::new(), ..good() }, None),
            (Facts { igmp: [Some(0), Some(2)], ..good() }, Some("IGMP version")),
            (Facts { igmp: [Some(3), Some(0)], ..good() }, None),
        ] {
            let wrong: Vec<Finding> =
                facts.findings().into_iter().filter(|found| found.state == State::Wrong).collect();
            let names: Vec<&str> = wrong.iter().map(|found| found.check).collect();
            assert_eq!(names, want.into_iter().collect::<Vec<_>>(), "{facts:?}");
            assert!(wrong.iter().all(|found| found.advice.is_some()), "{wrong:?}");
        }
        let bare = Facts { group: None, interface: None, buffers: None, link_mtu: None, ..good() };
        let wrong = bare.findings().into_iter().filter(|found| found.state == State::Wrong).count();
        assert_eq!(wrong, 2, "both limits are those that kernels come with");
        let root = Facts { is_root: true, ..bare };
        assert!(root.findings().iter().all(|found| found.state != State::Wrong));
    }
}
