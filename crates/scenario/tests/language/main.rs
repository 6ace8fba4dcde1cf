//! Scenario language from outside: accepted and refused scenarios, and messages.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod daemons;
mod errors;
mod examples;
mod forms;
mod properties;
mod relays;

use std::path::Path;

use faircast_proto::catalog;
use faircast_proto::congestion::Guarantees;
use faircast_proto::options::{OptionKind, OptionSpec};
use faircast_proto::stack::{Alone, Stack, TransportEntry};
use faircast_scenario::{Catalog, Overrides, ProgramEntry, Scenario, ScenarioError};

pub(crate) fn catalog() -> Catalog {
    let about = "Only for tests.";
    let protocol = |name, multicast: bool, answers: bool, options| {
        let like = catalog::stack("cbr").unwrap().transport;
        stack(TransportEntry {
            name,
            about,
            alone: Some(Alone { options, guarantees: Guarantees::SILENT }),
            multicast,
            many_to_many: multicast && !answers,
            answers,
            repair_heads: name == "tram",
            ..*like
        })
    };
    Catalog {
        protocols: vec![
            protocol("pgmcc", true, true, PGMCC_OPTIONS),
            protocol("tcp-reno", false, true, &[]),
            protocol("tcp-newreno", false, true, &[]),
            protocol("tcp-sack", false, true, &[]),
            protocol("tram", true, true, &[]),
            protocol("cbr", true, false, CBR_OPTIONS),
        ],
        programs: vec![ProgramEntry { name: "pgm-element", about, options: ELEMENT_OPTIONS }],
        relay_node: Some(ProgramEntry { name: "credit", about, options: ELEMENT_OPTIONS }),
        runs_sessions_programs: true,
    }
}

pub(crate) fn stack(transport: TransportEntry) -> Stack {
    Stack { transport: Box::leak(Box::new(transport)), scheme: None, hop: None }
}

const fn spec(name: &'static str, kind: OptionKind, default: &'static str) -> OptionSpec {
    OptionSpec { name, kind, default, doc: "Only for tests." }
}

const PGMCC_OPTIONS: &[OptionSpec] = &[
    spec("acker_bias", OptionKind::Float { min: 0.0, max: 1.0 }, "0.6666"),
    spec("profile", OptionKind::Choice(&["paper", "draft"]), "paper"),
    spec("adaptive_timeout", OptionKind::Bool, "false"),
    spec("ack_bits", OptionKind::Integer { min: 1, max: 64 }, "32"),
    spec("timeout", OptionKind::Duration { min_ns: 1_000_000, max_ns: 60_000_000_000 }, "4 s"),
];
const CBR_OPTIONS: &[OptionSpec] = &[spec("on", OptionKind::Bool, "true")];
const ELEMENT_OPTIONS: &[OptionSpec] = &[spec("suppress", OptionKind::Bool, "true")];

pub(crate) fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    parse_with(text, &[])
}

pub(crate) fn parse_with(text: &str, set: &[&str]) -> Result<Scenario, ScenarioError> {
    let overrides = Overrides { set: set.iter().map(|s| s.to_string()).collect(), seed: None };
    Scenario::parse(Path::new("t.toml"), text, &overrides, &catalog())
}

pub(crate) const GOOD: &str = r#"title = "Do pgmcc and TCP share one bottleneck?"
duration = "300 s"
warmup = "10 s"
seed = 7

[[link]]
between = ["r1", "r2"]
rate = "500 kbit/s"
delay = "50 ms"
queue = { kind = "droptail", packets = 30 }
loss = 0.0
changes = [ { at = "50 s", rate = "3 Mbit/s" }, { at = "60 s", loss = 0.01 } ]

[[link]]
star = { center = "r1", leaves = ["ms", "ts"] }
rate = "10 Mbit/s"
delay = "1 ms"

[[link]]
star = { center = "r2", leaves = ["mr{1..3}", "tr"] }
rate = "10 Mbit/s"
delay = "1 ms"
queue = { kind = "red", min = 5, max = 15, weight = 0.002, packets = 50 }

[[node]]
name = "r2"
program = "pgm-element"
options = { suppress = true }

[[flow]]
name = "mcc"
protocol = "pgmcc"
from = "ms"
to = ["mr1", "mr2", "mr3"]
packet = "1400 B"
header = "0 B"
start = { uniform = ["0 s", "5 s"] }
stop = "200 s"
data = "unlimited"
join = [ { node = "mr3", at = "20 s", leave = "40 s" } ]
options = { acker_bias = 0.6666, timeout = "4 s" }

[[flow]]
name = "tcp"
protocol = "tcp-reno"
from = "ts"
to = ["tr"]
start = "1 s"
data = "30 MB"
count = 2
"#;
