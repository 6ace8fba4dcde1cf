//! Limits of waiting in `send` and `recv`: durations, awaited receivers, and ends of the wait.

use std::net::{SocketAddr, UdpSocket};

use super::running::until;
use super::site::{Site, free, noise};
use super::*;

#[test]
fn a_sender_does_not_wait_for_ever_for_those_who_do_not_come() {
    let site = Site::new();
    site.put("file", "x");
    site.put("names", "left\nright\n");
    for (more, comes, want) in [
        ("--start-after 1s --give-up 1s", false, "no receiver came within 2 s"),
        ("--wait-max 1s --wait-for 3", true, "1 of 3 receivers came within 1 s"),
        ("--wait-max 1s --receivers names", true, "within 1 s these did not come: right"),
    ] {
        let comes = comes.then(|| site.start("recv --into in --name left"));
        if let Some(comes) = &comes {
            comes.until("listening", |_| true);
        }
        let sent = site.start(&format!("send file {more}")).end_within(20).with(1);
        assert_eq!(sent.summary()["reason"], want, "{more}");
    }
    let line = site.start("send file --start-after 5s --wait-max 2s").refuse();
    assert!(line.contains("--wait-max is less than --start-after"), "{line}");
}

#[test]
fn a_receiver_does_not_wait_for_ever_for_a_sender() {
    let site = Site::with(&format!("--group {} --interface lo", site::group()));
    for (more, want) in [
        ("--once --wait-max 1s", "nothing has begun to come within 1 s"),
        ("--wait-max 1s", "no sender was heard"),
        ("--once --give-up 1s", "no sender was heard"),
    ] {
        let ended = site.start(&format!("recv --into in {more}")).end_within(20).with(1);
        assert!(ended.err.contains(want), "{more}: {}", ended.err);
    }
}

#[test]
fn a_receiver_of_one_object_ends_what_it_has_begun_when_a_small_one_comes_between() {
    let site = Site::new();
    site.put("large", noise(6_000_000));
    site.put("small", noise(1000));
    let receiver = site.start("recv --into in --once");
    let mut first = site.start("send large --rate-max 8M");
    receiver.until_has(1);
    site.start("send small").end_with(0);
    assert!(first.runs(), "the large one was under way meanwhile");
    first.end_with(0);
    let received = receiver.end_with(0);
    assert_eq!(received.summary()["complete"], 2, "{}", received.out);
    site.assert_same("in/large", "large");
    site.assert_same("in/small", "small");
}

#[test]
fn a_receiver_of_one_object_by_name_leaves_others_alone() {
    let site = Site::new();
    site.put("wanted", "wanted");
    site.put("other", "other");
    let receiver = site.start("recv --into in --once --object 'image 7'");
    let sent = site.start("send other --wait-max 2s").end_with(1);
    assert_eq!(sent.event("left")["waited_for"], false);
    site.start("send wanted --name 'image 7'").end_with(0);
    receiver.end_with(0);
    assert_eq!(std::fs::read(site.path("in/wanted")).unwrap(), b"wanted");
    assert!(!site.path("in/other").exists(), "nothing of the other one was written");
    assert!(!site.path("in/.faircast").exists(), "nor kept");
}

#[test]
fn a_receiver_takes_nothing_from_others_than_whom_it_names_by_unicast_too() {
    let site = Site::with("");
    site.put("file", "x");
    for (from, code) in [("127.0.0.1", 0), ("192.0.2.1", 1)] {
        // A new port each time: another program may have taken the first port.
        let free = free();
        let recv = format!("recv --listen {free} --from {from} --into {from} --once --wait-max 5s");
        let receiver = site.start(&recv);
        // A sender to this host would take the port before the receiver has it.
        let port = format!(":{:04X} ", free.port());
        let is_there = || std::fs::read_to_string("/proc/net/udp").unwrap().contains(&port);
        until("it hears", is_there);
        let sent = site.start(&format!("send file --to {free} --wait-max 2s")).end_with(code);
        let received = receiver.end_with(code);
        assert_eq!(received.err.contains("no sender was heard"), code == 1, "{}", received.err);
        assert_eq!(sent.err, "", "the receiver has its port: that is no news");
    }
}

#[test]
fn a_port_that_somebody_else_has_is_named() {
    let site = Site::with("--interface lo --wait-max 1s");
    site.put("file", "x");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let sent = site.start(&format!("send file --group 239.192.78.1:{port}")).end_with(1);
    let want = format!("cannot bind 127.0.0.1:{port}");
    assert!(sent.err.contains(&want) && sent.err.contains("answer to port"), "{}", sent.err);
}

#[test]
fn a_check_finds_a_receiver_by_unicast_beside_its_work() {
    let site = Site::with("--json");
    site.put("file", noise(100_000));
    let (key, other) = (site.key("group.key"), site.key("other.key"));
    let (with_key, open, nobody) = (free(), free(), free());
    let start = |at: SocketAddr, more: &str| {
        let receiver = site.start(&format!("recv --listen {at} --into in --once {more}"));
        receiver.until("listening", |_| true);
        receiver
    };
    let receiver = start(with_key, &format!("--key {key}"));
    let beside = start(open, "");
    let check = |to: &str, more: &str| {
        let ended = site.start(&format!("check --to {to} {more}")).end();
        let document = ended.document();
        assert_eq!(ended.code, Some(i32::from(document["ok"] != true)), "{document}");
        let found = document["findings"].as_array().unwrap().iter();
        let found = found.filter(|it| to.split(',').any(|at| it["peer"] == at));
        found
            .map(|it| {
                [&it["check"], &it["state"], &it["found"]]
                    .map(|it| it.as_str().unwrap().to_string())
            })
            .collect::<Vec<_>>()
    };
    for (at, more) in [(with_key, format!("--key {key}")), (open, String::new())] {
        let found = check(&at.to_string(), &more);
        let states = found.iter().map(|it| [&it[0][..], &it[1][..]]).collect::<Vec<_>>();
        let want = [["receiver", "ok"], ["way to the receiver", "ok"], ["MTU of the way", "ok"]];
        assert_eq!(states, want, "{found:?}");
        assert!(found[1][2].starts_with("round trip"), "{found:?}");
        assert!(found[2][2].starts_with("up to 9000 bytes"), "{found:?}");
    }
    let wrong = check(&format!("{with_key},{open},{nobody}"), &format!("--key {other}"));
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    assert!(wrong.iter().all(|it| it[..2] == ["receiver", "wrong"]), "{wrong:?}");
    for (found, want) in wrong.iter().zip(["uses the key", "uses no key", "does not answer"]) {
        assert!(found[2].contains(want), "{found:?}");
    }
    for (at, receiver, more) in
        [(with_key, receiver, format!("--key {key}")), (open, beside, String::new())]
    {
        site.start(&format!("send file --to {at} {more}")).end_with(0);
        assert_eq!(receiver.end_with(0).summary()["complete"], 1);
    }
}
