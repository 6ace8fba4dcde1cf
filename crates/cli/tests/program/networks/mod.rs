//! `send` and `recv` between hosts: namespaces on a bridge, as root.

mod beside;
mod check;
mod lengths;
mod moves;
mod receivers;
mod ways;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use faircast_lab::lan::{self, Lan};

use super::site::{Site, noise};
use super::*;

fn on(site: &Site, lan: &Lan, host: usize, words: &str) -> Running {
    let mut command = lan.command(host, env!("CARGO_BIN_EXE_faircast"));
    command.args(site.arguments(words)).current_dir(site.path("")).stdin(Stdio::null());
    Running::spawn(command)
}

fn recv(site: &Site, lan: &Lan, host: usize, name: &str, more: &str) -> Running {
    let _ = std::fs::remove_dir_all(site.path(name));
    on(site, lan, host, &format!("recv --into {name} --name {name} --once {more}"))
}

/// Hosts, and a folder with a tree of files and a key that all of them share. Host 0 sends.
struct World {
    lan: Lan,
    site: Site,
}

impl World {
    /// Without root, prints that the test is skipped.
    fn new(hosts: usize, tree_bytes: usize) -> Option<Self> {
        let (lan, site) = (Lan::or_skip(hosts)?, with_a_tree(tree_bytes));
        site.key("group.key");
        Some(Self { lan, site })
    }

    fn on(&self, host: usize, words: &str) -> Running {
        on(&self.site, &self.lan, host, words)
    }

    fn recv(&self, host: usize, more: &str) -> Running {
        recv(&self.site, &self.lan, host, &format!("r{host}"), more)
    }

    fn two(&self, more: &str) -> [Running; 2] {
        [1, 2].map(|host| self.recv(host, more))
    }

    fn send(&self, more: &str) -> Running {
        self.on(0, &format!("send tree {more}"))
    }

    fn assert_received(&self, receivers: impl IntoIterator<Item = Running>) {
        for (receiver, host) in receivers.into_iter().zip(1..) {
            assert_received(&self.site, receiver, &format!("r{host}"));
        }
    }

    fn transfer(&self, hosts: std::ops::RangeInclusive<usize>, at: &str, to: &str) -> Ended {
        let count = hosts.clone().count();
        let receivers: Vec<_> = hosts.map(|host| self.recv(host, at)).collect();
        let sent = self.send(&format!("--wait-for {count} {to}")).end_with(0);
        self.assert_received(receivers);
        sent
    }
}

fn with_a_tree(bytes: usize) -> Site {
    let site = Site::with("--json");
    let tree = site.path("tree");
    site.put("tree/large", noise(bytes));
    site.put("tree/empty", "");
    site.put("tree/a/deep/er/program", "#!/bin/sh\n");
    std::fs::create_dir(tree.join("hollow")).unwrap();
    for (path, mode) in [("a/deep/er/program", 0o755), ("empty", 0o600), ("hollow", 0o700)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(tree.join(path), mode).unwrap();
    }
    for (path, time) in [("large", "2001-02-03 04:05:06.789"), ("a/deep", "2002-03-04 05:06")] {
        let done = Command::new("touch").args(["-d", time]).arg(tree.join(path)).status();
        assert!(done.unwrap().success());
    }
    site
}

fn assert_arrived(site: &Site, name: &str) {
    let want = listing(&site.path("tree"));
    assert_eq!(want.len(), 8, "{want:?}");
    assert_eq!(listing(&site.path(name).join("tree")), want, "{name}");
    let kept = site.path(name).join(".faircast");
    assert!(!kept.exists(), "nothing of the work stays at {name}");
}

fn assert_received(site: &Site, receiver: Running, name: &str) {
    receiver.end_with(0);
    assert_arrived(site, name);
}

fn listing(folder: &Path) -> BTreeMap<String, String> {
    let shown = |command: &mut Command| {
        let said = command.current_dir(folder).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap()
    };
    let mut all = BTreeMap::new();
    for line in shown(Command::new("find").args([".", "-printf", "%P %m %T@\n"])).lines() {
        let (path, rest) = line.split_once(' ').unwrap();
        all.insert(path.to_string(), rest.to_string());
    }
    let files =
        shown(Command::new("find").args([".", "-type", "f", "-exec", "sha256sum", "{}", "+"]));
    for line in files.lines() {
        let (digest, path) = line.split_once("  ./").unwrap();
        all.get_mut(path).unwrap().push_str(digest);
    }
    all
}

/// Asserts that all was sent over `ways` paths: at least `bytes` on each.
#[track_caller]
fn assert_ways(summary: &Value, ways: u64, bytes: u64) {
    let of = |key: &str| summary[key].as_u64().unwrap();
    // A packet over several paths counts once.
    let most = of("packets_sent") * ways * 1500;
    assert!((ways * bytes..most).contains(&of("bytes_sent")), "{ways} ways: {summary}");
}

#[test]
fn a_tree_gets_to_all_hosts_of_a_network_whole() {
    let Some(world) = World::new(21, 1_500_000) else { return };
    for (count, with) in [
        (4, "--group 239.192.7.1:7501"),
        (4, "--group 239.192.7.1:7502 --key group.key"),
        (20, "--group 239.192.7.1:7503 --key group.key"),
    ] {
        let summary = world.transfer(1..=count, with, with).summary();
        assert_eq!(summary["ok"], true);
        assert_eq!(summary["receivers"].as_array().unwrap().len(), count);
        assert_ways(&summary, 1, 1_500_000);
    }
}
