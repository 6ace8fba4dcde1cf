//! End of a session: every receiver is complete or named by the source, at any depth.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Duration, Shortfall, Time};

use super::liars::Lie;
use super::world::{Run, World};

type Tree = BTreeMap<u32, u32>;

fn tree(seed: u64) -> Tree {
    World::larger().run(seed).tree_at(Time::ZERO + Duration::from_secs(6))
}

fn heads(tree: &Tree) -> Vec<u32> {
    let heads: BTreeSet<u32> = tree.values().copied().filter(|head| *head != 0).collect();
    heads.into_iter().collect()
}

fn without(hosts: &[u32], seconds: u32, seed: u64) -> Run {
    let mut world = World::larger();
    for host in hosts {
        let outage = format!("{{ from = \"6 s\", to = \"{} s\" }}", 6 + seconds);
        world.host_links.insert(*host, format!("loss = 0.01\noutages = [ {outage} ]"));
    }
    world.run(seed)
}

#[track_caller]
fn assert_all_known(run: &Run, case: &str) -> u32 {
    assert!(run.heard.source_done.is_some(), "{case}: the source knows that it is over");
    let receivers = run.outcome.deliveries[0].len() as u32;
    let short: Vec<u32> = (1..=receivers).filter(|it| run.completed(*it).is_none()).collect();
    let named = &run.heard.named;
    assert!(named.keys().all(|it| short.contains(it)), "{case}: {named:?}, only {short:?} lack");
    let unnamed = short.iter().filter(|host| !named.contains_key(host)).count() as u32;
    let counted = run.heard.unnamed;
    assert!(unnamed <= counted, "{case}: {named:?} and {counted}, and {short:?} lack something");
    unnamed
}

#[test]
fn where_nobody_is_lost_nobody_is_named() {
    for seed in 1..=3 {
        let run = without(&[], 0, seed);
        run.assert_whole(&format!("seed {seed}"), &[]);
        assert_all_known(&run, &format!("seed {seed}"));
        assert_eq!(run.heard.unnamed, 0, "seed {seed}");
    }
}

#[test]
fn who_dies_is_named_and_nobody_else() {
    for seed in 1..=4 {
        let tree = tree(seed);
        let heads = heads(&tree);
        let deep = tree.iter().find(|(host, head)| **head != 0 && !heads.contains(host));
        for (case, victim) in [("deep in the tree", *deep.unwrap().0), ("a head", heads[0])] {
            let case = format!("seed {seed}, {case}, m{victim}");
            let run = without(&[victim], 1000, seed);
            run.assert_whole(&case, &[victim]);
            let want = BTreeMap::from([(victim, Shortfall::Silent)]);
            assert_eq!((run.heard.named, run.heard.unnamed), (want, 0), "{case}");
        }
    }
}

#[test]
fn half_of_all_heads_that_die_at_once_and_heads_with_all_their_members_are_named_or_counted() {
    for seed in 1..=8 {
        let tree = tree(seed);
        let heads = heads(&tree);
        let half = heads[..heads.len().div_ceil(2)].to_vec();
        let members = tree.iter().filter(|(_, head)| **head == heads[0]).map(|(host, _)| *host);
        let with_members: Vec<u32> = members.chain([heads[0]]).collect();
        for (case, victims) in [("half", half), ("a head and its members", with_members)] {
            let case = format!("seed {seed}, {case}, {victims:?}");
            let run = without(&victims, 1000, seed);
            run.assert_whole(&case, &victims);
            let unnamed = assert_all_known(&run, &case);
            assert!(run.heard.unnamed <= unnamed + 1, "{case}: {}", run.heard.unnamed);
        }
    }
}

#[test]
fn who_was_given_up_and_comes_back_is_not_named() {
    for seed in 1..=8 {
        let head = heads(&tree(seed))[0];
        let seconds = 5 + 2 * seed as u32;
        assert_all_known(&without(&[head, 20], seconds, seed), &format!("seed {seed}, m{head}"));
    }
}

#[test]
fn who_leaves_before_the_end_is_named() {
    let mut world = World::larger();
    world.flow = "join = [ { node = \"m7\", at = \"0 s\", leave = \"6 s\" } ]".into();
    let run = world.run(1);
    run.assert_whole("m7 leaves", &[7]);
    let want = BTreeMap::from([(7, Shortfall::Left)]);
    assert_eq!((run.heard.named, run.heard.unnamed), (want, 0));
}

#[test]
fn a_member_that_accuses_others_all_the_time_is_believed_of_few() {
    for host in [3, 7] {
        let mut world = World::larger();
        world.liars.insert(host, Lie::Accuses);
        let run = world.run(1);
        run.assert_whole(&format!("m{host} accuses"), &[]);
        assert!(!run.heard.refused.contains_key("Malformed"), "{:?}", run.heard.refused);
        let (named, unnamed) = (run.heard.named, run.heard.unnamed);
        assert!(named.is_empty() && (1..=100).contains(&unnamed), "m{host}: {unnamed}");
    }
}
