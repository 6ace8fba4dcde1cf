//! Changes of host addresses during a transfer.

use super::*;

fn with_change(at: &str, to: &str, change: impl FnOnce(&Lan, &Running)) {
    let Some(lan) = Lan::new(3) else { return };
    let site = with_a_tree(5_000_000);
    site.key("group.key");
    let receivers = [1, 2].map(|host| recv(&site, &lan, host, &format!("r{host}"), at));
    let sender = on(&site, &lan, 0, &format!("send tree --wait-for 2 --rate-max 8Mbit/s {to}"));
    receivers.iter().for_each(|receiver| receiver.until_has(1));
    change(&lan, &sender);
    let summary = sender.end_with(0).summary();
    assert_eq!(summary["receivers"].as_array().unwrap().len(), 2, "{summary}");
    for (receiver, name) in receivers.into_iter().zip(["r1", "r2"]) {
        assert_received(&site, receiver, name);
    }
}

fn replace(lan: &Lan, host: usize) {
    let own = 1 + host;
    lan::run(lan.host(host), &format!("addr del 10.77.0.{own}/24 dev e0"));
    lan::run(lan.host(host), &format!("addr add 10.77.0.{}/24 dev e0", 100 + own));
    lan::run(lan.host(host), "route replace 224.0.0.0/4 dev e0");
}

#[test]
fn receivers_follow_a_sender_to_its_new_address() {
    let group = "--group 239.192.7.31:7500";
    with_change(group, group, |lan, _| replace(lan, 0));
}

#[test]
fn a_sender_with_a_key_takes_an_address_that_was_added_before_over_tram() {
    let group = "--group 239.192.7.32:7500 --key group.key";
    with_change(group, &format!("{group} --scheme tram --interface e0"), |lan, _| {
        // The kernel removes all addresses of a subnet together.
        lan::run(lan.host(0), "addr add 10.77.0.101/23 dev e0");
        lan::run(lan.host(0), "addr del 10.77.0.1/24 dev e0");
    });
}

#[test]
fn receivers_over_tram_follow_a_sender_without_a_key() {
    let group = "--group 239.192.7.33:7500";
    with_change(group, &format!("{group} --scheme tram"), |lan, _| replace(lan, 0));
}

#[test]
fn a_temporary_address_that_expires_is_replaced() {
    let group = "--group [ff15::7:34]:7500";
    with_change(group, &format!("{group} --interface fd77::1"), |lan, _| {
        lan::run(lan.host(0), "addr add fd77::101/64 dev e0 nodad");
        lan::run(lan.host(0), "addr del fd77::1/64 dev e0");
    });
}

#[test]
fn a_sender_follows_receivers_to_their_new_addresses() {
    let group = "--group 239.192.7.35:7500";
    with_change(group, group, |lan, _| replace(lan, 1));
}

#[test]
fn a_list_follows_its_sender_and_its_receivers() {
    let list = "--to 10.77.0.2:7500,10.77.0.3:7500";
    with_change("--listen 0.0.0.0:7500", list, |lan, sender| {
        // One host after the other: if both move at once, neither finds the other.
        replace(lan, 2);
        sender.until_complained("is at 10.77.0.103:7500 now");
        replace(lan, 0);
    });
}

#[test]
fn an_interface_of_two_that_goes_down_and_comes_back_takes_nobody_with_it() {
    let Some(lan) = Lan::new(3) else { return };
    lan::run(lan.host(0), "link add e1 type veth peer name e2");
    for words in ["addr add 10.79.0.1/24 dev e1", "link set e1 up", "link set e2 up"] {
        lan::run(lan.host(0), words);
    }
    let site = with_a_tree(5_000_000);
    let group = "--group 239.192.7.38:7500";
    let receivers = [1, 2].map(|host| recv(&site, &lan, host, &format!("r{host}"), group));
    let two = "--interface e0 --interface e1 --rate-max 8Mbit/s";
    let sender = on(&site, &lan, 0, &format!("send tree --wait-for 2 {group} {two}"));
    receivers.iter().for_each(|receiver| receiver.until_has(1));
    lan::run(lan.host(0), "link set e0 down");
    sender.until_complained("nothing leaves by the interface");
    lan::run(lan.host(0), "link set e0 up");
    sender.until_complained("is used again");
    sender.end_with(0);
    for (receiver, name) in receivers.into_iter().zip(["r1", "r2"]) {
        assert_received(&site, receiver, name);
    }
}

#[test]
fn a_sender_that_can_send_to_its_group_alone_says_so() {
    let Some(lan) = Lan::new(2) else { return };
    let site = with_a_tree(1_000_000);
    let group = "--group 239.192.7.40:7500";
    lan::run(lan.host(0), "route del 10.77.0.0/24");
    let receiver = recv(&site, &lan, 1, "r1", group);
    let sender = on(&site, &lan, 0, &format!("send tree {group} --scheme tram --interface e0"));
    sender.until_complained("nothing can be sent to 10.77.0.2");
    lan::run(lan.host(0), "route add 10.77.0.0/24 dev e0");
    sender.end_with(0);
    assert_received(&site, receiver, "r1");
}

#[test]
fn a_receiver_that_has_everything_and_no_address_tells_its_sender_later() {
    let Some(lan) = Lan::new(3) else { return };
    let site = with_a_tree(3_000_000);
    let group = "--group 239.192.7.39:7500 --interface e0";
    let [receiver, other] = [1, 2].map(|host| recv(&site, &lan, host, &format!("r{host}"), group));
    let rest = "--wait-for 2 --rate-max 8Mbit/s --fec 10% --give-up 60s";
    let sender = on(&site, &lan, 0, &format!("send tree {group} {rest}"));
    receiver.until_has(1);
    // Multicast still arrives, and parity repairs the losses.
    lan::run(lan.host(1), "addr del 10.77.0.2/24 dev e0");
    receiver.until("complete", |_| true);
    // Longer than a receiver waits after a request to end.
    std::thread::sleep(std::time::Duration::from_secs(4));
    lan::run(lan.host(1), "addr add 10.77.0.102/24 dev e0");
    let summary = sender.end_with(0).summary();
    let receivers = summary["receivers"].as_array().unwrap();
    assert!(receivers.iter().all(|receiver| receiver["state"] == "done"), "{summary}");
    for (receiver, name) in [(receiver, "r1"), (other, "r2")] {
        assert_received(&site, receiver, name);
    }
}

#[test]
fn a_receiver_that_names_the_old_address_says_what_to_do() {
    let Some(lan) = Lan::new(2) else { return };
    let site = with_a_tree(5_000_000);
    let group = "--group 232.1.2.37:7500";
    let receiver = recv(&site, &lan, 1, "r1", &format!("{group} --from 10.77.0.1"));
    let sender =
        on(&site, &lan, 0, &format!("send tree {group} --rate-max 8Mbit/s --interface e0"));
    receiver.until_has(1);
    replace(&lan, 0);
    sender.until_complained("started again with --from 10.77.0.101");
    receiver.until("warning", |event| event["text"].as_str().unwrap().contains("--from"));
    receiver.kill();
    let again =
        on(&site, &lan, 1, &format!("recv --into r1 --name r1 --once {group} --from 10.77.0.101"));
    again.end_with(0);
    assert_arrived(&site, "r1");
    sender.kill();
}

#[test]
fn a_sender_without_any_address_blames_itself() {
    let Some(lan) = Lan::new(2) else { return };
    let site = with_a_tree(5_000_000);
    let group = "--group 239.192.7.36:7500";
    let receiver = recv(&site, &lan, 1, "r1", group);
    let sender = on(&site, &lan, 0, &format!("send tree {group} --rate-max 8Mbit/s --give-up 3s"));
    receiver.until_has(1);
    lan::run(lan.host(0), "addr del 10.77.0.1/24 dev e0");
    let summary = sender.end_with(1).summary();
    let reason = summary["reason"].as_str().unwrap();
    assert!(reason.contains("nothing has left this host for 3 s"), "{summary}");
    assert_eq!(summary["receivers"][0]["state"], "receiving", "{summary}");
    receiver.kill();
}
