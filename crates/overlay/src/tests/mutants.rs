//! Daemons that violate one rule, and the violations that the checker reports.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use faircast_checker::Rule;

use super::{World, clients, full, ms, secs, squall, storm};
use crate::Service;
use crate::mutant::{Mutant, set};

/// Returns a run with a message that depends on one that never arrives. Both sources are lost.
fn lost_cause() -> World {
    let mut world = World::new(3, &full(3), 1);
    world.settle(secs(10));
    world.join_all("g");
    world.run(secs(1));
    world.renew();
    world.latency.insert((1, 0), secs(2));
    world.send(1, 0, Service::Agreed, &["g"], 0).unwrap();
    world.run(ms(20));
    // The clock of the first daemon passes the message.
    for _ in 0..5 {
        world.send(0, 0, Service::Agreed, &["g"], 0).unwrap();
    }
    world.run(ms(100));
    assert_eq!(world.delays(0..1, &[2]).1, 2, "the cause is known at the third daemon");
    world.send(2, 0, Service::Agreed, &["g"], 0).unwrap();
    world.run(ms(50));
    world.cut(0, 1);
    world.cut(0, 2);
    world.run(secs(8));
    world.cut.clear();
    world.latency.clear();
    world.run(secs(90));
    world
}

#[test]
fn messages_that_depend_on_what_is_lost_are_not_delivered() {
    let mut world = lost_cause();
    world.finish();
    assert_eq!(world.delays(6..7, &[0]).1, 0);
    assert_eq!(world.delays(6..7, &[1, 2]).1, 4);
}

#[test]
fn the_checker_finds_daemons_that_break_a_rule() {
    type Run = fn() -> World;
    let cases: [(Mutant, Run, Rule); 20] = [
        (Mutant::NoEarlierCells, || squall(15), Rule::R7),
        (Mutant::PrunedOrder, || squall(21), Rule::R8),
        (Mutant::HastySafe, || squall(38), Rule::R10),
        (Mutant::UnsafeSafe, || squall(1), Rule::R10),
        (Mutant::HastyOrder, || storm(0), Rule::R9),
        (Mutant::NoEnd, lost_cause, Rule::R8),
        (Mutant::TogetherByMembers, || squall(1), Rule::R4),
        (Mutant::NoFollow, || squall(41), Rule::R4),
        (Mutant::EarlyNext, || squall(393), Rule::R2),
        (Mutant::EndOfKnown, || squall(728), Rule::R10),
        (Mutant::FifoPassesDeferred, || storm(31), Rule::R7),
        (Mutant::FifoOvertakes, || squall(0), Rule::R7),
        (Mutant::NoRecovery, || squall(1), Rule::R5),
        (Mutant::DeferredAfterLeave, || storm(4), Rule::R11),
        (Mutant::NoDisconnect, || squall(0), Rule::R14),
        (Mutant::OneNumber, || storm(0), Rule::R3),
        (Mutant::TwiceOnReroute, || squall(1), Rule::R1),
        (Mutant::OldTable, || storm(0), Rule::R11),
        (Mutant::ShortCut, clients::cut_off, Rule::R13),
        (Mutant::NotToSelf, || storm(0), Rule::R6),
    ];
    let mut missed = Vec::new();
    for (mutant, run, rule) in cases {
        run().finish();
        set(Some(mutant));
        let found: BTreeSet<Rule> = run().judge().0.into_iter().map(|it| it.0).collect();
        set(None);
        if !found.contains(&rule) {
            missed.push((mutant, found));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
