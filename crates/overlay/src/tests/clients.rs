//! Clients that are killed, do not read, flood, or constantly join and leave.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use super::{CLIENTS, Delivery, World, full, ms, secs};
use crate::{
    CLIENT_BYTES_MAX, ClientId, DaemonSettings, GROUP_BYTES_MAX, GROUPS_MAX, MESSAGE_BYTES_MAX,
    Outgoing, SendError, Service,
};

fn settled(seed: u64, settings: DaemonSettings) -> World {
    World::joined(3, &full(3), seed, settings, "g0")
}

#[test]
fn a_client_that_is_killed_leaves_its_groups_after_30_s() {
    let mut world = settled(1, DaemonSettings::default());
    let since = world.now;
    world.lose(1, 0);
    for _ in 0..290 {
        world.send(0, 0, Service::Agreed, &["g0"], 100).unwrap();
        world.run(ms(100));
    }
    let members = |world: &World| world.daemon(0).groups().next().unwrap().1.len();
    assert_eq!(members(&world), 6);
    world.run(secs(2));
    assert_eq!(members(&world), 5);
    world.connect(1, 0);
    world.join(1, 0, "g0");
    world.act_for(secs(1));
    world.finish();
    assert_eq!(world.views_since(0, since), 0);
}

const SLOW: [(usize, usize); 2] = [(0, 1), (2, 1)];

fn run_with_slow(slow: &[(usize, usize)]) -> World {
    let settings = DaemonSettings { client_bytes: 100_000, ..DaemonSettings::default() };
    let mut world = settled(2, settings);
    world.renew();
    for (at, client) in slow {
        world.hosts[*at].clients[*client].reads = false;
    }
    for i in 0..500 {
        let service = Service::ALL[1 + i % 5];
        world.send(i % 3, 0, service, &["g0"], 1000).unwrap();
        world.run(ms(10));
    }
    world.run(secs(1));
    world
}

pub(super) fn cut_off() -> World {
    let mut world = run_with_slow(&SLOW);
    for (at, client) in SLOW {
        world.hosts[at].clients[client].reads = true;
        world.read(at, client);
        assert!(!world.hosts[at].clients[client].reads, "the connection is closed");
        world.resume(at, client);
    }
    for i in 0..50 {
        world.send(i % 3, 0, Service::Fifo, &["g0"], 100).unwrap();
        world.run(ms(10));
    }
    world.run(secs(5));
    world
}

#[test]
fn clients_that_do_not_read_learn_what_they_lost_and_take_nothing_from_the_others() {
    let mut world = cut_off();
    let of_others = |world: &World| -> Vec<Delivery> {
        let is_other = |it: &&Delivery| !SLOW.contains(&(it.at, it.client)) && it.message < 500;
        world.log.deliveries.iter().filter(is_other).copied().collect()
    };
    assert_eq!(of_others(&world), of_others(&run_with_slow(&[])));
    assert_eq!(world.log.lost.len(), 2);
    for (at, client, (first, last)) in world.log.lost.clone() {
        let is_own = |it: &&Delivery| (it.at, it.client) == (at, client) && it.message < 500;
        let got = world.log.deliveries.iter().filter(is_own).count();
        assert_eq!(got + (last - first) as usize + 1, 500);
    }
    world.finish();
    assert_eq!(world.delays(500..550, &[0, 1, 2]).1, 6 * 50);
}

#[test]
fn a_hundred_joins_and_leaves_a_second_for_30_s_leave_nothing_behind() {
    let settings = DaemonSettings { history_bytes: 0, ..DaemonSettings::default() };
    let mut world = settled(3, settings);
    let churn = |world: &mut World, count: usize| {
        for i in 0..count {
            let (at, client, group) = (i % 3, i / 3 % CLIENTS, format!("g{}", i / 6 % 50));
            if i / 300 % 2 == 0 {
                world.join(at, client, &group);
            } else {
                world.leave(at, client, &group);
            }
            if i % 10 == 0 {
                _ = world.send(at, client, Service::ALL[1 + i / 10 % 5], &[&group], 10);
            }
            world.run(ms(10));
        }
        world.run(secs(2));
    };
    let since = world.now;
    churn(&mut world, 600);
    let before = world.state();
    churn(&mut world, 3000);
    let after = world.state();
    world.finish();
    assert!(after < before + before / 10, "{before}, then {after}");
    assert_eq!(world.views_since(0, since), 0);
    assert!(world.daemon(0).groups().count() <= 1);
}

#[test]
fn a_client_that_floods_is_refused_alone() {
    let settings = DaemonSettings { retention_bytes: 1_000_000, ..DaemonSettings::default() };
    let mut world = settled(4, settings);
    for way in [(0, 2), (0, 1), (1, 2)] {
        world.rates.insert(way, 100_000);
    }
    let mut refused = 0;
    for i in 0..1000 {
        if let Err(error) = world.send(0, 0, Service::Fifo, &["g0"], 10_000) {
            assert_eq!(error, SendError::Retention);
            refused += 1;
        }
        if i % 10 == 0 {
            world.send(0, 1, Service::Agreed, &["g0"], 100).unwrap();
            world.send(1, 0, Service::Agreed, &["g0"], 100).unwrap();
        }
        world.run(ms(10));
        assert!(world.daemon(0).unstable_bytes() < 1_000_000);
    }
    assert!(refused > 500, "{refused}");
    world.rates.clear();
    (0..2).for_each(|at| world.call(at, |_, _| {}));
    world.settle(secs(5));
    world.finish();
    let sent = world.log.sent.len();
    assert_eq!(world.delays(0..sent, &[0, 1, 2]).1, 6 * sent);
}

#[test]
fn joins_without_end_are_refused_where_a_daemon_takes_nothing() {
    let settings = DaemonSettings { retention_bytes: 50_000, ..DaemonSettings::default() };
    let mut world = settled(5, settings);
    for way in [(0, 2), (1, 2), (0, 1)] {
        world.rates.insert(way, 0);
    }
    let (id, group) = (world.hosts[0].clients[0].id, Bytes::from("g0"));
    let mut refused = 0;
    for _ in 0..5000 {
        world.call(0, |daemon, cx| {
            refused += u32::from(daemon.part(cx, id, group.clone()).is_err());
            refused += u32::from(daemon.join(cx, id, group.clone(), false).is_err());
        });
        assert!(world.daemon(0).unstable_bytes() < 60_000);
    }
    assert!(refused > 5000, "{refused}");
    assert!(world.state() < 5_000_000, "{}", world.state());
}

#[test]
fn new_clients_and_daemons_are_served_under_load() {
    let mut world = World::new(4, &full(4), 6);
    world.kill_noticed(3, 1.0);
    world.settle(secs(10));
    world.join_all("g0");
    world.run(secs(1));
    for way in full(4) {
        world.rates.insert(way, 500_000);
    }
    let mut old = None;
    for i in 0..1500 {
        _ = world.send(i % 3, 0, Service::Fifo, &["g0"], 5000);
        if i == 200 {
            let id = world.hosts[1].clients[1].id;
            world.note(1, 1, 0, "\"stop\"");
            world.call(1, |daemon, cx| daemon.disconnect(cx, id));
            world.connect(1, 1);
            world.join(1, 1, "g0");
            assert_eq!(world.hosts[1].clients[1].last, 1, "the view comes at once");
            old = Some(world.log.deliveries.len());
        }
        if i == 300 {
            let served = &world.log.deliveries[old.unwrap()..];
            assert!(served.iter().any(|it| (it.at, it.client) == (1, 1)), "not within a second");
            world.start(3);
        }
        world.run(ms(10));
    }
    assert_eq!(world.daemon(0).view().1.len(), 4);
    let joined = world.log.views.iter().find(|it| it.1 == 3 && it.3.len() == 4).unwrap();
    let took = joined.0.since(world.log.sent[300]);
    assert!(took < secs(4), "{took}");
    world.rates.clear();
    (0..4).for_each(|at| world.call(at, |_, _| {}));
    world.finish();
}

#[test]
fn requests_beyond_the_limits_are_refused_and_those_at_the_limits_arrive() {
    let mut world = settled(7, DaemonSettings::default());
    let id = world.hosts[0].clients[0].id;
    let long: String = "g".repeat(GROUP_BYTES_MAX + 1);
    let names: Vec<String> = (0..=GROUPS_MAX).map(|it| format!("{it:0>64}")).collect();
    let many: Vec<&[u8]> = names.iter().map(|it| it.as_bytes()).collect();
    let huge = alloc::vec![0; MESSAGE_BYTES_MAX + 1];
    world.call(0, |daemon, cx| {
        let group = &[&b"g0"[..]][..];
        let mut send = |id, groups, payload| {
            daemon.send(cx, id, &Outgoing::new(Service::Fifo, groups, payload))
        };
        assert_eq!(send(id, group, &huge), Err(SendError::Length));
        assert_eq!(send(ClientId(0), group, b""), Err(SendError::Name));
        for groups in [&[][..], &[&b""[..]], &[long.as_bytes()], &many] {
            assert_eq!(send(id, groups, b""), Err(SendError::Group));
        }
        for group in [Bytes::new(), long.clone().into()] {
            assert_eq!(daemon.join(cx, id, group.clone(), false), Err(SendError::Group));
            assert_eq!(daemon.part(cx, id, group), Err(SendError::Group));
        }
        for name in ["", &long[..CLIENT_BYTES_MAX + 1], "c0"] {
            let name = Bytes::copy_from_slice(name.as_bytes());
            assert_eq!(daemon.connect(cx, ClientId(0), name, 1), Err(SendError::Name));
        }
    });
    let groups: Vec<&str> = names[1..].iter().map(String::as_str).collect();
    for service in [Service::Reliable, Service::Safe] {
        for name in [&groups[0], &groups[99]] {
            world.join(1, 0, name);
        }
        world.run(secs(1));
        world.send(0, 0, service, &groups, 100_000).unwrap();
        world.send(0, 0, service, &["g0"], MESSAGE_BYTES_MAX).unwrap();
        world.settle(secs(5));
    }
    world.finish();
    assert_eq!(world.delays(0..4, &[0, 1, 2]).1, 2 * (1 + 6));
}

#[test]
fn a_run_with_an_earlier_clock_takes_a_name_once_its_holder_has_no_connection() {
    let mut world = settled(7, DaemonSettings::default());
    world.call(0, |daemon, cx| {
        let (name, holder, next) = (Bytes::from("x"), ClientId(900), ClientId(901));
        daemon.connect(cx, holder, name.clone(), 5).unwrap();
        assert_eq!(daemon.connect(cx, next, name.clone(), 3), Err(SendError::Name));
        daemon.suspend(cx.now, holder);
        assert_eq!(daemon.connect(cx, next, name.clone(), 5), Err(SendError::Name));
        daemon.connect(cx, next, name.clone(), 3).unwrap();
        assert_eq!(daemon.resume(ClientId(902), (&name, 5), 1), Err(SendError::Name));
    });
}

#[test]
fn fifo_messages_to_groups_that_a_client_is_about_to_join_keep_their_order() {
    for pause in 0..40 {
        let mut world = World::new(3, &full(3), pause);
        // Clocks of the third daemon arrive late, so that steps wait for them.
        world.set_latency(0, 2, ms(200));
        world.set_latency(1, 2, ms(200));
        world.settle(secs(10));
        for group in ["g1", "g0", "g2"] {
            world.join(0, 0, group);
            world.run(ms(5 * pause));
        }
        let first = world.log.sent.len();
        for i in 0..200 {
            let group = ["g0", "g1", "g2", "g1"][i % 4];
            world.send(1, 0, Service::Fifo, &[group], 0).unwrap();
            world.run(ms(5));
        }
        world.finish();
        let got: Vec<usize> = world.log.deliveries.iter().map(|it| it.message).collect();
        assert!(got.is_sorted(), "after {pause} ms: {got:?}");
        assert!(got.len() > 50 && first == 0);
    }
}

#[test]
fn a_client_that_joins_twice_and_leaves_is_no_member() {
    for pause in 0..100 {
        let mut world = World::new(3, &[(0, 1), (1, 2)], pause);
        world.set_latency(0, 1, ms(900));
        world.settle(secs(20));
        world.join(1, 0, "g");
        world.run(ms(400 * (pause % 10)));
        world.join(1, 0, "g");
        world.run(ms(400 * (pause / 10)));
        world.leave(1, 0, "g");
        world.finish();
        assert_eq!(world.daemon(0).groups().count(), 0, "pauses {pause}");
    }
}

#[test]
fn a_client_that_leaves_and_joins_again_at_any_moment_is_a_member() {
    for pause in 0..60 {
        let mut world = World::new(3, &[(0, 1), (1, 2)], pause);
        world.run(secs(5));
        world.check_settled();
        world.join(0, 0, "g");
        world.run(ms(pause));
        world.leave(0, 0, "g");
        world.join(0, 0, "g");
        world.finish();
        for at in 0..3 {
            let members: Vec<usize> = world.daemon(at).groups().map(|it| it.1.len()).collect();
            assert_eq!(members, [1], "again after {pause} ms");
        }
    }
}

#[test]
fn a_client_that_leaves_gets_nothing_that_is_sent_after_it_has_left_for_others() {
    let mut world = World::new(3, &full(3), 1);
    world.settle(secs(10));
    world.join(0, 0, "g");
    world.join(1, 0, "g");
    world.run(secs(1));
    world.send(0, 0, Service::Fifo, &["g"], 0).unwrap();
    world.run(secs(1));
    // Clocks of the third daemon arrive late at the second one only, whose steps wait for them.
    world.latency.insert((2, 1), secs(2));
    world.leave(1, 0, "g");
    world.run(ms(200));
    world.send(0, 0, Service::Fifo, &["g"], 0).unwrap();
    world.join(1, 1, "g");
    world.run(ms(200));
    world.send(0, 0, Service::Fifo, &["g"], 0).unwrap();
    world.run(secs(5));
    world.finish();
    let got = |at| -> Vec<usize> {
        let own = world.log.deliveries.iter().filter(|it| (it.at, it.client) == (at, 0));
        own.map(|it| it.message).collect()
    };
    assert_eq!((got(0), got(1)), (alloc::vec![0, 1, 2], alloc::vec![0]));
}
