//! Hosts behind black holes of path MTU discovery, which long packets do not reach.

use super::*;

/// Drops incoming IP packets longer than `limit`; false if the system has no such filter.
fn drop_longer(lan: &Lan, host: usize, limit: u32) -> bool {
    drop_longer_at(lan, host, "ingress", limit)
}

/// Drops long packets in one direction, and disables super-packets, which the filter would drop.
fn drop_longer_at(lan: &Lan, host: usize, direction: &str, limit: u32) -> bool {
    // Classic BPF over the Ethernet frame: total length of IPv4, or payload length of IPv6.
    let program = format!(
        "9,40 0 0 12,21 0 2 2048,40 0 0 16,37 3 4 {limit},21 0 3 34525,40 0 0 18,37 0 1 {},6 0 0 2,6 0 0 0",
        limit - 40
    );
    let add = format!("filter add dev e0 {direction} bpf da bytecode '{program}'");
    let done = lan
        .tc(host, &format!("qdisc add dev e0 clsact\n{add}"))
        .inspect_err(|error| eprintln!("skipped: no classifier for packets here: {error}"));
    lan.ip(0, "link set e0 gso_max_segs 1").unwrap();
    done.is_ok()
}

fn names(limit: u32) -> impl Fn(&Value) -> bool {
    let words = format!("packets of up to {limit} bytes");
    move |event| event["text"].as_str().is_some_and(|text| text.contains(&words))
}

#[test]
fn both_ends_say_which_packets_arrive_and_the_others_go_on() {
    for (at, more, limit) in [
        ("--group 239.192.7.41:7500", "", 1280),
        ("--group 239.192.7.42:7500 --key group.key", "--scheme tram", 576),
        ("--group [ff15::7:43]:7500", "", 1400),
    ] {
        let Some(world) = World::new(3, 1_500_000) else { return };
        if !drop_longer(&world.lan, 2, limit) {
            return;
        }
        let [whole, holed] = world.two(at);
        let sender = world.send(&format!("--wait-for 2 --stall-max 5s {at} {more}"));
        sender.until("warning", names(limit));
        holed.until("warning", names(limit));
        let summary = sender.end_with(1).summary();
        world.assert_received([whole]);
        let ended = holed.end_with(1);
        assert!(!ended.out.contains("long packets arrive again"), "{}", ended.out);
        let failed = ended.event("failed");
        let told = failed["reason"].as_str().unwrap();
        assert!(told.contains(&format!("--mtu {limit}")), "{failed}");
        let mut all = summary["receivers"].as_array().unwrap().iter();
        let of = all.find(|receiver| receiver["name"] == "r2").unwrap();
        assert_eq!(of["state"], "failed", "{summary}");
        assert_eq!(of["reason"], failed["reason"], "{summary}");
    }
}

#[test]
fn a_hole_at_the_senders_own_interface_is_one_for_all() {
    let Some(world) = World::new(3, 400_000) else { return };
    if !drop_longer_at(&world.lan, 0, "egress", 1280) {
        return;
    }
    let group = "--group 239.192.7.46:7500";
    let receivers = world.two(group);
    let sender = world.send(&format!("--wait-for 2 --stall-max 5s {group}"));
    sender.until("warning", |event| {
        let text = event["text"].as_str().unwrap();
        names(1280)(event)
            && text.contains("raise the MTU of this host or the way")
            && !text.contains("others")
    });
    sender.end_with(1);
    for receiver in receivers {
        let failed = receiver.end_with(1).event("failed");
        assert!(failed["reason"].as_str().unwrap().contains("--mtu 1280"), "{failed}");
    }
}

#[test]
fn who_does_not_get_the_list_of_files_for_its_length_holds_up_nobody_for_ever() {
    let Some(world) = World::new(3, 0) else { return };
    if !drop_longer(&world.lan, 2, 1280) {
        return;
    }
    for i in 0..300 {
        world.site.put(&format!("tree/a-name-that-takes-some-room-{i}"), "x");
    }
    let group = "--group 239.192.7.47:7500";
    let [whole, holed] = world.two(group);
    let sender = world.send(&format!("--wait-for 2 --stall-max 5s {group}"));
    sender.until("warning", names(1280));
    sender.end_with(1);
    whole.end_with(0);
    assert!(world.site.path("r1/tree/a-name-that-takes-some-room-299").exists());
    let failed = holed.end_with(1).event("failed");
    assert!(failed["reason"].as_str().unwrap().contains("--mtu 1280"), "{failed}");
}

#[test]
fn a_hole_that_is_mended_costs_nobody_the_transfer() {
    let Some(world) = World::new(2, 3_000_000) else { return };
    let group = "--group 239.192.7.44:7500";
    let receiver = world.recv(1, group);
    let sender = world.send(&format!("{group} --rate-max 8Mbit/s"));
    receiver.until_has(1);
    if !drop_longer(&world.lan, 1, 1300) {
        return;
    }
    sender.until("warning", names(1300));
    world.lan.tc(1, "qdisc del dev e0 clsact").unwrap();
    sender.until("warning", |event| event["text"].as_str().unwrap().contains("long packets again"));
    sender.end_with(0);
    world.assert_received([receiver]);
}

#[test]
fn packets_as_short_as_was_advised_get_through() {
    let Some(world) = World::new(2, 400_000) else { return };
    if !drop_longer(&world.lan, 1, 1280) {
        return;
    }
    let group = "--group 239.192.7.45:7500";
    let receiver = world.recv(1, group);
    world.send(&format!("{group} --mtu 1280")).end_with(0);
    world.assert_received([receiver]);
}

#[test]
fn relays_serve_a_site_behind_a_link_that_drops_packets_above_1280_bytes_without_fragments() {
    for (at, meeting) in [
        (["[fd77::1]:7600", "[fd77::2]:7600"], "--group 239.192.7.48:7500"),
        (["10.77.0.1:7600", "10.77.0.2:7600"], "--meeting narrow"),
    ] {
        let Some(world) = World::new(3, 5_000_000) else { return };
        if !drop_longer(&world.lan, 0, 1280) || !drop_longer(&world.lan, 1, 1280) {
            return;
        }
        for host in [1, 2] {
            world.lan.ip(host, "link set e0 gso_max_segs 1").unwrap();
        }
        let metrics = "--metrics 127.0.0.1:9464";
        let _top = world.on(0, &format!("relay --listen {} {metrics}", at[0]));
        let below = format!("relay --listen {} --parent {} {metrics}", at[1], at[0]);
        let _below = world.on(1, &below);
        let receiver = world.recv(2, &format!("{meeting} --via {}", at[1]));
        let send = format!("send tree --wait-for 1 --rate-max 8Mbit/s {meeting} --via {}", at[0]);
        let sender = world.on(0, &send);
        receiver.until_has(2_000_000);
        let status = |host| world.on(host, "relay status 127.0.0.1:9464").document();
        let (above, below) = (status(0), status(1));
        let neighbours = above["neighbours"].as_array().unwrap();
        let mtu = |is: &str| {
            let found = neighbours.iter().find(|neighbour| neighbour["is"] == is);
            found.unwrap()["mtu_bytes"].as_u64().unwrap()
        };
        assert!(mtu("relay") < 1280 && mtu("host") > 1280, "{above}");
        assert!(below["parent"]["mtu_bytes"].as_u64().unwrap() < 1280, "{below}");
        sender.end_with(0);
        assert_received(&world.site, receiver, "r2");
        for host in 0..3 {
            let mut command = world.lan.command(host, "cat");
            command.args(["/proc/net/snmp", "/proc/net/snmp6"]);
            let counters = Running::spawn(command).succeed();
            let mut ip = counters.lines().filter(|line| line.starts_with("Ip: "));
            let (names, values) = (ip.next().unwrap().split(' '), ip.next().unwrap().split(' '));
            let v4 = names.zip(values).find(|(name, _)| *name == "FragCreates").unwrap().1;
            let v6 = counters.lines().find(|line| line.starts_with("Ip6FragCreates")).unwrap();
            let v6 = v6.split_whitespace().nth(1).unwrap();
            assert_eq!((v4, v6), ("0", "0"), "host {host}: {counters}");
        }
    }
}
