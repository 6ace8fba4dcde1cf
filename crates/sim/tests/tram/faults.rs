//! Faults in the middle of a session, after which every remaining receiver has everything.

use faircast_base::{Duration, Shortfall, Time};

use super::liars::Lie;
use super::world::World;

fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

fn dead(seconds: u32) -> String {
    format!("outages = [ {{ from = \"6 s\", to = \"{} s\" }} ]", 6 + seconds)
}

/// Returns the heads of a session at second 6; later faults do not affect it until then.
fn heads(world: &World, seed: u64) -> Vec<u32> {
    let heads = world.run(seed).heads_at(at(6.0));
    assert!(heads.len() >= 3, "{heads:?}");
    heads
}

#[test]
fn a_head_that_dies_is_left_for_another() {
    for seed in 1..=3 {
        let mut world = World::larger();
        let victim = heads(&world, seed)[0];
        let keys = format!("loss = 0.01\n{}", dead(1000));
        world.host_links.insert(victim, keys);
        let run = world.run(seed);
        run.assert_whole(&format!("seed {seed}, m{victim}"), &[victim]);
        let after = run.tree_at(at(60.0));
        assert!(after.values().all(|head| *head != victim), "{after:?}");
    }
}

#[test]
fn a_member_that_falls_silent_holds_the_session_up_for_seconds_and_not_until_it_has_crept_on() {
    for (victim, seed) in (1..=3).flat_map(|victim| (1..=4).map(move |seed| (victim, seed))) {
        let mut world = World { sites: 1, hosts: 3, data: "12 MB", ..World::new() };
        world.options = "wait_for = 3, delivery = \"object\"".into();
        let usual = world.run(seed).heard.source_done.expect("nobody is silent").as_secs_f64();
        world.host_links.insert(victim, dead(14));
        let run = world.run(seed);
        let case = format!("m{victim} falls silent, seed {seed}, usually {usual} s");
        assert!(run.completed(victim).is_some(), "{case}");
        let others = (1..=3).filter(|host| *host != victim);
        let last = others.map(|host| run.completed(host).expect("it is there")).max();
        let last = last.map_or(0.0, Time::as_secs_f64);
        assert!(last < usual + 12.0, "{case}: {last} s");
    }
}

#[test]
fn a_head_that_stands_still_for_ten_seconds_has_everything_too() {
    for seed in 1..=3 {
        let mut world = World::larger();
        let victim = heads(&world, seed)[0];
        world.host_links.insert(victim, format!("loss = 0.01\n{}", dead(10)));
        world.run(seed).assert_whole(&format!("seed {seed}, m{victim}"), &[]);
    }
}

#[test]
fn a_site_that_is_cut_off_for_ten_seconds_has_everything_too() {
    let mut world = World::larger();
    world.first_site_links = format!("loss = 0.01\n{}", dead(10));
    world.run(1).assert_whole("cut off", &[]);
}

#[test]
fn everything_arrives_through_heavy_loss_and_long_ways() {
    let lossy = World { data: "300 kB", seconds: 600, ..World::with_loss(0.2) };
    lossy.run(1).assert_whole("20 % on all links of hosts", &[]);
    let mut long = World { data: "300 kB", seconds: 600, ..World::with_loss(0.1) };
    for host in 1..=long.receivers() {
        let keys = "loss = 0.1\nchanges = [ { at = \"0 s\", delay = \"250 ms\" } ]";
        long.host_links.insert(host, keys.into());
    }
    long.run(1).assert_whole("10 % and 250 ms", &[]);
}

#[test]
fn damaged_doubled_and_disordered_packets_do_no_harm() {
    let keys = "corrupt = 0.02\nduplicate = 0.1\nreorder = { share = 0.02, delay = \"5 ms\" }";
    let world = World {
        hosts_links: keys.into(),
        first_site_links: keys.into(),
        seconds: 300,
        ..World::new()
    };
    let run = world.run(1);
    run.assert_whole("damaged", &[]);
    assert!(run.heard.refused["Checksum"] > 100, "{:?}", run.heard.refused);
}

#[test]
fn one_may_join_every_second() {
    let joins: Vec<String> =
        (2..=20).map(|host| format!("{{ node = \"m{host}\", at = \"{host} s\" }}")).collect();
    let mut world = World { data: "14 MB", seconds: 300, ..World::with_loss(0.01) };
    world.flow = format!("join = [ {} ]", joins.join(", "));
    world.options = "members_max = 5, wait_for = 1".into();
    world.run(1).assert_whole("a join a second", &[]);
}

fn with_a_liar(lie: Lie, host: u32, options: &str) -> super::world::Run {
    let mut world = World { seconds: 300, options: options.into(), ..World::with_loss(0.01) };
    world.liars.insert(host, lie);
    let run = world.run(1);
    run.assert_whole(&format!("m{host}: {lie:?}"), &[host]);
    run
}

#[test]
fn a_member_that_never_acknowledges_holds_nobody_up_for_long() {
    let whole = World::with_loss(0.01).run(1).heard.source_done.unwrap();
    let run = with_a_liar(Lie::NeverAcknowledges, 7, "members_max = 5, pruning = \"off\"");
    let done = run.heard.source_done.unwrap();
    // Missed hellos before the head is given up, and repeated requests for a new place.
    assert!(done < whole + Duration::from_secs(60), "{done:?} instead of {whole:?}");
}

#[test]
fn a_member_that_stands_still_is_removed_though_nobody_is_pruned() {
    // The source cannot know of receivers below a liar that reports none.
    let options = "members_max = 5, pruning = \"off\", gather = \"8 s\", wait_for = 15";
    for host in [1, 7] {
        let run = with_a_liar(Lie::StandsStill, host, options);
        let heads = run.heard.heads.iter().filter(|change| change.1 == host);
        assert!(heads.filter(|change| change.2.is_none()).count() > 0, "m{host} was a member");
    }
}

#[test]
fn acknowledgements_that_cannot_be_true_are_counted_and_change_nothing() {
    let run = with_a_liar(Lie::Absurd, 7, "members_max = 30");
    let absurd = run.heard.refused["Absurd"];
    // As many as true acknowledgements, except those that are plausible by chance at the beginning.
    assert!(absurd > 50, "{absurd}");
    assert!(run.completed(7).is_some(), "what it says truly counts");
    let honest = World { options: "members_max = 30".into(), ..World::with_loss(0.01) }.run(1);
    let (with, without) = (run.heard.source_done.unwrap(), honest.heard.source_done.unwrap());
    assert!(with.as_secs_f64() < 1.5 * without.as_secs_f64(), "{with:?} instead of {without:?}");
}

#[test]
fn a_head_that_serves_nothing_is_left() {
    let mut world = World::larger();
    let victim = heads(&world, 1)[0];
    world.liars.insert(victim, Lie::ServesNothing);
    let run = world.run(1);
    run.assert_whole(&format!("m{victim} serves nothing"), &[victim]);
    let members: Vec<_> = run.heard.heads.iter().filter(|it| it.2 == Some(victim)).collect();
    assert!(!members.is_empty(), "it attracted somebody");
    let tree = run.tree_at(Time::MAX);
    assert!(tree.values().all(|head| *head != victim), "{tree:?}");
}

#[test]
fn what_is_obsolete_is_repaired_no_more_and_waited_for_by_nobody() {
    let world = World { data: "14 MB", seconds: 300, ..World::with_loss(0.01) };
    let mut world = world.with("obsolete_after = 150, right_edge = \"plain\"");
    world.host_links.insert(7, "outages = [ { from = \"6 s\", to = \"20 s\" } ]".into());
    let run = world.run(1);
    run.assert_whole("but for the one that was away", &[7]);
    assert!(run.heard.abandoned[&7] > 0, "{:?}", run.heard.abandoned);
    let (delivery, _) = run.delivery(7);
    assert!(delivery.bytes > 6_000_000, "it goes on: {delivery:?}");
    assert!(delivery.lost_packets > 0 && delivery.completed.is_none(), "{delivery:?}");
    assert_eq!((run.heard.named, run.heard.unnamed), ([(7, Shortfall::Gaps)].into(), 0));
}

#[test]
fn heads_whose_caches_are_full_wait_and_lose_nothing() {
    let small = World { data: "1 MB", seconds: 600, ..World::with_loss(0.1) };
    let run = small.with("cache_packets = 16").run(1);
    run.assert_whole("small caches", &[]);
}
