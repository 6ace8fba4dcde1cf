//! Daemons that are killed, restarted, stopped, or started together; clocks that jump.

use alloc::format;
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use super::{Event, World, full, ms, secs};
use crate::{Daemon, DaemonRun, DaemonSettings, SendError, Service};

fn settled(count: usize, edges: &[(usize, usize)], seed: u64) -> World {
    World::joined(count, edges, seed, DaemonSettings::default(), "g0")
}

#[test]
fn a_daemon_restarted_every_30_s_under_load_disturbs_the_others_by_two_views_each_time() {
    let mut world = settled(4, &full(4), 1);
    let since = world.now;
    let (mut refused, mut sent) = (Duration::ZERO, 0);
    for _ in 0..4 {
        world.kill_noticed(3, 1.0);
        for i in 0..3000 {
            if i == 100 {
                world.start(3);
            }
            let service = Service::ALL[1 + i % 5];
            match world.send(i % 3, 1, service, &["g0"], 100) {
                Ok(()) => sent += 1,
                Err(error) => {
                    assert_eq!(error, SendError::Changing);
                    refused += ms(10);
                }
            }
            world.run(ms(10));
        }
    }
    world.finish();
    let (delay, count) = world.delays(0..world.log.sent.len(), &[0, 1, 2]);
    assert!(delay < ms(1500), "{delay}");
    assert_eq!(count, 6 * sent);
    assert!(refused < secs(3), "{refused}");
    world.assert_views(0..3, since, 8);
}

#[test]
fn a_daemon_that_joins_and_dies_within_one_round_leaves_no_ghost() {
    for after in 0..40 {
        let mut world = World::new(4, &full(4), after);
        world.kill_noticed(3, 1.0);
        world.settle(secs(10));
        world.join_all("g");
        world.run(secs(1));
        let since = world.now;
        world.start(3);
        world.join(3, 0, "g");
        world.run(ms(10 * after));
        world.kill_noticed(3, 0.0);
        let took = world.settle(secs(6));
        for i in 0..10 {
            world.send(i % 3, 0, Service::Safe, &["g"], 0).unwrap();
            world.run(ms(10));
        }
        world.finish();
        let (delay, count) = world.delays(0..10, &[0, 1, 2]);
        assert_eq!(count, 60, "after {} ms", 10 * after);
        assert!(delay < ms(300), "{delay}");
        let views = world.views_since(0, since);
        assert!(views <= 3, "{views} views in {took}");
        let members: usize = world.daemon(0).groups().map(|it| it.1.len()).sum();
        assert_eq!(members, 6);
    }
}

#[test]
fn twenty_daemons_started_at_once_form_one_view_within_10_s() {
    for edges in [full(20), (1..20).map(|it| (it / 2, it)).collect()] {
        let mut world = World::new(20, &edges, 3);
        let took = world.settle(secs(10));
        let views = (0..20).map(|at| world.views_since(at, Time::ZERO)).max().unwrap();
        assert!(views <= 4, "{views} views within {took}");
        let each = world.traffic.control_bytes / edges.len() as u64;
        assert!(each < 2_000_000, "{each} bytes of control for a link");
        world.join_all("g0");
        world.act_for(secs(1));
        world.finish();
    }
}

#[test]
fn a_restart_elsewhere_costs_twenty_daemons_a_bounded_number_of_calls() {
    let edges: alloc::vec::Vec<(usize, usize)> =
        (0..20).flat_map(|at| [(at, (at + 1) % 20), (at, (at + 5) % 20)]).collect();
    let mut world = settled(20, &edges, 4);
    let (since, before) = (world.now, (world.calls(), world.traffic));
    world.run(secs(10));
    let idle = (world.calls() - before.0, world.traffic.control_bytes - before.1.control_bytes);
    let before = (world.calls(), world.traffic);
    world.kill_noticed(7, 1.0);
    world.run(ms(100));
    world.start(7);
    world.run(ms(9_900));
    let calls = world.calls() - before.0 - idle.0;
    let bytes = world.traffic.control_bytes - before.1.control_bytes - idle.1;
    // Two views, each with states and advertisements of all daemons over 80 link ends.
    assert!(calls < 20_000, "{calls} calls");
    assert!(bytes < 20_000_000, "{bytes} bytes");
    world.finish();
    assert!(world.views_since(0, since) <= 3);
}

#[test]
fn a_sender_goes_on_after_a_view_removes_a_member_that_comes_back() {
    let settings = DaemonSettings { retention_bytes: 400_000, ..DaemonSettings::default() };
    let mut world = World::with(3, &full(3), 5, settings);
    world.settle(secs(10));
    world.join_all("g");
    world.run(secs(1));
    world.cut(0, 2);
    world.cut(1, 2);
    let mut last = Ok(());
    let mut waited = Duration::ZERO;
    for _ in 0..1000 {
        last = world.send(0, 0, Service::Fifo, &["g"], 10_000);
        waited += if last.is_err() { ms(10) } else { Duration::ZERO };
        world.run(ms(10));
        assert!(world.daemon(0).unstable_bytes() < 211_000);
    }
    assert_eq!(last, Ok(()), "the member is removed");
    // Longest silence of 3 s, and the time of a view change.
    assert!(waited < ms(4500), "{waited}");
    world.cut.clear();
    world.settle(secs(10));
    for _ in 0..200 {
        world.send(0, 0, Service::Fifo, &["g"], 10_000).unwrap();
        world.run(ms(100));
    }
    let sent = world.log.sent.len();
    world.finish();
    assert_eq!(world.delays(sent - 200..sent, &[0, 1, 2]).1, 200 * 6);
}

#[test]
fn a_daemon_that_comes_back_before_its_end_is_noticed_is_taken_at_once() {
    for seed in 0..10 {
        let mut world = settled(3, &full(3), seed);
        let since = world.now;
        world.kill_noticed(1, 0.0);
        world.start(1);
        world.run(ms(1));
        let took = world.settle(secs(2));
        world.act_for(secs(1));
        world.finish();
        assert!(world.views_since(0, since) <= 2, "{took}");
    }
}

#[test]
fn a_daemon_stopped_for_3_s_or_30_s_is_back_within_4_s() {
    for (stop, most) in [(secs(2), 0), (secs(3), 2), (secs(30), 2)] {
        let mut world = settled(3, &full(3), 6);
        world.run(secs(20));
        let since = world.now;
        world.stop(1);
        let end = world.now + stop;
        while world.now < end {
            let at = 2 * (world.rng.below(2) as usize);
            _ = world.send(at, 0, Service::Agreed, &["g0"], 100);
            world.run(ms(20));
        }
        world.go_on(1);
        world.run(ms(1));
        let took = world.settle(secs(4));
        world.act_for(secs(1));
        world.finish();
        for at in 0..3 {
            let views = world.views_since(at, since);
            assert!(views <= most, "{views} views at d{at} after {stop}, back in {took}");
        }
    }
}

#[test]
fn a_daemon_that_was_stopped_drops_no_neighbour_by_its_own_silence() {
    let mut world = settled(2, &full(2), 7);
    let since = world.now;
    world.stop(0);
    world.stop(1);
    world.run(secs(600));
    world.go_on(0);
    world.go_on(1);
    world.act_for(secs(5));
    world.finish();
    assert_eq!(world.views_since(0, since) + world.views_since(1, since), 0);
}

#[test]
fn a_clock_that_jumps_by_an_hour_changes_nothing() {
    let mut world = settled(3, &full(3), 8);
    let (since, control) = (world.now, world.traffic.control_frames);
    for at in 0..3 {
        world.act_for(secs(2));
        world.hosts[at].ahead += secs(3600);
        world.act_for(secs(2));
    }
    world.finish();
    world.assert_views(0..3, since, 0);
    let frames = world.traffic.control_frames - control;
    assert!(frames < 400, "{frames} frames of control in 17 s");
}

#[test]
fn all_daemons_killed_and_restarted_form_one_view() {
    let mut world = settled(4, &full(4), 9);
    for _ in 0..3 {
        world.act_for(secs(1));
        (0..4).for_each(|at| world.kill_noticed(at, 0.0));
        world.run(ms(500));
        (0..4).for_each(|at| world.start(at));
        let took = world.settle(secs(5));
        assert!(took < secs(5), "{took}");
        world.join_all("g0");
    }
    world.act_for(secs(1));
    world.finish();
}

#[test]
fn a_daemon_that_starts_with_its_clock_set_back_is_taken_at_once() {
    for seed in 0..10 {
        let mut world = settled(4, &[(0, 1), (1, 2), (2, 3)], seed);
        world.hosts[1].incarnation = 1000;
        for chance in [0.0, 0.5, 1.0] {
            world.kill_noticed(1, chance);
            world.hosts[1].incarnation = world.me(1).incarnation / 2;
            world.start(1);
            world.run(ms(1));
            let took = world.settle(secs(9));
            assert!(took < secs(9), "seed {seed}: {took}");
            world.join_all("g0");
            world.act_for(secs(1));
        }
        world.finish();
    }
}

#[test]
fn of_two_daemons_with_one_name_the_later_one_stays() {
    let mut world = settled(4, &[(0, 1), (1, 2), (2, 3)], 3);
    world.kill_noticed(3, 1.0);
    let twin = DaemonRun { incarnation: 99, ..world.me(0) };
    world.hosts[3].daemon = Some(Daemon::new(world.now, twin, "d0", world.settings));
    world.push(ms(10), Event::Dial { a: 2, b: 3 });
    world.run(secs(30));
    let before = world.traffic.control_frames;
    world.run(secs(60));
    let frames = world.traffic.control_frames - before;
    // Each end of three links sends two greetings per second.
    assert!((600..800).contains(&frames), "{frames} frames of control in a minute");
    assert_eq!(world.daemon(2).view().1, [twin, world.me(1), world.me(2)]);
    assert_eq!(world.daemon(0).view().1, [world.me(0)]);
}

#[test]
fn each_fault_in_the_documentation_has_its_test() {
    let page = include_str!("../../../../docs/promises.md");
    let sources = [
        include_str!("links.rs"),
        include_str!("daemons.rs"),
        include_str!("queues.rs"),
        include_str!("clients.rs"),
    ];
    let (_, table) = page.split_once("## Faults\n").expect("the page has a table of faults");
    let names: Vec<&str> = table.split('`').filter(|it| it.contains('_')).collect();
    assert!(names.len() >= 22, "{}", names.len());
    for name in names {
        let test = format!("#[test]\nfn {name}()");
        assert!(sources.iter().any(|it| it.contains(&test)), "there is no test {name}");
    }
}
