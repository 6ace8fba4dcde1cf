//! Objects get to everybody where nothing goes wrong.

use alloc::vec::Vec;

use super::world::*;
use crate::AppEvent;
use crate::transfer::Stage;

#[test]
fn an_object_gets_to_one_and_to_ten() {
    for (receivers, content) in [(1, 100_000), (10, 100_000), (1, 1), (1, 0), (3, 6400), (2, 6401)]
    {
        let mut world = World::new(content, receivers, &Choices::default(), 1);
        world.run_until(s(60));
        world.assert_all_complete();
        assert!(world.source.said(&AppEvent::Completed), "{receivers} x {content}");
        assert_eq!(world.source.machine.status().stage, Stage::Finished);
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
