//! Clause 10: every queue, table and loop that the network can grow has a limit. Machines are
//! flooded with forged packets while allocations are counted: nothing else may run in this binary.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(dead_code, reason = "the other tests of the contract use the rest of these modules")]

#[path = "contract/forge.rs"]
mod forge;
#[path = "contract/watch.rs"]
mod watch;
#[path = "contract/world.rs"]
mod world;

use std::alloc::System;

use faircast_base::{Duration, NodeId};
use faircast_proto::Destination;
use faircast_proto::catalog::scheme;
use faircast_sim::catalog;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use forge::{Forger, Victim, VictimRelay};
use watch::{Captured, Watched};
use world::{World, protocols, run};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PACKETS: u64 = 60_000;
/// Most bytes that a machine may hold after a flood. The largest tables hold 10000 packets (TCP
/// receiver), 8192 missing packets with timers (PGM receiver) or 8192 repairs (element).
const HELD_MAX: isize = 4 << 20;

fn held(region: &Region<'_, System>) -> isize {
    let change = region.change();
    change.bytes_allocated as isize - change.bytes_deallocated as isize
}

const PACES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

#[test]
fn no_flood_makes_a_machine_or_a_program_grow_without_limit() {
    let mut largest = Vec::new();
    let worlds = protocols().into_iter().flat_map(|protocol| {
        let flow = "data = \"1 MB\"\noptions = { delivery = \"object\" }\n".to_string();
        let object =
            scheme(&protocol.name()).is_some().then(|| World { flow, ..World::new(3, 10) });
        let worlds = [Some(World::new(3, 10)), object];
        worlds.map(|world| world.map(|world| (world, protocol)))
    });
    for (world, protocol) in worlds.flatten() {
        let scenario = world.scenario(protocol);
        let object = if world.flow.is_empty() { "" } else { ", an object" };
        let (_, _, heard) = run(&scenario);
        for (sender, whose) in [(true, "sender"), (false, "receiver")] {
            let real = heard.notes.borrow().captured.get(whose).cloned().unwrap_or_default();
            for pace in PACES {
                let name = format!("{}{object} {whose}, {pace} apart", protocol.name());
                let mut forger = Forger::new(1, &real);
                let watched = Watched::without_notes();
                let region = Region::new(MEMORY);
                let mut victim = Victim::new(&scenario, &watched, sender);
                victim.pass(Duration::from_millis(1), true);
                for packet in real.iter().take(30) {
                    victim.take(packet, false);
                }
                for i in 0..PACKETS {
                    victim.take(&forger.forged(i), false);
                    if pace > Duration::ZERO {
                        victim.pass(pace, true);
                    }
                }
                largest.push((held(&region), name));
            }
        }
    }
    for entry in catalog().programs {
        for protocol in protocols().into_iter().filter(|it| it.transport.multicast) {
            let world = World { program: Some(entry.name), ..World::new(3, 10) };
            let scenario = world.scenario(protocol);
            let (_, _, heard) = run(&scenario);
            let real = heard.notes.borrow().captured.get("relay").cloned().unwrap_or_default();
            let mut forger = Forger::new(1, &real);
            let watched = Watched::without_notes();
            let region = Region::new(MEMORY);
            let mut victim = VictimRelay::new(&scenario, &watched);
            for i in 0..PACKETS {
                let packet = forger.forged(i);
                victim.take(&packet, &mut forger.rng);
            }
            largest.push((held(&region), format!("{} {}", entry.name, protocol.name())));
        }
    }
    largest.sort_unstable();
    for (bytes, name) in &largest {
        println!("{bytes:>9} bytes held: {name}");
    }
    assert!(largest.iter().any(|(bytes, _)| *bytes > 100_000), "the floods fill tables");
    let (bytes, name) = largest.last().unwrap();
    assert!(*bytes <= HELD_MAX, "{name} holds {bytes} bytes");
}

impl Forger<'_> {
    fn forged(&mut self, i: u64) -> Captured {
        if self.real.is_empty() || self.rng.chance(0.1) {
            return self.packet();
        }
        let mut packet = self.real[self.rng.below(self.real.len() as u64) as usize].clone();
        packet.from = match self.rng.below(4) {
            0 => packet.from,
            _ => NodeId(self.rng.below(PACKETS) as u32),
        };
        if self.rng.chance(0.1) {
            packet.to = Destination::Node(NodeId(0));
        }
        let at = self.rng.below((packet.bytes.len() as u64 / 4).max(1)) as usize * 4;
        if let Some(word) = packet.bytes.get_mut(at..at + 4) {
            let old = u32::from_be_bytes((&*word).try_into().unwrap());
            let step = if self.rng.chance(0.5) { i / 8 } else { self.rng.below(60_000) };
            word.copy_from_slice(&old.wrapping_add(step as u32).to_be_bytes());
        }
        forge::seal(&mut packet.bytes);
        packet
    }
}
