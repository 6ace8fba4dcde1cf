//! A network of namespaces on one bridge.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Hosts on one bridge: host `i` has the addresses 10.77.0.(1+i) and fd77::(1+i) on interface `e0`.
pub(crate) struct Lan {
    names: Vec<String>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Lan {
    /// A network of so many hosts; `None` with a line that says why where it cannot be made.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("net-{}-{number}", std::process::id());
        let mut lan = Self { names: vec![format!("{prefix}-b")] };
        if !ip(&format!("netns add {}", lan.bridge())) {
            eprintln!("skipped: no network namespaces here");
            lan.names.clear();
            return None;
        }
        let bridge = lan.bridge().to_string();
        run(&bridge, "link add br0 type bridge mcast_snooping 0");
        run(&bridge, "link set br0 up");
        for i in 0..hosts {
            let host = format!("{prefix}-{i}");
            assert!(ip(&format!("netns add {host}")));
            lan.names.push(host.clone());
            // Without a wait for other owners of link-local addresses.
            let quick = "sysctl -q -w net.ipv6.conf.default.accept_dad=0";
            assert!(ip(&format!("netns exec {host} {quick}")));
            lan.plug(i);
        }
        Some(lan)
    }

    /// The namespace of host `i`.
    pub(crate) fn host(&self, i: usize) -> &str {
        &self.names[1 + i]
    }

    /// Gives host `i` its interface.
    pub(crate) fn plug(&self, i: usize) {
        let (host, bridge) = (self.host(i), self.bridge());
        let port = format!("p{i}");
        assert!(ip(&format!("-n {bridge} link add {port} type veth peer name e0 netns {host}")));
        run(bridge, &format!("link set {port} master br0"));
        run(bridge, &format!("link set {port} up"));
        run(host, &format!("addr add 10.77.0.{}/24 dev e0", 1 + i));
        run(host, &format!("addr add fd77::{:x}/64 dev e0 nodad", 1 + i));
        run(host, "link set lo up");
        run(host, "link set e0 up");
        run(host, "route add 224.0.0.0/4 dev e0");
    }

    /// The namespace of the bridge `br0`, whose port `p<i>` leads to host `i`.
    pub(crate) fn bridge(&self) -> &str {
        &self.names[0]
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

/// Runs `ip` in a namespace.
pub(crate) fn run(namespace: &str, command: &str) {
    assert!(ip(&format!("-n {namespace} {command}")), "ip -n {namespace} {command}");
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).status().is_ok_and(|status| status.success())
}
