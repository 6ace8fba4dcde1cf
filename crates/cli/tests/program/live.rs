//! `send`, `recv` and `key` over the loopback interface: separate processes, as users have them.

use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// A running program, killed where a test ends before it does.
pub(super) struct Running {
    child: Option<Child>,
    said: Option<[std::thread::JoinHandle<String>; 2]>,
}

impl Running {
    pub(super) fn start(arguments: &[&str]) -> Self {
        let child = program(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self::of(child.unwrap())
    }

    /// A program whose output goes into pipes; they are read from now on, so that it never waits.
    pub(super) fn of(mut child: Child) -> Self {
        let said = [reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap())];
        Self { child: Some(child), said: Some(said) }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.id()).unwrap()), signal).unwrap();
    }

    pub(super) fn end(self) -> Ended {
        self.end_within(60)
    }

    pub(super) fn end_within(mut self, limit_s: u64) -> Ended {
        let mut child = self.child.take().unwrap();
        let [out, err] = self.said.take().unwrap();
        let started = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if started.elapsed() > Duration::from_secs(limit_s) => {
                    child.kill().unwrap();
                    panic!("it still runs: {}{}", out.join().unwrap(), err.join().unwrap());
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        Ended { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A group at a port that was free a moment ago.
pub(super) fn group() -> String {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    format!("239.192.78.1:{}", free.local_addr().unwrap().port())
}

/// Bytes that are no zeros and do not compress.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

pub(super) fn digest(path: &Path) -> String {
    let said = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(said.stdout).unwrap()[..64].to_string()
}

pub(super) fn events(out: &str) -> Vec<serde_json::Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) fn event<'a>(events: &'a [serde_json::Value], name: &str) -> &'a serde_json::Value {
    let found = events.iter().find(|event| event["event"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {events:?}"))
}

#[test]
fn a_tree_gets_to_two_receivers_with_a_key_and_the_second_time_it_is_there_already() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    let (tree, key) = (folder.path().join("tree"), at("group.key"));
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("large"), noise(2_500_000)).unwrap();
    std::fs::write(tree.join("sub/empty"), b"").unwrap();
    succeed(&["key", "new", &key]);
    let group = group();
    let common = ["--group", &group, "--interface", "lo", "--key", &key];
    for run in 0..2 {
        let receivers: Vec<_> = ["a", "b"]
            .into_iter()
            .map(|name| {
                let into = at(name);
                let own = ["recv", "--into", &into, "--once", "--name", name, "--json"];
                Running::start(&[&own[..], &common].concat())
            })
            .collect();
        let own = ["send", &text_of(&tree), "--wait-for", "2", "--json"];
        let sent = Running::start(&[&own[..], &common].concat()).end();
        assert_eq!((sent.code, sent.err.as_str()), (Some(0), ""), "{}", sent.out);
        let told = events(&sent.out);
        let summary = event(&told, "summary");
        assert_eq!(summary["ok"], true);
        assert_eq!(summary["receivers"].as_array().unwrap().len(), 2);
        let bytes_sent = summary["bytes_sent"].as_u64().unwrap();
        assert_eq!(run == 0, bytes_sent > 2_500_000, "{bytes_sent} in run {run}");
        assert!(run == 0 || bytes_sent < 200_000, "{bytes_sent} in run {run}");
        for receiver in receivers {
            let received = receiver.end();
            assert_eq!((received.code, received.err.as_str()), (Some(0), ""), "{}", received.out);
            let told = events(&received.out);
            let large = told.iter().find(|event| {
                event["event"] == "file" && event["path"].as_str().unwrap().ends_with("large")
            });
            let at_sender = summary["files"].as_array().unwrap();
            let of_sender = at_sender.iter().find(|file| file["path"] == "tree/large").unwrap();
            assert_eq!(large.unwrap()["blake3"], of_sender["blake3"]);
        }
    }
    for name in ["a", "b"] {
        let copy = folder.path().join(name).join("tree");
        assert_eq!(digest(&copy.join("large")), digest(&tree.join("large")));
        assert_eq!(std::fs::metadata(copy.join("sub/empty")).unwrap().len(), 0);
    }
}

#[test]
fn a_receiver_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(8_000_000)).unwrap();
    let into = folder.path().join("in");
    let group = group();
    let common = ["--group", &group, "--interface", "lo"];
    let own = ["recv", "--into", &text_of(&into), "--once", "--json", "--name", "r"];
    let first = Running::start(&[&own[..], &common].concat());
    let slow = ["send", &text_of(&file), "--rate-max", "16Mbit/s", "--give-up", "4s", "--json"];
    let sender = Running::start(&[&slow[..], &common].concat());
    std::thread::sleep(Duration::from_millis(2500));
    first.signal(Signal::SIGKILL);
    first.end();
    assert!(!into.join("file").exists(), "it is not there before it is whole");
    let second = Running::start(&[&own[..], &common].concat()).end();
    assert_eq!(second.code, Some(0), "{}{}", second.out, second.err);
    let told = events(&second.out);
    let found = event(&told, "complete")["bytes_found"].as_u64().unwrap();
    assert!(found >= 1 << 20, "{found} bytes were there from the first run");
    assert_eq!(digest(&into.join("file")), digest(&file));
    let sent = sender.end();
    let told = events(&sent.out);
    let summary = event(&told, "summary");
    assert_eq!(summary["bytes_total"], 8_000_000, "{summary}");
}

#[test]
fn ctrl_c_at_the_sender_is_told_to_the_receiver_and_at_the_receiver_to_the_sender() {
    for at_sender in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, noise(20_000_000)).unwrap();
        let into = text_of(&folder.path().join("in"));
        let group = group();
        let common = ["--group", &group, "--interface", "lo", "--json"];
        let receiver = Running::start(&[&["recv", "--into", &into][..], &common].concat());
        let own = ["send", &text_of(&file), "--rate-max", "10Mbit/s"];
        let sender = Running::start(&[&own[..], &common].concat());
        std::thread::sleep(Duration::from_secs(2));
        if at_sender { &sender } else { &receiver }.signal(Signal::SIGINT);
        if at_sender {
            let sent = sender.end();
            assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
            std::thread::sleep(Duration::from_secs(2));
            receiver.signal(Signal::SIGINT);
            let told = events(&receiver.end().out);
            event(&told, "gone");
        } else {
            let received = receiver.end();
            assert_eq!(received.code, Some(1), "{}{}", received.out, received.err);
            event(&events(&received.out), "closed");
            let sent = sender.end();
            assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
            event(&events(&sent.out), "left");
        }
    }
}

#[test]
fn different_keys_are_told_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    for name in ["one.key", "two.key"] {
        succeed(&["key", "new", &at(name)]);
    }
    std::fs::write(at("file"), b"x").unwrap();
    let group = group();
    let common = ["--group", &group, "--interface", "lo"];
    let own = ["recv", "--into", &at("in"), "--key", &at("one.key")];
    let receiver = Running::start(&[&own[..], &common].concat());
    let own = ["send", &at("file"), "--key", &at("two.key")];
    let sender = Running::start(&[&own[..], &common].concat());
    std::thread::sleep(Duration::from_secs(3));
    let ids =
        ["one.key", "two.key"].map(|name| succeed(&["key", "show", &at(name)])[..6].to_string());
    for end in [sender, receiver] {
        end.signal(Signal::SIGINT);
        let ended = end.end();
        let said = ended.err.lines().find(|line| line.contains("nothing can pass")).unwrap();
        assert!(ids.iter().all(|id| said.contains(id)), "{said}");
    }
}

#[test]
fn mistakes_are_found_at_once_and_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    std::fs::write(at("file"), b"x").unwrap();
    succeed(&["key", "new", &at("open.key")]);
    std::fs::set_permissions(at("open.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    let group = group();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code, want) in [
        (&["send", "absent", "--group", &group][..], 2, "absent"),
        (&["send", &at("file"), "--group", "10.0.0.1:7500"], 2, "not a multicast address"),
        (&["send", &at("file"), "--group", &group, "--interface", "none0"], 2, "none0"),
        (&["send", &at("file"), "--group", &group, "--scheme", "tcp"], 2, "there are pgmcc"),
        (&["send", &at("file"), "--group", &group, "--option", "x=1"], 2, "\"x\" is unknown"),
        (&["send", &at("file"), "--group", &group, "--mtu", "90"], 2, "packets of 90 bytes"),
        (&["send", &at("file"), "--group", &group, "--key", &at("open.key")], 2, "chmod 600"),
        (&["send", &at("file"), "--to", "nowhere"], 2, "HOST:PORT"),
        (&["key", "new", &at("open.key")], 2, "the file exists"),
        (&["key", "show", &at("file")], 2, "no key file"),
        (&["recv", "--listen", &taken, "--into", &at("in")], 1, "choose another"),
        (&["recv", "--listen", "127.0.0.1:0", "--into", &at("file")], 2, "file"),
        (
            &["recv", "--once", "--group", &group, "--interface", "none0", "--into", &at("in")],
            2,
            "none0",
        ),
    ] {
        let ended = run_within(20, arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(want), "{arguments:?}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn a_receiver_waits_for_its_network() {
    let folder = tempfile::tempdir().unwrap();
    let (into, group) = (text_of(&folder.path().join("in")), group());
    let own = ["recv", "--group", &group, "--interface", "none0", "--into", &into];
    let begun = std::time::Instant::now();
    let ended = run_within(20, &[&own[..], &["--give-up", "2s"]].concat());
    assert!(begun.elapsed().as_secs() >= 2, "{}", ended.err);
    assert_eq!(ended.code, Some(2), "{}{}", ended.out, ended.err);
    let told = ended.err.lines().filter(|line| line.contains("waiting until the network")).count();
    assert_eq!(told, 1, "{}", ended.err);
}

#[test]
fn a_receiver_that_hears_nobody_gives_up() {
    let folder = tempfile::tempdir().unwrap();
    let (into, group) = (text_of(&folder.path().join("in")), group());
    let own = ["recv", "--group", &group, "--interface", "lo", "--into", &into];
    let ended = run_within(20, &[&own[..], &["--once", "--give-up", "1s"]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("no sender was heard"), "{}", ended.err);
}
