//! The ways that packets can take: IPv6, source-specific groups, unicast, large packets, a host in
//! two networks.

use serde_json::Value;

use super::*;

#[test]
fn every_kind_of_group_carries_a_tree() {
    let Some(lan) = Lan::new(3) else { return };
    let case = Case::new(400_000);
    for (at, to) in [
        (&["--group", "[ff15::1234]:7500"][..], &["--group", "[ff15::1234]:7500"][..]),
        (
            &["--group", "[ff02::1234]:7500", "--interface", "e0"],
            &["--group", "[ff02::1234]:7500", "--interface", "e0"],
        ),
        (
            &["--group", "232.1.2.3:7500", "--from", "10.77.0.1"],
            &["--group", "232.1.2.3:7500", "--interface", "10.77.0.1"],
        ),
        (
            &["--group", "[ff3e::1234]:7500", "--from", "fd77::1", "--interface", "e0"],
            &["--group", "[ff3e::1234]:7500", "--interface", "fd77::1"],
        ),
        (
            &["--group", "239.192.7.2:7500"],
            &["--group", "239.192.7.2:7500", "--fec", "off", "--ttl", "8"],
        ),
        (
            &["--group", "239.192.7.2:7500"],
            &["--group", "239.192.7.2:7500", "--fec", "25%", "--slow", "wait"],
        ),
        (
            &["--group", "239.192.7.2:7500"],
            &["--group", "239.192.7.2:7500", "--option", "fec=0.25"],
        ),
    ] {
        let sent = transfer(&lan, &case, &[1, 2], at, to);
        assert_eq!(sent.err, "", "{to:?}");
        let summary = live::event(&live::events("send", &sent.out), "summary").clone();
        let parity = summary["parity"].as_u64().unwrap();
        let unasked = to.iter().any(|word| word.ends_with("25%") || word.ends_with("0.25"));
        assert_eq!(unasked, parity > 50, "{to:?}: {parity}");
    }
}

#[test]
fn without_a_route_for_multicast_each_receiver_is_sent_to() {
    let Some(lan) = Lan::new(3) else { return };
    (0..3).for_each(|host| lan::run(lan.host(host), "route del 224.0.0.0/4 dev e0"));
    let case = Case::new(400_000);
    let sent = on(&lan, 0, &["send", &case.at("tree"), "--group", "239.192.7.3:7500"]).end();
    assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
    assert!(sent.err.contains("--interface") && sent.err.contains("ip route add"), "{}", sent.err);
    let heard =
        on(&lan, 1, &["recv", "--group", "239.192.7.3:7500", "--into", &case.at("r"), "--once"]);
    let heard = heard.end();
    assert!(
        heard.err.contains("--interface") && heard.err.contains("ip route add"),
        "{}",
        heard.err
    );
    // One that stays waits for the network, as long as it was told.
    let own = ["recv", "--group", "239.192.7.3:7500", "--into", &case.at("r")];
    let begun = Instant::now();
    let waited = on(&lan, 1, &[&own[..], &["--wait-max", "1s"]].concat()).end();
    assert!(begun.elapsed() >= Duration::from_secs(1), "{}", waited.err);
    assert_eq!(waited.code, Some(1), "{}{}", waited.out, waited.err);
    let told = waited.err.lines().filter(|line| line.contains("waiting until the network")).count();
    assert_eq!(told, 1, "{}", waited.err);
    for (at, to) in [
        (["--listen", "0.0.0.0:7500"], ["--to", "10.77.0.2:7500,10.77.0.3:7500"]),
        (["--listen", "[::]:7500"], ["--to", "[fd77::2]:7500,[fd77::3]:7500"]),
    ] {
        transfer(&lan, &case, &[1, 2], &at, &to);
    }
    // The list says who is waited for.
    let to = ["--to", "10.77.0.2:7500,10.77.0.3:7500", "--json"];
    let sender = on(&lan, 0, &[&["send", &case.at("tree")][..], &to].concat());
    let receivers = [1, 2].map(|host| {
        let into = case.at(&format!("late{host}"));
        let own = ["recv", "--listen", "0.0.0.0:7500", "--into", &into, "--once"];
        let receiver = on(&lan, host, &own);
        // The next one comes when this one is there.
        let address = format!("10.77.0.{}:", 1 + host);
        let is_it = |event: &Value| event["address"].as_str().unwrap().starts_with(&address);
        sender.until("joined", is_it);
        receiver
    });
    let sent = sender.end();
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    receivers.into_iter().for_each(|receiver| assert_eq!(receiver.end().code, Some(0)));
    ["late1", "late2"].iter().for_each(|name| case.assert_arrived(name));
}

#[test]
fn large_packets_are_for_links_that_take_them() {
    let Some(lan) = Lan::new(2) else { return };
    let case = Case::new(400_000);
    let at = ["--group", "239.192.7.4:7500"];
    let to = ["--group", "239.192.7.4:7500", "--mtu", "9000"];
    let packets = |sent: &Ended| {
        let summary = live::event(&live::events("send", &sent.out), "summary").clone();
        summary["packets_sent"].as_u64().unwrap()
    };
    let cut = transfer(&lan, &case, &[1], &at, &to);
    let warning = live::event(&live::events("send", &cut.out), "warning").clone();
    assert!(warning["text"].as_str().unwrap().contains("use --mtu 1500"), "{warning}");
    for host in 0..2 {
        lan::run(lan.bridge(), &format!("link set p{host} mtu 9000"));
        lan::run(lan.host(host), "link set e0 mtu 9000");
    }
    let whole = transfer(&lan, &case, &[1], &at, &to);
    assert!(!whole.out.contains("warning"), "{}", whole.out);
    let plain = transfer(&lan, &case, &[1], &at, &at);
    assert!(packets(&whole) * 3 < packets(&plain), "{} {}", packets(&whole), packets(&plain));
}

#[test]
fn a_host_in_two_networks_uses_the_one_that_is_named() {
    let (Some(lan), Some(other)) = (Lan::new(2), Lan::new(1)) else { return };
    // Host 0 of the first has an interface `e1` in the second one too.
    let (host, bridge) = (lan.host(0), other.bridge());
    lan::run(bridge, &format!("link add q0 type veth peer name e1 netns {host}"));
    lan::run(bridge, "link set q0 master br0");
    lan::run(bridge, "link set q0 up");
    lan::run(host, "addr add 10.78.0.1/24 dev e1");
    lan::run(host, "link set e1 up");
    lan::run(other.host(0), "addr add 10.78.0.2/24 dev e0");
    lan::run(other.host(0), "addr del 10.77.0.1/24 dev e0");
    let case = Case::new(100_000);
    let group = ["--group", "239.192.7.5:7500"];
    for by in ["e1", "10.78.0.1"] {
        let (here, there) = (case.at("here"), case.at("there"));
        let _ = std::fs::remove_dir_all(&there);
        let own = ["recv", "--once", "--json", "--into"];
        let home = on(&lan, 1, &[&own[..], &[&here, "--give-up", "2s"], &group].concat());
        let away = on(&other, 0, &[&own[..], &[&there], &group].concat());
        let send = ["send", &case.at("tree"), "--json", "--interface", by];
        let sent = on(&lan, 0, &[&send[..], &group].concat()).end();
        assert_eq!(sent.code, Some(0), "{by}: {}{}", sent.out, sent.err);
        assert_eq!(away.end().code, Some(0), "{by}");
        case.assert_arrived("there");
        assert_eq!(home.end().code, Some(1), "{by}: the other network heard nothing");
        // And the other way round.
        let _ = std::fs::remove_dir_all(&there);
        let recv = [&own[..], &[&there, "--interface", by], &group].concat();
        let away = on(&lan, 0, &recv);
        let sent = on(&other, 0, &[&send[..3], &group].concat()).end();
        assert_eq!(sent.code, Some(0), "{by}: {}{}", sent.out, sent.err);
        assert_eq!(away.end().code, Some(0), "{by}");
        case.assert_arrived("there");
    }
    lan::run(host, "link set e1 down");
    let down = ["send", &case.at("tree"), "--json", "--interface", "e1"];
    let sender = on(&lan, 0, &[&down[..], &group].concat());
    sender.until("warning", |_| true);
    sender.signal(nix::sys::signal::Signal::SIGINT);
    let told = live::events("send", &sender.end().out);
    let text = live::event(&told, "warning")["text"].as_str().unwrap();
    assert!(text.contains("is the interface up"), "{text}");
}
