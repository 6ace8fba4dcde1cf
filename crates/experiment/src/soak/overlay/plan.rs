//! Plan of a round with daemons: faults over time, and the links between daemons as a scenario.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use faircast_base::{NodeId, Purpose, Rng};

use crate::soak::Fault;
use crate::soak::plan::{push_flows, push_tables};
use crate::soak::sequence::shuffle;

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

pub(crate) struct Trial {
    pub(crate) fault: Fault,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(super) at: usize,
    pub(crate) links: Vec<(usize, usize)>,
}

pub(crate) struct Plan {
    pub(crate) trials: Vec<Trial>,
    pub(crate) scenario: String,
}

pub(crate) fn name(daemon: usize) -> String {
    format!("d{}", daemon + 1)
}

fn directed() -> impl Iterator<Item = (usize, usize)> {
    EDGES.into_iter().flat_map(|(a, b)| [(a, b), (b, a)])
}

impl Plan {
    pub(crate) fn new(seed: u64, duration: Duration, only: &[Fault]) -> Self {
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
}

impl Trial {
    fn new(fault: Fault, begin: Duration, rng: &mut Rng) -> Self {
        let mut between = |from: u64, to: u64| from + rng.below(to - from);
        let from = begin + Duration::from_millis(between(0, 1_000));
        let (shortest, longest) = match fault {
            Fault::KillDaemon => (1_000, 20_000),
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
        push_tables(&mut text, "outages", &outages.collect::<Vec<_>>());
        push_tables(&mut text, "changes", &changes.collect::<Vec<_>>());
    }
    push_flows(&mut text, (0..DAEMONS).map(name));
    text
}
