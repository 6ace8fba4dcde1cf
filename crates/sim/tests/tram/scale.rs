//! Growth of a group, and the traffic at its source.

use faircast_base::{Duration, Time};

use super::world::World;

/// Group with heads of 16 members; each receiver loses 1 % of the packets independently.
fn group(sites: u32) -> World {
    let options = "members_max = 16".into();
    World { sites, hosts: 20, data: "1 MB", options, ..World::with_loss(0.01) }
}

#[test]
fn feedback_at_the_source_does_not_grow_with_the_group() {
    let acknowledgements = |sites| {
        let run = group(sites).run(1);
        run.assert_whole(&format!("{sites} sites"), &[]);
        run.heard.acknowledgements as f64 / run.heard.data_packets as f64
    };
    // With 240 receivers the source has its maximum of members, all of which are heads.
    let (small, large) = (acknowledgements(12), acknowledgements(50));
    assert!(large < small * 1.5, "{small:.2} acknowledgements a packet, and {large:.2} for 1000");
}

#[test]
fn heads_repair_what_each_receiver_has_lost_by_itself() {
    let run = group(50).run(1);
    run.assert_whole("1000 receivers", &[]);
    // Nearly every packet is lost by at least one receiver: 1 - 0.99^1000.
    let share = run.heard.source_repairs as f64 / run.heard.data_packets as f64;
    assert!(share < 0.3, "{share:.3} repairs of the source for each packet");
    let heads: u64 = run.heard.head_repairs.values().sum();
    assert!(heads as f64 > 5.0 * run.heard.data_packets as f64, "{heads} repairs by heads");
}

#[test]
fn everybody_may_join_at_the_same_instant() {
    let run = World { seconds: 300, ..group(50).with("wait_for = 1000") }.run(1);
    run.assert_whole("1000 at once", &[]);
    let firsts = run.heard.heads.iter().filter(|(_, _, head)| head.is_some());
    let joined: std::collections::BTreeMap<u32, Time> =
        firsts.rev().map(|(at, host, _)| (*host, *at)).collect();
    let last = joined.values().max().copied().unwrap_or(Time::MAX);
    assert!(joined.len() == 1000 && last < Time::ZERO + Duration::from_secs(20), "{last}");
    // The source takes 8 members that may be heads; refused receivers ask again.
    let binds = run.overheard[&0].binds;
    assert!(binds < 200, "{binds} requests at the source");
}

#[test]
fn heads_at_their_limit_have_everything_too() {
    // As many places as receivers: 2, 4, 8 and 16 heads of two members; the last have none.
    for seed in 1..=3 {
        let mut world = World { sites: 6, seconds: 600, ..World::with_loss(0.01) };
        world.options = "members_max = 2, ttl = 8".into();
        let run = world.run(seed);
        run.assert_whole(&format!("seed {seed}"), &[]);
        let tree = run.tree_at(Time::ZERO + Duration::from_secs(600));
        let full = |head: &u32| tree.values().filter(|it| *it == head).count() >= 2;
        let heads: std::collections::BTreeSet<u32> = tree.values().copied().collect();
        let full = heads.iter().filter(|head| full(head)).count();
        assert!(2 * full > heads.len(), "seed {seed}: {full} of {} are full", heads.len());
    }
}
