//! Sequence of faults in a session over relays: tree, hosts and plan.

use faircast_base::{NodeId, Purpose, Rng};

use super::Fault;
use super::plan::{Plan, Who};
use super::sequence::shuffle;

/// Parent of each relay: a top, two relays below it, and two relays below each of these.
const PARENTS: [Option<u32>; 7] = [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)];
pub(super) const RELAYS: u32 = PARENTS.len() as u32;
const LEVELS: usize = 3;
/// Relays of the lowest level, to which receivers are attached in turn.
const LEAVES: [u32; 4] = [3, 4, 5, 6];
/// Relays of the sender: the top, and the relay that it falls back to.
const SENDER_RELAYS: [u32; 2] = [0, 1];
/// Number of rounds, from a seed divisible by it, that together have all faults at all hosts.
const ROUNDS: u64 = 3;
pub(super) const RECEIVERS_MAX: u32 = 32;

/// Returns a relay and all relays above it, the top last.
fn path(relay: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(relay), |relay| PARENTS[*relay as usize])
}

impl Who {
    /// Returns the relays that a program is started with, the nearest first.
    pub(super) fn relays_above(self) -> Vec<Self> {
        let above: Vec<u32> = match self {
            Self::Receiver(index) => path(LEAVES[index as usize % LEAVES.len()]).collect(),
            Self::Relay(index) => path(index).skip(1).collect(),
            _ => SENDER_RELAYS.to_vec(),
        };
        above.into_iter().map(Self::Relay).collect()
    }
}

pub(super) fn everybody(receivers: u32) -> Vec<Who> {
    let receivers = (0..=receivers).map(Who::Receiver);
    [Who::Sender].into_iter().chain(receivers).chain((0..RELAYS).map(Who::Relay)).collect()
}

impl Plan {
    /// Draws the plan of a sequence: [`ROUNDS`] seeds, from a multiple on, have all faults at all
    /// hosts.
    pub(super) fn over_relays(
        seed: u64,
        receivers: u32,
        key: bool,
        only: &[Fault],
        bytes: Option<u64>,
    ) -> Self {
        let mut rng = Rng::new(seed / ROUNDS, NodeId(4), Purpose::Fault);
        let faults = if only.is_empty() { &Fault::of('r') } else { only };
        let targets = faults.iter().flat_map(|fault| {
            let hosts = hosts(*fault, receivers, &mut rng);
            hosts.into_iter().map(|who| (*fault, who))
        });
        let mut targets: Vec<(Fault, Who)> = targets.collect();
        shuffle(&mut targets, &mut rng);
        if only.is_empty() {
            let (round, len) = ((seed % ROUNDS) as usize, targets.len().div_ceil(ROUNDS as usize));
            targets = targets.drain(round * len..targets.len().min((round + 1) * len)).collect();
        }
        // A sender that starts again waits for all receivers that it knows.
        targets.sort_by_key(|(fault, _)| *fault == Fault::LoseReceiver);
        let mut rng = Rng::new(seed, NodeId(5), Purpose::Fault);
        let mut plan = Self::sequence(&targets, receivers, true, bytes, &mut rng);
        // Without a key, with the group's key at relays, or with a relay key there.
        let kind = (seed + seed / ROUNDS) % 3;
        (plan.sealed, plan.relay_key) = (key || kind > 0, kind == 2);
        plan
    }
}

/// Returns the hosts of a fault, one after the other. Only the last receiver may be lost.
fn hosts(fault: Fault, receivers: u32, rng: &mut Rng) -> Vec<Who> {
    let [top, middle, low]: [Who; LEVELS] = std::array::from_fn(|level| {
        let mut relays = (0..RELAYS).filter(|relay| path(*relay).count() == 1 + level);
        let drawn = rng.below(relays.clone().count() as u64) as usize;
        Who::Relay(relays.nth(drawn).expect("the level has relays"))
    });
    let receiver = Who::Receiver(rng.below(u64::from(receivers - 1)) as u32);
    match fault {
        Fault::KillRelay | Fault::StopRelay | Fault::Rename => vec![top, middle, low],
        Fault::BlackHole => vec![middle, low, receiver],
        Fault::KillSender | Fault::StopSender => vec![Who::Sender],
        Fault::Address | Fault::Remap => vec![Who::Sender, receiver],
        Fault::LoseReceiver => vec![Who::Receiver(receivers - 1)],
        Fault::Idle => vec![Who::Receiver(receivers)],
        _ => vec![receiver],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use faircast_scenario::{Overrides, Scenario};

    use super::*;

    #[test]
    fn three_seeds_have_every_fault_at_every_host_and_all_kinds_of_keys() {
        let mut keys = BTreeSet::new();
        for first in [0, 3, 30] {
            let plans = [0, 1, 2].map(|i| Plan::over_relays(first + i, 12, false, &[], None));
            let mut targets = BTreeSet::new();
            for plan in &plans {
                let (path, none) = (Path::new("soak.toml"), Overrides::default());
                let catalog = faircast_sim::catalog();
                let scenario = Scenario::parse(path, &plan.scenario, &none, &catalog).unwrap();
                let everybody = everybody(12);
                assert_eq!(scenario.flows.len(), everybody.len());
                for (who, flow) in everybody.into_iter().zip(&scenario.flows) {
                    assert_eq!((flow.sender(), &flow.name), (who.node(), &who.name()));
                }
                assert!(plan.trials.len() >= 6, "{:?}", plan.trials);
                let lost = plan.trials.iter().position(|it| it.fault == Fault::LoseReceiver);
                assert!(lost.is_none_or(|lost| lost + 1 == plan.trials.len()));
                targets.extend(plan.trials.iter().map(|trial| (trial.fault, trial.who)));
                keys.insert((plan.sealed, plan.relay_key));
            }
            assert_eq!(targets.len(), 22, "{targets:?}");
            let of_relays = targets.iter().filter(|(fault, _)| *fault == Fault::KillRelay);
            let above = of_relays.map(|(_, who)| who.relays_above().len());
            assert!(above.eq([0, 1, 2]), "a relay of each level");
        }
        assert_eq!(keys.len(), 3);
        let only = Plan::over_relays(1, 2, true, &[Fault::Rename], Some(7));
        assert_eq!((only.trials.len(), only.bytes, only.sealed), (3, 7, true));
    }
}
