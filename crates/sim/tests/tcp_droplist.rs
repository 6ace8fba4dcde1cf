//! Loss recovery against ns-2.35 with listed losses: retransmissions at the same microsecond.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use faircast_base::{Cx, Event, FlowId, NodeId, Time};
use faircast_proto::FlowMachine;
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::relay::{Egress, Handling, Interest, Relay, RelayPacket};
use faircast_proto::tcp;
use faircast_proto::transport::Role;
use faircast_scenario::{Flow, Overrides, Program, Scenario};
use faircast_sim::{Builtin, Protocols, Simulation, Unobserved, catalog};
use faircast_trace::{Recording, Subject};

/// Results of ns-2. `DROP flavour=Reno limtx=1 drops=20 finish=1.872384 sent=202 rexmit=1
/// timeouts=0 rtx=20@0.522976#41`: packet 20 was retransmitted at 0.522976 s as the 41st packet.
const SINGLE_WINDOW: &str = include_str!("../../../scenarios/tcp/droplist.txt");

/// Results of ns-2 for random losses and settings, written by `data/ns2_random_losses.py`.
const RANDOM_LOSSES: &str = include_str!("data/tcp_random_losses.txt");

fn simulated(line: &str, random_phase: bool, seed: u64) -> Outcome {
    let min_rto = if field(line, "minrto") == Some("1") { "1 s" } else { "0.2 s" };
    let case = Case {
        protocol: protocol(line),
        packets: 200,
        options: options(&[
            ("window_max", OptionValue::Integer(20)),
            ("limited_transmit", OptionValue::Bool(field(line, "limtx") == Some("1"))),
            ("min_rto", text(min_rto)),
            ("random_clock_phase", OptionValue::Bool(random_phase)),
        ]),
        drops: numbers(field(line, "drops").unwrap()),
        ack_drops: Vec::new(),
    };
    run(&case, seed)
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
        // Here the second round-trip time sets the timeout, and is 10 or 11 ticks of 10 ms.
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
        let got = run(&random_case(line), 0);
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
        protocol: protocol(line),
        packets: field(line, "packets").unwrap().parse().unwrap(),
        options: options(&pairs),
        drops: numbers(field(line, "drops").unwrap()),
        ack_drops: numbers(field(line, "ackdrops").unwrap()),
    }
}

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    finish_us: u64,
    sent: u64,
    timeouts: u64,
    cuts: Option<u64>,
    retransmissions: Vec<Retransmission>,
}

#[derive(Debug, PartialEq)]
struct Retransmission {
    seq: u64,
    at_us: u64,
    count: u64,
}

struct Case {
    protocol: &'static str,
    packets: u64,
    options: Options,
    drops: Vec<u64>,
    ack_drops: Vec<u64>,
}

fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn protocol(line: &str) -> &'static str {
    match field(line, "flavour") {
        Some("Reno") => "tcp-reno",
        Some("Newreno") => "tcp-newreno",
        Some("Sack1") => "tcp-sack",
        other => panic!("unknown flavour {other:?}"),
    }
}

fn options(pairs: &[(&str, OptionValue)]) -> Options {
    let raw = pairs.iter().map(|(key, value)| (key.to_string(), value.clone()));
    Options::checked(raw, tcp::OPTIONS).unwrap()
}

fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.to_string())
}

fn numbers(list: &str) -> Vec<u64> {
    list.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
}

fn expected(line: &str) -> Outcome {
    let micros = |seconds: &str| (seconds.parse::<f64>().unwrap() * 1e6).round() as u64;
    let number = |key| field(line, key).unwrap().parse().unwrap();
    let retransmission = |text: &str| {
        let (seq, rest) = text.split_once('@').unwrap();
        let (at, count) = rest.split_once('#').unwrap();
        Retransmission {
            seq: seq.parse().unwrap(),
            at_us: micros(at),
            count: count.parse().unwrap(),
        }
    };
    let rtx = field(line, "rtx").unwrap();
    let retransmissions: Vec<_> =
        rtx.split(',').filter(|text| !text.is_empty()).map(retransmission).collect();
    assert_eq!(retransmissions.len() as u64, number("rexmit"), "{line}");
    Outcome {
        finish_us: micros(field(line, "finish").unwrap()),
        sent: number("sent"),
        timeouts: number("timeouts"),
        cuts: field(line, "cuts").map(|cuts| cuts.parse().unwrap()),
        retransmissions,
    }
}

const CHAIN: &str = r#"
duration = "1000 s"
[[link]]
between = ["a", "b"]
rate = "10 Mbit/s"
delay = "1 ms"
queue = { kind = "droptail", packets = 10000000 }
[[link]]
between = ["b", "c"]
rate = "10 Mbit/s"
delay = "48 ms"
queue = { kind = "droptail", packets = 10000000 }
[[link]]
between = ["c", "d"]
rate = "10 Mbit/s"
delay = "1 ms"
queue = { kind = "droptail", packets = 10000000 }
[[flow]]
name = "transfer"
from = "a"
to = "d"
header = "0 B"
"#;

fn run(case: &Case, seed: u64) -> Outcome {
    let Case { protocol, packets, .. } = case;
    let text = format!("{CHAIN}protocol = \"{protocol}\"\ndata = \"{} B\"\n", packets * 1400);
    let overrides = Overrides { set: Vec::new(), seed: Some(seed) };
    let mut scenario = Scenario::parse(Path::new("chain"), &text, &overrides, &catalog()).unwrap();
    scenario.flows[0].options = case.options.clone();
    for router in [B, C] {
        let program = Program { name: String::new(), options: Options::default() };
        scenario.nodes[router.index()].program = Some(program);
    }
    let mut heard = Recording::default();
    let done = Simulation::new(&scenario, case, &mut heard).unwrap().run(&mut Unobserved);
    let (delivery, intact) = &done.deliveries[0][0];
    assert!(*intact && delivery.completed.is_some());
    let of_sender = heard
        .records
        .iter()
        .filter(|record| matches!(record.subject, Subject::Endpoint { sender: true, .. }));
    outcome(of_sender.map(|record| (record.at, record.event)))
}

const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);

impl Protocols for Case {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        Builtin.end(flow, id, node, role, start)
    }

    fn relay(&self, _: &Program, node: NodeId) -> Box<dyn Relay> {
        let (from, drops) =
            if node == B { (NodeId(0), &self.drops) } else { (NodeId(3), &self.ack_drops) };
        Box::new(DropList { from, drops: drops.clone(), passed: 0 })
    }
}

struct DropList {
    from: NodeId,
    drops: Vec<u64>,
    passed: u64,
}

impl Relay for DropList {
    fn interest(&self) -> Interest {
        Interest::Everything
    }
    fn handle_packet(
        &mut self,
        _: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        _: &mut Vec<u8>,
    ) -> Handling {
        if packet.datagram.from != self.from {
            return Handling::Forward;
        }
        self.passed += 1;
        let dropped = self.drops.contains(&(self.passed - 1));
        if dropped { Handling::Drop } else { Handling::Forward }
    }
    fn handle_timeout(&mut self, _: &mut Cx<'_>) {}
    fn poll_transmit(&mut self, _: &mut Cx<'_>, _: &mut Vec<u8>) -> Option<Egress> {
        None
    }
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

fn outcome(events: impl Iterator<Item = (Time, Event)>) -> Outcome {
    let us = |at: Time| (at.as_nanos() + 500) / 1000;
    let mut got = Outcome { cuts: Some(0), ..Outcome::default() };
    for (at, event) in events {
        match event {
            Event::DataSent { seq, repair, .. } => {
                got.sent += 1;
                if repair {
                    let (at_us, count) = (us(at), got.sent);
                    got.retransmissions.push(Retransmission { seq, at_us, count });
                }
            }
            Event::Timeout { .. } => got.timeouts += 1,
            Event::Cut { .. } => got.cuts = got.cuts.map(|n| n + 1),
            Event::Completed { .. } => got.finish_us = us(at),
            _ => {}
        }
    }
    got
}

/// Describes a difference of more than a microsecond; all times of `got` are `late_us` later.
fn compare(line: &str, got: &Outcome, late_us: u64) -> Result<(), String> {
    let want = expected(line);
    let near = |a: u64, b: u64| a.abs_diff(b + late_us) <= 1;
    let is_same = |(a, b): &(&Retransmission, &Retransmission)| {
        a.seq == b.seq && near(a.at_us, b.at_us) && a.count == b.count
    };
    let mut pairs = got.retransmissions.iter().zip(&want.retransmissions);
    let different = pairs.find(|pair| !is_same(pair));
    let same = near(got.finish_us, want.finish_us)
        && got.sent == want.sent
        && got.timeouts == want.timeouts
        && (want.cuts.is_none() || got.cuts == want.cuts)
        && got.retransmissions.len() == want.retransmissions.len()
        && different.is_none();
    if same { Ok(()) } else { Err(format!("{line}\n got {got:?}, first difference {different:?}")) }
}
