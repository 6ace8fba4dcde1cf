//! Equation and loss intervals of RFC 4654, computed at values worked out by hand.

use faircast_base::{Duration, Seq, Time};
use faircast_proto::congestion::common::equation::throughput_bits_per_s;
use faircast_proto::congestion::tfmcc::{Arrivals, FirstInterval};
use faircast_report::Row;
use serde::Deserialize;

use super::file::from_toml;
use super::judge::one_value;

/// Prefix of the ids of these rows.
pub(crate) const ID: &str = "worked";

const GAP: Duration = Duration::from_millis(10);

/// Round-trip time: losses of five consecutive packets are one event.
const RTT: Duration = Duration::from_millis(50);

/// Later packets that prove a loss (src: RFC 4654 s5.1).
const THRESHOLD: u32 = 3;

pub(crate) fn rows(only: Option<&str>) -> Vec<Row> {
    let worked: Worked = from_toml("worked", include_str!("worked.toml")).expect("a test reads it");
    let closed = worked.interval.into_iter().map(closed);
    let all = worked.equation.into_iter().map(equation).chain(closed).chain(first_intervals());
    all.filter(|row| only.is_none_or(|text| row.id.contains(text))).collect()
}

fn value(
    id: String,
    title: String,
    unit: &str,
    worked: f64,
    ours: f64,
    within: f64,
    why: &str,
) -> Row {
    let mut row = one_value(id, title, unit, ours, worked - within..=worked + within, why);
    row.expected.paper = Some(worked);
    row.accepted.absolute = Some(within);
    row
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Worked {
    equation: Vec<Equation>,
    interval: Vec<Interval>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Equation {
    percent: String,
    worked: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Interval {
    name: String,
    title: String,
    lost: Vec<u32>,
    last: u32,
    #[serde(default)]
    discounting: bool,
    worked: [f64; 2],
}

fn equation(Equation { percent, worked }: Equation) -> Row {
    let id = format!("{ID}.equation.{percent}");
    let title = format!("the equation at {percent} % loss events, 1000 bytes, 100 ms");
    let loss = percent.parse::<f64>().expect("the table has numbers") / 100.0;
    let ours = throughput_bits_per_s(1000.0, 0.1, loss);
    value(id, title, "bit/s", worked, ours, 0.5, "worked out to whole bits per second")
}

fn closed(Interval { name, title, lost, last, discounting, worked: [over, by] }: Interval) -> Row {
    let first = FirstInterval { packets: 100.0, guessed_rtt_s: None };
    let seqs = (0..=last).filter(|seq| !lost.contains(seq));
    interval(&name, &title, over / by, &arrivals(seqs, discounting, first))
}

fn arrivals(
    seqs: impl IntoIterator<Item = u32>,
    discounting: bool,
    first: FirstInterval,
) -> Arrivals {
    let mut arrivals = Arrivals::new(THRESHOLD, discounting);
    for seq in seqs {
        let now = Time::ZERO + GAP * u64::from(seq);
        arrivals.received(now, (Seq::new(seq), false), None, RTT, &|| first);
    }
    arrivals
}

fn interval(name: &str, title: &str, worked: f64, arrivals: &Arrivals) -> Row {
    let (id, title) = (format!("{ID}.interval.{name}"), format!("mean interval: {title}"));
    let why = "nothing is random, and a mean of whole numbers is exact but for rounding";
    value(id, title, "packets", worked, 1.0 / arrivals.loss(), 1e-6, why)
}

/// Returns the rows of s5.6: l_0 = (X_recv R / (sqrt(3/2) 8s))^2. For 1 Mbit/s, 100 ms and 1000
/// bytes, (100 000 / 9797.96)^2 = 104.1667. For a guess of 500 ms and a measured round trip of 200
/// ms, l_0 is (0.2/0.5)^2 of (500 000 / 9797.96)^2 = 2604.1667.
fn first_intervals() -> Vec<Row> {
    let after_first_loss = |rtt_s: f64, guessed: bool| {
        arrivals([0, 2, 3, 4], true, FirstInterval::of(1e6, 1000.0, rtt_s, guessed))
    };
    let measured = after_first_loss(0.1, false);
    let mut guessed = after_first_loss(0.5, true);
    guessed.correct_first_interval(0.2);
    let corrected = "the same of a guess of 500 ms that is put right by 200 ms";
    vec![
        interval("first", "before the first loss, at 1 Mbit/s and 100 ms", 625.0 / 6.0, &measured),
        interval("first-guessed", corrected, 1250.0 / 3.0, &guessed),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worked_value_holds_and_can_be_chosen_alone() {
        let rows = rows(None);
        assert_eq!(rows.len(), 15);
        for row in rows {
            assert!(
                row.accepted.holds,
                "{}: {} for {:?}",
                row.id, row.values.ours, row.expected.paper
            );
            assert!(!super::rows(Some(&row.id)).is_empty());
        }
        assert!(super::rows(Some("beside-tcp")).is_empty());
    }
}
