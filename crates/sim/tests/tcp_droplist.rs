//! Loss recovery against ns-2.35: a finite transfer over a chain of four nodes, with listed
//! packets dropped. Every retransmission must happen at the same microsecond as there.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use faircast_proto::options::OptionValue;
use harness::oracle::{self, Case, Outcome, compare, field};
use harness::{options, text};

/// What ns-2 did, from lines such as `DROP flavour=Reno limtx=1 drops=20 finish=1.872384 sent=202
/// rexmit=1 timeouts=0 rtx=20@0.522976#41`: packet 20 went again at 0.522976 s as the 41st sent.
const SINGLE_WINDOW: &str = include_str!("data/tcp_droplist.txt");

/// The same for random losses of packets and acknowledgements, random settings and delayed
/// acknowledgements. `data/ns2_random_losses.py` wrote it.
const RANDOM_LOSSES: &str = include_str!("data/tcp_random_losses.txt");

fn simulated(line: &str, random_phase: bool, seed: u64) -> Outcome {
    let min_rto = if field(line, "minrto") == Some("1") { "1 s" } else { "0.2 s" };
    let case = Case {
        flavour: oracle::flavour(line),
        packets: 200,
        options: options(&[
            ("window_max", OptionValue::Integer(20)),
            ("limited_transmit", OptionValue::Bool(field(line, "limtx") == Some("1"))),
            ("min_rto", text(min_rto)),
            ("random_clock_phase", OptionValue::Bool(random_phase)),
        ]),
        drops: oracle::numbers(field(line, "drops").unwrap()),
        ack_drops: Vec::new(),
    };
    oracle::run(&case, seed)
}

fn single_window_lines() -> Vec<&'static str> {
    let lines: Vec<_> = SINGLE_WINDOW.lines().filter(|line| line.starts_with("DROP")).collect();
    assert_eq!(lines.len(), 93);
    lines
}

#[test]
fn every_retransmission_happens_when_ns2_makes_it() {
    let failures: Vec<_> = single_window_lines()
        .into_iter()
        .filter_map(|line| compare(line, &simulated(line, false, 0), 0).err())
        .collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_phase_of_the_clock_matters_only_where_a_timeout_is_not_the_minimum() {
    for line in single_window_lines() {
        // Here the second round trip sets the timeout, and takes ten or eleven ticks of 10 ms.
        let phased = line.contains("limtx=0 drops=2 ");
        for seed in 1..20 {
            let got = simulated(line, true, seed);
            let later = if phased { compare(line, &got, 10_000) } else { Err(String::new()) };
            if let (Err(failure), Err(_)) = (compare(line, &got, 0), later) {
                panic!("seed {seed}: {failure}");
            }
        }
    }
}

#[test]
fn random_losses_are_repaired_when_ns2_repairs_them() {
    let mut failures = Vec::new();
    let mut retransmissions = 0;
    for line in RANDOM_LOSSES.lines() {
        let got = oracle::run(&random_case(line), 0);
        retransmissions += got.retransmissions.len();
        failures.extend(compare(line, &got, 0).err());
    }
    assert!(retransmissions > 1000, "the file holds losses");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn random_case(line: &str) -> Case {
    let integer = |key| OptionValue::Integer(field(line, key).unwrap().parse().unwrap());
    let min_rto = format!("{} s", field(line, "minrto").unwrap());
    let mut pairs = vec![
        ("window_max", integer("window")),
        ("initial_ssthresh", integer("ssthresh")),
        ("min_rto", text(&min_rto)),
        ("delayed_ack", OptionValue::Bool(field(line, "delack") == Some("1"))),
        ("delayed_ack_interval", text("98.7 ms")),
    ];
    for setting in field(line, "options").unwrap().split(',').filter(|s| !s.is_empty()) {
        let (key, value) = setting.split_once('=').unwrap();
        let value = match value.parse() {
            Ok(switch) => OptionValue::Bool(switch),
            Err(_) => OptionValue::Integer(value.parse().unwrap()),
        };
        pairs.push((key, value));
    }
    Case {
        flavour: oracle::flavour(line),
        packets: field(line, "packets").unwrap().parse().unwrap(),
        options: options(&pairs),
        drops: oracle::numbers(field(line, "drops").unwrap()),
        ack_drops: oracle::numbers(field(line, "ackdrops").unwrap()),
    }
}
