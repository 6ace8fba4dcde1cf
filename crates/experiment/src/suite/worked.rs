//! The equation and the loss intervals of RFC 4654 at values that were worked out by hand, computed by
//! the very functions with which receivers compute their rate.

use faircast_base::{Duration, Seq, Time};
use faircast_proto::congestion::common::equation::throughput_bits_per_s;
use faircast_proto::congestion::tfmcc::{Arrivals, FirstInterval};
use faircast_report::Row;

use super::judge::one_value;

/// What all ids of these rows begin with.
pub(crate) const ID: &str = "worked";

/// Packets come so far apart.
const GAP: Duration = Duration::from_millis(10);

/// The round trip: losses of five packets in a row are one event.
const RTT: Duration = Duration::from_millis(50);

/// Later packets that show a loss (src: RFC 4654 s5.1).
const THRESHOLD: u32 = 3;

pub(crate) fn rows(only: Option<&str>) -> Vec<Row> {
    let all = equation().into_iter().chain(intervals()).chain(first_intervals());
    all.filter(|row| only.is_none_or(|text| row.id.contains(text))).collect()
}

/// A value that is so far at most from the one that was worked out.
fn value(
    id: String,
    title: String,
    unit: &str,
    worked: f64,
    ours: f64,
    within: f64,
    why: &str,
) -> Row {
    let row = one_value(id, title, unit, ours, worked - within..=worked + within, why);
    Row { paper: Some(worked), absolute: Some(within), ..row }
}

/// 8s / (R (sqrt(2p/3) + 12 sqrt(3p/8) p (1 + 32p^2))) with s = 1000 bytes and R = 100 ms (src:
/// RFC 4654 s2.1), to whole bits per second.
fn equation() -> Vec<Row> {
    let worked = [
        (0.001, "0.1", 3_070_749.0),
        (0.01, "1", 898_658.0),
        (0.05, "5", 294_871.0),
        (0.1, "10", 141_608.0),
    ];
    let row = |(loss, percent, worked): (f64, &str, f64)| {
        let id = format!("{ID}.equation.{percent}");
        let title = format!("the equation at {percent} % loss events, 1000 bytes, 100 ms");
        let ours = throughput_bits_per_s(1000.0, 0.1, loss);
        value(id, title, "bit/s", worked, ours, 0.5, "worked out to whole bits per second")
    };
    worked.into_iter().map(row).collect()
}

/// Losses, what comes up to which packet, and whether the past is discounted.
type Losses<'a> = (&'a str, &'a str, &'a [u32], u32, bool, f64);

fn intervals() -> Vec<Row> {
    // Nine events make eight closed intervals; what was made up for the time before them is gone.
    let even: Vec<u32> = (1..=9).map(|k| 100 * k).collect();
    let mut falling = vec![100];
    for step in [80, 70, 60, 50, 40, 30, 20, 10] {
        falling.push(falling.last().map_or(0, |last| last + step));
    }
    let even_and_one = [&even[..], &[1900]].concat();
    let all: [Losses<'_>; 9] = [
        ("even", "a loss in each 100 packets", &even, 909, false, 100.0),
        // s5.4: (10 + 20 + 30 + 40 + 0.8 * 50 + 0.6 * 60 + 0.4 * 70 + 0.2 * 80) / 6 = 220 / 6.
        ("weights", "intervals of 80 to 10 packets, then 5", &falling, 464, false, 220.0 / 6.0),
        // s5.4: the open interval counts where it makes the mean larger:
        // (100 + 10 + 20 + 30 + 0.8 * 40 + 0.6 * 50 + 0.4 * 60 + 0.2 * 70) / 6 = 260 / 6.
        ("open", "the same, then 100", &falling, 559, false, 260.0 / 6.0),
        // s5.2: the second loss begins no event where it is not more than a round trip after the first:
        // 50 ms are not, and 60 ms are. Before the first are 100 packets by agreement; with two
        // intervals both weigh 1: (6 + 100) / 2. Open are 15 of 10..=24.
        ("one-event", "two losses 50 ms apart, round trip 50 ms", &[10, 15], 24, false, 100.0),
        ("two-events", "two losses 60 ms apart, round trip 50 ms", &[10, 16], 24, false, 53.0),
        // s5.5: I_0 = 250 is more than twice the mean of 100, so DF = 200 / 250 = 0.8, and
        // (250 + 0.8 * 5 * 100) / (1 + 0.8 * 5) = 130; the weights of the seven others sum to 5.
        (
            "discount",
            "a loss in each 100, then 250 without, past discounted",
            &even,
            1149,
            true,
            130.0,
        ),
        // s5.5: 200 / 1000 is less than the least factor, 0.5:
        // (1000 + 0.5 * 5 * 100) / (1 + 0.5 * 5) = 1250 / 3.5.
        (
            "least-discount",
            "then 1000 without, past discounted by half at most",
            &even,
            1899,
            true,
            1250.0 / 3.5,
        ),
        // s5.5: the next event closes the interval of 1000, and the older keep their 0.5.
        (
            "kept-discount",
            "then 1000 without and a loss, which keeps the discount",
            &even_and_one,
            1903,
            true,
            1250.0 / 3.5,
        ),
        // s5.4 without s5.5: (1000 + 5 * 100) / 6.
        ("no-discount", "then 1000 without, past not discounted", &even, 1899, false, 250.0),
    ];
    let row = |(name, title, lost, last, discounting, worked): Losses<'_>| {
        let first = FirstInterval { packets: 100.0, guessed_rtt_s: None };
        let seqs = (0..=last).filter(|seq| !lost.contains(seq));
        interval(name, title, worked, &arrivals(seqs, discounting, first))
    };
    all.into_iter().map(row).collect()
}

/// What a receiver knows when these packets have come.
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

/// The mean loss interval, 1/p, that the RFC makes of arrivals.
fn interval(name: &str, title: &str, worked: f64, arrivals: &Arrivals) -> Row {
    let (id, title) = (format!("{ID}.interval.{name}"), format!("mean interval: {title}"));
    let why = "nothing is random, and a mean of whole numbers is exact but for rounding";
    value(id, title, "packets", worked, 1.0 / arrivals.loss(), 1e-6, why)
}

/// s5.6: l_0 = (X_recv R / (sqrt(3/2) 8s))^2, of 1 Mbit/s, 100 ms and 1000 bytes (100 000 / 9797.96)^2
/// = 104.1667; where 500 ms was a guess of the round trip and it turns out to be 200 ms, (0.2/0.5)^2 of
/// (500 000 / 9797.96)^2 = 2604.1667.
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
            assert!(row.holds, "{}: {} for {:?}", row.id, row.ours, row.paper);
            assert!(!super::rows(Some(&row.id)).is_empty());
        }
        assert!(super::rows(Some("beside-tcp")).is_empty());
    }
}
