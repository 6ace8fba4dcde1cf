//! Single transfers over a chain of four nodes, against what ns-2 did with them.

use faircast_base::{Duration, Event, Time};
use faircast_proto::AppEvent;
use faircast_proto::content::Zeros;
use faircast_proto::options::Options;
use faircast_proto::tcp::Flavour;

use super::{FlowSpec, Net, link};

/// What happened in a transfer, with times in microseconds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) finish_us: u64,
    pub(crate) sent: u64,
    pub(crate) timeouts: u64,
    pub(crate) cuts: Option<u64>,
    pub(crate) retransmissions: Vec<Retransmission>,
}

/// A retransmission: of which packet, when, and the how manieth packet sent it was.
#[derive(Debug, PartialEq)]
pub(crate) struct Retransmission {
    pub(crate) seq: u64,
    pub(crate) at_us: u64,
    pub(crate) count: u64,
}

/// A transfer to run.
pub(crate) struct Case {
    pub(crate) flavour: Flavour,
    pub(crate) packets: u64,
    pub(crate) options: Options,
    /// Packets to drop on the middle link, counted from 0.
    pub(crate) drops: Vec<u64>,
    /// Acknowledgements to drop on their middle link, counted from 0.
    pub(crate) ack_drops: Vec<u64>,
}

/// The value of `key=value` in a line of words.
pub(crate) fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

pub(crate) fn flavour(line: &str) -> Flavour {
    match field(line, "flavour") {
        Some("Reno") => Flavour::Reno,
        Some("Newreno") => Flavour::NewReno,
        Some("Sack1") => Flavour::Sack,
        other => panic!("unknown flavour {other:?}"),
    }
}

pub(crate) fn numbers(list: &str) -> Vec<u64> {
    list.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
}

/// Reads an outcome from a line such as `finish=1.872384 sent=202 rexmit=1 timeouts=0
/// rtx=20@0.522976#41`.
pub(crate) fn expected(line: &str) -> Outcome {
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

/// Runs a transfer to its end.
pub(crate) fn run(case: &Case, seed: u64) -> Outcome {
    let chain = |ms| link(10_000_000, Duration::from_millis(ms), u32::MAX);
    let mut links: Vec<_> = [1, 48, 1, 1, 48, 1].into_iter().map(chain).collect();
    // A link's list counts from 1.
    links[1].drop_list = case.drops.iter().map(|n| n + 1).collect();
    links[4].drop_list = case.ack_drops.iter().map(|n| n + 1).collect();
    let bytes = case.packets * 1400;
    let flow = FlowSpec {
        flavour: case.flavour,
        start: Time::ZERO,
        payload: 1400,
        header: Some(0),
        content: Box::new(Zeros { len: Some(bytes) }),
        options: case.options.clone(),
        path: vec![0, 1, 2],
        back: vec![3, 4, 5],
    };
    let mut net = Net::new(&links, vec![flow], seed, Time::ZERO);
    net.record(0).keep = true;
    net.run(Time::from_nanos(1_000_000_000_000));
    assert_eq!(net.delivered(0), [AppEvent::Completed]);
    let delivered = net.delivered(1).iter().map(|event| match event {
        AppEvent::Delivered { zeros, bytes } => u64::from(*zeros) + bytes.len() as u64,
        _ => 0,
    });
    assert_eq!(delivered.sum::<u64>(), bytes);
    outcome(&net.record(0).events)
}

fn outcome(events: &[(Time, Event)]) -> Outcome {
    let us = |at: Time| (at.as_nanos() + 500) / 1000;
    let mut got = Outcome { cuts: Some(0), ..Outcome::default() };
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
            Event::Cut { .. } => got.cuts = got.cuts.map(|n| n + 1),
            Event::Completed { .. } => got.finish_us = us(at),
            _ => {}
        }
    }
    got
}

/// Says where `got` departs from the line's outcome by more than a microsecond, all times
/// `late_us` later than there.
pub(crate) fn compare(line: &str, got: &Outcome, late_us: u64) -> Result<(), String> {
    let want = expected(line);
    let near = |a: u64, b: u64| a.abs_diff(b + late_us) <= 1;
    let same = near(got.finish_us, want.finish_us)
        && got.sent == want.sent
        && got.timeouts == want.timeouts
        && (want.cuts.is_none() || got.cuts == want.cuts)
        && got.retransmissions.len() == want.retransmissions.len()
        && got
            .retransmissions
            .iter()
            .zip(&want.retransmissions)
            .all(|(a, b)| a.seq == b.seq && near(a.at_us, b.at_us) && a.count == b.count);
    if same {
        return Ok(());
    }
    let first = got
        .retransmissions
        .iter()
        .zip(&want.retransmissions)
        .position(|(a, b)| a != b)
        .map(|i| (&got.retransmissions[i], &want.retransmissions[i]));
    Err(format!(
        "{line}\n got finish {} sent {} timeouts {} cuts {:?}, first difference {first:?}",
        got.finish_us, got.sent, got.timeouts, got.cuts
    ))
}
