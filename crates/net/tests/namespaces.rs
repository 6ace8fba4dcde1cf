//! Sessions between namespaces on one bridge; skipped with a message if those are not permitted.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{Outcome, Place, content, receive, send};
use faircast_base::Bytes;
use faircast_lab::lan::Lan;
use faircast_net::{Ended, Interface, Listen, Multicast, SocketSettings, Target};

const PORT: u16 = 3056;

fn group(text: &str) -> Multicast {
    let interfaces = vec![Interface::Name("e0".into())];
    Multicast { interfaces, ..Multicast::new(text.parse().unwrap()) }
}

fn listen(group: &Multicast) -> Listen {
    Listen::Multicast(group.clone())
}

fn assert_whole(outcome: &Outcome, bytes: &[u8]) {
    assert_eq!((outcome.completed, outcome.gone), (1, 0), "{:?}", outcome.counters);
    assert!(outcome.delivered[0][..] == bytes[..], "not what was sent");
}

fn session(lan: &Lan, group: &str, source: Option<&str>, offload: bool) {
    let sockets = SocketSettings { offload, ..SocketSettings::default() };
    let group =
        Multicast { source: source.map(|text| text.parse().unwrap()), ..self::group(group) };
    let bytes = content(2_000_003, 7);
    let receivers: Vec<_> = (1..3)
        .map(|host| {
            let place = Place { sockets: sockets.clone(), ..Place::on(lan, host) };
            receive(place, listen(&group), &[0])
        })
        .collect();
    let source = Place { sockets, ..Place::on(lan, 0) };
    let source = send(source, Target::Multicast(group), 0, bytes.clone());
    for receiver in receivers {
        let outcome = receiver.join().unwrap();
        assert_whole(&outcome, &bytes);
        assert_eq!(outcome.counters.refused, Default::default());
    }
    let outcome = source.join().unwrap();
    assert_eq!(outcome.ended, Ended::Idle);
    let sent = outcome.counters.sent;
    assert_eq!((sent.datagrams, sent.failures, sent.unsent), (sent.packets, 0, 0), "{sent:?}");
}

#[test]
fn a_group_of_every_kind_gets_every_byte() {
    let Some(lan) = Lan::or_skip(3) else { return };
    for (group, source, offload) in [
        ("239.192.3.1:3056", None, true),
        ("239.192.3.1:3056", None, false),
        ("232.1.2.3:3056", Some("10.77.0.1"), true),
        ("[ff15::3:1]:3056", None, true),
        ("[ff35::8000:1]:3056", Some("fd77::1"), true),
        ("[ff12::3:1]:3056", None, true),
    ] {
        session(&lan, group, source, offload);
    }
}

#[test]
fn a_unicast_list_of_both_families_gets_every_byte() {
    let Some(lan) = Lan::or_skip(3) else { return };
    for addresses in [["10.77.0.2:4000", "10.77.0.3:4001"], ["[fd77::2]:4000", "[fd77::3]:4001"]] {
        let addresses = addresses.map(|text| text.parse().unwrap());
        let bytes = content(1_000_000, 8);
        let receivers = [1, 2]
            .map(|host| receive(Place::on(&lan, host), Listen::Unicast(addresses[host - 1]), &[0]));
        let target = Target::Unicast(addresses.to_vec());
        let source = send(Place::on(&lan, 0), target, 0, bytes.clone());
        receivers.into_iter().for_each(|end| assert_whole(&end.join().unwrap(), &bytes));
        assert_eq!(source.join().unwrap().ended, Ended::Idle);
    }
}

#[test]
fn a_group_and_a_list_beside_it_get_every_byte_once() {
    let Some(lan) = Lan::or_skip(4) else { return };
    let group = group("239.192.3.7:3056");
    let by_one = |host: usize| format!("10.77.0.{}:3056", 1 + host).parse().unwrap();
    let bytes = content(1_000_000, 16);
    let receivers = [
        receive(Place::on(&lan, 1), listen(&group), &[0]),
        receive(Place::on(&lan, 2), Listen::Both(group.clone(), by_one(2)), &[0]),
        receive(
            Place::on(&lan, 3),
            Listen::Both(group.clone(), "0.0.0.0:3056".parse().unwrap()),
            &[0],
        ),
    ];
    let target = Target::Both(group, vec![by_one(2), by_one(3), by_one(2)]);
    let source = send(Place::on(&lan, 0), target, 0, bytes.clone());
    receivers.into_iter().for_each(|end| assert_whole(&end.join().unwrap(), &bytes));
    let outcome = source.join().unwrap();
    assert_eq!(outcome.ended, Ended::Idle);
    let sent = outcome.counters.sent;
    assert_eq!((sent.datagrams, sent.unsent), (3 * sent.packets, 0), "{sent:?}");
}

#[test]
fn a_source_and_its_receivers_can_be_on_one_host() {
    let Some(lan) = Lan::or_skip(2) else { return };
    let group = group("239.192.3.2:3056");
    let bytes = content(1_000_000, 9);
    let receivers = [0, 0, 1].map(|host| receive(Place::on(&lan, host), listen(&group), &[0]));
    let source = send(Place::on(&lan, 0), Target::Multicast(group), 0, bytes.clone());
    receivers.into_iter().for_each(|end| assert_whole(&end.join().unwrap(), &bytes));
    assert_eq!(source.join().unwrap().ended, Ended::Idle);
}

#[test]
fn two_sources_of_one_group_are_told_apart() {
    let Some(lan) = Lan::or_skip(4) else { return };
    let group = group("239.192.3.3:3056");
    let all = [content(1_500_000, 10), content(900_000, 11)];
    let both = receive(Place::on(&lan, 2), listen(&group), &[0, 1]);
    let one = receive(Place::on(&lan, 3), listen(&group), &[1]);
    let sources = [0, 1].map(|flow: u32| {
        let target = Target::Multicast(group.clone());
        send(Place::on(&lan, flow as usize), target, flow, all[flow as usize].clone())
    });
    let outcome = both.join().unwrap();
    let mut got: Vec<usize> = outcome.delivered.iter().map(Vec::len).collect();
    got.sort_unstable();
    assert_eq!((outcome.completed, &got[..]), (2, &[900_000, 1_500_000][..]));
    for bytes in &all {
        assert!(outcome.delivered.iter().any(|delivered| delivered[..] == bytes[..]));
    }
    let outcome = one.join().unwrap();
    assert_whole(&outcome, &all[1]);
    assert!(outcome.counters.refused.foreign > 0);
    sources.into_iter().for_each(|end| assert_eq!(end.join().unwrap().ended, Ended::Idle));
}

#[test]
fn a_source_specific_receiver_hears_no_other_source() {
    let Some(lan) = Lan::or_skip(3) else { return };
    let group = group("232.1.2.4:3056");
    let from = |host: usize| Multicast {
        source: Some(format!("10.77.0.{}", 1 + host).parse().unwrap()),
        ..group.clone()
    };
    // One packet is sent without any answer.
    let all = [content(1000, 12), content(800_000, 13)];
    let receiver = receive(Place::on(&lan, 2), listen(&from(1)), &[1]);
    let sources = [0, 1].map(|i: usize| {
        send(Place::on(&lan, i), Target::Multicast(from(i)), i as u32, all[i].clone())
    });
    let outcome = receiver.join().unwrap();
    assert_whole(&outcome, &all[1]);
    assert_eq!(outcome.counters.refused.foreign, 0, "the kernel lets only one source in");
    sources.into_iter().for_each(|end| drop(end.join().unwrap()));
}

fn narrow(hosts: usize) -> Option<Lan> {
    let lan = Lan::or_skip(hosts)?;
    match lan.tc(0, "qdisc add dev e0 root tbf rate 40mbit burst 20kb latency 20ms") {
        Ok(()) => Some(lan),
        Err(error) => {
            eprintln!("skipped: no tbf here: {error}");
            None
        }
    }
}

#[test]
fn a_full_send_buffer_makes_a_source_wait_and_loses_nothing() {
    let Some(lan) = narrow(2) else { return };
    let group = group("239.192.3.6:3056");
    let bytes = content(3_000_000, 15);
    let receiver = receive(Place::on(&lan, 1), listen(&group), &[0]);
    let sockets = SocketSettings { send_buffer: Bytes::new(8192), ..SocketSettings::default() };
    let source = Place { sockets, ..Place::on(&lan, 0) };
    let source = send(source, Target::Multicast(group), 0, bytes.clone());
    assert_whole(&receiver.join().unwrap(), &bytes);
    let sent = source.join().unwrap().counters.sent;
    assert!(sent.waits > 0, "{sent:?}");
    assert_eq!((sent.unsent, sent.datagrams), (0, sent.packets), "{sent:?}");
}

fn survives(trouble: impl FnOnce(&Lan)) -> Option<[Outcome; 2]> {
    let lan = narrow(2)?;
    let group = group("239.192.3.4:3056");
    let bytes: Arc<[u8]> = content(10_000_000, 14);
    let receiver = receive(Place::on(&lan, 1), listen(&group), &[0]);
    let source = send(Place::on(&lan, 0), Target::Multicast(group), 0, bytes.clone());
    thread::sleep(Duration::from_millis(700));
    assert!(!receiver.is_finished(), "the trouble comes in the middle");
    trouble(&lan);
    let outcome = receiver.join().unwrap();
    assert_whole(&outcome, &bytes);
    Some([source.join().unwrap(), outcome])
}

fn cut_off(lan: &Lan, host: usize) {
    lan.ip(host, "link set e0 down").unwrap();
    thread::sleep(Duration::from_secs(2));
    lan.ip(host, "link set e0 up").unwrap();
    lan.ip(host, "route add 224.0.0.0/4 dev e0").unwrap();
}

#[test]
fn a_session_survives_two_seconds_without_the_sources_interface() {
    if let Some([source, _]) = survives(|lan| cut_off(lan, 0)) {
        assert!(source.counters.sent.failures > 0, "{:?}", source.counters);
    }
}

#[test]
fn a_session_survives_two_seconds_without_the_receivers_interface() {
    survives(|lan| cut_off(lan, 1));
}

#[test]
fn a_receiver_joins_again_when_its_interface_was_taken_away_and_came_back() {
    survives(|lan| {
        lan.ip(1, "link del e0").unwrap();
        thread::sleep(Duration::from_secs(1));
        lan.plug(1..2).unwrap();
    });
}

#[test]
fn ports_are_what_was_asked_for() {
    let Some(lan) = Lan::or_skip(1) else { return };
    thread::spawn(move || {
        Place::on(&lan, 0).enter();
        let open = |port| {
            let settings = SocketSettings { port, ..SocketSettings::default() };
            let target = Target::Multicast(group("239.192.3.5:3056"));
            faircast_net::Sockets::source(target, settings)
        };
        let first = open(None).unwrap();
        assert_eq!(first.local_address(), format!("10.77.0.1:{PORT}").parse().unwrap());
        let second = open(None).unwrap();
        assert_ne!(second.local_address().port(), PORT, "it is taken");
        assert!(open(Some(PORT)).is_err(), "so it cannot be had");
        assert_eq!(open(Some(3055)).unwrap().local_address().port(), 3055);
        assert!(first.buffers().receive.count() >= 8 << 20, "root has what it asks for");
    })
    .join()
    .unwrap();
}
