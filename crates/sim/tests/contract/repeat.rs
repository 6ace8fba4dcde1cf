//! Clause 7: equal seeds give equal traces, twice and on every platform.

use faircast_proto::stack::Stack;
use faircast_sim::catalog;

use crate::world::{World, protocols, run};

/// Hashes of traces and of the bytes of packets. A commit that changes a line explains the change;
/// the test prints the new lines. A protocol without a line only needs equal traces of equal seeds.
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
    let objects = worlds.clone().into_iter().map(|(name, world)| {
        let flow = "options = { delivery = \"object\" }\n".to_string();
        (format!("{name}-object"), World { flow, ..world })
    });
    worlds.extend(objects.collect::<Vec<_>>());
    worlds
}

fn fits(world: &World, protocol: Stack) -> bool {
    world.flow.is_empty() || protocol.has_option("delivery")
}

fn hash(world: &World, protocol: Stack, seed: u64) -> (String, u64) {
    let world = World { seed, ..world.clone() };
    let (outcome, heard, watched) = run(&world.scenario(protocol));
    assert!(heard.sent.len() > 100, "{}: {} packets", protocol.name(), heard.sent.len());
    let packets = watched.notes.borrow().packets.finalize().to_hex();
    (format!("{} {}", heard.hasher.hex(), &packets[..32]), outcome.event_hash)
}

#[test]
fn equal_seeds_give_equal_traces_here_and_elsewhere() {
    let (mut lines, mut known, mut wrong) = (String::new(), 0, false);
    for (name, world) in worlds() {
        for protocol in protocols().into_iter().filter(|protocol| fits(&world, *protocol)) {
            let first = hash(&world, protocol, 1);
            assert_eq!(hash(&world, protocol, 1), first, "{} in {name}", protocol.name());
            assert_ne!(hash(&world, protocol, 2), first, "{} in {name}", protocol.name());
            let start = format!("{} {name} ", protocol.name());
            if let Some(row) = GOLDEN.lines().find(|row| row.starts_with(&start)) {
                known += 1;
                wrong |= row[start.len()..] != first.0;
            }
            lines += &format!("{start}{}\n", first.0);
        }
    }
    let protocols = protocols();
    let runs =
        |row: &&str| protocols.iter().any(|it| row.split(' ').next() == Some(it.name().as_str()));
    let gone = known != GOLDEN.lines().filter(runs).count();
    assert!(!wrong && !gone, "traces differ from tests/contract/golden.txt; now they are\n{lines}");
}
