//! Tests with random faults that stop: then everything must arrive, reproducibly.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{Duration, Event};
use proptest::prelude::*;

use super::world::{DELAY, Fate, GROUP, World, at, in_memory, object, source_config};
use crate::pgm::ReceiverConfig;

#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: f64,
    duplication: f64,
    damage: f64,
    jitter_ms: u64,
    receivers: usize,
    packets: usize,
    seed: u64,
}

fn faults() -> impl Strategy<Value = Faults> {
    let network = (0.0..0.5, 0.0..0.3, 0.0..0.3, 0u64..100);
    let session = (1usize..5, 0usize..300, any::<u64>());
    (network, session).prop_map(|((loss, duplication, damage, jitter_ms), session)| {
        let (receivers, packets, seed) = session;
        Faults { loss, duplication, damage, jitter_ms, receivers, packets, seed }
    })
}

fn world(faults: Faults) -> World {
    let receiver = ReceiverConfig::new(GROUP);
    let mut source = source_config();
    // No receiver may miss the first SPM or data, or the session would begin later for it.
    source.settings.linger = Duration::from_secs(20);
    let content = in_memory(faults.packets * 100);
    let mut world = World::new(source, content, vec![receiver; faults.receivers], faults.seed);
    world.network = Box::new(move |hop, rng| {
        let calm = hop.now >= at(3_000) || hop.now == at(0);
        if calm {
            return Fate::pass();
        }
        if rng.chance(faults.loss) {
            return Fate::drop();
        }
        let mut delay = || DELAY + Duration::from_micros(rng.below(1 + faults.jitter_ms * 1000));
        let mut delays = vec![delay()];
        let second = delay();
        if rng.chance(faults.duplication) {
            delays.push(second);
        }
        Fate { delays, damage: rng.chance(faults.damage) }
    });
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn after_the_faults_stop_everything_arrives(faults in faults()) {
        let mut world = world(faults);
        world.run_until(at(120_000));
        let want = object(faults.packets * 100);
        for host in &world.receivers {
            prop_assert!(host.completed(), "{:?}", host.last_word());
            prop_assert!(host.payload == want);
            prop_assert_eq!(host.lost(), 0);
            let delivered = host.log.count(|e| matches!(e, Event::Delivered { .. }));
            prop_assert_eq!(delivered, faults.packets);
        }
        prop_assert!(world.source.completed());
    }
}

#[test]
fn the_same_seed_gives_the_same_packets_at_the_same_times() {
    let run = |seed| {
        let faults = Faults {
            loss: 0.2,
            duplication: 0.1,
            damage: 0.1,
            jitter_ms: 30,
            receivers: 3,
            packets: 200,
            seed,
        };
        let mut world = world(faults);
        world.run_until(at(60_000));
        let sent = world.sent.iter().map(|sent| (sent.at, sent.bytes.clone()));
        sent.collect::<Vec<_>>()
    };
    let first = run(7);
    assert!(first.len() > 300);
    assert!(first == run(7) && first != run(8));
}
