//! Delivery: receivers, trees, and load on others.

use faircast_base::{Duration, Shortfall, Time};

use super::world::World;

#[test]
fn everything_arrives_whatever_the_settings_are() {
    for (name, world) in [
        ("no loss", World::new()),
        ("1 %", World::with_loss(0.01)),
        ("5 %", World::with_loss(0.05)),
        ("solicited", World::with_loss(0.01).with("formation = \"solicit\"")),
        ("first advertised", World::with_loss(0.01).with("formation = \"both\"")),
        ("multicast repairs", World::with_loss(0.01).with("repair = \"scope\"")),
        ("unicast repairs", World::with_loss(0.01).with("repair = \"unicast\"")),
        ("as in the paper", World::with_loss(0.01).with("defaults = \"paper\"")),
        ("as in 2001", World::with_loss(0.01).with("defaults = \"jrms\", ttl = 8")),
        ("a coarse clock", World::with_loss(0.01).with("clock = \"coarse\"")),
        ("least caches", World::with_loss(0.01).with("cache_packets = 16")),
        ("round trips", World::with_loss(0.01).with("distance = \"round_trip\"")),
        ("round trips when asked", {
            let asked = "distance = \"round_trip\", formation = \"solicit\"";
            World::with_loss(0.01).with(asked)
        }),
        ("one head a site", World::with_loss(0.01).with("lan = 2")),
        ("pairs", World { options: "members_max = 2".into(), ..World::with_loss(0.01) }),
    ] {
        world.run(1).assert_source_ends_last(name);
    }
}

/// Chiu et al. 2001, section 3.1: acknowledgements of windows, and no request even with losses.
#[test]
fn a_receiver_of_the_papers_profile_acknowledges_windows_and_asks_for_nothing() {
    let world = World { sites: 1, hosts: 1, seconds: 600, ..World::with_loss(0.05) }
        .with("defaults = \"paper\"");
    let run = world.run(1);
    run.assert_whole("paper", &[]);
    let windows = run.heard.data_packets / 64;
    let seconds = run.heard.source_done.expect("the source ends").as_nanos() / 1_000_000_000;
    assert!(run.heard.acknowledgements <= windows + seconds / 3 + 5);
}

#[test]
fn a_tree_has_no_loops_and_no_head_has_more_members_than_it_may() {
    for seed in 1..=5 {
        let run = World::with_loss(0.05).run(seed);
        for second in 3..20 {
            let tree = run.tree_at(Time::ZERO + Duration::from_secs(second));
            for (host, head) in &tree {
                let way = std::iter::successors(Some(*head), |head| tree.get(head).copied());
                let levels = way.take(30).count();
                assert!(levels < 20, "seed {seed}, second {second}: m{host} in a loop, {tree:?}");
                let members = tree.values().filter(|it| *it == head).count();
                // The source takes twice the members: also receivers that need packets only it has.
                let most = if *head == 0 { 10 } else { 5 };
                assert!(members <= most, "seed {seed}: {head} has {members} members");
            }
        }
    }
}

#[test]
fn a_tree_that_is_given_is_kept_while_its_heads_are_there() {
    let given: Vec<String> = (0..4)
        .map(|site| {
            let first = site * 5 + 1;
            let (second, last) = (first + 1, first + 4);
            format!(
                "{{ node = \"m{first}\", head = \"s\" }}, \
                 {{ node = \"m{{{second}..{last}}}\", head = \"m{first}\" }}"
            )
        })
        .collect();
    let flow = format!("heads = [ {} ]", given.join(", "));
    let run = World { flow, ..World::with_loss(0.02) }.run(1);
    run.assert_whole("a given tree", &[]);
    let tree = run.tree_at(Time::MAX);
    for host in 1..=20 {
        let first = (host - 1) / 5 * 5 + 1;
        assert_eq!(tree[&host], if host == first { 0 } else { first }, "m{host}");
    }
}

#[test]
fn losses_at_one_site_are_repaired_there() {
    let mut world = World { data: "5 MB", ..World::new() };
    world.first_site_links = "loss = 0.05".into();
    let run = world.run(1);
    run.assert_whole("5 % at one site", &[]);
    // Headers of TRAM, of data, and of UDP and IP. The rest is mostly advertisements.
    let data = 5_000_000 + run.heard.data_packets * (24 + 37 + 28);
    let others: u64 = (6..=20).map(|host| run.heard.host_bytes[&host]).sum();
    let more = others as f64 / 15.0 / data as f64 - 1.0;
    assert!(more < 0.015, "other sites carried {:.2} % of repairs and control", more * 100.0);
    let of_site: u64 = (1..=5).filter_map(|host| run.heard.head_repairs.get(&host)).sum();
    assert!(of_site > 200, "{of_site} repairs by heads of the site");
    for host in 6..=20 {
        let overheard = run.overheard[&host];
        assert!(overheard.repairs * 100 < overheard.data, "m{host}: {overheard:?}");
    }
    let of_site: u64 = (1..=5).map(|host| run.overheard[&host].repairs).sum();
    assert!(of_site > 200, "{of_site} repairs at the site");
}

#[test]
fn a_late_receiver_gets_everything_or_what_is_left_as_asked() {
    let join = "join = [ { node = \"m3\", at = \"7 s\" }, { node = \"m9\", at = \"8 s\" } ]";
    let late = |options: &str| {
        let mut world = World { data: "4 MB", flow: join.into(), ..World::with_loss(0.01) };
        world.options = "members_max = 5, wait_for = 18".into();
        world.with(options).run(1)
    };
    late("late_join = \"full\"").assert_whole("full", &[]);
    for policy in ["none", "limited"] {
        let run = late(&format!("late_join = \"{policy}\", cache_packets = 300"));
        run.assert_whole(policy, &[3, 9]);
        for host in [3, 9] {
            let (delivery, _) = run.delivery(host);
            assert!((100_000..4_000_000).contains(&delivery.bytes), "{policy}: {delivery:?}");
            assert_eq!(delivery.completed, None, "{policy}: it has not everything");
        }
    }
}

#[test]
fn receivers_that_join_one_after_the_other_are_neither_removed_nor_hold_the_session_up() {
    let last = |delivery: &str, wait_for: u32, seed: u64| {
        let mut world = World { sites: 20, hosts: 1, data: "4 MB", ..World::with_loss(0.05) };
        world.seconds = 600;
        world.options = format!("wait_for = {wait_for}, delivery = \"{delivery}\"");
        let run = world.run(seed);
        let case = format!("{delivery}, seed {seed}, data waits for {wait_for}");
        run.assert_whole(&case, &[]);
        let last = (1..=20).filter_map(|host| run.completed(host)).max().unwrap();
        (case, last.as_secs_f64())
    };
    for (delivery, seeds) in [("stream", [1, 8]), ("object", [2, 4])] {
        for seed in seeds {
            let (_, together) = last(delivery, 20, seed);
            let (case, apart) = last(delivery, 1, seed);
            assert!(apart < 2.0 * together, "{case}: {apart} s, {together} s where all came first");
        }
    }
}

#[test]
fn receivers_too_slow_for_the_least_rate_are_pruned_and_nobody_else() {
    let mut world = World { sites: 5, hosts: 10, data: "10 MB", seconds: 600, ..World::new() };
    world.options = "members_max = 8, rate_min = \"300 kbit/s\"".into();
    let slow = "changes = [ { at = \"0 s\", rate = \"100 kbit/s\" } ]";
    let hopeless = [7, 23, 41];
    for host in hopeless {
        world.host_links.insert(host, slow.into());
    }
    let run = world.run(1);
    run.assert_whole("three are hopeless", &hopeless);
    for host in hopeless {
        assert_eq!(run.completed(host), None, "m{host} was too slow");
    }
    let pruned = hopeless.map(|host| (host, Shortfall::Pruned));
    assert_eq!((run.heard.named, run.heard.unnamed), (pruned.into(), 0));
}

fn at_home(world: &World, tree: &std::collections::BTreeMap<u32, u32>) -> usize {
    let site = |host: u32| (host - 1) / world.hosts;
    tree.iter().filter(|(host, head)| **head > 0 && site(**host) == site(**head)).count()
}

#[test]
fn each_site_has_one_head_and_a_second_where_that_is_full() {
    let world = World { options: "members_max = 4, lan = 2".into(), ..World::with_loss(0.01) };
    let world = World { hosts: 6, ..world };
    let run = world.run(1);
    run.assert_whole("elected", &[]);
    let tree = run.tree_at(Time::ZERO + Duration::from_secs(12));
    for site in 0..4 {
        let first = site * 6 + 1;
        let of_site = first..first + 6;
        let outside = of_site.clone().filter(|host| !of_site.contains(&tree[host])).count();
        let heads: std::collections::BTreeSet<u32> =
            of_site.clone().map(|host| tree[&host]).filter(|it| of_site.contains(it)).collect();
        assert_eq!(outside, 1, "site {site}: one has its head elsewhere, {tree:?}");
        assert!(heads.len() <= 2, "site {site}: {heads:?}");
    }
}

#[test]
fn round_trips_tell_who_is_near() {
    let mut world = World { eager: [1, 6, 11, 16].into(), ..World::with_loss(0.01) };
    world.options = "members_max = 9, head = \"never\", repair = \"unicast\", \
                     distance = \"round_trip\""
        .into();
    let run = world.run(1);
    run.assert_whole("round trips", &[]);
    let near = at_home(&world, &run.tree_at(Time::ZERO + Duration::from_secs(12)));
    assert_eq!(near, 16, "of 16 at home");
}

#[test]
fn reluctant_heads_leave_members_to_eager_ones() {
    let eager = [2, 7, 12, 17];
    let mut world = World { options: "members_max = 8".into(), ..World::with_loss(0.01) };
    world.eager = eager.into();
    let run = world.run(1);
    run.assert_whole("eager", &[]);
    let tree = run.tree_at(Time::ZERO + Duration::from_secs(12));
    // An eager host is a head once it has a head, which may be a reluctant one.
    let others = tree.iter().filter(|(host, _)| !eager.contains(host));
    let heads: std::collections::BTreeSet<u32> = others.map(|(_, head)| *head).collect();
    assert!(heads.iter().all(|head| *head == 0 || eager.contains(head)), "{heads:?}: {tree:?}");
    assert!(heads.len() > 2, "{heads:?}");
}
