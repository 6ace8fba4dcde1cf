//! Plan of a round with daemons: faults over time, and the links between daemons as a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use faircast_base::{NodeId, Purpose, Rng};

use super::super::Fault;
use super::super::sequence::shuffle;

pub(super) const DAEMONS: usize = 5;
pub(super) const PROGRAMS: usize = 4;
/// Links between daemons: a ring with two chords. The first daemon of a pair opens the link.
pub(super) const EDGES: [(usize, usize); 7] =
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 3)];
const WARM_UP: Duration = Duration::from_secs(10);
/// Longest pause between two faults in milliseconds. Short pauses hit views in formation.
const PAUSE_MAX_MS: u64 = 3_000;
/// Delay of a link without a fault, in milliseconds.
const DELAY_MS: u64 = 2;

#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) fault: Fault,
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) at: usize,
    links: Vec<(usize, usize)>,
}

pub(super) struct Plan {
    pub(super) trials: Vec<Trial>,
    pub(super) scenario: String,
}

pub(super) fn name(daemon: usize) -> String {
    format!("d{}", daemon + 1)
}

fn directed() -> impl Iterator<Item = (usize, usize)> {
    EDGES.into_iter().flat_map(|(a, b)| [(a, b), (b, a)])
}

impl Plan {
    pub(super) fn new(seed: u64, duration: Duration, only: &[Fault]) -> Self {
        let mut rng = Rng::new(seed, NodeId(6), Purpose::Fault);
        let faults = if only.is_empty() { &Fault::of('o') } else { only };
        let (mut trials, mut end) = (Vec::<Trial>::new(), WARM_UP);
        // Each fault happens once before any fault happens again.
        let mut deck = Vec::new();
        while end < WARM_UP + duration {
            let (first, begin) = (trials.len(), end);
            for _ in 0..=rng.below(2) {
                if deck.is_empty() {
                    deck.extend_from_slice(faults);
                    shuffle(&mut deck, &mut rng);
                }
                let Some(fault) = deck.pop() else { break };
                let trial = Trial::new(fault, begin, &mut rng);
                end = end.max(trial.to);
                let is_apart = |it: &Trial| it.fault != trial.fault && it.at != trial.at;
                if trials[first..].iter().all(is_apart) {
                    trials.push(trial);
                }
            }
            end += Duration::from_millis(rng.below(PAUSE_MAX_MS));
        }
        let scenario = scenario(&trials, end, &mut rng);
        Self { trials, scenario }
    }

    pub(super) fn faults(&self) -> Vec<Fault> {
        let faults: BTreeSet<Fault> = self.trials.iter().map(|trial| trial.fault).collect();
        faults.into_iter().collect()
    }
}

impl Trial {
    fn new(fault: Fault, begin: Duration, rng: &mut Rng) -> Self {
        let mut between = |from: u64, to: u64| from + rng.below(to - from);
        let from = begin + Duration::from_millis(between(0, 1_000));
        let (shortest, longest) = match fault {
            Fault::KillDaemon => (1_000, 20_000),
            Fault::StopDaemon => (1_000, 12_000),
            Fault::KillClients => (500, 10_000),
            Fault::StopClients => (4_999, 5_000),
            _ => (1_000, 12_000),
        };
        let to = from + Duration::from_millis(between(shortest, longest));
        let (one, other) = (between(0, DAEMONS as u64), between(0, DAEMONS as u64));
        let side = [one as usize, other as usize];
        let edge = EDGES[between(0, EDGES.len() as u64) as usize];
        let links = directed().filter(|(from, to)| match fault {
            Fault::Partition => side.contains(from) != side.contains(to),
            Fault::OneWay => side.contains(from) && !side.contains(to),
            Fault::CutLink | Fault::Loss | Fault::Delay => {
                [(*from, *to), (*to, *from)].contains(&edge)
            }
            _ => false,
        });
        let links: Vec<_> = links.collect();
        let at = match fault {
            Fault::KillClients | Fault::StopClients => {
                DAEMONS + between(0, (DAEMONS * PROGRAMS) as u64) as usize
            }
            // Link faults have distinct places, so that two of them can coincide.
            _ if !links.is_empty() => usize::MAX - fault as usize,
            _ => one as usize,
        };
        Self { fault, from, to, at, links }
    }
}

fn scenario(trials: &[Trial], end: Duration, rng: &mut Rng) -> String {
    let mut text = format!(
        "title = \"Do the rules hold whatever happens?\"\nduration = \"{} s\"\nseed = {}\n",
        end.as_secs() + 3_600,
        rng.bits() >> 1
    );
    for link in directed() {
        let (mut outages, mut changes) = (Vec::<(u128, u128)>::new(), BTreeMap::new());
        let mut change = |at, what: String| *changes.entry(at).or_insert(String::new()) += &what;
        for trial in trials.iter().filter(|it| it.links.contains(&link)) {
            let (from, to) = (trial.from.as_millis(), trial.to.as_millis());
            match trial.fault {
                Fault::Loss => {
                    change(from, format!(", loss = {:.3}", 0.01 + 0.09 * rng.unit()));
                    change(to, ", loss = 0.0".into());
                }
                Fault::Delay => {
                    change(from, format!(", delay = \"{} ms\"", 20 + rng.below(180)));
                    change(to, format!(", delay = \"{DELAY_MS} ms\""));
                }
                // After overlapping outages are merged, outages are sorted by their begin.
                _ => {
                    let meets = |it: &&mut (u128, u128)| from <= it.1 && it.0 <= to;
                    match outages.last_mut().filter(meets) {
                        Some(last) => *last = (last.0.min(from), last.1.max(to)),
                        None => outages.push((from, to)),
                    }
                }
            }
        }
        let _ = write!(
            text,
            "[[link]]\nfrom = \"{}\"\nto = \"{}\"\nrate = \"50 Mbit/s\"\ndelay = \"{DELAY_MS} ms\"\n\
             queue = {{ kind = \"droptail\", packets = 500 }}\n",
            name(link.0),
            name(link.1)
        );
        let outages =
            outages.iter().map(|it| format!("{{ from = \"{} ms\", to = \"{} ms\" }}", it.0, it.1));
        let changes = changes.iter().map(|(at, what)| format!("{{ at = \"{at} ms\"{what} }}"));
        for (key, values) in
            [("outages", outages.collect::<Vec<_>>()), ("changes", changes.collect())]
        {
            if !values.is_empty() {
                let _ = writeln!(text, "{key} = [ {} ]", values.join(", "));
            }
        }
    }
    for daemon in 0..DAEMONS {
        let others = (0..DAEMONS).filter(|it| *it != daemon).map(|it| format!("\"{}\"", name(it)));
        let (name, to) = (name(daemon), others.collect::<Vec<_>>().join(", "));
        let _ = write!(
            text,
            "[[flow]]\nname = \"{name}\"\nprotocol = \"cbr\"\nfrom = \"{name}\"\nto = [{to}]\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use faircast_scenario::{Overrides, Scenario};

    use super::*;

    #[test]
    fn plans_are_scenarios_follow_from_their_seeds_and_have_every_fault() {
        let mut seen = BTreeSet::new();
        for seed in 0..50 {
            let plan = Plan::new(seed, Duration::from_secs(100), &[]);
            let (path, none) = (Path::new("soak.toml"), Overrides::default());
            let scenario = Scenario::parse(path, &plan.scenario, &none, &faircast_sim::catalog());
            let scenario = scenario.unwrap_or_else(|error| panic!("{error}\n{}", plan.scenario));
            for (daemon, flow) in scenario.flows.iter().enumerate() {
                assert_eq!((flow.sender(), &flow.name), (NodeId(daemon as u32), &name(daemon)));
            }
            assert!(plan.trials.iter().all(|it| it.from < it.to));
            assert_eq!(plan.scenario, Plan::new(seed, Duration::from_secs(100), &[]).scenario);
            seen.extend(plan.trials.iter().map(|it| it.fault));
        }
        assert!(seen.into_iter().eq(Fault::of('o')));
        let only = Plan::new(1, Duration::from_secs(20), &[Fault::OneWay]);
        assert!(only.trials.iter().all(|it| it.fault == Fault::OneWay && !it.links.is_empty()));
    }
}
