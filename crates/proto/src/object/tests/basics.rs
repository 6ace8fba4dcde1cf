//! Tests of objects without faults.

use alloc::vec;

use super::growing::{Flow, piped};
use super::world::*;
use crate::catalog::SCHEMES;
use crate::object::{Fec, Stage};

#[test]
fn an_object_and_a_pipe_get_to_four_over_every_scheme_whatever_the_network_does() {
    for (scheme, pipe) in SCHEMES.iter().flat_map(|scheme| [(scheme, false), (scheme, true)]) {
        let fec = if pipe { Fec::Ratio(0.1) } else { Fec::Auto };
        let choices = Choices { scheme, wait_for: 4, fec, ..Choices::default() };
        let (world, flow) = match pipe {
            true => piped(200_000, 4, &choices, 3),
            false => (World::new(200_000, 4, &choices, 3), Flow::default()),
        };
        let mut world = world.with_network(move |_, rng| {
            let late = DELAY + ms(rng.below(if pipe { 25 } else { 5 }));
            let delays = if rng.chance(0.02) { vec![DELAY, late] } else { vec![late] };
            if rng.chance(0.05) { Fate::drop() } else { Fate { delays, damage: rng.chance(0.01) } }
        });
        flow.write_all(&mut world, 10_000);
        world.complete_by(s(600));
        let case = alloc::format!("{}, pipe: {pipe}", scheme.name);
        assert!(world.source.said(&FlowEvent::Completed), "{case}");
        for host in &world.receivers {
            assert_eq!(host.machine.next_timeout(), None, "{case}");
        }
    }
}

#[test]
fn an_object_gets_to_one_and_to_ten() {
    for (receivers, content) in [(1, 100_000), (10, 100_000), (1, 1), (1, 0), (3, 6400), (2, 6401)]
    {
        let mut world = World::new(content, receivers, &Choices::default(), 1);
        world.complete_by(s(60));
        assert!(world.source.said(&FlowEvent::Completed), "{receivers} x {content}");
        let status = world.source.machine.status();
        assert_eq!(status.stage, Stage::Finished);
        assert_eq!(status.packets.repairs, 0, "{receivers} x {content}: nothing was lost");
        let overhead = world.overhead();
        assert!(overhead < 1.02 || content < 10_000, "{receivers} x {content}: {overhead}");
        let ends = world.source.machine.next_timeout();
        assert_eq!(ends, None, "{receivers} x {content}");
        for host in &world.receivers {
            assert_eq!(host.machine.next_timeout(), None);
        }
    }
}
