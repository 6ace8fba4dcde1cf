//! Tests of membership: joins, waits, and departures.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::world::*;
use crate::object::ObjectSourceInput;
use crate::object::wire::Status;
use crate::object::{MemberState, Stage};
use crate::pgm::wire::OptionType;

fn states(world: &World) -> Vec<MemberState> {
    world.source.machine.status().members.iter().map(|member| member.state).collect()
}

#[test]
fn a_full_disk_ends_it_for_one_and_the_source_knows_why() {
    let mut world = World::new(300_000, 2, &Choices::default(), 1);
    let full = world.add(Disk { full_after: Some(50_000), ..Disk::default() }, s(0));
    world.run_until(s(60));
    assert!(world.receivers[full].said(&FlowEvent::Gone));
    for i in 0..2 {
        assert!(world.receivers[i].said(&FlowEvent::Completed) && world.is_intact(i));
    }
    assert!(world.source.said(&FlowEvent::Completed));
    let status = world.source.machine.status();
    assert_eq!(states(&world), [MemberState::Done, MemberState::Done, MemberState::Failed]);
    assert_eq!(status.members[full].reason, "the disk is full");
    assert_eq!(status.members[full].name, "receiver 12");
    assert_eq!(world.receivers[full].machine.status().stage, Stage::Failed);
}

#[test]
fn who_has_come_and_cannot_take_it_keeps_nobody_waiting() {
    let choices = Choices { wait_for: 2, ..Choices::default() };
    let mut world = World::new(300_000, 1, &choices, 8);
    world.add(Disk { full_after: Some(0), ..Disk::default() }, s(0));
    world.run_until(s(30));
    assert_eq!(states(&world), [MemberState::Done, MemberState::Failed]);
    assert!(world.source.said(&FlowEvent::Completed) && world.is_intact(0));
    let mut none = World::new(300_000, 0, &Choices::default(), 8);
    none.add(Disk { full_after: Some(0), ..Disk::default() }, s(0));
    none.run_until(s(30));
    assert!(none.source.said(&FlowEvent::Gone), "nobody is left");
}

#[test]
fn a_source_says_since_when_it_sends_who_limits_it_and_what_was_there() {
    let mut world = World::new(1_500_000, 3, &Choices::default(), 9);
    world.run_until(s(3));
    let status = world.source.machine.status();
    let begun = status.begun.unwrap();
    let after = |member: &crate::object::MemberStatus| member.done.is_none_or(|at| at > begun);
    assert!(begun > s(0) && status.members.iter().all(after), "{status:?}");
    assert!(status.members.iter().all(|member| member.found == 0), "{status:?}");
    let limiting = status.limiting.unwrap();
    assert!(status.members.iter().any(|member| member.reporter == limiting), "{status:?}");
}

#[test]
fn who_vanishes_is_given_up_and_who_leaves_is_not_waited_for() {
    let give_up = Duration::from_secs(8);
    let choices = Choices { give_up, ..Choices::default() };
    let mut world = World::new(300_000, 3, &choices, 2).with_network(losing_if(|hop, _| {
        let vanished = NodeId(11);
        hop.now > s(1) && (hop.from == vanished || hop.to == vanished)
    }));
    world.spacing = ms(1);
    world.run_until(s(2));
    world.close_receiver(2);
    world.run_until(s(3));
    let want = [MemberState::Receiving, MemberState::Receiving, MemberState::Left];
    assert_eq!(states(&world), want);
    world.run_until(s(60));
    assert_eq!(states(&world), [MemberState::Done, MemberState::Lost, MemberState::Left]);
    assert!(world.source.said(&FlowEvent::Completed));
    let done = world.receivers[0].completed_at().unwrap();
    let ended = world.source.completed_at().unwrap();
    assert!(ended < s(1) + give_up + Duration::from_secs(8), "{done} {ended}");
}

#[test]
fn who_is_dismissed_is_not_waited_for_and_may_come_back() {
    let mut world =
        World::new(300_000, 2, &Choices::default(), 7).with_network(losing_if(|hop, _| {
            let vanished = NodeId(11);
            hop.now > s(1) && hop.now < s(3) && [hop.from, hop.to].contains(&vanished)
        }));
    world.spacing = ms(10);
    world.run_until(s(2));
    let dismiss = |world: &mut World| {
        let now = world.now;
        let id = world.source.machine.status().members[1].id;
        world
            .source
            .act(now, |machine, cx| machine.handle_input(cx, ObjectSourceInput::Dismiss { id }));
    };
    dismiss(&mut world);
    assert_eq!(states(&world), [MemberState::Receiving]);
    world.run_until(s(60));
    assert_eq!(states(&world), [MemberState::Done; 2], "it was only silent");
    world.assert_all_complete();
    let mut gone =
        World::new(300_000, 2, &Choices::default(), 7).with_network(losing_if(|hop, _| {
            hop.now > s(1) && [hop.from, hop.to].contains(&NodeId(11))
        }));
    gone.run_until(s(2));
    dismiss(&mut gone);
    gone.run_until(s(20));
    assert_eq!(states(&gone), [MemberState::Done]);
    assert!(gone.source.completed_at().is_some_and(|at| at < s(10)), "nobody is waited for");
}

#[test]
fn who_is_closed_when_done_is_heard_though_its_last_word_is_lost() {
    let mut lost = 0;
    let mut world =
        World::new(300_000, 2, &Choices::default(), 9).with_network(losing_if(move |hop, _| {
            let option = hop.packet.options.find(OptionType::MEMBER);
            let done = hop.to == SOURCE && option.is_some_and(|option| option.value[1] & 0x7f == 2);
            lost += u32::from(done);
            done && lost == 1
        }));
    let mut closed = [false; 2];
    for step in 0..4000 {
        world.run_until(Time::ZERO + ms(step));
        for (i, closed) in closed.iter_mut().enumerate() {
            let done = world.receivers[i].machine.status().stage == Stage::Finished;
            if done && !core::mem::replace(closed, true) {
                world.close_receiver(i);
            }
        }
    }
    assert_eq!(states(&world), [MemberState::Done; 2]);
    assert!(world.source.machine.next_timeout().is_none());
}

fn farewell(mut world: World) -> Duration {
    while world.source.machine.next_timeout().is_some() {
        let soon = world.now + ms(10);
        assert!(soon < s(60), "it ends");
        world.run_until(soon);
    }
    world.assert_all_complete();
    world.now.since(world.source.completed_at().unwrap())
}

#[test]
fn a_source_ends_when_all_know_that_it_knows() {
    let world = || World::new(300_000, 3, &Choices::default(), 9);
    assert!(farewell(world()) < ms(100));
    // A receiver without a confirmation may need the announcement of the end.
    let deaf = world().with_network(losing_if(|hop, _| {
        let option = hop.packet.options.find(OptionType::MEMBER);
        let noted = option.is_some_and(|option| option.value[1] == Status::Done as u8);
        let unheard = noted || hop.has(OptionType::FIN);
        unheard && hop.to == NodeId(11)
    }));
    assert!(farewell(deaf) >= Duration::from_secs(1));
}

#[test]
fn nothing_is_sent_before_enough_are_there_or_it_is_told_to_begin() {
    let choices = Choices { wait_for: 3, ..Choices::default() };
    let mut world = World::new(100_000, 2, &choices, 3);
    world.run_until(s(10));
    let status = world.source.machine.status();
    assert_eq!((status.stage, status.members.len()), (Stage::Gathering, 2));
    assert!(world.source.data_sent < 10, "nothing but the manifest");
    let mut told = World::new(100_000, 2, &choices, 3);
    told.run_until(s(10));
    let now = told.now;
    told.source.act(now, |machine, cx| machine.handle_input(cx, ObjectSourceInput::Begin));
    told.complete_by(s(40));
    world.add(Disk::default(), s(10));
    world.complete_by(s(40));
}

#[test]
fn closing_the_source_tells_everybody() {
    let mut world = World::new(600_000, 2, &Choices::default(), 4);
    world.run_until(s(1));
    world.close_source();
    world.run_until(s(10));
    assert!(world.source.said(&FlowEvent::Gone));
    assert_eq!(world.source.machine.status().stage, Stage::Failed);
    for host in &world.receivers {
        assert!(host.said(&FlowEvent::Gone));
        let reason = host.machine.status().reason.unwrap();
        assert!(reason.contains("ended"), "{reason}");
    }
}

#[test]
fn without_a_source_a_receiver_waits_and_then_gives_up_where_one_was() {
    let mut world = World::new(600_000, 1, &Choices::default(), 5)
        .with_network(losing_if(|hop, _| hop.now > s(1)));
    world.run_until(s(1000));
    assert!(world.receivers[0].said(&FlowEvent::Gone));
    assert_eq!(states(&world), [MemberState::Lost]);
    assert!(world.source.said(&FlowEvent::Gone), "nobody has got it");
}

fn with_a_slow_one(choices: &Choices) -> World {
    World::new(1_500_000, 4, choices, 6).with_network(losing_if(|hop, rng| {
        let slow = hop.to == NodeId(13) && hop.is_data();
        slow && rng.chance(0.3)
    }))
}

#[test]
fn who_cannot_keep_up_is_served_after_the_others() {
    let patient = &mut with_a_slow_one(&Choices::default());
    patient.run_to_end(s(3000));
    patient.assert_all_complete();
    let choices = Choices { slow: floor(1_000_000), ..Choices::default() };
    let mut world = with_a_slow_one(&choices);
    let mut deferred = Vec::new();
    for second in 1..14 {
        world.run_until(s(second));
        let found = states(&world).iter().position(|state| *state == MemberState::Deferred);
        deferred.extend(found);
    }
    assert!(!deferred.is_empty(), "{:?}", world.source.machine.status());
    assert!(deferred.iter().all(|which| *which == 3), "the right one: {deferred:?}");
    world.complete_by(s(3000));
    let at = |world: &World, i: usize| world.receivers[i].completed_at().unwrap();
    assert!((0..3).all(|i| at(&world, i) < at(&world, 3)));
    let gain = at(patient, 0).as_secs_f64() / at(&world, 0).as_secs_f64();
    assert!(gain > 1.5, "the others gain: {gain}");
    assert_eq!(states(&world), [MemberState::Done; 4]);
}

#[test]
fn who_comes_late_behind_a_slow_link_is_heard_of_soon() {
    let late = NodeId(11);
    let mut waits = Vec::new();
    for seed in 0..30 {
        // The late receiver gets one packet in six, including SPMs and answers.
        let mut world = World::new(8_000_000, 1, &Choices::default(), seed)
            .with_network(losing_if(move |hop, rng| hop.to == late && rng.chance(5.0 / 6.0)));
        world.spacing = ms(1);
        world.add(Disk::default(), s(2));
        let elected = |world: &World| world.source.log.representatives.contains(&Some(late));
        world.run_until(s(2));
        assert!(world.source.data_sent > 500 && world.receivers[0].app.is_empty());
        let mut wait = 0;
        while !elected(&world) && wait < 60_000 {
            wait += 20;
            world.run_until(s(2) + ms(wait));
        }
        waits.push(wait);
    }
    waits.sort_unstable();
    // The rest is the path delay, and the spread of first messages.
    assert!(waits[15] <= 200 && waits[29] <= 1000, "{waits:?}");
}
