//! Link faults: cuts, latency, one-way links, links that flap, partitions.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use faircast_base::Time;

use super::{World, full, ms, secs};
use crate::wire::Control;
use crate::{DaemonSettings, Service};

fn joined(count: usize, edges: &[(usize, usize)], seed: u64, group: &str) -> World {
    World::joined(count, edges, seed, DaemonSettings::default(), group)
}

#[test]
fn a_link_cut_between_two_daemons_with_a_third_between_settles_in_one_view() {
    let mut world = joined(3, &full(3), 1, "g0");
    let since = world.now;
    world.act_for(secs(5));
    world.cut(0, 2);
    world.act_for(secs(30));
    world.mend(0, 2);
    world.act_for(secs(30));
    assert!(world.finish() > 5000);
    world.assert_views(0..3, since, 0);
}

#[test]
fn latency_spikes_of_three_seconds_at_one_of_four_daemons_leave_one_view() {
    let mut world = World::new(4, &full(4), 2);
    world.run(secs(30));
    world.check_settled();
    world.join_all("g0");
    let since = world.now;
    for _ in 0..5 {
        (0..3).for_each(|other| world.set_latency(other, 3, secs(3)));
        world.act_for(secs(4));
        (0..3).for_each(|other| world.set_latency(other, 3, ms(1)));
        let took = world.settle(secs(16));
        assert!(took < secs(16), "{took}");
        world.act_for(secs(25));
    }
    world.run(secs(5));
    world.finish();
    for at in 0..3 {
        let views = world.views_since(at, since);
        assert!((2..=20).contains(&views), "{views} views at d{at}");
    }
    for (_, at, _, members) in world.log.views.iter().filter(|it| it.0 > since && it.1 < 3) {
        assert!((0..3).all(|other| members.contains(&world.me(other))), "d{at}: {members:?}");
    }
}

#[test]
fn a_spike_that_is_shorter_than_the_longest_silence_changes_no_view() {
    let mut world = joined(4, &full(4), 2, "g0");
    let since = world.now;
    (0..3).for_each(|other| world.set_latency(other, 3, ms(2000)));
    world.act_for(secs(1));
    (0..3).for_each(|other| world.set_latency(other, 3, ms(1)));
    world.act_for(secs(10));
    world.finish();
    assert_eq!(world.views_since(0, since), 0);
}

#[test]
fn a_connection_that_dies_without_a_reset_loses_no_message() {
    let mut world = joined(3, &full(3), 3, "g");
    let since = world.now;
    let mut refused = 0;
    for i in 0..1200 {
        if i == 200 {
            world.cut(0, 1);
        }
        let service = Service::ALL[1 + i % 5];
        refused += usize::from(world.send(i % 3, 0, service, &["g"], 0).is_err());
        world.run(ms(10));
    }
    let (_, count) = world.delays(0..world.log.sent.len(), &[0, 1, 2]);
    world.finish();
    let (delay, after) = world.delays(0..world.log.sent.len(), &[0, 1, 2]);
    assert_eq!(after, 6 * world.log.sent.len());
    assert!(count > after - 60, "{} of {after} are late", after - count);
    // Longest silence of 3 s, a greeting, and the change of routes.
    assert!(delay < ms(4500), "{delay}");
    assert!(refused < 100, "{refused} refused");
    assert_eq!(world.views_since(0, since), 0);
}

#[test]
fn a_leaf_that_reconnects_elsewhere_starts_no_loop() {
    let mut world = World::new(4, &[(0, 1), (1, 2), (0, 2), (0, 3), (1, 3)], 4);
    world.cut(1, 3);
    world.run(secs(5));
    world.check_settled();
    world.join_all("g");
    world.run(secs(1));
    let since = world.now;
    for round in 0..6 {
        let (old, new) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        world.cut(old, 3);
        world.mend(new, 3);
        let before = (world.traffic, world.log.sent.len());
        for i in 0..100 {
            _ = world.send(3 - i % 2, 0, Service::Fifo, &["g"], 1000);
            world.run(ms(100));
        }
        world.settle(secs(70));
        let (bytes, sent) = (world.traffic.data_bytes, world.log.sent.len());
        let each = (bytes - before.0.data_bytes) / (sent - before.1) as u64;
        // Each message crosses three links, and one more if it is recovered.
        assert!(each < 4500, "{each} bytes for a message of 1000");
    }
    world.finish();
    // During an absence longer than the hold-down, a leaf is in another view.
    assert!(world.views_since(2, since) <= 24, "{}", world.views_since(2, since));
    let before = world.traffic;
    world.run(secs(10));
    let idle = world.traffic.data_bytes - before.data_bytes;
    assert_eq!(idle, 0, "bytes without a message");
}

#[test]
fn a_daemon_that_hears_one_neighbour_alone_makes_nobody_suspect_another() {
    let mut world = joined(4, &full(4), 5, "g0");
    let since = world.now;
    world.cut.extend([(1, 3), (2, 3)]);
    world.act_for(secs(30));
    assert_eq!(world.views_since(0, since), 0, "one two-way link is enough");
    world.cut.insert((0, 3));
    world.act_for(secs(30));
    world.cut.clear();
    world.settle(secs(60));
    world.finish();
    for (_, at, _, members) in world.log.views.iter().filter(|it| it.0 > since && it.1 < 3) {
        assert!((0..3).all(|other| members.contains(&world.me(other))), "d{at}: {members:?}");
    }
    world.assert_views(0..3, since, 2);
}

#[test]
fn a_one_way_link_carries_no_endless_repetition() {
    let mut world = joined(2, &full(2), 6, "g");
    let since = world.now;
    world.cut.insert((0, 1));
    for _ in 0..50 {
        _ = world.send(0, 0, Service::Agreed, &["g"], 1000);
        world.run(ms(20));
    }
    world.run(secs(10));
    world.check_settled();
    let before = world.traffic;
    world.run(secs(60));
    let after = world.traffic;
    assert_eq!(after.data_bytes, before.data_bytes);
    assert!(after.control_frames - before.control_frames < 500);
    world.cut.clear();
    world.settle(secs(5));
    world.finish();
    world.assert_views(0..2, since, 2);
}

#[test]
fn a_link_that_flaps_is_held_down_twice_as_long_each_time_up_to_a_minute() {
    let mut world = joined(2, &full(2), 7, "g0");
    let (start, mut waits) = (world.now, Vec::new());
    for _ in 0..10 {
        world.act_for(secs(2));
        world.reset(0, 1);
        world.run(ms(1));
        let reset = world.now;
        while world.log.views.last().is_none_or(|it| it.0 < reset || it.3.len() < 2) {
            world.run(ms(50));
            assert!(world.now.since(reset) < secs(65), "longer than a minute");
        }
        waits.push(world.now.since(reset));
    }
    let held: Vec<u64> = waits.iter().map(|it| it.as_millis() / 1000).collect();
    assert_eq!(held[1..], [2, 4, 8, 16, 32, 60, 60, 60, 60]);
    assert!(waits[0] < secs(1), "the first interruption is none of a flapping link");
    assert!(world.views_since(0, start) <= 20, "{}", world.views_since(0, start));
    world.run(secs(30));
    world.reset(0, 1);
    world.run(ms(500));
    world.settle(secs(2));
    world.finish();
}

#[test]
fn ten_daemons_merge_within_5_s_after_a_partition_heals() {
    for seed in 0..3 {
        let mut world = World::new(10, &full(10), seed);
        world.run(secs(10));
        world.check_settled();
        world.join_all("g0");
        world.act_for(secs(2));
        for a in 0..5 {
            (5..10).for_each(|b| world.cut(a, b));
        }
        world.act_for(secs(30));
        let since = world.now;
        world.cut.clear();
        let took = world.settle(secs(5));
        let views = (0..10).map(|at| world.views_since(at, since)).max();
        assert!(views <= Some(3), "{views:?} views, {took}");
        world.act_for(secs(2));
        world.finish();
    }
}

#[test]
fn views_form_over_links_with_a_round_trip_of_a_second() {
    let mut world = World::new(3, &[(0, 1), (1, 2)], 8);
    world.set_latency(0, 1, ms(500));
    world.set_latency(1, 2, ms(300));
    let took = world.settle(secs(12));
    world.join_all("g0");
    world.act_for(secs(10));
    world.finish();
    let views = world.views_since(0, Time::ZERO);
    assert!(views <= 3, "{views} views within {took}");
}

#[test]
fn views_form_over_links_with_a_round_trip_of_four_seconds() {
    let mut world = World::new(3, &[(0, 1), (1, 2)], 9);
    world.set_latency(0, 1, secs(2));
    world.set_latency(1, 2, secs(2));
    world.settle(secs(40));
    world.join_all("g0");
    world.run(secs(40));
    world.check_settled();
    let views = world.views_since(0, Time::ZERO);
    assert!(views <= 2, "{views} views");
    world.act_for(secs(10));
    world.run(secs(40));
    world.check_settled();
    assert_eq!(world.views_since(0, Time::ZERO), views);
    world.cut(1, 2);
    world.run(secs(30));
    world.mend(1, 2);
    world.settle(secs(60));
    assert!(world.finish() > 50);
    assert_eq!(world.views_since(0, Time::ZERO), views + 2);
}

#[test]
fn daemons_that_all_answer_late_complete_a_change_and_repeat_it_seldom() {
    let ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)];
    let mut world = World::new(6, &ring, 3);
    world.run(secs(10));
    world.check_settled();
    let since = world.now;
    // The advertised costs are from fast links, so no daemon expects answers only after 23 s.
    ring.iter().for_each(|(a, b)| world.set_latency(*a, *b, ms(2300)));
    world.reset(0, 1);
    world.recorded = Some(Vec::new());
    world.run(secs(1));
    world.settle(secs(120));
    let recorded = world.recorded.take().unwrap();
    let rounds = recorded.iter().filter_map(|(_, frame)| match Control::decode(frame)? {
        Control::Propose(config, _) => Some(config.round),
        _ => None,
    });
    let rounds: BTreeSet<u64> = rounds.collect();
    assert!(rounds.len() <= 3, "{rounds:?}");
    assert_eq!(world.views_since(0, since), 0);
}

#[test]
fn an_advertisement_that_comes_back_over_a_faster_way_round_is_not_renewed() {
    let mut world = World::new(3, &full(3), 6);
    world.set_latency(0, 2, ms(200));
    world.run(secs(10));
    world.check_settled();
    let before = world.traffic;
    world.run(secs(600));
    let frames = world.traffic.control_frames - before.control_frames;
    // Three links have two ends; two greetings per second, advertisements every 5 minutes.
    assert!((6 * 1200..6 * 1200 + 100).contains(&frames), "{frames} frames of control");
}
