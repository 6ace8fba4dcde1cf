//! Transfers through relays, between hosts without multicast.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;

use super::hosts::{Hosts, link};
use super::site::{Site, free, free_tcp, noise};
use super::*;

const GROUP: &str = "--group 239.192.7.1:7500";

pub(super) struct Relays {
    pub(super) site: Site,
    key: String,
}

impl Relays {
    pub(super) fn new(sealed: bool, file_bytes: usize) -> Self {
        let site = Site::with("--json");
        site.put("file", noise(file_bytes));
        let key = if sealed { format!("--key {}", site.key("group.key")) } else { String::new() };
        Self { site, key }
    }

    fn start(&self, at: Option<u16>, parents: &[u16]) -> (u16, Running) {
        self.start_with(at, parents, "")
    }

    pub(super) fn start_with(
        &self,
        at: Option<u16>,
        parents: &[u16],
        more: &str,
    ) -> (u16, Running) {
        let port = at.unwrap_or_else(|| free().port());
        let parents: Vec<_> =
            parents.iter().map(|port| format!("--parent {}", via(*port))).collect();
        let words =
            format!("relay --listen {} {} {} {more}", via(port), parents.join(" "), self.key);
        let relay = self.site.start(&words);
        relay.until("listening", |_| true);
        (port, relay)
    }

    pub(super) fn recv(&self, name: &str, relays: &[u16]) -> Running {
        let relays: Vec<_> = relays.iter().map(|port| format!("--via {}", via(*port))).collect();
        let to = format!("--into {name} --once --name {name}");
        self.site.start(&format!("recv {GROUP} {} {to} {}", relays.join(" "), self.key))
    }

    pub(super) fn send(&self, file: &str, relay: u16, more: &str) -> Running {
        self.site.start(&format!("send {file} {GROUP} --via {} {more} {}", via(relay), self.key))
    }
}

fn assert_arrived<'n>(
    relays: &Relays,
    sender: Running,
    receivers: impl IntoIterator<Item = (&'n str, Running)>,
) -> Ended {
    let sent = sender.end_with(0);
    for (name, receiver) in receivers {
        relays.site.assert_received(name, receiver);
    }
    sent
}

fn via(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[test]
fn a_file_goes_through_two_levels_of_relays_and_who_has_no_key_gets_nothing() {
    for sealed in [false, true] {
        let relays = Relays::new(sealed, 6_000_000);
        let (top, _top) = relays.start(None, &[]);
        let below = [relays.start(None, &[top]), relays.start(None, &[top])];
        let names = ["a", "b", "c"];
        let receivers = names.map(|name| {
            let at = if name == "c" { below[1].0 } else { below[0].0 };
            relays.recv(name, &[at])
        });
        let unknown = Relays::new(false, 0);
        let unknown = sealed.then(|| unknown.recv("unknown", &[top]));
        let sent = relays.send("file", below[1].0, "--wait-for 3").end_with(0);
        for (name, receiver) in names.into_iter().zip(receivers) {
            assert_eq!(relays.site.assert_received(name, receiver).err, "");
        }
        assert_eq!(sent.err, "");
        // The content is sent once to each relay and host, and once by its source.
        let bytes = sent.summary()["bytes_sent"].as_u64().unwrap();
        assert!(bytes < 8_000_000, "{bytes}");
        if let Some(unknown) = unknown {
            unknown.signal(Signal::SIGINT);
            let events = unknown.end_with(1).events();
            assert!(events.iter().all(|event| event["event"] != "sender"), "{events:?}");
        }
    }
}

#[test]
fn a_relay_with_its_own_key_passes_content_on_and_shows_its_neighbours() {
    let relays = Relays::new(true, 100_000);
    let files = [relays.site.at("group.key"), relays.site.at("relay.key")];
    succeed(&format!("key relay '{}' '{}'", files[0], files[1]));
    let metrics = free_tcp();
    let own = Relays { key: "--key relay.key --name top".to_string(), site: relays.site };
    let (top, relay) = own.start_with(None, &[], &format!("--metrics {metrics}"));
    let hosts = Relays { key: "--key group.key".to_string(), site: own.site };
    let meet = format!("--via {} --meeting images --key group.key", via(top));
    let receiver = hosts.site.start(&format!("recv {meet} --into a --once --name a"));
    hosts.site.start(&format!("send file {meet}")).end_with(0);
    receiver.end_with(0);
    hosts.site.assert_same("a/file", "file");
    // Other findings may be wrong on this host.
    let check = |key: &str| {
        let check = hosts.site.start(&format!("check --via {} {key}", via(top)));
        let found = check.end().document()["findings"].clone();
        let of_relay = |it: &&Value| it["check"] == "relay";
        found.as_array().unwrap().iter().find(of_relay).unwrap()["found"].to_string()
    };
    let named = |name: &str| {
        let status = hosts.site.json(&format!("relay status {metrics}"));
        let neighbours = status["neighbours"].as_array().unwrap().clone();
        neighbours.into_iter().find(|it| it["name"] == name)
    };
    let _late = hosts.site.start(&format!("recv {meet} --into b --name late"));
    let is_whole = || named("late").is_some_and(|late| late["receivers"] == 1);
    running::until("it is attached, and its receiver is counted", is_whole);
    let late = named("late").unwrap();
    assert_eq!(late["is"], "host", "{late}");
    assert_eq!(late["version"], env!("CARGO_PKG_VERSION"));
    assert!(late["rtt_ms"].as_f64() > Some(0.0) && late["mtu_bytes"].as_u64() >= Some(1200));
    assert!(check("--key group.key").contains("top at"));
    assert!(check("").contains("another key"));
    relay.until("warning", |event| event["text"].as_str().unwrap().contains("without this key"));
}

#[test]
fn a_relay_sends_once_for_all_receivers_that_hear_its_multicast() {
    for sealed in [false, true] {
        let relays = Relays::new(sealed, 6_000_000);
        let metrics = free_tcp();
        let group = format!("--group {} --interface lo --metrics {metrics}", site::group());
        let (top, _top) = relays.start(None, &[]);
        let (below, _below) = relays.start_with(None, &[top], &group);
        let names = ["a", "b", "c", "d"];
        let receivers = names.map(|name| {
            let receiver = relays.recv(name, &[below]);
            receiver.until("relay", |event| event["multicast"] == true);
            receiver
        });
        let sent = relays.send("file", top, "--wait-for 4").end_with(0);
        assert_eq!(sent.err, "");
        let status = relays.site.json(&format!("relay status {metrics}"));
        for (name, receiver) in names.into_iter().zip(receivers) {
            assert_eq!(relays.site.assert_received(name, receiver).err, "");
        }
        let bytes = status["bytes_out"].as_u64().unwrap();
        assert!(bytes < 10_000_000, "{bytes}");
    }
}

#[test]
fn a_relay_keeps_to_its_highest_rate_and_the_sender_names_the_slow_link() {
    let relays = Relays::new(true, 3_000_000);
    let metrics = free_tcp();
    let (top, _top) = relays.start_with(None, &[], "--name top");
    let slow = format!("--name site-2 --rate-max 2Mbit/s --metrics {metrics}");
    let (below, _below) = relays.start_with(None, &[top], &slow);
    let (near, far) = (relays.recv("near", &[top]), relays.recv("far", &[below]));
    let sender = relays.send("file", top, "--wait-for 2 --give-up 60s");
    // A relay learns of its neighbour's link later than of its own branch.
    let is_named = |event: &Value| event["slow_link"]["name"] == "relay site-2 → receiver far";
    sender.until("progress", is_named);
    let progress = sender.told().into_iter().find(|event| is_named(event)).unwrap();
    let link = &progress["slow_link"];
    assert!(link["rate_bits_per_s"].as_u64() < Some(2_100_000), "{link}");
    let status = relays.site.json(&format!("relay status {metrics}"));
    let far_there = &status["neighbours"][0];
    assert!(far_there["queued_bytes"].as_u64() > Some(0), "{status}");
    // The rate includes QUIC's overhead.
    let sent = far_there["sent_bits_per_s"].as_u64().unwrap();
    assert!((1..2_400_000).contains(&sent), "{status}");
    assert!(status["parent"]["queued_bytes"].is_u64(), "{status}");
    let text = succeed(&format!("relay status {metrics}"));
    assert!(text.contains(" wait") && text.contains("bit/s"), "{text}");
    let summary = assert_arrived(&relays, sender, [("near", near), ("far", far)]).summary();
    let seconds = summary["seconds"].as_f64();
    assert!(seconds > Some(3_000_000.0 * 8.0 / 2_100_000.0), "{seconds:?} s");
    // Either the scheme or the relay's credits made the sender wait longer.
    let cause = summary["limits"][0]["cause"].as_str();
    assert!(matches!(cause, Some("sender_link" | "path")), "{summary}");
}

#[test]
fn a_relay_that_is_killed_and_started_again_loses_nothing() {
    let relays = Relays::new(true, 8_000_000);
    let (top, top_relay) = relays.start(None, &[]);
    let (below, below_relay) = relays.start(None, &[top]);
    let receivers = ["a", "b"].map(|name| (name, relays.recv(name, &[below])));
    let beside = relays.recv("beside", &[top]);
    let limits = "--wait-for 3 --rate-max 12Mbit/s --give-up 60s";
    let sender = relays.send("file", top, limits);
    let mut again = Vec::new();
    for (at, (port, relay, parents)) in
        [(1 << 20, (below, below_relay, vec![top])), (3 << 20, (top, top_relay, vec![]))]
    {
        receivers.iter().for_each(|(_, receiver)| receiver.until_has(at));
        relay.kill();
        again.push(relays.start(Some(port), &parents));
    }
    assert_arrived(&relays, sender, receivers.into_iter().chain([("beside", beside)]));
}

#[test]
fn where_a_relay_never_comes_back_another_takes_its_place() {
    let relays = Relays::new(false, 8_000_000);
    let (top, _top) = relays.start(None, &[]);
    let (first, first_relay) = relays.start(None, &[top]);
    let (second, _second) = relays.start(None, &[top]);
    let receivers = ["a", "b"].map(|name| (name, relays.recv(name, &[first, second])));
    let limits = "--wait-for 2 --rate-max 8Mbit/s --give-up 60s";
    let sender = relays.send("file", top, limits);
    receivers.iter().for_each(|(_, receiver)| receiver.until_has(1 << 20));
    first_relay.kill();
    assert_arrived(&relays, sender, receivers);
}

#[test]
fn a_receiver_that_stops_reading_holds_others_up_for_seconds_and_has_it_all_later() {
    let relays = Relays::new(false, 8_000_000);
    let (top, _top) = relays.start(None, &[]);
    let (slow, other) = (relays.recv("slow", &[top]), relays.recv("other", &[top]));
    let limits = "--wait-for 2 --rate-max 16Mbit/s --give-up 60s";
    let sender = relays.send("file", top, limits);
    slow.until_has(1 << 20);
    slow.signal(Signal::SIGSTOP);
    other.until("complete", |_| true);
    slow.signal(Signal::SIGCONT);
    assert_arrived(&relays, sender, [("slow", slow), ("other", other)]);
}

#[test]
fn a_relay_that_stands_still_for_8_s_goes_on_where_it_was() {
    let relays = Relays::new(true, 8_000_000);
    let (top, _top) = relays.start(None, &[]);
    let (below, low) = relays.start(None, &[top]);
    let (near, far) = (relays.recv("near", &[top]), relays.recv("far", &[below]));
    let limits = "--wait-for 2 --rate-max 8Mbit/s --give-up 60s";
    let sender = relays.send("file", top, limits);
    far.until_has(1 << 20);
    low.signal(Signal::SIGSTOP);
    near.until_has(4 << 20);
    std::thread::sleep(Duration::from_secs(4));
    low.signal(Signal::SIGCONT);
    assert_arrived(&relays, sender, [("near", near), ("far", far)]);
}

#[test]
fn a_receiver_that_dies_keeps_the_sender_for_no_longer_than_it_is_waited_for() {
    let relays = Relays::new(false, 4_000_000);
    let (top, _top) = relays.start(None, &[]);
    let (dies, other) = (relays.recv("dies", &[top]), relays.recv("other", &[top]));
    let sender = relays.send("file", top, "--wait-for 2 --rate-max 8Mbit/s --give-up 8s");
    dies.until_has(1 << 20);
    dies.kill();
    let summary = sender.end_within(LIMIT_S).with(1).summary();
    let states = summary["receivers"].as_array().unwrap().iter();
    let mut states: Vec<_> = states.map(|it| it["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["done", "lost"]);
    relays.site.assert_received("other", other);
}

#[test]
fn a_receiver_that_is_killed_and_started_again_counts_as_the_same() {
    let relays = Relays::new(true, 4_000_000);
    let (top, _top) = relays.start(None, &[]);
    let (dies, other) = (relays.recv("again", &[top]), relays.recv("other", &[top]));
    let sender = relays.send("file", top, "--wait-for 2 --rate-max 8Mbit/s --give-up 30s");
    dies.until_has(1 << 20);
    dies.kill();
    let again = relays.recv("again", &[top]);
    assert_arrived(&relays, sender, [("again", again), ("other", other)]);
}

/// Passes datagrams like an address-translating router; the relay sees another port once `remaps`.
fn translated(relay: u16, remaps: &Arc<AtomicBool>) -> u16 {
    let open = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        socket
    };
    let (inside, mut outside, remaps) = (open(), open(), remaps.clone());
    let port = inside.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut host, mut bytes) = (None, [0; 2048]);
        loop {
            if remaps.swap(false, Ordering::Relaxed) {
                outside = open();
            }
            while let Ok((len, from)) = inside.recv_from(&mut bytes) {
                host = Some(from);
                _ = outside.send_to(&bytes[..len], ("127.0.0.1", relay));
            }
            while let (Ok((len, _)), Some(host)) = (outside.recv_from(&mut bytes), host) {
                _ = inside.send_to(&bytes[..len], host);
            }
        }
    });
    port
}

#[test]
fn a_sender_whose_address_is_translated_to_another_goes_on() {
    let relays = Relays::new(true, 4_000_000);
    let (top, _top) = relays.start(None, &[]);
    let receiver = relays.recv("a", &[top]);
    let remaps = Arc::new(AtomicBool::new(false));
    let sender = relays.send("file", translated(top, &remaps), "--rate-max 8Mbit/s");
    for megabytes in [1, 2] {
        receiver.until_has(megabytes << 20);
        remaps.store(true, Ordering::Relaxed);
    }
    let summary = assert_arrived(&relays, sender, [("a", receiver)]).summary();
    assert!(summary["bytes_sent"].as_u64() < Some(5_000_000), "{summary}");
}

#[test]
fn where_no_relay_comes_back_both_ends_come_to_an_end() {
    let relays = Relays::new(false, 8_000_000);
    let (top, relay) = relays.start(None, &[]);
    let receiver = {
        let to = format!("--into r --once --name r --give-up 8s --via {}", via(top));
        relays.site.start(&format!("recv {GROUP} {to}"))
    };
    let limits = "--wait-for 1 --rate-max 8Mbit/s --give-up 3s";
    let sender = relays.send("file", top, limits);
    receiver.until_has(1 << 20);
    relay.kill();
    let summary = sender.end_with(1).summary();
    assert_eq!(summary["receivers"][0]["state"], "lost", "{summary}");
    assert_eq!(receiver.end_with(1).summary()["given_up"], true);
}

#[test]
fn relays_that_hang_below_each_other_say_so() {
    let relays = Relays::new(false, 0);
    let (a, b) = (free().port(), free().port());
    let (_, first) = relays.start(Some(a), &[b]);
    let (_, second) = relays.start(Some(b), &[a]);
    let _hosts = [relays.recv("a", &[a]), relays.recv("b", &[b])];
    running::until("one of them complains", || {
        [&first, &second].iter().any(|relay| {
            let events = relay.told();
            events.iter().any(|event| {
                event["event"] == "warning" && event["text"].as_str().unwrap().contains("a loop")
            })
        })
    });
}

const TREE_LIMIT_S: u64 = 1800;

/// Transfers over three levels, three relays or receivers below each; the last links lose 3 %.
pub(super) fn three_levels(policy: &str, kill: bool, sealed: bool) {
    let started = std::time::Instant::now();
    let middle: Vec<String> = (1..=3).map(|i| format!("m{i}")).collect();
    let low: Vec<String> = (1..=9).map(|i| format!("l{i}")).collect();
    let receivers: Vec<String> = (1..=27).map(|i| format!("r{i}")).collect();
    let all = ["sender", "top"].into_iter().map(str::to_string);
    let all: Vec<String> =
        all.chain(middle.iter().chain(&low).chain(&receivers).cloned()).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let hosts = Hosts::new(&names, |to| {
        let loss = if to.is_some_and(|to| to != "sender") { 0.03 } else { 0.0 };
        link(200, 1, loss, 500)
    });
    hosts.site.put("file", noise(100_000_000));
    let key = if sealed { format!("--key {}", hosts.site.key("group.key")) } else { String::new() };
    let at = |name: &str| format!("{}:7600", hosts.address(name));
    let relay = |name: &str, parent: Option<&str>| {
        let parent = parent.map_or(String::new(), |parent| format!("--parent {}", at(parent)));
        hosts.relay(name, &format!("{parent} {key}"))
    };
    let _top = relay("top", None);
    let mut relays: Vec<(String, Running)> = Vec::new();
    for (i, name) in middle.iter().enumerate() {
        relays.push((name.clone(), relay(name, Some("top"))));
        for name in &low[3 * i..3 * i + 3] {
            relays.push((name.clone(), relay(name, Some(&middle[i]))));
        }
    }
    let recv = |(i, name): (usize, &String)| {
        let via = at(&low[i / 3]);
        hosts.start(name, &format!("recv --via {via} --into {name} --once --name {name} {key}"))
    };
    let running: Vec<Running> = receivers.iter().enumerate().map(recv).collect();
    let via = at("top");
    let options = format!("--option policy={policy} --option lag=64");
    let send = format!("send file --via {via} --wait-for 27 --give-up 120s {options} {key}");
    let sender = hosts.start("sender", &send);
    if kill {
        running.iter().for_each(|receiver| receiver.until_has(20_000_000));
        for (name, parent) in [("m2", "top"), ("l1", "m1")] {
            let place = relays.iter().position(|(known, _)| known == name).unwrap();
            relays.swap_remove(place).1.kill();
            relays.push((name.to_string(), relay(name, Some(parent))));
        }
    }
    sender.end_within(TREE_LIMIT_S).with(0);
    for (name, receiver) in receivers.iter().zip(running) {
        receiver.end_within(TREE_LIMIT_S).with(0);
        hosts.site.assert_same(&format!("{name}/file"), "file");
    }
    println!(
        "27 receivers behind 13 relays, {policy}, killed: {kill}, sealed: {sealed}: intact after {:.0} s",
        started.elapsed().as_secs_f64()
    );
}

/// Returns the megabits of a hop and of kernel TCP (CUBIC) that share 20 Mbit/s.
pub(super) fn a_hop_beside_tcp(seconds: u64) -> [f64; 2] {
    let hosts = Hosts::new(&["s", "a", "b", "r", "t"], |to| {
        link(if to == Some("b") { 20 } else { 200 }, 5, 0.0, 50)
    });
    hosts.site.put("file", noise(200_000_000));
    let at = |name: &str| format!("{}:7600", hosts.address(name));
    let _above = hosts.relay("a", "");
    let _below = hosts.relay("b", &format!("--parent {}", at("a")));
    let python =
        |name: &str, text: &str| hosts.python(name, text, &[hosts.address("b").to_string()]);
    let sink = "import socket,sys,time\n\
                s=socket.create_server((sys.argv[1],9000));c=s.accept()[0];n=0\n\
                while True:\n b=c.recv(1<<16);n+=len(b);print(n,flush=True)\n";
    let sink = python("b", sink);
    // The host's default may be BBR, which leaves little to flows that slow down after losses.
    let source = "import socket,sys,time\n\
                  for _ in range(50):\n \
                  try: s=socket.create_connection((sys.argv[1],9000));break\n \
                  except OSError: time.sleep(0.1)\n\
                  s.setsockopt(socket.IPPROTO_TCP,socket.TCP_CONGESTION,b'cubic')\n\
                  while True: s.sendall(bytes(1<<16))\n";
    let _source = python("t", source);
    let receiver = hosts.start("r", &format!("recv --via {} --into r --once --name r", at("b")));
    let send = format!("send file --via {} --wait-for 1 --give-up 60s", at("a"));
    let _sender = hosts.start("s", &send);
    let has = || {
        let told = receiver.told();
        let last = told.iter().rev().find(|event| event["event"] == "progress");
        last.and_then(|it| it["objects"][0]["bytes_done"].as_u64()).unwrap_or(0)
    };
    let tcp = || {
        let lines = sink.so_far();
        lines.lines().rev().find_map(|line| line.parse::<u64>().ok()).unwrap_or(0)
    };
    receiver.until_has(2_000_000);
    let before = [has(), tcp()];
    std::thread::sleep(Duration::from_secs(seconds));
    let after = [has(), tcp()];
    [0, 1].map(|it| (after[it] - before[it]) as f64 * 8.0 / 1e6)
}

/// Returns the seconds until a file of 20 MB is at sites behind 50 and 4 Mbit/s.
pub(super) fn a_slow_site(waits: bool) -> [f64; 2] {
    let hosts = Hosts::new(&["s", "fast", "slow"], |to| {
        let rate = match to {
            Some("fast") => 50,
            Some("slow") => 4,
            _ => 1000,
        };
        link(rate, 5, 0.0, 100)
    });
    hosts.site.put("file", noise(20_000_000));
    let at = format!("{}:7600", hosts.address("s"));
    hosts.loopback_up("s");
    let _relay = hosts.relay("s", "");
    let receivers = ["fast", "slow"].map(|name| {
        hosts.start(name, &format!("recv --via {at} --into {name} --once --name {name}"))
    });
    let slow = if waits { "" } else { "--slow 'drop-below 10Mbit/s'" };
    let sender = hosts.start("s", &format!("send file --via {at} --wait-for 2 {slow}"));
    sender.until("progress", |event| event["bytes_least"].as_u64() > Some(0));
    let begun = std::time::Instant::now();
    let took = receivers.map(|receiver| {
        receiver.end_within(LIMIT_S * 10).with(0);
        begun.elapsed().as_secs_f64()
    });
    sender.end_within(LIMIT_S).with(0);
    ["fast", "slow"]
        .iter()
        .for_each(|name| hosts.site.assert_same(&format!("{name}/file"), "file"));
    took
}

/// Returns the rates in Mbit/s of thirty copies to three sites, over relays and by TCP (CUBIC).
pub(super) fn three_sites(mbit: u32, multicast: bool) -> [f64; 2] {
    const SITES: [&str; 3] = ["x", "y", "z"];
    const COPIES: usize = 10;
    let hosts = Hosts::new(&["s", "x", "y", "z"], |to| {
        link(if to.is_some_and(|to| to != "s") { mbit } else { 1000 }, 5, 0.0, 100)
    });
    let at = |name: &str| format!("{}:7600", hosts.address(name));
    let (bytes, tcp_bytes) = (mbit as usize * 4_000_000, mbit as usize * 300_000);
    hosts.site.put("file", noise(bytes));
    ["s"].into_iter().chain(SITES).for_each(|host| hosts.loopback_up(host));
    let _top = hosts.relay("s", "");
    let at_sites = if multicast { "--group 239.192.7.2:7601 --interface lo" } else { "" };
    let _below = SITES.map(|site| hosts.relay(site, &format!("--parent {} {at_sites}", at("s"))));
    let receivers: Vec<(String, Running)> = SITES
        .iter()
        .flat_map(|site| (0..COPIES).map(move |copy| (*site, format!("{site}{copy}"))))
        .map(|(site, name)| {
            let to = format!("--into {name} --once --name {name}");
            let receiver = hosts.start(site, &format!("recv --via 127.0.0.1:7600 {to}"));
            (name, receiver)
        })
        .collect();
    let receivers = receivers.into_iter();
    let wait = SITES.len() * COPIES;
    let begun = std::time::Instant::now();
    let sender = hosts.start("s", &format!("send file --via 127.0.0.1:7600 --wait-for {wait}"));
    sender.until("progress", |event| event["bytes_least"].as_u64() > Some(0));
    let joined = begun.elapsed();
    let ended = receivers.map(|(name, receiver)| {
        receiver.end_within(LIMIT_S * 10).with(0);
        name
    });
    let ended: Vec<String> = ended.collect();
    let relayed = bytes as f64 * 8e-6 / (begun.elapsed() - joined).as_secs_f64();
    ended.iter().for_each(|name| hosts.site.assert_same(&format!("{name}/file"), "file"));
    drop(sender);
    let sink = "import socket,sys,threading\n\
                s=socket.create_server((sys.argv[1],9000),backlog=64)\n\
                def take(c):\n\
                \u{20}while c.recv(1<<16): pass\n\
                print('ready',flush=True)\n\
                t=[]\n\
                for _ in range(int(sys.argv[2])):\n\
                \u{20}t.append(threading.Thread(target=take,args=(s.accept()[0],)));t[-1].start()\n\
                for x in t: x.join()\n";
    let source = "import socket,sys\n\
                  s=socket.create_connection((sys.argv[1],9000))\n\
                  s.setsockopt(socket.IPPROTO_TCP,socket.TCP_CONGESTION,b'cubic')\n\
                  s.sendall(bytes(int(sys.argv[2])))\n";
    let address = |site: &str| hosts.address(site).to_string();
    let sinks = SITES.map(|site| hosts.python(site, sink, &[address(site), COPIES.to_string()]));
    for sink in &sinks {
        running::until("it takes connections", || sink.so_far().contains("ready"));
    }
    let begun = std::time::Instant::now();
    let sources: Vec<Running> = SITES
        .iter()
        .flat_map(|site| (0..COPIES).map(move |_| *site))
        .map(|site| hosts.python("s", source, &[address(site), tcp_bytes.to_string()]))
        .collect();
    sinks.into_iter().for_each(|sink| _ = sink.end_within(LIMIT_S * 10).with(0));
    let tcp = tcp_bytes as f64 * 8e-6 / begun.elapsed().as_secs_f64();
    drop(sources);
    [relayed, tcp]
}
