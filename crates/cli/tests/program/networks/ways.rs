//! Kinds of paths: IPv6, source-specific groups, unicast, large packets, a host in two networks.

use super::*;

#[test]
fn every_kind_of_group_carries_a_tree() {
    let Some(world) = World::new(3, 400_000) else { return };
    for (group, at, to, parity_is_unasked) in [
        ("[ff15::1234]:7500", "", "", false),
        ("[ff02::1234]:7500", "--interface e0", "--interface e0", false),
        ("232.1.2.3:7500", "--from 10.77.0.1", "--interface 10.77.0.1", false),
        ("[ff3e::1234]:7500", "--from fd77::1 --interface e0", "--interface fd77::1", false),
        ("239.192.7.2:7500", "", "--fec off --ttl 8", false),
        ("239.192.7.2:7500", "", "--fec 25% --slow wait", true),
        ("239.192.7.2:7500", "", "--option fec=0.25", true),
    ] {
        let [at, to] = [at, to].map(|more| format!("--group {group} {more}"));
        let sent = world.transfer(1..=2, &at, &to);
        assert_eq!(sent.err, "", "{to}");
        let parity = sent.summary()["parity"].as_u64().unwrap();
        assert_eq!(parity_is_unasked, parity > 50, "{to}: {parity}");
    }
}

#[test]
fn without_a_route_for_multicast_each_receiver_is_sent_to() {
    let Some(world) = World::new(3, 400_000) else { return };
    (0..3).for_each(|host| world.lan.ip(host, "route del 224.0.0.0/4 dev e0").unwrap());
    let recv = "recv --group 239.192.7.3:7500 --into r";
    let sent = world.send("--group 239.192.7.3:7500").end_with(1);
    let heard = world.on(1, &format!("{recv} --once")).end();
    for ended in [sent, heard] {
        let is_told = ended.err.contains("--interface") && ended.err.contains("ip route add");
        assert!(is_told, "{}", ended.err);
    }
    // A receiver that stays waits for the network up to `--wait-max`, and reports that once.
    let begun = Instant::now();
    let waited = on(&Site::with(""), &world.lan, 1, &format!("{recv} --wait-max 1s")).end_with(1);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{}", waited.err);
    let told = waited.err.matches("waiting until the network").count();
    assert_eq!(told, 1, "{}", waited.err);
    let waited = world.on(1, &format!("{recv} --wait-max 1s")).end_with(1);
    let told = waited.out.matches("waiting until the network").count();
    assert_eq!(told, 1, "{}", waited.out);
    for (at, to) in [
        ("--listen 0.0.0.0:7500", "--to 10.77.0.2:7500,10.77.0.3:7500"),
        ("--listen [::]:7500", "--to [fd77::2]:7500,[fd77::3]:7500"),
    ] {
        world.transfer(1..=2, at, to);
    }
    let sender = world.send("--to 10.77.0.2:7500,10.77.0.3:7500");
    let receivers = [1, 2].map(|host| {
        let receiver = super::recv(
            &world.site,
            &world.lan,
            host,
            &format!("late{host}"),
            "--listen 0.0.0.0:7500",
        );
        let address = format!("10.77.0.{}:", 1 + host);
        let is_it = |event: &Value| event["address"].as_str().unwrap().starts_with(&address);
        sender.until("joined", is_it);
        receiver
    });
    sender.end_with(0);
    for (receiver, name) in receivers.into_iter().zip(["late1", "late2"]) {
        assert_received(&world.site, receiver, name);
    }
}

#[test]
fn large_packets_are_for_links_that_take_them() {
    let Some(world) = World::new(2, 400_000) else { return };
    let at = "--group 239.192.7.4:7500";
    let to = format!("{at} --mtu 9000");
    let packets = |sent: &Ended| sent.summary()["packets_sent"].as_u64().unwrap();
    let warning = world.transfer(1..=1, at, &to).event("warning");
    assert!(warning["text"].as_str().unwrap().contains("use --mtu 1500"), "{warning}");
    for host in 0..2 {
        lan::run("ip", world.lan.bridge(), &format!("link set p{host} mtu 9000")).unwrap();
        world.lan.ip(host, "link set e0 mtu 9000").unwrap();
    }
    let whole = world.transfer(1..=1, at, &to);
    assert!(!whole.out.contains("warning"), "{}", whole.out);
    let plain = world.transfer(1..=1, at, at);
    assert!(packets(&whole) * 3 < packets(&plain), "{} {}", packets(&whole), packets(&plain));
}

#[test]
fn a_host_in_two_networks_uses_the_one_that_is_named() {
    let (Some(lan), Some(other)) = (Lan::or_skip(2), Lan::or_skip(1)) else { return };
    beside::plug(&lan, &other, 78, 1);
    let site = with_a_tree(100_000);
    let group = "--group 239.192.7.5:7500";
    for by in ["e78", "10.78.0.1"] {
        let home = recv(&site, &lan, 1, "here", &format!("{group} --give-up 2s"));
        let away = recv(&site, &other, 0, "there", group);
        on(&site, &lan, 0, &format!("send tree {group} --interface {by}")).end_with(0);
        assert_received(&site, away, "there");
        home.end_with(1);
        let away = recv(&site, &lan, 0, "there", &format!("{group} --interface {by}"));
        on(&site, &other, 0, &format!("send tree {group}")).end_with(0);
        assert_received(&site, away, "there");
    }
    lan.ip(0, "link set e78 down").unwrap();
    let sender = on(&site, &lan, 0, &format!("send tree {group} --interface e78"));
    sender.until("warning", |_| true);
    sender.signal(nix::sys::signal::Signal::SIGINT);
    let warning = sender.end().event("warning");
    assert!(warning["text"].as_str().unwrap().contains("is the interface up"), "{warning}");
}
