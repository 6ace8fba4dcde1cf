//! How long `send` and `recv` wait, for whom, and what ends them.

use super::live::{Running, digest, event, events, group, noise, until};
use super::*;

#[test]
fn a_sender_does_not_wait_for_ever_for_those_who_do_not_come() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "file", "x");
    let names = put(&folder, "names", "left\nright\n");
    let group = group();
    let common = ["send", &file, "--group", &group, "--interface", "lo", "--json"];
    for (more, want) in [
        (&["--start-after", "1s", "--give-up", "1s"][..], "no receiver came within 2 s"),
        (&["--wait-max", "1s", "--wait-for", "3"], "1 of 3 receivers came within 1 s"),
        (&["--wait-max", "1s", "--receivers", &names], "within 1 s these did not come: right"),
    ] {
        let comes = more.contains(&"--wait-max").then(|| {
            let into = text_of(&folder.path().join("in"));
            let own = ["recv", "--into", &into, "--name", "left", "--json"];
            Running::start(&[&own[..], &["--group", &group, "--interface", "lo"]].concat())
        });
        if let Some(comes) = &comes {
            comes.until("listening", |_| true);
        }
        let sent = run_within(20, &[&common[..], more].concat());
        assert_eq!(sent.code, Some(1), "{more:?}: {}{}", sent.out, sent.err);
        let told = events("send", &sent.out);
        assert_eq!(event(&told, "summary")["reason"], want, "{more:?}");
    }
    let less = ["--start-after", "5s", "--wait-max", "2s"];
    let line = refuse(&[&common[..], &less].concat());
    assert!(line.contains("--wait-max is less than --start-after"), "{line}");
}

#[test]
fn a_receiver_does_not_wait_for_ever_for_a_sender() {
    let folder = tempfile::tempdir().unwrap();
    let (into, group) = (text_of(&folder.path().join("in")), group());
    let own = ["recv", "--group", &group, "--interface", "lo", "--into", &into];
    for (more, want) in [
        (&["--once", "--wait-max", "1s"][..], "nothing has begun to come within 1 s"),
        (&["--wait-max", "1s"], "no sender was heard"),
    ] {
        let ended = run_within(20, &[&own[..], more].concat());
        assert_eq!(ended.code, Some(1), "{more:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(want), "{more:?}: {}", ended.err);
    }
}

#[test]
fn a_receiver_of_one_object_ends_what_it_has_begun_when_a_small_one_comes_between() {
    let folder = tempfile::tempdir().unwrap();
    let [large, small] = [("large", 6_000_000), ("small", 1000)].map(|(name, len)| {
        let path = folder.path().join(name);
        std::fs::write(&path, noise(len)).unwrap();
        path
    });
    let into = folder.path().join("in");
    let group = group();
    let common = ["--group", &group, "--interface", "lo", "--json"];
    let own = ["recv", "--into", &text_of(&into), "--once"];
    let receiver = Running::start(&[&own[..], &common].concat());
    let slow = ["send", &text_of(&large), "--rate-max", "8M"];
    let mut first = Running::start(&[&slow[..], &common].concat());
    receiver.until_has(1);
    let other = Running::start(&[&["send", &text_of(&small)][..], &common].concat()).end();
    assert_eq!(other.code, Some(0), "{}{}", other.out, other.err);
    assert!(first.runs(), "the large one was under way meanwhile");
    let (sent, received) = (first.end(), receiver.end());
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
    let told = events("recv", &received.out);
    assert_eq!(event(&told, "summary")["complete"], 2, "{}", received.out);
    for path in [&large, &small] {
        assert_eq!(digest(&into.join(path.file_name().unwrap())), digest(path));
    }
}

#[test]
fn a_receiver_of_one_object_by_name_leaves_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [wanted, other] = ["wanted", "other"].map(|name| put(&folder, name, name));
    let into = folder.path().join("in");
    let group = group();
    let common = ["--group", &group, "--interface", "lo", "--json"];
    let own = ["recv", "--into", &text_of(&into), "--once", "--object", "image 7"];
    let receiver = Running::start(&[&own[..], &common].concat());
    let own = ["send", &other, "--wait-max", "2s"];
    let sent = Running::start(&[&own[..], &common].concat()).end();
    let told = events("send", &sent.out);
    assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
    assert_eq!(event(&told, "left")["waited_for"], false);
    let sent =
        Running::start(&[&["send", &wanted, "--name", "image 7"][..], &common].concat()).end();
    let received = receiver.end();
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
    assert_eq!(std::fs::read(into.join("wanted")).unwrap(), b"wanted");
    assert!(!into.join("other").exists(), "nothing of the other one was written");
    assert!(!into.join(".faircast").exists(), "nor kept");
}

#[test]
fn a_receiver_takes_nothing_from_others_than_whom_it_names_by_unicast_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "file", "x");
    for (from, code) in [("127.0.0.1", 0), ("192.0.2.1", 1)] {
        // Another one each time: somebody may have taken the first since.
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let free = free.to_string();
        let into = text_of(&folder.path().join(from));
        let own = ["recv", "--listen", &free, "--from", from, "--into", &into, "--once"];
        let receiver = Running::start(&[&own[..], &["--wait-max", "5s"]].concat());
        // A sender to this host would take the port where nobody has it yet.
        let port = format!(":{:04X} ", free.parse::<std::net::SocketAddr>().unwrap().port());
        let is_there = || std::fs::read_to_string("/proc/net/udp").unwrap().contains(&port);
        until("it hears", is_there);
        let sent = run_within(20, &["send", &file, "--to", &free, "--wait-max", "2s"]);
        let received = receiver.end();
        assert_eq!(
            (sent.code, received.code),
            (Some(code), Some(code)),
            "{from}: {}",
            received.err
        );
        assert_eq!(received.err.contains("no sender was heard"), code == 1, "{}", received.err);
        assert_eq!(sent.err, "", "the receiver has its port: that is no news");
    }
}

#[test]
fn a_port_that_somebody_else_has_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "file", "x");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let group = format!("239.192.78.1:{port}");
    let arguments = ["send", &file, "--group", &group, "--interface", "lo", "--wait-max", "1s"];
    let sent = run_within(20, &arguments);
    assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
    let want = format!("cannot bind 127.0.0.1:{port}");
    assert!(sent.err.contains(&want) && sent.err.contains("answer to port"), "{}", sent.err);
}
