//! Answers to senders: receipts, groups without members, slow members, ended views.

use alloc::vec::Vec;

use super::{CLIENTS, World, each_seed, full, ms, secs};
use crate::{DaemonSettings, Outgoing, SendError, Service};

fn settled(settings: DaemonSettings) -> World {
    let mut world = World::with(3, &full(3), 1, settings);
    world.settle(secs(10));
    world
}

/// Returns three daemons with two members each, in a group whose senders wait for slow ones.
fn holding() -> World {
    let mut world = settled(DaemonSettings { client_bytes: 100_000, ..DaemonSettings::default() });
    world.asks = true;
    world.join_all("g0");
    world.run(secs(2));
    world
}

/// Sends 1 kB from two daemons for `millis`. Returns the number of accepted messages.
fn pour(world: &mut World, millis: u64) -> usize {
    let mut taken = 0;
    for _ in 0..millis {
        for at in [0, 1] {
            match world.send(at, 0, Service::Fifo, &["g0"], 1000) {
                Ok(()) => taken += 1,
                Err(SendError::Held) => {}
                Err(error) => panic!("{error}"),
            }
        }
        world.run(ms(1));
    }
    taken
}

#[test]
fn a_group_that_asks_has_its_senders_wait_for_a_slow_member_and_loses_nothing() {
    let mut world = holding();
    world.hosts[2].clients[1].reads = false;
    let taken = pour(&mut world, 1000);
    assert!(taken < 150, "{taken} messages of 1 kB beside a queue of 100 kB");
    assert_eq!(world.daemon(2).held_groups().count(), 1);
    for daemon in 0..3 {
        let sender = world.hosts[daemon].clients[1].id;
        world.call(daemon, |daemon, cx| {
            let held = daemon.send(cx, sender, &Outgoing::new(Service::Fifo, &[b"g0"], b""));
            assert_eq!(held, Err(SendError::Held));
            let other = Outgoing::new(Service::Fifo, &[b"g0", b"other"], b"");
            assert_eq!(daemon.send(cx, sender, &other), Err(SendError::Held));
            let other = Outgoing::new(Service::Fifo, &[b"other"], b"");
            assert_eq!(daemon.send(cx, sender, &other), Ok(()));
        });
    }
    world.hosts[2].clients[1].reads = true;
    world.read(2, 1);
    world.run(ms(100));
    assert!(pour(&mut world, 100) == 200, "nobody waits");
    world.finish();
    assert_eq!(world.log.lost, []);
}

#[test]
fn a_member_that_takes_nothing_for_10_s_is_cut_and_its_senders_go_on() {
    let mut world = holding();
    world.hosts[2].clients[1].reads = false;
    pour(&mut world, 1000);
    world.run(secs(8));
    assert_eq!(pour(&mut world, 100), 0);
    world.run(secs(2));
    assert_eq!(pour(&mut world, 500), 1000);
    let id = world.hosts[2].clients[1].id;
    assert!(world.daemon(2).is_cut(id));
    world.resume(2, 1);
    world.finish();
    assert_eq!(world.log.lost.len(), 1, "the client is told once");
}

#[test]
fn senders_wait_no_longer_once_the_slow_member_or_its_daemon_or_all_that_ask_are_gone() {
    for way in 0..3 {
        let mut world = holding();
        world.hosts[2].clients[1].reads = false;
        pour(&mut world, 1000);
        assert_eq!(pour(&mut world, 10), 0);
        match way {
            0 => world.lose(2, 1),
            1 => world.kill_noticed(2, 0.5),
            _ => (0..6).for_each(|it| world.leave(it / 2, it % 2, "g0")),
        }
        world.run(secs(10));
        assert_eq!(pour(&mut world, 10), 20, "way {way}");
    }
}

#[test]
fn a_new_view_does_not_forget_that_senders_wait() {
    let mut world = holding();
    world.hosts[2].clients[1].reads = false;
    pour(&mut world, 1000);
    let view = world.daemon(0).view().0;
    // The member reads too little to stop being slow, and enough to avoid the cut-off.
    world.cut(0, 1);
    world.cut(0, 2);
    world.run(secs(3));
    world.cut.clear();
    world.run(secs(3));
    assert_ne!(world.daemon(0).view().0, view);
    assert!(pour(&mut world, 100) <= 2);
    world.hosts[2].clients[1].reads = true;
    world.read(2, 1);
    world.run(ms(100));
    assert_eq!(pour(&mut world, 10), 20);
    world.finish();
}

#[test]
fn a_receipt_has_the_number_of_members_that_the_message_has_reached() {
    let mut world = settled(DaemonSettings::default());
    for at in 0..3 {
        world.join(at, 0, "g0");
        world.join(at, 1, "g1");
    }
    world.run(secs(1));
    for (groups, members) in [(&["g0"][..], 3), (&["g0", "g1"], 6), (&["g2"], 0)] {
        for service in [Service::Causal, Service::Agreed, Service::Safe] {
            world.log.receipts.clear();
            world.send(0, 0, service, groups, 10).unwrap();
            world.run(secs(1));
            let request = world.log.sent.len() - 1;
            assert_eq!(world.log.receipts, [(request, members)], "{groups:?} {service:?}");
        }
    }
    // In a partition a message reaches the members that move together.
    world.log.receipts.clear();
    world.cut(0, 1);
    world.cut(0, 2);
    world.send(0, 0, Service::Safe, &["g0"], 10).unwrap();
    world.send(1, 0, Service::Safe, &["g0"], 10).unwrap();
    let last = world.log.sent.len() - 1;
    world.run(secs(10));
    world.log.receipts.sort_unstable();
    assert_eq!(world.log.receipts, [(last - 1, 1), (last, 2)]);
}

#[test]
fn a_sender_to_nobody_is_told_once_until_there_are_members() {
    let mut world = settled(DaemonSettings::default());
    let told =
        |world: &World| world.log.lines.iter().filter(|it| it.contains("no-members")).count();
    for expected in [1, 1] {
        world.send(0, 0, Service::Fifo, &["g0"], 10).unwrap();
        assert_eq!(told(&world), expected);
    }
    world.send(0, 0, Service::Fifo, &["g1"], 10).unwrap();
    world.join(1, 0, "g0");
    world.run(secs(1));
    world.send(0, 0, Service::Fifo, &["g0"], 10).unwrap();
    assert_eq!(told(&world), 2);
    world.leave(1, 0, "g0");
    world.run(secs(1));
    world.send(0, 0, Service::Fifo, &["g0"], 10).unwrap();
    assert_eq!(told(&world), 3);
    world.finish();
}

#[test]
fn a_message_for_a_view_that_is_over_is_refused() {
    let mut world = settled(DaemonSettings::default());
    world.join_all("g0");
    world.run(secs(1));
    let (view, id) = (world.daemon(0).view().0, world.hosts[0].clients[0].id);
    let message = Outgoing::new(Service::Agreed, &[b"g0"], b"m0");
    let message = Outgoing { view: Some(view), ..message };
    let mut results = Vec::new();
    world.call(0, |daemon, cx| results.push(daemon.send(cx, id, &message)));
    world.renew();
    world.call(0, |daemon, cx| results.push(daemon.send(cx, id, &message)));
    assert_eq!(results, [Ok(()), Err(SendError::View)]);
}

fn read_again(world: &mut World, at: usize, client: usize) {
    if world.hosts[at].runs().is_none() || world.hosts[at].clients[client].reads {
        return;
    }
    let id = world.hosts[at].clients[client].id;
    if world.daemon(at).is_cut(id) {
        return world.resume(at, client);
    }
    world.hosts[at].clients[client].reads = true;
    world.read(at, client);
}

/// Returns a run of stalled clients and failing links. Some members ask senders to wait.
fn lull(seed: u64) -> World {
    let settings = DaemonSettings { client_bytes: 60_000, ..DaemonSettings::default() };
    let edges = [(0, 1), (1, 2), (2, 3), (0, 3)];
    let mut world = World::with(4, &edges, seed, settings);
    world.asks = true;
    world.run(secs(3));
    for _ in 0..40 {
        let (at, client) = (world.rng.below(4) as usize, world.rng.below(2) as usize);
        match world.rng.below(8) {
            0..3 => world.hosts[at].clients[client].reads = false,
            3..6 => read_again(&mut world, at, client),
            6 => {
                let (a, b) = edges[world.rng.below(4) as usize];
                world.cut(a, b);
            }
            _ => world.cut.clear(),
        }
        world.act_often(60, 10_000);
        let pause = ms(world.rng.below(3000));
        world.run(pause);
    }
    world.cut.clear();
    // A view may bring more events at once than a client's queue has room for.
    for span in [secs(0), secs(80), secs(10)] {
        world.run(span);
        for at in 0..4 {
            (0..CLIENTS).for_each(|client| read_again(&mut world, at, client));
        }
    }
    world.run(secs(5));
    world
}

#[test]
fn rules_hold_where_members_are_slow_and_senders_wait() {
    each_seed(lull);
}
