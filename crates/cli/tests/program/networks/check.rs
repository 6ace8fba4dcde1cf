//! `check` between hosts: names the faults of their network.

use super::*;

/// Runs `check` on two hosts. Returns all findings and the names of the wrong ones.
fn both(lan: &Lan, more: [&str; 2]) -> [(Value, Vec<String>); 2] {
    told(begin(&Site::with(""), lan, "239.192.7.9:7500", more))
}

fn begin(site: &Site, lan: &Lan, group: &str, more: [&str; 2]) -> [Running; 2] {
    let check = format!("check --group {group} --json --rate 5Mbit/s");
    [0, 1].map(|host| on(site, lan, host, &format!("{check} {}", more[host])))
}

fn told(running: [Running; 2]) -> [(Value, Vec<String>); 2] {
    running.map(|host| {
        let ended = host.end();
        assert_eq!(ended.err, "", "{}", ended.out);
        let document = ended.document();
        let findings = document["findings"].as_array().unwrap();
        let wrong = findings.iter().filter(|found| found["state"] == "wrong");
        assert!(wrong.clone().all(|found| found["advice"].is_string()), "{document}");
        let wrong: Vec<String> =
            wrong.map(|found| found["check"].as_str().unwrap().to_string()).collect();
        assert_eq!(document["ok"], wrong.is_empty());
        ended.with(i32::from(!wrong.is_empty()));
        (document, wrong)
    })
}

fn peers(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap().iter();
    findings.filter_map(|found| found["peer"].as_str()).collect()
}

fn found(document: &Value, check: &str) -> String {
    let findings = document["findings"].as_array().unwrap();
    let found = findings.iter().find(|found| found["check"] == check);
    found.unwrap_or_else(|| panic!("no {check}: {document}"))["found"].as_str().unwrap().to_string()
}

fn another_interface(lan: &Lan, host: usize) {
    let add = "link add d0 type veth peer name d1\naddr add 10.78.0.1/24 dev d0";
    lan.ip(host, &format!("{add}\nlink set d1 up\nlink set d0 up")).unwrap();
}

#[test]
fn between_two_hosts_of_a_good_network_nothing_is_wrong() {
    let Some(lan) = Lan::or_skip(2) else { return };
    let site = Site::with("");
    site.key("group.key");
    let ways = [("239.192.7.9:7500", ""), ("239.192.7.10:7501", "--key group.key")];
    for running in ways.map(|(group, with)| begin(&site, &lan, group, [with, with])) {
        for (host, (document, wrong)) in told(running).into_iter().enumerate() {
            assert_eq!(wrong, Vec::<String>::new(), "{document}");
            assert!(found(&document, "interface").contains(&format!("10.77.0.{}", host + 1)));
            assert!(found(&document, "MTU of the way").contains("to it up to 1500 bytes; from it"));
            assert!(found(&document, "memberships").contains("--long"), "{document}");
            let (peers, other) = (peers(&document), format!("10.77.0.{}", 2 - host));
            assert!(peers.len() > 5 && peers.iter().all(|peer| **peer == other), "{document}");
        }
    }
}

#[test]
fn groups_of_ipv6_are_checked_too() {
    let Some(lan) = Lan::or_skip(2) else { return };
    let site = Site::with("");
    let cases =
        [("[ff15::7:1]:7500", "", "fd77::"), ("[ff12::7:1]:7500", "--interface e0", "fe80::")];
    let running = cases.map(|(group, with, _)| begin(&site, &lan, group, [with, with]));
    for ((_, _, address), running) in cases.into_iter().zip(running) {
        for (host, (document, mut wrong)) in told(running).into_iter().enumerate() {
            // The measured speed depends on the machine's load.
            wrong.retain(|check| check != "speed");
            assert_eq!(wrong, Vec::<String>::new(), "{document}");
            assert!(found(&document, "interface").contains(address), "{document}");
            let mtu = found(&document, "MTU of the way");
            assert!(mtu.contains("to it up to 1500 bytes; from it up to 1500"), "{mtu}");
            let other = format!("fd77::{}", 2 - host);
            let is_other = |peer: &&str| address == "fe80::" || **peer == other;
            assert!(peers(&document).iter().all(is_other), "{document}");
        }
    }
    let nameless = on(&site, &lan, 0, "check --group [ff12::7:1]:7500").end_with(2);
    assert!(nameless.err.contains("name the network with --interface"), "{}", nameless.err);
}

#[test]
fn a_link_that_takes_less_in_the_middle_is_found_from_both_ends() {
    let Some(lan) = Lan::or_skip(2) else { return };
    lan::run("ip", lan.bridge(), "link set p1 mtu 1400").unwrap();
    for (document, wrong) in both(&lan, ["", ""]) {
        assert_eq!(wrong, ["MTU of the way"], "{document}");
        let mtu = found(&document, "MTU of the way");
        assert!(mtu.contains("to it up to 1400 bytes; from it up to 1400"), "{mtu}");
    }
}

/// The bridge snoops members without queries: memberships expire after 15 s instead of 260 s.
#[test]
fn a_switch_that_forgets_its_members_is_found_by_who_looks_long_enough() {
    let Some(lan) = Lan::or_skip(2) else { return };
    let snooping = "mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 100";
    let forgets = "mcast_membership_interval 1500 mcast_query_interval 100000";
    lan::run("ip", lan.bridge(), &format!("link set br0 type bridge {snooping} {forgets}"))
        .unwrap();
    for (document, wrong) in both(&lan, ["--long 29s"; 2]) {
        assert_eq!(wrong, ["memberships"], "{document}");
    }
}

#[test]
fn a_strict_reverse_path_filter_is_found_where_it_is_and_seen_from_the_other_host() {
    let Some(lan) = Lan::or_skip(2) else { return };
    // Host 1 routes to host 0 by another interface than the one on which packets of host 0 arrive.
    another_interface(&lan, 1);
    lan.ip(1, "route add 10.77.0.1/32 dev d0").unwrap();
    lan.ip(1, "route flush cache").unwrap();
    let strict = ["-q", "-w", "net.ipv4.conf.all.rp_filter=1"];
    assert!(lan.command(1, "sysctl").args(strict).status().unwrap().success());
    let [(there, seen), (here, at_fault)] = both(&lan, ["--wait 6s"; 2]);
    assert_eq!(at_fault, ["reverse-path filter", "other hosts"], "{here}");
    assert!(seen.contains(&"is heard there".to_string()), "{there}");
}

#[test]
fn a_check_by_the_wrong_interface_or_without_a_route_says_so() {
    let Some(lan) = Lan::or_skip(2) else { return };
    let site = Site::with("");
    another_interface(&lan, 0);
    let [(first, alone), (_, other)] = both(&lan, ["--wait 2s --interface d0", "--wait 2s"]);
    assert_eq!((&alone, &other), (&vec!["other hosts".to_string()], &alone), "{first}");
    assert!(found(&first, "interface").starts_with("d0, 10.78.0.1, up"), "{first}");
    assert!(found(&first, "route").contains("there are also e0"), "{first}");
    let group = "check --group 239.192.7.9:7500";
    let missing = on(&site, &lan, 0, &format!("{group} --interface e7")).end_with(2).err;
    assert!(missing.contains("e7") && missing.contains("e0 (10.77.0.1)"), "{missing}");
    lan.ip(0, "link del d0").unwrap();
    lan.ip(0, "route del 224.0.0.0/4 dev e0").unwrap();
    let routeless = on(&site, &lan, 0, &format!("{group} --wait 0s")).end_with(1);
    assert!(routeless.out.contains("WRONG route"), "{}", routeless.out);
    assert!(routeless.out.contains("do: name the network with --interface"), "{}", routeless.out);
}

#[test]
fn other_keys_are_noticed() {
    let Some(lan) = Lan::or_skip(2) else { return };
    let site = Site::with("");
    site.key("group.key");
    let more = ["--wait 3s --key group.key", "--wait 3s"];
    for (document, wrong) in told(begin(&site, &lan, "239.192.7.9:7500", more)) {
        assert_eq!(wrong, ["other hosts", "key"], "{document}");
    }
}
