//! Network of namespaces on one bridge.

use std::io::Write as _;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Hosts on one bridge: host `i` has the addresses 10.77.0.(1+i) and fd77::(1+i) on interface `e0`.
pub(crate) struct Lan {
    names: Vec<String>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Lan {
    /// Makes a network of `hosts` hosts. Prints the reason and returns `None` if that fails.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("net-{}-{number}", std::process::id());
        let bridge = format!("{prefix}-b");
        let names = [bridge.clone()].into_iter();
        let lan =
            Self { names: names.chain((0..hosts).map(|i| format!("{prefix}-{i}"))).collect() };
        // One process for all commands: a network of fifty hosts takes hundreds of them.
        if !ip(&[], lan.names.iter().map(|name| format!("netns add {name}"))) {
            eprintln!("skipped: no network namespaces here");
            return None;
        }
        run(&bridge, "link add br0 type bridge mcast_snooping 0");
        run(&bridge, "link set br0 up");
        lan.plug(0..hosts);
        Some(lan)
    }

    pub(crate) fn host(&self, i: usize) -> &str {
        &self.names[1 + i]
    }

    pub(crate) fn plug(&self, hosts: Range<usize>) {
        let bridge = self.bridge();
        let plugs = hosts.clone().flat_map(|i| {
            let host = self.host(i);
            [
                format!("link add p{i} type veth peer name e0 netns {host}"),
                format!("link set p{i} master br0 up"),
            ]
        });
        assert!(ip(&["-n", bridge], plugs), "{bridge}");
        for i in hosts {
            let own = 1 + i;
            let commands = [
                // Without duplicate address detection for the link-local address.
                "link set e0 addrgenmode none".to_string(),
                format!("addr add fe80::{own:x}/64 dev e0 nodad"),
                format!("addr add 10.77.0.{own}/24 dev e0"),
                format!("addr add fd77::{own:x}/64 dev e0 nodad"),
                "link set lo up".to_string(),
                "link set e0 up".to_string(),
                "route add 224.0.0.0/4 dev e0".to_string(),
            ];
            assert!(ip(&["-n", self.host(i)], commands), "{}", self.host(i));
        }
    }

    pub(crate) fn bridge(&self) -> &str {
        &self.names[0]
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        ip(&["-force"], self.names.iter().map(|name| format!("netns del {name}")));
    }
}

pub(crate) fn run(namespace: &str, command: &str) {
    assert!(ip(&["-n", namespace], [command.to_string()]), "ip -n {namespace} {command}");
}

fn ip(options: &[&str], commands: impl IntoIterator<Item = String>) -> bool {
    let mut command = Command::new("ip");
    let child = command.args(options).args(["-batch", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut child) = child else { return false };
    let lines: String = commands.into_iter().map(|command| command + "\n").collect();
    let written = child.stdin.take().is_some_and(|mut to| to.write_all(lines.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| status.success()) && written
}
