//! `check` between hosts: what is wrong with their network is found, by its name.

use serde_json::Value;

use super::*;

/// What two hosts of a network find of each other when they check the same group: all findings, and the
/// names of those that are wrong. The exit status agrees with them.
fn both(lan: &Lan, arguments: [&[&str]; 2]) -> [(Value, Vec<String>); 2] {
    told(begin(lan, "239.192.7.9:7500", arguments))
}

fn begin(lan: &Lan, group: &str, arguments: [&[&str]; 2]) -> [Running; 2] {
    [0, 1].map(|host| {
        let own = ["check", "--group", group, "--json", "--rate", "5Mbit/s"];
        on(lan, host, &[&own[..], arguments[host]].concat())
    })
}

fn told(running: [Running; 2]) -> [(Value, Vec<String>); 2] {
    running.map(|host| {
        let ended = host.end();
        assert_eq!(ended.err, "", "{}", ended.out);
        let document: Value = serde_json::from_str(&ended.out).unwrap();
        let findings = document["findings"].as_array().unwrap();
        let wrong = findings.iter().filter(|found| found["state"] == "wrong");
        assert!(wrong.clone().all(|found| found["advice"].is_string()), "{document}");
        let wrong: Vec<String> =
            wrong.map(|found| found["check"].as_str().unwrap().to_string()).collect();
        assert_eq!(ended.code, Some(i32::from(!wrong.is_empty())), "{document}");
        assert_eq!(document["ok"], wrong.is_empty());
        (document, wrong)
    })
}

fn found(document: &Value, check: &str) -> String {
    let findings = document["findings"].as_array().unwrap();
    let found = findings.iter().find(|found| found["check"] == check);
    found.unwrap_or_else(|| panic!("no {check}: {document}"))["found"].as_str().unwrap().to_string()
}

/// Gives a host an interface `d0` with an address, which leads nowhere.
fn another_interface(host: &str) {
    lan::run(host, "link add d0 type veth peer name d1");
    lan::run(host, "addr add 10.78.0.1/24 dev d0");
    lan::run(host, "link set d1 up");
    lan::run(host, "link set d0 up");
}

#[test]
fn between_two_hosts_of_a_good_network_nothing_is_wrong() {
    let (Some(lan), folder) = (Lan::new(2), tempfile::tempdir().unwrap()) else { return };
    let key = text_of(&folder.path().join("group.key"));
    succeed(&["key", "new", &key]);
    // In two groups at one time.
    let ways = [("239.192.7.9:7500", &[][..]), ("239.192.7.10:7501", &["--key", &key])];
    for running in ways.map(|(group, with)| begin(&lan, group, [with, with])) {
        for (host, (document, wrong)) in told(running).into_iter().enumerate() {
            assert_eq!(wrong, Vec::<String>::new(), "{document}");
            assert!(found(&document, "interface").contains(&format!("10.77.0.{}", host + 1)));
            assert!(found(&document, "MTU of the way").contains("to it up to 1500 bytes; from it"));
            assert!(found(&document, "memberships").contains("--long"), "{document}");
            let peers = document["findings"].as_array().unwrap().iter();
            let peers: Vec<&str> = peers.filter_map(|found| found["peer"].as_str()).collect();
            assert!(peers.len() > 5, "{document}");
            assert!(peers.iter().all(|peer| *peer == format!("10.77.0.{}", 2 - host)), "{peers:?}");
        }
    }
}

#[test]
fn groups_of_ipv6_are_checked_too() {
    let Some(lan) = Lan::new(2) else { return };
    // Groups of one link alone need the link's name.
    let cases = [
        ("[ff15::7:1]:7500", &[][..], "fd77::"),
        ("[ff12::7:1]:7500", &["--interface", "e0"], "fe80::"),
    ];
    let running = cases.map(|(group, with, _)| begin(&lan, group, [with, with]));
    for ((_, _, address), running) in cases.into_iter().zip(running) {
        for (host, (document, mut wrong)) in told(running).into_iter().enumerate() {
            // How much gets through in a second depends on what else this machine does.
            wrong.retain(|check| check != "speed");
            assert_eq!(wrong, Vec::<String>::new(), "{document}");
            assert!(found(&document, "interface").contains(address), "{document}");
            let mtu = found(&document, "MTU of the way");
            assert!(mtu.contains("to it up to 1500 bytes; from it up to 1500"), "{mtu}");
            let peers = document["findings"].as_array().unwrap().iter();
            let mut peers = peers.filter_map(|found| found["peer"].as_str());
            let other = format!("fd77::{}", 2 - host);
            assert!(peers.all(|peer| address == "fe80::" || peer == other), "{document}");
        }
    }
    let nameless = on(&lan, 0, &["check", "--group", "[ff12::7:1]:7500"]).end();
    assert_eq!(nameless.code, Some(2), "{}", nameless.err);
    assert!(nameless.err.contains("name the network with --interface"), "{}", nameless.err);
}

#[test]
fn a_link_that_takes_less_in_the_middle_is_found_from_both_ends() {
    let Some(lan) = Lan::new(2) else { return };
    lan::run(lan.bridge(), "link set p1 mtu 1400");
    for (document, wrong) in both(&lan, [&[], &[]]) {
        assert_eq!(wrong, ["MTU of the way"], "{document}");
        let mtu = found(&document, "MTU of the way");
        assert!(mtu.contains("to it up to 1400 bytes; from it up to 1400"), "{mtu}");
    }
}

/// A bridge that looks for members, and never asks for them again: it forgets them after 15 s, and not after
/// 260 s as it would.
#[test]
fn a_switch_that_forgets_its_members_is_found_by_who_looks_long_enough() {
    let Some(lan) = Lan::new(2) else { return };
    let snooping = "mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 100";
    let forgets = "mcast_membership_interval 1500 mcast_query_interval 100000";
    lan::run(lan.bridge(), &format!("link set br0 type bridge {snooping} {forgets}"));
    let long = &["--long", "29s"][..];
    for (document, wrong) in both(&lan, [long, long]) {
        assert_eq!(wrong, ["memberships"], "{document}");
    }
}

#[test]
fn a_strict_reverse_path_filter_is_found_where_it_is_and_seen_from_the_other_host() {
    let Some(lan) = Lan::new(2) else { return };
    // Host 1 reaches host 0 by another interface than that on which it hears it.
    let host = lan.host(1);
    another_interface(host);
    lan::run(host, "route add 10.77.0.1/32 dev d0");
    lan::run(host, "route flush cache");
    let strict = ["netns", "exec", host, "sysctl", "-q", "-w", "net.ipv4.conf.all.rp_filter=1"];
    assert!(Command::new("ip").args(strict).status().unwrap().success());
    let wait = &["--wait", "6s"][..];
    let [(there, seen), (here, at_fault)] = both(&lan, [wait, wait]);
    assert_eq!(at_fault, ["reverse-path filter", "other hosts"], "{here}");
    assert!(seen.contains(&"is heard there".to_string()), "{there}");
}

#[test]
fn a_check_by_the_wrong_interface_or_without_a_route_says_so() {
    let Some(lan) = Lan::new(2) else { return };
    let host = lan.host(0);
    another_interface(host);
    let wait = ["--wait", "2s"];
    let wrong_one = [&wait[..], &["--interface", "d0"]].concat();
    let [(first, alone), (_, other)] = both(&lan, [&wrong_one, &wait]);
    assert_eq!((&alone, &other), (&vec!["other hosts".to_string()], &alone), "{first}");
    assert!(found(&first, "interface").starts_with("d0, 10.78.0.1, up"), "{first}");
    assert!(found(&first, "route").contains("there are also e0"), "{first}");
    let missing = on(&lan, 0, &["check", "--group", "239.192.7.9:7500", "--interface", "e7"]).end();
    assert_eq!(missing.code, Some(2), "{}", missing.err);
    assert!(
        missing.err.contains("e7") && missing.err.contains("e0 (10.77.0.1)"),
        "{}",
        missing.err
    );
    lan::run(host, "link del d0");
    lan::run(host, "route del 224.0.0.0/4 dev e0");
    let alone = ["check", "--group", "239.192.7.9:7500", "--wait", "0s"];
    let routeless = on(&lan, 0, &alone).end();
    assert_eq!(routeless.code, Some(1), "{}{}", routeless.out, routeless.err);
    assert!(routeless.out.contains("WRONG route"), "{}", routeless.out);
    assert!(routeless.out.contains("do: name the network with --interface"), "{}", routeless.out);
}

#[test]
fn other_keys_are_noticed() {
    let (Some(lan), folder) = (Lan::new(2), tempfile::tempdir().unwrap()) else { return };
    let key = text_of(&folder.path().join("group.key"));
    succeed(&["key", "new", &key]);
    let wait = ["--wait", "3s"];
    let with = [&wait[..], &["--key", &key]].concat();
    for (document, wrong) in both(&lan, [&with, &wait]) {
        assert_eq!(wrong, ["other hosts", "key"], "{document}");
    }
}
