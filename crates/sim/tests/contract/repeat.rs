//! Clause 7: the same seed gives the same trace, twice and on every platform.

use faircast_scenario::ProtocolEntry;
use faircast_sim::catalog;

use crate::world::{World, protocols, run};

/// Hashes of traces, the same on every platform. Who changes what a protocol does, or the order in
/// which things happen, replaces them and says why; the test prints what to put here. A protocol
/// without a row is held to equal traces of equal seeds alone.
const GOLDEN: &str = include_str!("golden.txt");

fn worlds() -> Vec<(String, World)> {
    let mut worlds = vec![("plain".to_string(), World::new(3, 20))];
    let red = "rate = \"500 kbit/s\"\ndelay = \"20 ms\"\nqueue = { kind = \"red\", min = 3, max = 9, \
               weight = 0.01, packets = 30 }\n";
    worlds.push(("red".into(), World { down: red.into(), ..World::new(2, 20) }));
    for entry in catalog().programs {
        let world = World { program: Some(entry.name), ..World::new(20, 20) };
        worlds.push((entry.name.to_string(), world));
    }
    worlds
}

fn hash(world: &World, protocol: &ProtocolEntry, seed: u64) -> (String, u64) {
    let world = World { seed, ..world.clone() };
    let (outcome, heard, _) = run(&world.scenario(protocol));
    assert!(heard.sent.len() > 100, "{}: {} packets", protocol.name, heard.sent.len());
    (heard.hasher.hex(), outcome.event_hash)
}

#[test]
fn equal_seeds_give_equal_traces_here_and_elsewhere() {
    let (mut lines, mut known, mut wrong) = (String::new(), 0, false);
    for (name, world) in worlds() {
        for protocol in protocols() {
            let first = hash(&world, &protocol, 1);
            assert_eq!(hash(&world, &protocol, 1), first, "{} in {name}", protocol.name);
            // Losses come from the seed.
            assert_ne!(hash(&world, &protocol, 2), first, "{} in {name}", protocol.name);
            let start = format!("{} {name} ", protocol.name);
            if let Some(row) = GOLDEN.lines().find(|row| row.starts_with(&start)) {
                known += 1;
                wrong |= row[start.len()..] != first.0;
            }
            lines += &format!("{start}{}\n", first.0);
        }
    }
    let gone = known != GOLDEN.lines().count();
    assert!(!wrong && !gone, "traces differ from tests/contract/golden.txt; now they are\n{lines}");
}
