//! Objects get to everybody where nothing goes wrong.

use alloc::vec;
use alloc::vec::Vec;

use super::world::*;
use crate::AppEvent;
use crate::Machine;
use crate::catalog::SCHEMES;
use crate::object::Stage;

#[test]
fn an_object_gets_to_four_over_every_scheme_whatever_the_network_does() {
    for scheme in SCHEMES {
        let choices = Choices { scheme, wait_for: 4, ..Choices::default() };
        let mut world = World::new(200_000, 4, &choices, 3).with_network(|_, rng| {
            let late = ms(rng.below(5));
            let delays =
                if rng.chance(0.02) { vec![DELAY, DELAY + late] } else { vec![DELAY + late] };
            if rng.chance(0.05) { Fate::drop() } else { Fate { delays, damage: rng.chance(0.01) } }
        });
        world.run_until(s(600));
        world.assert_all_complete();
        assert!(world.source.said(&AppEvent::Completed), "{}", scheme.name);
        for host in &world.receivers {
            assert_eq!(host.machine.next_timeout(), None, "{}", scheme.name);
        }
    }
}

#[test]
fn an_object_gets_to_one_and_to_ten() {
    for (receivers, content) in [(1, 100_000), (10, 100_000), (1, 1), (1, 0), (3, 6400), (2, 6401)]
    {
        let mut world = World::new(content, receivers, &Choices::default(), 1);
        world.run_until(s(60));
        world.assert_all_complete();
        assert!(world.source.said(&AppEvent::Completed), "{receivers} x {content}");
        let status = world.source.machine.status();
        assert_eq!(status.stage, Stage::Finished);
        assert_eq!(status.repairs, 0, "{receivers} x {content}: nothing was lost");
        let overhead = world.overhead();
        assert!(overhead < 1.02 || content < 10_000, "{receivers} x {content}: {overhead}");
        let ends = world.source.machine.next_timeout();
        assert_eq!(ends, None, "{receivers} x {content}");
        let times: Vec<_> = world.receivers.iter().map(|host| host.completed_at()).collect();
        std::println!("{receivers} x {content}: {overhead:.4} {:?}", times[0]);
        for host in &world.receivers {
            assert_eq!(host.machine.next_timeout(), None);
        }
    }
}
