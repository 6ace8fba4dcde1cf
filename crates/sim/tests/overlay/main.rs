//! Overlay daemons with clients in scenarios, verified by the checker.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod prices;

use std::collections::BTreeMap;
use std::path::Path;

use faircast_base::{ClientAct, ClientNote, Duration, Time};
use faircast_checker::{Trace, check};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, Simulation, Unobserved, catalog};
use faircast_trace::{Record, Sink};

#[derive(Default)]
struct Acts {
    lines: Vec<String>,
    sent: BTreeMap<u32, u64>,
    delivered: BTreeMap<u32, u64>,
    from: BTreeMap<(u32, u32), (u64, Duration)>,
    views: BTreeMap<u32, Vec<u32>>,
}

impl Sink for Acts {
    fn record(&mut self, _: &Record) {}

    fn note(&mut self, _: Time, note: &ClientNote) {
        self.lines.push(note.line.clone());
        match note.act {
            ClientAct::Sent { .. } => *self.sent.entry(note.client).or_default() += 1,
            ClientAct::Delivered { latency, .. } => {
                *self.delivered.entry(note.client).or_default() += 1;
                let name = note.line.split("\"id\":\"").nth(1).unwrap();
                let sender = name.split('.').next().unwrap().parse().unwrap();
                let (count, most) = self.from.entry((note.client, sender)).or_default();
                (*count, *most) = (*count + 1, latency.max(*most));
            }
            ClientAct::View { daemons } => self.views.entry(note.client).or_default().push(daemons),
            ClientAct::Other => {}
        }
    }
}

fn verify(lines: &[String]) {
    let text = lines.join("\n");
    let trace = Trace::read([("clients".into(), text.as_bytes())]).unwrap();
    let wrong: Vec<String> = check(&trace).iter().map(|it| format!("{it}")).collect();
    assert!(wrong.is_empty(), "{} violations: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
}

fn run(scenario: &Scenario) -> Acts {
    let mut acts = Acts::default();
    Simulation::new(scenario, &Builtin, &mut acts).unwrap().run(&mut Unobserved);
    verify(&acts.lines);
    acts
}

fn load(name: &str) -> Scenario {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/overlay"));
    let read = Scenario::load(&root.join(name), &Overrides::default(), &catalog());
    read.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn five_sites_outlive_a_cut_link_and_a_killed_daemon() {
    let scenario = load("five-sites.toml");
    let acts = run(&scenario);
    let number = |name: &str| {
        let clients = scenario.clients();
        clients.iter().find(|(_, it)| it.name == name).unwrap().1.index
    };
    let publisher = number("publisher");
    // Publisher: 100 messages per second for 50 s, fewer during view changes.
    assert!(acts.sent[&publisher] > 4900, "{}", acts.sent[&publisher]);
    for site in 1..=5 {
        let reader = number(&format!("reader-d{site}"));
        assert_eq!(acts.views[&reader].last(), Some(&5), "reader {site} is in the view of all");
    }
    // The publisher's site lacks only the killed trader's messages, the partitioned site more.
    let at = |site: u32| acts.delivered[&number(&format!("reader-d{site}"))];
    assert!(at(1) > 7200, "{}", at(1));
    assert!((5500..at(1) - 300).contains(&at(3)), "{} and {}", at(1), at(3));
    // Views after the first one of all five daemons: of the partition, and of the killed daemon.
    let later = |site: u32| {
        let views = &acts.views[&number(&format!("reader-d{site}"))];
        views[views.iter().position(|it| *it == 5).unwrap()..].to_vec()
    };
    assert_eq!(later(1), [5, 4, 5, 4, 5]);
    assert_eq!(later(3), [5, 1, 5, 4, 5]);
}

#[test]
fn every_kind_of_use_keeps_the_rules_and_gets_its_messages() {
    // Smallest and largest share of a sender's messages that a client gets, and longest latency.
    for (name, client, sender, shares, most_ms) in [
        // A partitioned site lacks 8 s of 31 s, and the other sites lack its messages.
        ("chat.toml", "person-paris-1", "person-tokyo-1", (1.0, 1.0), 5000),
        ("chat.toml", "person-paris-1", "person-lima-1", (0.7, 0.9), 5000),
        // At 1 Mbit/s, 128 kB of samples wait in the daemon for 1 s, and as many in QUIC.
        ("telemetry.toml", "board-hub", "sensor-d1-1", (1.0, 1.0), 300),
        ("telemetry.toml", "board-hub", "alarm-d1", (1.0, 1.0), 300),
        ("telemetry.toml", "board-d4", "sensor-d1-1", (0.1, 0.6), 3500),
        ("telemetry.toml", "board-d4", "alarm-d1", (1.0, 1.0), 3500),
        // The paused replica sends its due messages to itself, in an old view.
        ("replicas.toml", "replica-d1", "replica-d2", (0.8, 0.95), 6000),
        ("replicas.toml", "replica-d2", "replica-d2", (1.0, 1.0), 6000),
        ("replicas.toml", "replica-d2", "reader-d1", (0.85, 0.99), 6000),
        ("bulk.toml", "mirror-d2", "clerk", (1.0, 1.0), 6000),
        ("bulk.toml", "mirror-d3", "source", (1.0, 1.0), 20_000),
    ] {
        let scenario = load(name);
        let acts = run(&scenario);
        let clients = scenario.clients();
        let number = |name: &str| clients.iter().find(|it| it.1.name == name).unwrap().1.index;
        let (client, sender) = (number(client), number(sender));
        let (got, most) = acts.from.get(&(client, sender)).copied().unwrap_or_default();
        let share = got as f64 / acts.sent[&sender] as f64;
        assert!((shares.0..=shares.1).contains(&share), "{name} {client} {sender}: {share}");
        assert!(most < Duration::from_millis(most_ms), "{name} {client} {sender}: {most}");
    }
}

#[test]
fn equal_seeds_give_equal_traces_of_clients() {
    let mut scenario = load("five-sites.toml");
    scenario.duration = Duration::from_secs(15);
    assert!(run(&scenario).lines == run(&scenario).lines);
}
