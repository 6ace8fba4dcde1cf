//! `send`, `recv` and `key` over the loopback interface, as separate processes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};

use nix::sys::signal::Signal;

use super::site::{Site, free_tcp, group, noise};
use super::*;

#[test]
fn a_tree_gets_to_two_receivers_with_a_key_and_the_second_time_it_is_there_already() {
    let site = Site::keyed(true);
    site.put("tree/large", noise(2_500_000));
    site.put("tree/sub/empty", "");
    for run in 0..2 {
        let receivers =
            ["a", "b"].map(|name| site.start(&format!("recv --into {name} --once --name {name}")));
        let sent = site.start("send tree --wait-for 2").end_with(0);
        assert_eq!(sent.err, "");
        let summary = sent.summary();
        assert_eq!(summary["ok"], true);
        assert_eq!(summary["receivers"].as_array().unwrap().len(), 2);
        let bytes_sent = summary["bytes_sent"].as_u64().unwrap();
        assert_eq!(run == 0, bytes_sent > 2_500_000, "{bytes_sent} in run {run}");
        assert!(run == 0 || bytes_sent < 200_000, "{bytes_sent} in run {run}");
        for receiver in receivers {
            let received = receiver.end_with(0);
            assert_eq!(received.err, "");
            let large = received.events().into_iter().find(|event| {
                event["event"] == "file" && event["path"].as_str().unwrap().ends_with("large")
            });
            let at_sender = summary["files"].as_array().unwrap();
            let of_sender = at_sender.iter().find(|file| file["path"] == "tree/large").unwrap();
            assert_eq!(large.unwrap()["blake3"], of_sender["blake3"]);
        }
    }
    for name in ["a", "b"] {
        site.assert_same(&format!("{name}/tree/large"), "tree/large");
        assert_eq!(std::fs::read(site.path(name).join("tree/sub/empty")).unwrap(), b"");
    }
}

#[test]
fn a_receiver_that_was_killed_goes_on_where_it_was() {
    let site = Site::with_file(8_000_000);
    let recv = "recv --into in --once --name r";
    let first = site.start(recv);
    let sender = site.start("send file --rate-max 16Mbit/s --give-up 4s");
    site.until_kept("in/.faircast");
    first.kill();
    assert!(!site.path("in/file").exists(), "it is not there before it is whole");
    let second = site.start(recv).end_with(0);
    let found = second.event("complete")["bytes_found"].as_u64().unwrap();
    assert!(found >= 1 << 20, "{found} bytes were there from the first run");
    site.assert_same("in/file", "file");
    assert_eq!(sender.end().summary()["bytes_total"], 8_000_000);
}

#[test]
fn a_sender_that_was_killed_goes_on_where_it_was() {
    let site = Site::with_file(8_000_000);
    let receiver = site.start("recv --into in --once --name r");
    let send = "send file --rate-max 16Mbit/s";
    let first = site.start(send);
    receiver.until_has(2 << 20);
    first.kill();
    let sent = site.start(send).end_with(0);
    let received = receiver.end_with(0);
    received.event("gone");
    let found = received.event("complete")["bytes_found"].as_u64().unwrap();
    assert!(found >= 1 << 20, "{found} bytes were there from the first run");
    site.assert_same("in/file", "file");
    let bytes = sent.summary()["bytes_sent"].as_u64().unwrap();
    assert!(bytes < 9_000_000 - found, "{bytes} bytes were sent though {found} were there");
}

pub(super) fn get(address: &str, method: &str, path: &str) -> (String, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_string(), body.to_string())
}

/// Parses OpenMetrics 1.0 into values by name and labels, and checks HELP, TYPE, `_total`, EOF.
pub(super) fn openmetrics(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let (body, end) = text.split_at(text.len() - "# EOF\n".len());
    assert_eq!(end, "# EOF\n");
    let (mut name, mut suffix) = ("", "");
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            name = help.split(' ').next().unwrap();
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.starts_with("faircast_") && name.chars().all(allowed), "{name}");
            continue;
        }
        if let Some(kind) = line.strip_prefix(&format!("# TYPE {name} ")) {
            suffix = match kind {
                "counter" => "_total",
                "gauge" => "",
                other => panic!("{other}"),
            };
            continue;
        }
        let (full, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(full.split('{').next(), Some(&*format!("{name}{suffix}")), "{line}");
        let old = values.insert(full.to_string(), value.parse().unwrap());
        assert_eq!(old, None, "{full} comes twice");
    }
    values
}

#[test]
fn metrics_can_be_read_by_prometheus_while_it_runs() {
    let site = Site::with_file(6_000_000);
    let [at_sender, at_receiver] = [(); 2].map(|()| free_tcp().to_string());
    let receiver = site.start(&format!("recv --into in --once --metrics {at_receiver}"));
    let sender = site.start(&format!("send file --rate-max 8Mbit/s --metrics {at_sender}"));
    sender.until("progress", |event| {
        event["bytes_least"].as_u64() > Some(0) && event["rtt_seconds"].as_f64() > Some(0.0)
    });
    receiver.until_has(1);
    let [sent, received] = [&at_sender, &at_receiver].map(|address| {
        let (head, body) = get(address, "GET", "/metrics");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        assert!(get(address, "GET", "/").0.starts_with("HTTP/1.1 404"));
        assert!(get(address, "POST", "/metrics").0.starts_with("HTTP/1.1 405"));
        openmetrics(&body)
    });
    assert_eq!((sent["faircast_receivers"], sent["faircast_content_bytes"]), (1.0, 6e6));
    let (least, done) =
        (sent["faircast_content_least_bytes"], received["faircast_content_done_bytes"]);
    assert!(least > 0.0 && done >= least && done < 6e6, "{least} {done}: it is under way");
    assert!(sent["faircast_sent_bytes_total"] > least && sent["faircast_rtt_seconds"] > 0.0);
    assert!(sent["faircast_rate_bits_per_second"] > 1e5, "what the default scheme allows");
    assert!(received["faircast_received_packets_total"] > 100.0);
    let page = std::fs::read_to_string(root().join("docs/live.md")).unwrap();
    for name in sent.keys().chain(received.keys()) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/live.md");
    }
    let (sent, _) = (sender.end_with(0), receiver.end_with(0));
    let told = sent.events();
    let rated = told.iter().filter(|event| event["rate_bits_per_s"].as_f64().is_some()).count();
    assert!(rated > 1, "progress has the rate too: {}", sent.out);
    let summary = sent.summary();
    assert_eq!(summary["limits"][0]["cause"], "rate_max", "{summary}");
    let lost = summary["receivers"][0]["loss"].as_f64() > Some(0.0);
    assert!(lost || summary["repairs"] == 0, "nothing was lost: {summary}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap();
    let ended = site.start(&format!("send file --metrics {place}")).end_with(1);
    assert_eq!(ended.out, "");
    assert!(ended.err.contains("a free port"), "{}", ended.err);
}

#[test]
fn ctrl_c_at_the_sender_is_told_to_the_receiver_and_at_the_receiver_to_the_sender() {
    for at_sender in [true, false] {
        let site = Site::with_file(20_000_000);
        let receiver = site.start("recv --into in");
        let sender = site.start("send file --rate-max 10Mbit/s");
        receiver.until_has(1);
        if at_sender {
            sender.signal(Signal::SIGINT);
            sender.end_with(1);
            receiver.until("gone", |_| true);
            receiver.signal(Signal::SIGINT);
            receiver.end().events();
        } else {
            receiver.signal(Signal::SIGINT);
            receiver.end_with(1).event("closed");
            sender.end_with(1).event("left");
        }
    }
}

#[test]
fn hashes_of_many_files_are_printed_where_they_are_asked_for() {
    let site = Site::with(&format!("--group {} --interface lo", group()));
    (0..20).for_each(|i| drop(site.put(&format!("tree/f{i}"), [i; 10_000])));
    for (more, lists) in [("", false), ("--list", true)] {
        let receiver = site.start(&format!("recv --into in{more} --once {more}"));
        let sent = site.start("send tree --rate-max 1M").end_with(0);
        let received = receiver.end_with(0);
        let lines = received.out.lines().filter(|line| line.contains("/tree/f")).count();
        assert_eq!(lines, if lists { 20 } else { 0 }, "{}", received.out);
        assert_eq!(received.out.contains("--list prints"), !lists, "{}", received.out);
        // 200 kB at 125 kB/s: the rate limit was the bound, perhaps beside a busy disk; no repairs.
        assert!(sent.out.contains("with 0 repair packets and 0 parity packets"), "{}", sent.out);
        let why = sent.out.lines().find(|line| line.starts_with("No faster because of"));
        assert!(why.is_some_and(|why| why.contains("--rate-max (")), "{}", sent.out);
    }
}

#[test]
fn the_log_tells_what_happens_and_refuses_what_it_does_not_know() {
    let group = group();
    let site = Site::with(&format!("--group {group} --interface lo"));
    site.put("file", "some bytes");
    let logged = |log: &str, words: &str| {
        let mut command = site.command(words);
        command.env("FAIRCAST_LOG", log);
        Running::spawn(command)
    };
    let receiver = logged("debug", "recv --into in --once --name r --log-json");
    let sent = logged("info,session=debug,control=trace", "send file").end_with(0);
    let received = receiver.end_with(0);
    let port = group.rsplit(':').next().unwrap();
    for want in [
        "sockets are open",
        &format!("127.0.0.1:{port}"),
        "receiver=\"r\" address=127.0.0.1:",
        "now=Done",
        "the representative changes",
        "window_milli",
    ] {
        assert!(sent.err.contains(want), "{want}: {}", sent.err);
    }
    for line in received.err.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["target"].as_str().unwrap().starts_with("faircast"), "{line}");
    }
    for want in ["a sender is heard", "\"outcome\":\"complete, 1 files\""] {
        assert!(received.err.contains(want), "{want}: {}", received.err);
    }
    for wrong in ["nonsense", "net=debug", "debug,x"] {
        let ended = logged(wrong, "send file").end_with(2);
        assert_eq!(ended.out, "", "{wrong}");
        assert!(ended.err.contains("expected one of"), "{}", ended.err);
    }
}

#[test]
fn different_keys_are_told_at_both_ends() {
    let site = Site::with(&format!("--group {} --interface lo", group()));
    let ids = ["one.key", "two.key"]
        .map(|name| succeed(&format!("key show {}", site.key(name)))[..6].to_string());
    site.put("file", "x");
    let receiver = site.start("recv --into in --key one.key");
    let sender = site.start("send file --key two.key");
    for end in [sender, receiver] {
        end.until_complained("nothing can pass");
        end.signal(Signal::SIGINT);
        let ended = end.end();
        let said = ended.err.lines().find(|line| line.contains("nothing can pass")).unwrap();
        assert!(ids.iter().all(|id| said.contains(id)), "{said}");
    }
}

#[test]
fn mistakes_are_found_at_once_and_say_what_to_do() {
    let site = Site::with("");
    site.put("file", "x");
    let key = std::fs::File::open(site.key("open.key")).unwrap();
    key.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = format!("recv --into in --listen {}", taken.local_addr().unwrap());
    let group = group();
    for (words, code, want) in [
        ("send absent --group GROUP", 2, "absent"),
        ("send file --group 10.0.0.1:7500", 2, "not a multicast address"),
        ("send file --group [ff02::9]:7500", 2, "name the network with --interface"),
        ("recv --group [ff02::9]:7500 --into in --once", 2, "name the network with --interface"),
        ("send file --to 239.1.2.3:7500", 2, "use --group"),
        ("send file --to 127.0.0.1:0", 2, "recv --listen"),
        ("send file --to 127.0.0.1:1,[::1]:1", 2, "same address family"),
        ("send file --group GROUP --receivers absent", 2, "absent"),
        ("send file --group GROUP --receivers /dev/null", 2, "one name a line"),
        ("send file --group GROUP --trace /", 2, "cannot be written"),
        ("send file --group GROUP --metrics 192.0.2.1:9464", 2, "this host"),
        ("send file --group GROUP --mtu 99999", 2, "expected 136 to 65535"),
        ("send file --group GROUP --option acker_bias=9", 2, "from 0.05 to 1"),
        ("send file --group GROUP --key absent", 2, "`faircast key new`"),
        (
            "send file --group GROUP --rate-min 2Mbit/s --rate-max 1Mbit/s",
            2,
            "--rate-min is more than --rate-max",
        ),
        ("send file --group GROUP --interface none0", 2, "interface \"none0\"; there are "),
        ("send file --group GROUP --scheme tcp", 2, "there are pgmcc"),
        ("send file --group GROUP --option x=1", 2, "\"x\" is unknown"),
        ("send file --group GROUP --mtu 90", 2, "packets of 90 bytes"),
        ("send file --group GROUP --key open.key", 2, "chmod 600"),
        ("send file --to nowhere", 2, "HOST:PORT"),
        ("send file --to nowhere,10.0.0.1:1,no:one", 2, "; --to no:one: "),
        ("key new open.key", 2, "the file exists"),
        ("key show file", 2, "no key file"),
        (&taken, 1, "choose another"),
        ("recv --listen 127.0.0.1:7599 --into file", 2, "file"),
        ("recv --once --group GROUP --interface none0 --into in", 2, "none0"),
        ("recv --group GROUP --interface none0 --into in", 2, "lo (127.0.0.1"),
        (
            "send file --group GROUP --option fec=2",
            2,
            "--option fec=2: expected auto, off, or a share",
        ),
        ("send file --group GROUP --fec off --option fec=0.2", 2, "say different things"),
    ] {
        let ended = site.start(&words.replace("GROUP", &group)).end_within(20);
        assert_eq!(ended.code, Some(code), "{words}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(want), "{words}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{words}: {}", ended.err);
    }
}
