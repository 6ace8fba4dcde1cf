//! Clause 5: no input bytes cause a panic, and unusable input is recorded in the trace.

use faircast_base::Duration;
use faircast_sim::catalog;

use crate::forge::{Forger, Victim, VictimRelay, hears};
use crate::watch::{Captured, Watched};
use crate::world::{World, protocols, run};

const ROUNDS: u64 = 25;
const STEPS: u64 = 300;

fn captured(watched: &Watched, whose: &str) -> Vec<Captured> {
    watched.notes.borrow().captured.get(whose).cloned().unwrap_or_default()
}

#[test]
fn no_bytes_at_any_time_break_a_machine() {
    for protocol in protocols() {
        let scenario = World::new(3, 10).scenario(protocol);
        let (_, _, heard) = run(&scenario);
        for sender in [true, false] {
            let whose = if sender { "sender" } else { "receiver" };
            let real = captured(&heard, whose);
            assert_eq!(real.len() > 20, hears(protocol, sender), "{} {whose}", protocol.name());
            let (mut refused, mut other) = (0, 0);
            for seed in 0..ROUNDS {
                println!("{} {whose}, seed {seed}", protocol.name());
                let mut forger = Forger::new(seed, &real);
                let mut victim = Victim::new(&scenario, &Watched::default(), sender);
                torment(&mut forger, &mut victim);
                refused += victim.said.refused;
                other += victim.said.other;
            }
            assert!(refused > ROUNDS * STEPS / 20, "{} {whose}: {refused}", protocol.name());
            assert!(other > 0, "{} {whose} did nothing at all", protocol.name());
        }
    }
}

fn torment(forger: &mut Forger<'_>, victim: &mut Victim) {
    let from_start = forger.rng.chance(0.5);
    victim.pass(Duration::from_millis(1), true);
    for packet in forger.real.iter().take(if from_start { 30 } else { 0 }) {
        victim.pass(Duration::from_millis(100), true);
        victim.take(packet, false);
    }
    let close_at = forger.rng.below(STEPS * 3);
    for step in 0..STEPS {
        if step == close_at {
            victim.close();
        }
        match forger.rng.below(12) {
            0 => {
                let span = forger.rng.exponential(2.0);
                victim.pass(Duration::from_secs_f64(span), true);
            }
            1 => {
                let late = forger.rng.exponential(1.0);
                victim.pass(Duration::from_secs_f64(late), false);
            }
            2 => victim.pass(Duration::from_micros(forger.rng.below(20_000)), true),
            _ => {
                let marked = forger.rng.chance(0.1);
                victim.take(&forger.packet(), marked);
            }
        }
    }
}

#[test]
fn no_bytes_at_any_time_break_a_relay() {
    for entry in catalog().programs {
        let mut tried = 0;
        for protocol in protocols().into_iter().filter(|it| it.transport.multicast) {
            let world = World { program: Some(entry.name), ..World::new(3, 10) };
            let scenario = world.scenario(protocol);
            let (_, _, heard) = run(&scenario);
            let real = captured(&heard, "relay");
            tried += real.len();
            for seed in 0..ROUNDS {
                println!("{} with packets of {}, seed {seed}", entry.name, protocol.name());
                let mut forger = Forger::new(seed, &real);
                let mut victim = VictimRelay::new(&scenario, &Watched::default());
                for _ in 0..STEPS {
                    if forger.rng.chance(0.1) {
                        let span = forger.rng.exponential(1.0);
                        victim.pass(Duration::from_secs_f64(span));
                    }
                    let packet = forger.packet();
                    victim.take(&packet, &mut forger.rng);
                }
            }
        }
        assert!(tried > 20, "{} saw {tried} packets", entry.name);
    }
}
