//! Single faults whose course must be told exactly: who goes on meanwhile, who says what, and that
//! nobody lacks a byte in the end. The soak has all of them at random.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use faircast_lab::Field;
use faircast_scenario::{Overrides, Scenario};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::live::{Running, digest, event, events, group, noise};
use super::soak::is_root;
use super::*;

/// Where the state of a process is `T`, it is stopped.
fn state(process: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim().chars().next().unwrap()
}

fn recv<'a>(into: &'a str, name: &'a str, group: &'a str) -> Vec<&'a str> {
    vec![
        "recv",
        "--into",
        into,
        "--once",
        "--name",
        name,
        "--json",
        "--group",
        group,
        "--interface",
        "lo",
    ]
}

fn file(folder: &Path, bytes: usize) -> std::path::PathBuf {
    let path = folder.join("file");
    std::fs::write(&path, noise(bytes)).unwrap();
    path
}

fn assert_received(receiver: &Ended, into: &str, sent: &Path) {
    assert_eq!(receiver.code, Some(0), "{into}: {}{}", receiver.out, receiver.err);
    event(&events("recv", &receiver.out), "complete");
    assert_eq!(digest(&Path::new(into).join("file")), digest(sent), "{into}");
}

#[test]
fn a_receiver_that_reads_nothing_holds_up_nobody_and_gets_all() {
    let folder = tempfile::tempdir().unwrap();
    let sent = file(folder.path(), 6_000_000);
    let [a, b] = ["a", "b"].map(|name| text_of(&folder.path().join(name)));
    let group = group();
    let (one, stopped) = (recv(&a, "a", &group), recv(&b, "b", &group));
    let (one, stopped) = (Running::start(&one), Running::start(&stopped));
    let path = text_of(&sent);
    let arguments = [
        "send",
        &path,
        "--wait-for",
        "2",
        "--rate-max",
        "10Mbit/s",
        "--give-up",
        "120s",
        "--json",
        "--group",
        &group,
        "--interface",
        "lo",
    ];
    let sender = Running::start(&arguments);
    stopped.until_has(1);
    stopped.signal(Signal::SIGSTOP);
    let one = one.end();
    assert_received(&one, &a, &sent);
    assert_eq!(state(stopped.id()), 'T', "it was still stopped when the other had everything");
    assert!(!Path::new(&b).join("file").exists(), "and had not got it all");
    stopped.signal(Signal::SIGCONT);
    assert_received(&stopped.end(), &b, &sent);
    let sender = sender.end();
    assert_eq!(sender.code, Some(0), "{}{}", sender.out, sender.err);
}

#[test]
fn receivers_that_join_one_after_the_other_all_get_all() {
    let folder = tempfile::tempdir().unwrap();
    let sent = file(folder.path(), 5_000_000);
    let group = group();
    let path = text_of(&sent);
    let arguments =
        ["send", &path, "--rate-max", "10Mbit/s", "--json", "--group", &group, "--interface", "lo"];
    let sender = Running::start(&arguments);
    let intos: Vec<String> = (0..5).map(|i| text_of(&folder.path().join(i.to_string()))).collect();
    let mut receivers = Vec::new();
    for into in &intos {
        receivers.push(Running::start(&recv(into, into, &group)));
        // The next one comes when this one has a part of it.
        receivers[receivers.len() - 1].until_has(1);
    }
    for (receiver, into) in receivers.into_iter().zip(&intos) {
        assert_received(&receiver.end(), into, &sent);
    }
    let sender = sender.end();
    assert_eq!(sender.code, Some(0), "{}{}", sender.out, sender.err);
    let told = events("send", &sender.out);
    let summary = event(&told, "summary");
    assert_eq!(summary["receivers"].as_array().unwrap().len(), intos.len());
    // The last one came when the first had all of it: one more round is what all of them cost.
    let bytes = summary["bytes_sent"].as_u64().unwrap();
    assert!((6_000_000..12_500_000).contains(&bytes), "{bytes} bytes for 5 MB");
}

/// A file system of its own.
struct Disk(std::path::PathBuf);

impl Disk {
    fn new(folder: std::path::PathBuf, options: &str) -> Self {
        std::fs::create_dir(&folder).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&folder).status();
        assert!(mount.unwrap().success());
        Self(folder)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_fills_up_ends_it_for_one_and_is_told_at_both_ends() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sent = file(folder.path(), 8_000_000);
    let disk = Disk::new(folder.path().join("full"), "size=12m");
    let fixed = Disk::new(folder.path().join("fixed"), "ro");
    let [a, full, fixed] =
        [folder.path().join("a"), disk.0.clone(), fixed.0.clone()].map(|path| text_of(&path));
    let group = group();
    let one = Running::start(&recv(&a, "a", &group));
    let two = Running::start(&recv(&full, "full", &group));
    // Who can never write anything says so before it takes part.
    let never = run_within(10, &recv(&fixed, "fixed", &group));
    assert_eq!(never.code, Some(2), "{}{}", never.out, never.err);
    assert!(never.err.contains("cannot be written to"), "{}", never.err);
    let path = text_of(&sent);
    let arguments = [
        "send",
        &path,
        "--wait-for",
        "2",
        "--rate-max",
        "16Mbit/s",
        "--json",
        "--group",
        &group,
        "--interface",
        "lo",
    ];
    let sender = Running::start(&arguments);
    two.until_has(1);
    // Somebody else takes the room that was there.
    let mut taken = std::fs::File::create(disk.0.join("other")).unwrap();
    let filled = std::io::copy(&mut std::io::repeat(1).take(20 << 20), &mut taken).unwrap_err();
    assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
    let two = two.end();
    assert_eq!(two.code, Some(1), "{}{}", two.out, two.err);
    let told = events("recv", &two.out);
    let reason = event(&told, "failed")["reason"].as_str().unwrap();
    assert!(reason.contains("No space left"), "{reason}");
    assert!(!Path::new(&full).join("file").exists());
    assert_received(&one.end(), &a, &sent);
    let sender = sender.end();
    assert_eq!(sender.code, Some(1), "one that was waited for has not got it: {}", sender.out);
    let told = events("send", &sender.out);
    let members = event(&told, "summary")["receivers"].as_array().unwrap();
    let state = |name: &str| members.iter().find(|member| member["name"] == name).unwrap();
    assert_eq!((&state("a")["state"], &state("full")["state"]), (&"done".into(), &"failed".into()));
    assert!(state("full")["reason"].as_str().unwrap().contains("No space left"));
}

/// A sender and three receivers; the link to the last is the slow one.
fn hosts(slow: &str) -> Scenario {
    let names = ["sender", "one", "two", "slow"];
    let mut text = "title = \"Who waits for whom?\"\nduration = \"10 min\"\n".to_string();
    for name in names {
        for (from, to) in [("router", name), (name, "router")] {
            let rate = if to == "slow" { slow } else { "20 Mbit/s" };
            text += &format!(
                "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"\ndelay = \"5 ms\"\n\
                 queue = {{ kind = \"droptail\", packets = 30 }}\n"
            );
        }
    }
    for name in names {
        let others = names.iter().filter(|other| **other != name);
        let to: Vec<String> = others.map(|other| format!("\"{other}\"")).collect();
        text += &format!(
            "[[flow]]\nname = \"{name}\"\nprotocol = \"cbr\"\nfrom = \"{name}\"\nto = [{}]\n",
            to.join(", ")
        );
    }
    let overrides = Overrides::default();
    Scenario::parse(Path::new("hosts.toml"), &text, &overrides, &faircast_sim::catalog()).unwrap()
}

#[test]
fn who_would_hold_the_group_below_the_rate_is_told_and_served_after_the_others() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // More than leaves before the first losses are known.
    let sent = file(folder.path(), 3_000_000);
    let scenario = hosts("1 Mbit/s");
    let node = |name: &str| {
        scenario.flows.iter().find(|flow| flow.name == name).map(|flow| flow.sender()).unwrap()
    };
    let names = ["one", "two", "slow"];
    let [sender, one, two, slow] = ["sender", "one", "two", "slow"].map(node);
    let field = Field::new(scenario).unwrap();
    let group = format!("{}:7500", Field::group());
    let start = |node, arguments: &[&str]| {
        let mut command = program(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Running::of(field.spawn(node, command).unwrap())
    };
    let intos = names.map(|name| text_of(&folder.path().join(name)));
    let mut receivers = Vec::new();
    for ((node, name), into) in [one, two, slow].into_iter().zip(names).zip(&intos) {
        let own = ["recv", "--into", into, "--once", "--name", name, "--json", "--group", &group];
        receivers.push(start(node, &own));
    }
    let path = text_of(&sent);
    let own = [
        "send",
        &path,
        "--wait-for",
        "3",
        "--slow",
        "drop-below 2Mbit/s",
        "--json",
        "--group",
        &group,
    ];
    let sender = start(sender, &own);
    for (receiver, into) in receivers.into_iter().zip(&intos) {
        assert_received(&receiver.end_within(120), into, &sent);
    }
    let sender = sender.end();
    assert_eq!(sender.code, Some(0), "{}{}", sender.out, sender.err);
    let told = events("send", &sender.out);
    let deferred: Vec<&Value> = told.iter().filter(|event| event["event"] == "deferred").collect();
    assert!(!deferred.is_empty(), "{}", sender.out);
    assert!(deferred.iter().all(|event| event["name"] == "slow"), "{deferred:?}");
    // The others went on without it, and had everything before it.
    let place = |name: &str, event: &str| {
        told.iter().rposition(|told| told["name"] == name && told["event"] == event).unwrap()
    };
    for other in ["one", "two"] {
        assert!(place("slow", "deferred") < place(other, "done"), "{}", sender.out);
        assert!(place(other, "done") < place("slow", "done"), "{}", sender.out);
    }
    assert!(place("slow", "deferred") < place("slow", "ready"), "{}", sender.out);
}
