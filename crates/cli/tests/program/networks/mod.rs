//! `send` and `recv` between hosts: namespaces on a bridge, as root.

mod beside;
mod check;
#[path = "../../../../net/tests/common/lan.rs"]
mod lan;
mod lengths;
mod moves;
mod receivers;
mod ways;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use super::site::{Site, noise};
use super::*;
use lan::Lan;

fn on(site: &Site, lan: &Lan, host: usize, words: &str) -> Running {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", lan.host(host), env!("CARGO_BIN_EXE_faircast")]);
    command.args(site.arguments(words)).current_dir(site.path("")).stdin(Stdio::null());
    Running::spawn(command)
}

fn recv(site: &Site, lan: &Lan, host: usize, name: &str, more: &str) -> Running {
    let _ = std::fs::remove_dir_all(site.path(name));
    on(site, lan, host, &format!("recv --into {name} --name {name} --once {more}"))
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

/// Sends the tree from host 0 to others, and compares all copies.
fn transfer(site: &Site, lan: &Lan, hosts: &[usize], at: &str, to: &str) -> Ended {
    let name = |host: &usize| format!("r{host}");
    let receivers: Vec<_> =
        hosts.iter().map(|host| recv(site, lan, *host, &name(host), at)).collect();
    let sent = on(site, lan, 0, &format!("send tree --wait-for {} {to}", hosts.len())).end_with(0);
    for (receiver, host) in receivers.into_iter().zip(hosts) {
        assert_received(site, receiver, &name(host));
    }
    sent
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
    let Some(lan) = Lan::new(21) else { return };
    let site = with_a_tree(1_500_000);
    site.key("group.key");
    for (count, with) in [
        (4, "--group 239.192.7.1:7501"),
        (4, "--group 239.192.7.1:7502 --key group.key"),
        (20, "--group 239.192.7.1:7503 --key group.key"),
    ] {
        let hosts: Vec<usize> = (1..=count).collect();
        let summary = transfer(&site, &lan, &hosts, with, with).summary();
        assert_eq!(summary["ok"], true);
        assert_eq!(summary["receivers"].as_array().unwrap().len(), count);
        assert_ways(&summary, 1, 1_500_000);
    }
}
