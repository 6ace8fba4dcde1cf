//! Changes of host addresses during a transfer.

use super::*;

fn replace(lan: &Lan, host: usize) {
    let own = 1 + host;
    lan.ip(host, &format!("addr del 10.77.0.{own}/16 dev e0")).unwrap();
    lan.ip(host, &format!("addr add 10.77.0.{}/16 dev e0", 100 + own)).unwrap();
    lan.ip(host, "route replace 224.0.0.0/4 dev e0").unwrap();
}

#[test]
fn sessions_follow_their_hosts_to_new_addresses() {
    type Change = fn(&Lan, &Running);
    let (group, list) = ("--group 239.192.7.31:7500", "--to 10.77.0.2:7500,10.77.0.3:7500");
    let (keyed, v6) = ("--group 239.192.7.32:7500 --key group.key", "--group [ff15::7:34]:7500");
    let cases: [(&str, &str, &str, Change); 6] = [
        (group, group, "", |lan, _| replace(lan, 0)),
        (group, group, "", |lan, _| replace(lan, 1)),
        (group, group, "--scheme tram", |lan, _| replace(lan, 0)),
        (keyed, keyed, "--scheme tram --interface e0", |lan, _| {
            // The kernel removes all addresses of a subnet together.
            lan.ip(0, "addr add 10.77.0.101/23 dev e0").unwrap();
            lan.ip(0, "addr del 10.77.0.1/16 dev e0").unwrap();
        }),
        (v6, v6, "--interface fd77::1", |lan, _| {
            lan.ip(0, "addr add fd77::101/64 dev e0 nodad").unwrap();
            lan.ip(0, "addr del fd77::1/64 dev e0").unwrap();
        }),
        ("--listen 0.0.0.0:7500", list, "", |lan, sender| {
            // One host after the other: if both move at once, neither finds the other.
            replace(lan, 2);
            sender.until_complained("is at 10.77.0.103:7500 now");
            replace(lan, 0);
        }),
    ];
    for (case, (at, to, more, change)) in cases.into_iter().enumerate() {
        let Some(world) = World::new(3, 5_000_000) else { return };
        let receivers = world.two(at);
        let sender = world.send(&format!("--wait-for 2 --rate-max 8Mbit/s {to} {more}"));
        receivers.iter().for_each(|receiver| receiver.until_has(1));
        change(&world.lan, &sender);
        let summary = sender.end_with(0).summary();
        let count = summary["receivers"].as_array().unwrap().len();
        assert_eq!(count, 2, "case {case}, {to} {more}: {summary}");
        world.assert_received(receivers);
    }
}

#[test]
fn an_interface_of_two_that_goes_down_and_comes_back_takes_nobody_with_it() {
    let Some(world) = World::new(3, 5_000_000) else { return };
    world.lan.ip(0, "link add e1 type veth peer name e2").unwrap();
    for words in ["addr add 10.79.0.1/24 dev e1", "link set e1 up", "link set e2 up"] {
        world.lan.ip(0, words).unwrap();
    }
    let group = "--group 239.192.7.38:7500";
    let receivers = world.two(group);
    let two = "--interface e0 --interface e1 --rate-max 8Mbit/s";
    let sender = world.send(&format!("--wait-for 2 {group} {two}"));
    receivers.iter().for_each(|receiver| receiver.until_has(1));
    world.lan.ip(0, "link set e0 down").unwrap();
    sender.until_complained("nothing leaves by the interface");
    world.lan.ip(0, "link set e0 up").unwrap();
    sender.until_complained("is used again");
    sender.end_with(0);
    world.assert_received(receivers);
}

#[test]
fn a_sender_that_can_send_to_its_group_alone_says_so() {
    let Some(world) = World::new(2, 1_000_000) else { return };
    let group = "--group 239.192.7.40:7500";
    world.lan.ip(0, "route del 10.77.0.0/16").unwrap();
    let receiver = world.recv(1, group);
    let sender = world.send(&format!("{group} --scheme tram --interface e0"));
    sender.until_complained("nothing can be sent to 10.77.0.2");
    world.lan.ip(0, "route add 10.77.0.0/16 dev e0").unwrap();
    sender.end_with(0);
    world.assert_received([receiver]);
}

#[test]
fn a_receiver_that_has_everything_and_no_address_tells_its_sender_later() {
    let Some(world) = World::new(3, 3_000_000) else { return };
    let group = "--group 239.192.7.39:7500 --interface e0";
    let [receiver, other] = world.two(group);
    let rest = "--wait-for 2 --rate-max 8Mbit/s --fec 10% --give-up 60s";
    let sender = world.send(&format!("{group} {rest}"));
    receiver.until_has(1);
    // Multicast still arrives, and parity repairs the losses.
    world.lan.ip(1, "addr del 10.77.0.2/16 dev e0").unwrap();
    receiver.until("complete", |_| true);
    // Longer than a receiver waits after a request to end.
    std::thread::sleep(std::time::Duration::from_secs(4));
    world.lan.ip(1, "addr add 10.77.0.102/16 dev e0").unwrap();
    let summary = sender.end_with(0).summary();
    let receivers = summary["receivers"].as_array().unwrap();
    assert!(receivers.iter().all(|receiver| receiver["state"] == "done"), "{summary}");
    world.assert_received([receiver, other]);
}

#[test]
fn a_receiver_that_names_the_old_address_says_what_to_do() {
    let Some(world) = World::new(2, 5_000_000) else { return };
    let group = "--group 232.1.2.37:7500";
    let receiver = world.recv(1, &format!("{group} --from 10.77.0.1"));
    let sender = world.send(&format!("{group} --rate-max 8Mbit/s --interface e0"));
    receiver.until_has(1);
    replace(&world.lan, 0);
    sender.until_complained("started again with --from 10.77.0.101");
    receiver.until("warning", |event| event["text"].as_str().unwrap().contains("--from"));
    receiver.kill();
    let again = world.on(1, &format!("recv --into r1 --name r1 --once {group} --from 10.77.0.101"));
    again.end_with(0);
    assert_arrived(&world.site, "r1");
    sender.kill();
}

#[test]
fn a_sender_without_any_address_blames_itself() {
    let Some(world) = World::new(2, 5_000_000) else { return };
    let group = "--group 239.192.7.36:7500";
    let receiver = world.recv(1, group);
    let sender = world.send(&format!("{group} --rate-max 8Mbit/s --give-up 3s"));
    receiver.until_has(1);
    world.lan.ip(0, "addr del 10.77.0.1/16 dev e0").unwrap();
    let summary = sender.end_with(1).summary();
    let reason = summary["reason"].as_str().unwrap();
    assert!(reason.contains("nothing has left this host for 3 s"), "{summary}");
    assert_eq!(summary["receivers"][0]["state"], "receiving", "{summary}");
    receiver.kill();
}
