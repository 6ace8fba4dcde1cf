//! Sequence of faults in a session over relays: tree, hosts and plan.

use faircast_base::{NodeId, Purpose, Rng};

use super::plan::{Plan, Who};
use super::{Fault, Request};

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
    pub(super) fn over_relays(seed: u64, request: &Request) -> Self {
        let mut rng = Rng::new(seed / ROUNDS, NodeId(4), Purpose::Fault);
        let mut targets = Self::targets('r', request, hosts, &mut rng);
        if request.only.is_empty() {
            let (round, len) = ((seed % ROUNDS) as usize, targets.len().div_ceil(ROUNDS as usize));
            targets = targets.drain(round * len..targets.len().min((round + 1) * len)).collect();
        }
        // A sender that starts again waits for all receivers that it knows.
        targets.sort_by_key(|(fault, _)| *fault == Fault::LoseReceiver);
        let mut rng = Rng::new(seed, NodeId(5), Purpose::Fault);
        // Without a key, with the group's key at relays, or with a relay key there.
        let kind = (seed + seed / ROUNDS) % 3;
        Self {
            sealed: request.key || kind > 0,
            relay_key: kind == 2,
            ..Self::sequence(&targets, request, &mut rng)
        }
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
