//! Limits of waiting of `send` and `recv`: how long, for whom, and what ends it.

use std::net::{SocketAddr, UdpSocket};

use super::running::until;
use super::site::{Site, noise};
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
        // Another one each time: somebody may have taken the first since.
        let free: SocketAddr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let recv = format!("recv --listen {free} --from {from} --into {from} --once --wait-max 5s");
        let receiver = site.start(&recv);
        // A sender to this host would take the port where nobody has it yet.
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
