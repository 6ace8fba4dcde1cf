//! Loss recovery against ns-2.35: a finite transfer over a chain of four nodes, with listed
//! packets dropped. Every retransmission must happen at the same microsecond as there.

mod harness;

use faircast_base::{Duration, Event, Time};
use faircast_proto::AppEvent;
use faircast_proto::content::Zeros;
use faircast_proto::options::OptionValue;
use faircast_sim::tcp::Flavour;
use harness::{FlowSpec, Net, link, options, text};

/// What ns-2 did, from lines such as `DROP flavour=Reno limtx=1 drops=20 finish=1.872384 sent=202
/// rexmit=1 timeouts=0 rtx=20@0.522976#41`: packet 20 went again at 0.522976 s as the 41st sent.
const REFERENCE: &str = include_str!("data/tcp_droplist.txt");

#[derive(Debug, PartialEq)]
struct Outcome {
    finish_us: u64,
    sent: u64,
    timeouts: u64,
    retransmissions: Vec<Retransmission>,
}

#[derive(Debug, PartialEq)]
struct Retransmission {
    seq: u64,
    at_us: u64,
    count: u64,
}

fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn micros(seconds: &str) -> u64 {
    (seconds.parse::<f64>().unwrap() * 1e6).round() as u64
}

fn expected(line: &str) -> Outcome {
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
        retransmissions,
    }
}

fn simulated(line: &str, random_phase: bool, seed: u64) -> Outcome {
    let flavour = match field(line, "flavour").unwrap() {
        "Reno" => Flavour::Reno,
        "Newreno" => Flavour::NewReno,
        "Sack1" => Flavour::Sack,
        other => panic!("unknown flavour {other}"),
    };
    let min_rto = if field(line, "minrto") == Some("1") { "1 s" } else { "0.2 s" };
    let drops: Vec<u64> =
        field(line, "drops").unwrap().split(',').map(|n| n.parse().unwrap()).collect();
    let chain = |ms| link(10_000_000, Duration::from_millis(ms), u32::MAX);
    let mut links: Vec<_> = [1, 48, 1, 1, 48, 1].into_iter().map(chain).collect();
    links[1].drop_list = drops;
    let flow = FlowSpec {
        flavour,
        start: Time::ZERO,
        payload: 1400,
        header: Some(0),
        content: Box::new(Zeros { len: Some(200 * 1400) }),
        options: options(&[
            ("window_max", OptionValue::Integer(20)),
            ("limited_transmit", OptionValue::Bool(field(line, "limtx") == Some("1"))),
            ("min_rto", text(min_rto)),
            ("random_clock_phase", OptionValue::Bool(random_phase)),
        ]),
        path: vec![0, 1, 2],
        back: vec![3, 4, 5],
    };
    let mut net = Net::new(&links, vec![flow], seed, Time::ZERO);
    net.record(0).keep = true;
    net.run(Time::from_nanos(60_000_000_000));
    assert_eq!(net.delivered(0), [AppEvent::Completed], "{line}");
    let bytes: u64 = net
        .delivered(1)
        .iter()
        .map(|event| match event {
            AppEvent::Delivered { zeros, bytes } => u64::from(*zeros) + bytes.len() as u64,
            _ => 0,
        })
        .sum();
    assert_eq!(bytes, 200 * 1400, "{line}");
    outcome(&net.record(0).events)
}

fn outcome(events: &[(Time, Event)]) -> Outcome {
    let us = |at: Time| (at.as_nanos() + 500) / 1000;
    let mut got = Outcome { finish_us: 0, sent: 0, timeouts: 0, retransmissions: Vec::new() };
    for &(at, event) in events {
        match event {
            Event::DataSent { seq, repair, .. } => {
                got.sent += 1;
                if repair {
                    let (at_us, count) = (us(at), got.sent);
                    got.retransmissions.push(Retransmission { seq, at_us, count });
                }
            }
            Event::Timeout { .. } => got.timeouts += 1,
            Event::Completed { .. } => got.finish_us = us(at),
            _ => {}
        }
    }
    got
}

/// Says where `got` departs from the reference; `late_us` shifts everything after the first
/// retransmission's cause.
fn compare(line: &str, got: &Outcome, late_us: u64) -> Result<(), String> {
    let want = expected(line);
    let near = |a: u64, b: u64| a.abs_diff(b + late_us) <= 1;
    let same = near(got.finish_us, want.finish_us)
        && got.sent == want.sent
        && got.timeouts == want.timeouts
        && got.retransmissions.len() == want.retransmissions.len()
        && got
            .retransmissions
            .iter()
            .zip(&want.retransmissions)
            .all(|(a, b)| a.seq == b.seq && near(a.at_us, b.at_us) && a.count == b.count);
    if same { Ok(()) } else { Err(format!("{line}\n got {got:?}\nwant {want:?}")) }
}

fn reference_lines() -> Vec<&'static str> {
    let lines: Vec<_> = REFERENCE.lines().filter(|line| line.starts_with("DROP")).collect();
    assert_eq!(lines.len(), 93);
    lines
}

#[test]
fn every_retransmission_happens_when_ns2_makes_it() {
    let failures: Vec<_> = reference_lines()
        .into_iter()
        .filter_map(|line| compare(line, &simulated(line, false, 0), 0).err())
        .collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_phase_of_the_clock_matters_only_where_a_timeout_is_not_the_minimum() {
    for line in reference_lines() {
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
