//! Single faults with exact expectations. The soak draws these faults at random.

use std::io::{Read as _, Write as _};

use nix::sys::signal::Signal;

use super::hosts::{Hosts, link};
use super::site::{Site, noise};
use super::*;

fn state(process: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim().chars().next().unwrap()
}

fn recv(name: &str) -> String {
    format!("recv --into {name} --once --name {name}")
}

fn assert_received(site: &Site, receiver: Running, name: &str) {
    site.assert_received(name, receiver).event("complete");
}

#[test]
fn a_receiver_that_reads_nothing_holds_up_nobody_and_gets_all() {
    let site = Site::with_file(6_000_000);
    let [one, stopped] = ["a", "b"].map(|name| site.start(&recv(name)));
    let sender = site.start("send file --wait-for 2 --rate-max 10Mbit/s --give-up 120s");
    stopped.until_has(1);
    stopped.signal(Signal::SIGSTOP);
    assert_received(&site, one, "a");
    assert_eq!(state(stopped.id()), 'T', "it was still stopped when the other had everything");
    assert!(!site.path("b/file").exists(), "and had not got it all");
    stopped.signal(Signal::SIGCONT);
    assert_received(&site, stopped, "b");
    sender.end_with(0);
}

#[test]
fn receivers_that_join_one_after_the_other_all_get_all() {
    let site = Site::with_file(5_000_000);
    let sender = site.start("send file --rate-max 10Mbit/s");
    let names = ["0", "1", "2", "3", "4"];
    let receivers = names.map(|name| {
        let receiver = site.start(&recv(name));
        receiver.until_has(1);
        receiver
    });
    for (receiver, name) in receivers.into_iter().zip(names) {
        assert_received(&site, receiver, name);
    }
    let summary = sender.end_with(0).summary();
    assert_eq!(summary["receivers"].as_array().unwrap().len(), names.len());
    // Later receivers share the packets sent after they joined; a round for each would be 25 MB.
    let bytes = summary["bytes_sent"].as_u64().unwrap();
    assert!((5_000_000..20_000_000).contains(&bytes), "{bytes} bytes for 5 MB");
}

struct Disk(PathBuf);

impl Disk {
    fn new(folder: PathBuf, options: &str) -> Self {
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
    need_root!();
    let site = Site::with_file(8_000_000);
    let disk = Disk::new(site.path("full"), "size=12m");
    let _fixed = Disk::new(site.path("fixed"), "ro");
    let [one, two] = ["a", "full"].map(|name| site.start(&recv(name)));
    let never = site.start(&recv("fixed")).end_within(10).with(2);
    assert!(never.err.contains("cannot be written to"), "{}", never.err);
    let sender = site.start("send file --wait-for 2 --rate-max 16Mbit/s");
    two.until_has(1);
    let mut taken = std::fs::File::create(disk.0.join("other")).unwrap();
    let filled = std::io::copy(&mut std::io::repeat(1).take(20 << 20), &mut taken).unwrap_err();
    assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
    let failed = two.end_with(1).event("failed");
    let reason = failed["reason"].as_str().unwrap();
    assert!(reason.contains("No space left"), "{reason}");
    assert!(!site.path("full/file").exists());
    assert_received(&site, one, "a");
    let summary = sender.end_with(1).summary();
    let members = summary["receivers"].as_array().unwrap();
    let state = |name: &str| members.iter().find(|member| member["name"] == name).unwrap();
    assert_eq!((&state("a")["state"], &state("full")["state"]), (&"done".into(), &"failed".into()));
    assert!(state("full")["reason"].as_str().unwrap().contains("No space left"));
}

#[test]
fn who_would_hold_the_group_below_the_rate_is_told_and_served_after_the_others() {
    need_root!();
    let hosts = Hosts::new(&["sender", "one", "two", "slow"], |to| {
        link(if to == Some("slow") { 1 } else { 20 }, 5, 0.0, 30)
    });
    hosts.site.put("file", noise(3_000_000));
    let names = ["one", "two", "slow"];
    let receivers = names.map(|name| hosts.start(name, &recv(name)));
    let sender = hosts.start("sender", "send file --wait-for 3 --slow drop-below:2Mbit/s");
    for (receiver, name) in receivers.into_iter().zip(names) {
        assert_received(&hosts.site, receiver, name);
    }
    let sender = sender.end_with(0);
    let told = sender.events();
    let deferred: Vec<&Value> = told.iter().filter(|event| event["event"] == "deferred").collect();
    assert!(!deferred.is_empty(), "{}", sender.out);
    assert!(deferred.iter().all(|event| event["name"] == "slow"), "{deferred:?}");
    let place = |name: &str, event: &str| {
        told.iter().rposition(|told| told["name"] == name && told["event"] == event).unwrap()
    };
    for other in ["one", "two"] {
        assert!(place("slow", "deferred") < place(other, "done"), "{}", sender.out);
        assert!(place(other, "done") < place("slow", "done"), "{}", sender.out);
    }
    assert!(place("slow", "deferred") < place("slow", "ready"), "{}", sender.out);
}

#[test]
fn what_changed_while_it_was_sent_is_given_up_and_nobody_waits_for_it() {
    for scheme in ["pgmcc", "tram-pgmcc"] {
        let site = Site::new();
        let file = site.put("file", noise(30_000_000));
        let receiver = site.start(&recv("a"));
        let sender = site.start(&format!("send file --rate-max 40Mbit/s --scheme {scheme}"));
        receiver.until_has(1);
        std::fs::OpenOptions::new().append(true).open(file).unwrap().write_all(b"more").unwrap();
        let reason = sender.end_with(1).summary()["reason"].to_string();
        assert!(reason.contains("changed while it was being sent"), "{reason}");
        receiver.until("gone", |event| event["kept"] == true);
        assert!(site.path("a/.faircast").exists(), "the next version takes it over");
        let again = site.start(&format!("send file --scheme {scheme}"));
        assert_received(&site, receiver, "a");
        assert!(!site.path("a/.faircast").exists(), "a newer version is complete");
        again.end_with(0);
    }
}

#[test]
fn who_has_an_object_says_what_else_it_waits_for_and_ends_without_a_sender_that_was_killed() {
    let site = Site::with_file(6_000_000);
    site.put("other", noise(1_000));
    let receiver = site.start(&recv("a"));
    let killed = site.start("send other file --rate-max 8Mbit/s");
    receiver.until_has(1);
    killed.kill();
    let sender = site.start("send file");
    receiver.until("waiting", |event| event["objects"][0]["name"] == "other");
    sender.end_with(0);
    assert_received(&site, receiver, "a");
    assert!(site.path("a/.faircast").exists(), "what the killed one sent is kept for another time");
}
