//! Links that are slow or take no frames, and memory over long times.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{World, full, ms, secs};
use crate::cell::{Cell, Kind};
use crate::ids::{DaemonSet, ViewId};
use crate::stream::Streams;
use crate::topology::Graph;
use crate::wire::{Clock, Item};
use crate::{DaemonId, DaemonRun, DaemonSettings, LinkId, SendError, Service};

fn settled(count: usize, edges: &[(usize, usize)], seed: u64) -> World {
    let settings = DaemonSettings {
        retention_bytes: 1_000_000,
        client_bytes: 4_000_000,
        history_bytes: 0,
        ..DaemonSettings::default()
    };
    World::joined(count, edges, seed, settings, "g0")
}

#[test]
fn a_full_retention_refuses_messages_and_ends_nothing() {
    let mut world = settled(3, &[(0, 1), (1, 2)], 1);
    let since = world.now;
    world.rates.insert((1, 2), 0);
    let mut refused = 0;
    for i in 0..2000 {
        if let Err(error) = world.send(i % 2, 0, Service::ALL[1 + i % 5], &["g0"], 5000) {
            assert_eq!(error, SendError::Retention);
            refused += 1;
        }
        world.run(ms(10));
        let links = world.hosts[1].links.iter();
        let queued: usize = links.map(|it| world.daemon(1).queued_bytes(*it)).sum();
        assert!(queued < 2_100_000, "{queued} bytes wait for links");
        assert!(world.daemon(0).unstable_bytes() < 1_010_000);
    }
    assert!(refused > 1000, "{refused}");
    world.rates.clear();
    world.call(1, |_, _| {});
    world.settle(secs(3));
    world.send(0, 0, Service::Safe, &["g0"], 5000).unwrap();
    world.finish();
    let sent = world.log.sent.len();
    assert_eq!(world.delays(0..sent, &[0, 1, 2]).1, 6 * sent);
    assert_eq!(world.views_since(0, since), 0);
}

#[test]
fn a_site_that_is_down_without_a_word_holds_up_ordered_messages_alone() {
    let mut world = settled(3, &full(3), 2);
    world.cut(0, 2);
    world.cut(1, 2);
    for i in 0..500 {
        let service = if i % 2 == 0 { Service::Reliable } else { Service::Fifo };
        // The other client sends no ordered messages, for which FIFO messages would wait.
        _ = world.send(0, i % 2, service, &["g0"], 100);
        world.run(ms(4));
    }
    let unordered = world.log.sent.len();
    assert_eq!(unordered, 500, "all were taken before the site counts as gone");
    for _ in 0..50 {
        _ = world.send(1, 0, Service::Safe, &["g0"], 100);
        world.run(ms(100));
    }
    world.finish();
    let (delay, count) = world.delays(0..unordered, &[0, 1]);
    assert_eq!(count, 4 * unordered);
    assert!(delay < ms(100), "{delay}");
    let (delay, count) = world.delays(unordered..world.log.sent.len(), &[0, 1]);
    assert_eq!(count, 4 * (world.log.sent.len() - unordered));
    assert!(delay < ms(4500), "{delay}");
}

#[test]
fn a_slow_link_delays_nobody_else() {
    let mut world = settled(3, &full(3), 3);
    for way in [(0, 2), (1, 2)] {
        world.rates.insert(way, 20_000);
    }
    let first = world.log.sent.len();
    for i in 0..200 {
        world.send(i % 2, 0, Service::Fifo, &["g0"], 4000).unwrap();
        world.run(ms(10));
    }
    let last = world.log.sent.len();
    let (delay, count) = world.delays(first..last - 4, &[0, 1]);
    assert_eq!(count, 4 * (last - 4 - first));
    assert!(delay < ms(40), "{delay}");
    // The slow daemon receives 800 kB at 20 kB per second over each of two links.
    world.settle(secs(40));
    world.finish();
    assert_eq!(world.delays(first..last, &[2]).1, 2 * 200);
}

#[test]
fn samples_give_way_to_newer_ones_where_a_link_is_slow_and_other_messages_pass() {
    let mut world = settled(3, &full(3), 3);
    for way in [(0, 2), (1, 2)] {
        world.rates.insert(way, 100_000);
    }
    let first = world.log.sent.len();
    for i in 0..1000 {
        let (service, bytes) =
            if i % 10 == 0 { (Service::Fifo, 100) } else { (Service::Unreliable, 4000) };
        world.send(i % 2, 0, service, &["g0"], bytes).unwrap();
        world.run(ms(10));
    }
    let last = world.log.sent.len();
    world.finish();
    assert_eq!(world.delays(first..last, &[0, 1]).1, 4 * 1000);
    let come = world.log.deliveries.iter().filter(|it| it.at == 2 && it.message >= first);
    let delays = come.map(|it| (it.message - first, it.when.since(world.log.sent[it.message])));
    let (samples, others): (Vec<_>, Vec<_>) =
        delays.partition(|(message, _)| !message.is_multiple_of(10));
    // 128 kB of samples at 100 kB per second, over each of two links.
    assert_eq!(others.len(), 2 * 100);
    assert!((2 * 400..2 * 800).contains(&samples.len()), "{} of 1800", samples.len());
    let most = samples.into_iter().chain(others).map(|it| it.1).max();
    assert!(most < Some(ms(1700)), "{most:?}");
}

#[test]
fn a_view_waits_for_what_its_members_lack_and_loses_nothing() {
    let mut world = settled(3, &full(3), 4);
    (0..9).for_each(|way| _ = world.rates.insert((way / 3, way % 3), 100_000));
    let since = world.now;
    let first = world.log.sent.len();
    while world.send(0, 0, Service::Fifo, &["g0"], 15_000).is_ok() {}
    let last = world.log.sent.len();
    assert!(last - first > 30, "{}", last - first);
    world.kill_noticed(2, 1.0);
    world.run(ms(50));
    let took = world.settle(secs(15));
    // Half a megabyte is retransmitted at 100 kB per second.
    assert!(took < secs(7), "{took}");
    assert_eq!(world.views_since(1, since), 1);
    world.finish();
    assert_eq!(world.delays(first..last, &[0, 1]).1, 4 * (last - first));
}

#[test]
fn memory_is_level_over_a_wide_area_link() {
    let mut world = settled(3, &[(0, 1), (1, 2)], 5);
    world.set_latency(0, 1, ms(150));
    let mut states = Vec::new();
    for minute in 0..10 {
        let end = world.now + secs(60);
        let mut least = usize::MAX;
        while world.now < end {
            world.act();
            world.run(ms(100));
            if world.rng.chance(0.05) {
                least = world.state().min(least);
            }
        }
        states.push(least);
        assert!(least < usize::MAX, "no sample in minute {minute}");
    }
    world.finish();
    let (first, second) = states.split_at(5);
    let (first, second) = (first.iter().max().unwrap(), second.iter().max().unwrap());
    assert!(*second < first + first / 4, "{states:?}");
}

#[test]
fn a_link_that_drops_again_and_again_leaves_no_memory_behind() {
    let mut world = settled(3, &full(3), 6);
    world.act_for(secs(10));
    world.run(secs(60));
    let before = world.state();
    let mut most = 0;
    for i in 0..30 {
        world.reset(i % 2, 2);
        for _ in 0..200 {
            world.act();
            world.run(ms(10));
        }
        most = world.state().max(most);
    }
    world.run(secs(120));
    world.check_settled();
    let after = world.state();
    world.finish();
    assert!(after < before + before / 4, "{before}, then {after}");
    assert!(most < 3_000_000, "{before}, meanwhile {most}");
}

/// Returns the number of a neighbour's first refused cell. Each cell is reported as stable.
fn first_refused(kind: Kind, bytes: usize, is_open: bool) -> Option<u64> {
    let members = [0, 1].map(|id| DaemonRun { id: DaemonId(id), incarnation: 1 }).to_vec();
    let graph = Graph { members, edges: [(0, 1, 1, 1)].to_vec() };
    let link = LinkId(1);
    let link_to = BTreeMap::from([(1, link)]);
    let mut streams = Streams::new(ViewId::default(), graph, 0, 0, &link_to, 1_000_000);
    streams.is_begun = is_open;
    (1..=4000).find(|number| {
        let first = if *number == 1 { Kind::Message } else { kind };
        let what = (first, Service::Fifo, kind != Kind::Continuation);
        let payload = alloc::vec![0; bytes];
        let cell = Cell::encode(*number, what, DaemonSet::ALL, b"c", &[b"g"], &[&payload]);
        let taken = streams.take(link, Item::Cell { source: 1, step: 1, cell });
        streams.refresh();
        while streams.poll(link).is_some() {}
        let clock = Clock { sequence: *number, time: *number, stable: *number, wanted: false };
        taken.and(streams.take(link, Item::Clock(1, clock))).is_err()
    })
}

#[test]
fn cells_of_a_source_are_kept_up_to_a_limit_and_until_they_are_acknowledged() {
    assert_eq!(first_refused(Kind::Message, 10_000, true), None);
    // Before the view begins, nothing is acknowledged.
    assert_eq!(first_refused(Kind::Message, 10_000, false), Some(100));
    assert_eq!(first_refused(Kind::Continuation, 10_000, true), Some(2049));
}
