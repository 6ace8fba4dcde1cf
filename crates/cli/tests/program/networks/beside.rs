//! One session for a group on several interfaces and for a list of unicast receivers.

use std::net::{SocketAddr, UdpSocket};
use std::thread;

use nix::sys::signal::Signal;

use super::*;

/// Gives a host an interface with a constant hardware address, against stale neighbour entries.
fn link(lan: &Lan, other: &Lan, net: u8) {
    let peer = format!("peer name e{net} address 02:00:00:00:00:{net} netns {}", lan.host(0));
    let add = format!("link add q{net} type veth {peer}\nlink set q{net} master br0 up");
    lan::run("ip", other.bridge(), &add).unwrap();
}

/// Plugs host 0 of `lan` in as 10.<net>.0.1 and fd<net>::1; the hosts of `other` count from 2.
pub(super) fn plug(lan: &Lan, other: &Lan, net: u8, hosts: usize) {
    link(lan, other, net);
    for i in 0..=hosts {
        let (lan, host, name) = match i {
            0 => (lan, 0, format!("e{net}")),
            i => (other, i - 1, "e0".to_string()),
        };
        let own = 1 + i;
        lan.ip(host, &format!("addr add 10.{net}.0.{own}/24 dev {name}")).unwrap();
        lan.ip(host, &format!("addr add fd{net}::{own:x}/64 dev {name} nodad")).unwrap();
        lan.ip(host, &format!("link set {name} up")).unwrap();
        if i > 0 {
            lan.ip(host, &format!("addr del 10.77.0.{i}/16 dev e0")).unwrap();
            lan.ip(host, &format!("addr del fd77::{i:x}/64 dev e0")).unwrap();
        }
    }
}

/// Forwards packets to `own` to `receiver` except for one in twenty, and answers back.
fn lossy_box(lan: &Lan, host: usize, own: SocketAddr, receiver: SocketAddr) {
    let gate = lan.gate(host).unwrap();
    thread::spawn(move || {
        gate.enter().unwrap();
        let socket = UdpSocket::bind(own).unwrap();
        // 20 s without a packet mean that the test has ended.
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut sender, mut buffer, mut x) = (None, [0; 2000], 1_u32);
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let to = if from.ip() == receiver.ip() { sender } else { Some(receiver) };
            if from.ip() != receiver.ip() {
                sender = Some(from);
            }
            if let Some(to) = to.filter(|to| *to != receiver || x >> 16 >= 65_536 / 20) {
                let _ = socket.send_to(&buffer[..len], to);
            }
        }
    });
}

#[test]
fn one_session_serves_two_networks_and_a_list_behind_a_third_link() {
    let (Some(near), Some(other), Some(far)) = (Lan::or_skip(3), Lan::or_skip(2), Lan::or_skip(4))
    else {
        return;
    };
    plug(&near, &other, 78, 2);
    plug(&near, &far, 79, 4);
    let site = with_a_tree(1_500_000);
    site.key("group.key");
    let ways = [
        (
            "239.192.7.9:7500",
            "0.0.0.0:7500",
            ["10.79.0.2:7500", "10.79.0.3:7500", "10.79.0.5:7500"],
            "10.79.0.4:7500",
        ),
        (
            "[ff15::7:9]:7500",
            "[::]:7500",
            ["[fd79::2]:7500", "[fd79::3]:7500", "[fd79::5]:7500"],
            "[fd79::4]:7500",
        ),
    ];
    for (group, any, list, behind) in ways {
        // The third entry of the list is the forwarder in front of the fourth host.
        lossy_box(&far, 3, list[2].parse().unwrap(), behind.parse().unwrap());
        for key in ["", "--key group.key"] {
            let at = format!("--group {group} {key}");
            let by_one = format!("--listen {any} {key}");
            let receivers = [
                ("a", &near, 1, &at),
                ("b", &near, 2, &at),
                ("c", &other, 0, &at),
                ("d", &other, 1, &at),
                ("e", &far, 0, &by_one),
                ("f", &far, 1, &by_one),
                ("g", &far, 2, &by_one),
            ]
            .map(|(name, lan, host, at)| (name, recv(&site, lan, host, name, at)));
            let ways = "--interface e0 --interface e78 --interface e0";
            let to = list.join(" ");
            let send = format!("send tree --wait-for 7 {at} {ways} --to {to}");
            let sent = on(&site, &near, 0, &send).end_with(0);
            assert_eq!(sent.err, "", "{group}");
            for (name, receiver) in receivers {
                assert_received(&site, receiver, name);
            }
            let summary = sent.summary();
            let all = summary["receivers"].as_array().unwrap();
            assert!(all.len() == 7 && all.iter().all(|one| one["state"] == "done"), "{summary}");
            assert_ways(&summary, 5, 1_500_000);
        }
    }
}

#[test]
fn who_is_listed_twice_and_hears_the_group_too_is_one_receiver() {
    let Some(world) = World::new(2, 1_000_000) else { return };
    let group = "--group 239.192.7.10:7500";
    for listen in ["10.77.0.2:7500", "0.0.0.0:7500"] {
        let receiver = recv(&world.site, &world.lan, 1, "r", &format!("{group} --listen {listen}"));
        let to = "--to 10.77.0.2:7500,10.77.0.2:7500 --to 10.77.0.2:7500";
        let sent = world.send(&format!("{group} {to}")).end_with(0);
        assert_eq!(sent.err, "");
        assert_received(&world.site, receiver, "r");
        let summary = sent.summary();
        assert_eq!(summary["receivers"].as_array().unwrap().len(), 1, "{summary}");
        assert_ways(&summary, 2, 1_000_000);
    }
}

#[test]
fn an_interface_that_vanishes_holds_up_nobody_and_is_used_again() {
    let (Some(near), Some(other)) = (Lan::or_skip(2), Lan::or_skip(1)) else { return };
    plug(&near, &other, 78, 1);
    let site = with_a_tree(4_000_000);
    let group = "--group 239.192.7.11:7500";
    for by_deletion in [false, true] {
        let stays = recv(&site, &near, 1, "stays", group);
        let cut_off = recv(&site, &other, 0, "cut", group);
        let ways = "--interface e0 --interface e78 --give-up 120s";
        let send = format!("send tree --wait-for 2 --rate-max 8Mbit/s {group} {ways}");
        let sender = on(&site, &near, 0, &send);
        cut_off.until_has(1);
        // The stopped receiver takes no packets, so the sender stays until the interface is back.
        cut_off.signal(Signal::SIGSTOP);
        if by_deletion {
            near.ip(0, "link del e78").unwrap();
            sender.until_complained("nothing leaves by the interface \"e78\"");
            stays.until_has(2_000_000);
            link(&near, &other, 78);
            near.ip(0, "addr add 10.78.0.1/24 dev e78").unwrap();
        } else {
            near.ip(0, "link set e78 down").unwrap();
            sender.until_complained("nothing leaves by the interface \"e78\"");
        }
        near.ip(0, "link set e78 up").unwrap();
        sender.until_complained("\"e78\" is used again");
        cut_off.signal(Signal::SIGCONT);
        let sent = sender.end_with(0);
        assert_eq!(sent.err.matches("nothing leaves").count(), 1, "{}", sent.err);
        assert_received(&site, stays, "stays");
        assert_received(&site, cut_off, "cut");
    }
}

#[test]
fn a_receiver_says_how_fast_it_wants_it_and_the_floor_of_the_sender_holds() {
    let Some(world) = World::new(3, 1_000_000) else { return };
    let group = "--group 239.192.7.12:7500";
    for (limit, bounds, cause, warned) in [
        ("4Mbit/s", "", "receiver_limit", false),
        ("1kbit/s", "--rate-min 4Mbit/s --rate-max 4Mbit/s", "rate_max", true),
    ] {
        let slow = recv(&world.site, &world.lan, 1, "slow", &format!("{group} --rate-max {limit}"));
        let fast = recv(&world.site, &world.lan, 2, "fast", group);
        let send = format!("send tree --wait-for 2 {group} {bounds}");
        let sent = world.on(0, &send).end_with(0);
        assert_eq!(sent.err, "");
        assert_received(&world.site, slow, "slow");
        assert_received(&world.site, fast, "fast");
        let summary = sent.summary();
        assert!(summary["seconds"].as_f64().unwrap() >= 2.0, "1 MB at 4 Mbit/s: {summary}");
        assert_eq!(summary["limits"][0]["cause"], cause);
        let told = sent.events();
        let warning = told.iter().find(|event| event["event"] == "warning");
        let text = warning.map(|event| event["text"].as_str().unwrap());
        assert_eq!(text.is_some_and(|text| text.contains("slow asks for no more than")), warned);
    }
}
