//! Tests of receivers that long packets do not reach.

use faircast_base::{Duration, NodeId, Rng};

use super::world::*;
use crate::object::{MemberState, PathLimit};
use crate::world::FIRST_RECEIVER;

const FIRST: NodeId = NodeId(FIRST_RECEIVER);

/// Returns a network that loses packets above `limit` to the first receiver, for some seconds.
fn hole(limit: usize, times: core::ops::Range<u64>) -> impl FnMut(&Hop<'_>, &mut Rng) -> Fate {
    move |hop, _| {
        let open = hop.now >= s(times.start) && hop.now < s(times.end);
        if open && hop.to == FIRST && hop.len > limit { Fate::drop() } else { Fate::pass() }
    }
}

fn choices() -> Choices {
    Choices { symbol: 1000, wait_for: 2, ..Choices::default() }
}

fn stalling(seconds: u64) -> Choices {
    Choices { stall_max: Some(Duration::from_secs(seconds)), ..choices() }
}

fn known(world: &World) -> (MemberState, Option<PathLimit>) {
    let status = world.source.machine.status();
    let member = status.members.into_iter().find(|member| member.node == FIRST).unwrap();
    (member.state, member.path)
}

#[test]
fn both_ends_know_what_arrives_and_the_others_go_on() {
    for limit in [400, 576, 1000] {
        let mut world =
            World::new(3_000_000, 2, &stalling(30), 1).with_network(hole(limit, 0..1000));
        world.run_until(s(9));
        let found = world.receivers[0].machine.status().path.unwrap();
        assert_eq!(found.arrives as usize, limit);
        assert!(found.sent > 1000);
        assert_eq!(known(&world).1, Some(found));
        world.run_until(s(20));
        assert!(world.receivers[1].said(&FlowEvent::Completed), "{limit}");
        world.run_until(s(90));
        let status = world.source.machine.status();
        let first = status.members.iter().find(|member| member.node == FIRST).unwrap();
        assert_eq!((first.state, &first.reason), (MemberState::Failed, &found.advice()));
        let status = world.receivers[0].machine.status();
        assert!(status.failure.stalled && status.reason == Some(found.advice()), "{status:?}");
        assert!(world.source.said(&FlowEvent::Completed), "one has it all");
    }
}

#[test]
fn who_does_not_get_the_manifest_for_its_length_holds_up_nobody_for_ever() {
    let mut world = World::new(300_000, 2, &stalling(30), 5).with_network(hole(260, 0..1000));
    world.run_until(s(12));
    let (state, path) = known(&world);
    assert_eq!((state, path.map(|path| path.arrives)), (MemberState::Joined, Some(260)));
    assert!(!world.receivers[1].said(&FlowEvent::Completed), "two are waited for");
    world.run_until(s(90));
    assert_eq!(known(&world).0, MemberState::Failed);
    assert!(world.receivers[1].said(&FlowEvent::Completed));
    assert!(world.source.said(&FlowEvent::Completed));
}

#[test]
fn a_hole_that_opens_and_closes_again_costs_time_alone() {
    let mut world = World::new(12_000_000, 2, &stalling(60), 2).with_network(hole(700, 1..20));
    world.run_until(s(12));
    assert_eq!(known(&world).1.map(|path| path.arrives), Some(700));
    world.complete_by(s(200));
    assert_eq!(known(&world), (MemberState::Done, None));
}

#[test]
fn a_hole_on_the_way_back_stops_nobody() {
    let network = |hop: &Hop<'_>, rng: &mut Rng| {
        let back = hop.from == FIRST && hop.len > 420;
        let lost = hop.is_data() && rng.chance(0.2);
        if back || lost { Fate::drop() } else { Fate::pass() }
    };
    let mut world = World::new(6_000_000, 2, &stalling(60), 3).with_network(network);
    world.complete_by(s(900));
}

#[test]
fn losses_that_have_nothing_to_do_with_lengths_are_not_blamed_on_them() {
    let mut world = World::new(300_000, 2, &choices(), 4).with_network(losing(0.4));
    for t in 1..600 {
        world.run_until(s(t));
        let path = world.receivers[0].machine.status().path;
        assert_eq!(path, None, "{t} s");
    }
    world.assert_all_complete();
}
