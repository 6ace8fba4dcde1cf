//! `send` and `recv` between hosts: namespaces on a bridge, as root. Every option that needs more
//! than the loopback interface.

mod beside;
mod check;
#[path = "../../../../net/tests/common/lan.rs"]
mod lan;
mod receivers;
mod ways;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use super::live::{Running, noise};
use super::*;
use lan::Lan;

/// The program on a host.
fn on(lan: &Lan, host: usize, arguments: &[&str]) -> Running {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", lan.host(host), env!("CARGO_BIN_EXE_faircast")]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::of(command.spawn().unwrap())
}

/// A folder with one of everything that is sent, and a place for what arrives.
struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new(bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        std::fs::create_dir_all(tree.join("a/deep/er")).unwrap();
        std::fs::create_dir(tree.join("hollow")).unwrap();
        std::fs::write(tree.join("large"), noise(bytes)).unwrap();
        std::fs::write(tree.join("empty"), b"").unwrap();
        std::fs::write(tree.join("a/deep/er/program"), b"#!/bin/sh\n").unwrap();
        for (path, mode) in [("a/deep/er/program", 0o755), ("empty", 0o600), ("hollow", 0o700)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(tree.join(path), mode).unwrap();
        }
        for (path, time) in [("large", "2001-02-03 04:05:06.789"), ("a/deep", "2002-03-04 05:06")] {
            let done = Command::new("touch").args(["-d", time]).arg(tree.join(path)).status();
            assert!(done.unwrap().success());
        }
        Self { folder }
    }

    fn at(&self, name: &str) -> String {
        text_of(&self.folder.path().join(name))
    }

    /// What arrived at `name` is what was sent: digests by another program, modes, times.
    fn assert_arrived(&self, name: &str) {
        let want = listing(&self.folder.path().join("tree"));
        assert_eq!(want.len(), 8, "{want:?}");
        assert_eq!(listing(&self.folder.path().join(name).join("tree")), want, "{name}");
        let kept = self.folder.path().join(name).join(".faircast");
        assert!(!kept.exists(), "nothing of the work stays at {name}");
    }
}

/// Of each path below a folder its mode and the time of its last change, and of files the digest.
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

/// Sends the tree of `case` from host 0 to all others, and compares everything. `to` and `from` are
/// the arguments that say where. Returns how the sender ended.
fn transfer(lan: &Lan, case: &Case, hosts: &[usize], at: &[&str], to: &[&str]) -> Ended {
    let receivers: Vec<_> = hosts
        .iter()
        .map(|host| {
            let name = format!("r{host}");
            let into = case.at(&name);
            let _ = std::fs::remove_dir_all(&into);
            let own = ["recv", "--into", &into, "--once", "--name", &name, "--json"];
            let receiver = on(lan, *host, &[&own[..], at].concat());
            (name, receiver)
        })
        .collect();
    let (tree, count) = (case.at("tree"), hosts.len().to_string());
    let own = ["send", &tree, "--wait-for", &count, "--json"];
    let sent = on(lan, 0, &[&own[..], to].concat()).end();
    assert_eq!(sent.code, Some(0), "{to:?}: {}{}", sent.out, sent.err);
    for (name, receiver) in receivers {
        let received = receiver.end();
        assert_eq!(received.code, Some(0), "{at:?}: {}{}", received.out, received.err);
        case.assert_arrived(&name);
    }
    sent
}

#[test]
fn a_tree_gets_to_all_hosts_of_a_network_whole() {
    let Some(lan) = Lan::new(21) else { return };
    let case = Case::new(1_500_000);
    let key = case.at("group.key");
    succeed(&["key", "new", &key]);
    for (count, port, sealed) in [(4, "7501", false), (4, "7502", true), (20, "7503", true)] {
        let hosts: Vec<usize> = (1..=count).collect();
        let group = format!("239.192.7.1:{port}");
        let with = ["--group", &group, "--key", &key];
        let with = if sealed { &with[..] } else { &with[..2] };
        let sent = transfer(&lan, &case, &hosts, with, with);
        let summary = live::event(&live::events("send", &sent.out), "summary").clone();
        assert_eq!(summary["ok"], true);
        assert_eq!(summary["receivers"].as_array().unwrap().len(), count);
        let bytes = summary["bytes_sent"].as_u64().unwrap();
        assert!((1_500_000..6_000_000).contains(&bytes), "{count}: {bytes} bytes for all");
    }
}
