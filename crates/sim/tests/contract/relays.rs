//! Sessions through three levels of relay nodes, with random faults of hosts, relays and links.
//! `FAIRCAST_RELAY_SEEDS=1000` runs the seeds below 1000, `=17..18` only seed 17.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use faircast_base::{Duration, Event, NodeId, Purpose, Rng, Time};
use faircast_scenario::{FaultKind, NodeFault, Overrides, Scenario};
use faircast_sim::{SimOutcome, Simulation, Unobserved, catalog};
use faircast_trace::{Hasher, Record, Sink, Subject};

use crate::forged::seeds;
use crate::watch::Watched;

const SECONDS: u64 = 150;
/// Time limit for a session's rate to recover, and the limit after a relay's restart.
const BACK: Duration = Duration::from_secs(10);
const RELAY_BACK: Duration = Duration::from_secs(2);
const RECEIVERS: u64 = 12;
const RELAYS: u64 = 7;

fn scenario(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, NodeId(0), Purpose::Scenario);
    let mut text = format!("duration = \"{SECONDS} s\"\nseed = {seed}\n");
    let mut link = |center: &str, leaves: &str, rate: &str, more: &str| {
        // The source's link is the slowest: its queue holds a third of a second.
        let packets = if leaves == "s" { 10 } else { 100 };
        let queue = format!("queue = {{ kind = \"droptail\", packets = {packets} }}");
        _ = write!(
            text,
            "[[link]]\nstar = {{ center = \"{center}\", leaves = [\"{leaves}\"] }}\nrate = \"{rate}\"\n\
             delay = \"5 ms\"\n{queue}\n{more}\n"
        );
    };
    let ill = rng.below(6);
    let illness = match rng.below(3) {
        0 => "loss = 0.01".to_string(),
        1 => "mtu = \"1280 B\"".to_string(),
        _ => format!("changes = [ {{ at = \"{} s\", mtu = \"1280 B\" }} ]", 5 + rng.below(30)),
    };
    let of = |level| if ill == level { &illness[..] } else { "" };
    link("r1", "s", "400 kbit/s", of(0));
    link("r1", "r{2..3}", "10 Mbit/s", of(1));
    link("r2", "r{4..5}", "10 Mbit/s", of(2));
    link("r3", "r{6..7}", "10 Mbit/s", "");
    link("r4", "m{1..3}", "10 Mbit/s", of(3));
    for (relay, receivers) in [("r5", "m{4..6}"), ("r6", "m{7..9}"), ("r7", "m{10..12}")] {
        link(relay, receivers, "10 Mbit/s", "");
    }
    text += "[[relay]]\nnode = \"r1\"\n[[relay]]\nnode = \"r{2..3}\"\nparents = \"r1\"\n";
    for (relays, above) in [("r{4..5}", "r2"), ("r{6..7}", "r3")] {
        text += &format!("[[relay]]\nnode = \"{relays}\"\nparents = [\"{above}\", \"r1\"]\n");
    }
    text += "[[flow]]\nname = \"f\"\nprotocol = \"credit-pgmcc\"\nfrom = \"s\"\nto = [\"m{1..12}\"]\n\
             options = { delivery = \"object\" }\ndata = \"2500 kB\"\nvia = [ { node = \"s\", relays = \"r1\" }";
    for (receivers, relays) in [
        ("m{1..3}", "\"r4\", \"r2\", \"r1\""),
        ("m{4..6}", "\"r5\", \"r2\", \"r1\""),
        ("m{7..9}", "\"r6\", \"r3\", \"r1\""),
        ("m{10..12}", "\"r7\", \"r3\", \"r1\""),
    ] {
        text += &format!(", {{ node = \"{receivers}\", relays = [{relays}] }}");
    }
    text += " ]\n";
    for number in 0..3 {
        let at = 8 + number * 18 + rng.below(4);
        let span = 1 + rng.below(if number == 2 { 20 } else { 8 });
        let relay = format!("r{}", 1 + rng.below(RELAYS));
        // The other relays know the top relay only by its first address.
        let movable = format!("r{}", 2 + rng.below(RELAYS - 1));
        let receiver = format!("m{}", 2 + rng.below(RECEIVERS - 1));
        let (node, fault) = match rng.below(9) {
            0 | 1 => (relay, format!("stop = \"{span} s\"")),
            2 | 3 => (relay, format!("restart = \"{span} s\"")),
            4 => (movable, "move = true".to_string()),
            5 => (receiver, "kill = true".to_string()),
            6 => (receiver, format!("restart = \"{span} s\"")),
            // A member that does nothing is simulated by a paused program.
            7 => (receiver, format!("stop = \"{} s\"", span * 2)),
            _ => ("s".to_string(), ["move = true", "stop = \"3 s\""][rng.below(2) as usize].into()),
        };
        text += &format!("[[fault]]\nnode = \"{node}\"\nat = \"{at} s\"\n{fault}\n");
    }
    Scenario::parse(Path::new("relays.toml"), &text, &Overrides::default(), &catalog())
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[derive(Default)]
struct Heard {
    hasher: Hasher,
    sent: BTreeMap<u64, u64>,
    completed: BTreeMap<NodeId, Time>,
}

impl Sink for Heard {
    fn record(&mut self, record: &Record) {
        self.hasher.record(record);
        let Subject::Endpoint { node, sender, .. } = record.subject else { return };
        match record.event {
            Event::DataSent { bytes, .. } if sender => {
                *self.sent.entry(tenth(record.at)).or_default() += u64::from(bytes);
            }
            Event::Completed { .. } => _ = self.completed.insert(node, record.at),
            _ => {}
        }
    }
}

fn run(scenario: &Scenario) -> (SimOutcome, Heard) {
    let mut heard = Heard::default();
    let watched = Watched::without_notes();
    let outcome = Simulation::new(scenario, &watched, &mut heard).unwrap().run(&mut Unobserved);
    (outcome, heard)
}

fn tenth(at: Time) -> u64 {
    at.as_nanos() / 100_000_000
}

struct Trouble {
    at: Time,
    over: Time,
    within: Duration,
    words: String,
}

fn troubles(scenario: &Scenario) -> Vec<Trouble> {
    let of_node = |fault: &NodeFault| {
        let is_relay = scenario.relays.iter().any(|relay| relay.node == fault.node);
        let (over, within) = match fault.kind {
            FaultKind::Restart(span) if is_relay => (fault.at + span, RELAY_BACK),
            FaultKind::Stop(span) | FaultKind::Restart(span) => (fault.at + span, BACK),
            FaultKind::Kill | FaultKind::Move => (fault.at, BACK),
        };
        let name = &scenario.nodes[fault.node.index()].name;
        Trouble { at: fault.at, over, within, words: format!("{fault:?} of {name}") }
    };
    let changes: BTreeSet<Time> = scenario
        .links
        .iter()
        .flat_map(|link| link.config.changes.iter().map(|change| change.at))
        .collect();
    let of_links = |at| Trouble { at, over: at, within: BACK, words: format!("links at {at}") };
    scenario.faults.iter().map(of_node).chain(changes.into_iter().map(of_links)).collect()
}

fn problems(scenario: &Scenario, outcome: &SimOutcome, heard: &Heard) -> Vec<String> {
    let mut problems = Vec::new();
    let name = |node: NodeId| &scenario.nodes[node.index()].name;
    let flow = &scenario.flows[0];
    let is_dead = |node| {
        scenario.faults.iter().any(|fault| fault.node == node && fault.kind == FaultKind::Kill)
    };
    for (node, (delivery, is_intact)) in flow.to.iter().zip(&outcome.deliveries[0]) {
        if !is_intact || !is_dead(*node) && delivery.completed.is_none() {
            problems.push(format!(
                "{} has {} bytes, intact: {is_intact}",
                name(*node),
                delivery.bytes
            ));
        }
    }
    // The sender waits for a dead receiver longer than the run lasts.
    let all_live = !flow.to.iter().any(|node| is_dead(*node));
    if all_live && !heard.completed.contains_key(&flow.sender()) {
        problems.push("the sender does not end".to_string());
    }
    let ends = flow.to.iter().filter_map(|node| heard.completed.get(node));
    let end = ends.max().copied().unwrap_or(Time::ZERO + Duration::from_secs(SECONDS));
    let second = |from| heard.sent.range(from..from + 10).map(|(_, bytes)| bytes).sum::<u64>();
    let usual = (30..80).step_by(10).map(second).sum::<u64>() / 5;
    let troubles = troubles(scenario);
    for (i, Trouble { over, within, words, .. }) in troubles.iter().enumerate() {
        // One second at the usual rate suffices: a second has 0.4 to 1.4 of the usual bytes.
        let is_back = |from: u64| second(from) * 10 >= usual * 7;
        let back = (tenth(*over)..=tenth(*over + *within)).any(is_back);
        // A fault that overlaps these seconds is judged by its own limits.
        let until = *over + *within + Duration::from_secs(1);
        let mut others = troubles.iter().enumerate().filter(|(other, _)| *other != i);
        let is_judged = !others.any(|(_, other)| other.over >= *over && other.at < until);
        if !back && is_judged && until < end {
            let rates: Vec<_> = (tenth(*over)..tenth(until)).step_by(10).map(second).collect();
            problems.push(format!("{words}: {usual}, then {rates:?}"));
        }
    }
    problems
}

/// Seeds with past failures: back-off that NAKs did not end (214), suppressed NAK of the acker
/// (116), round-trip time that contained an interruption (421), hosts refused at their new relay
/// (331) or behind a new parent (69) or a restarted relay (355), absent parent (277), ends informed
/// late of a new path (246, 557, 644), paused receiver that doubted all later packets (2520),
/// packet lost just before a new path (7042).
const ONCE_WRONG: [u64; 12] = [69, 116, 214, 246, 277, 331, 355, 421, 557, 644, 2520, 7042];

fn outlive(first: usize) {
    let mut wrong = Vec::new();
    let asked = seeds("FAIRCAST_RELAY_SEEDS", 6);
    let known = ONCE_WRONG.into_iter().filter(|_| asked == (0..6));
    for seed in asked.clone().chain(known).skip(first).step_by(2) {
        let scenario = scenario(seed);
        let (outcome, heard) = run(&scenario);
        let problems = problems(&scenario, &outcome, &heard);
        if !problems.is_empty() {
            let file = format!("{}/relays-{seed}.toml", env!("CARGO_TARGET_TMPDIR"));
            std::fs::write(&file, &scenario.text).unwrap();
            eprintln!("seed {seed}, faircast run {file}\n{}", problems.join("\n"));
            wrong.push(seed);
        }
    }
    assert!(wrong.is_empty(), "of seeds {wrong:?}");
}

#[test]
fn sessions_over_relay_nodes_outlive_faults_from_even_seeds() {
    outlive(0);
}

#[test]
fn sessions_over_relay_nodes_outlive_faults_from_odd_seeds() {
    outlive(1);
}

#[test]
fn equal_seeds_give_equal_traces_of_relay_nodes_and_packets_are_conserved() {
    let scenario = scenario(1);
    let (outcome, heard) = run(&scenario);
    let (again, heard_again) = run(&scenario);
    assert_eq!(heard.hasher.hex(), heard_again.hasher.hex());
    assert_eq!(outcome.event_hash, again.event_hash);
    // The simulator itself counts the packets kept by links, sockets and relays at the end.
    let carried: u64 = outcome.balances.iter().map(|balance| balance.arrived).sum();
    assert!(carried > 10_000, "{carried} packets");
}
