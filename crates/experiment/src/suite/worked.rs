//! The equation and the loss intervals of RFC 4654 at values that were worked out by hand, computed by
//! the very functions with which receivers compute their rate.

use faircast_base::{Duration, Seq, Time};
use faircast_proto::congestion::common::equation::throughput_bits_per_s;
use faircast_proto::congestion::tfmcc::{Arrivals, FirstInterval};
use faircast_report::Row;

use super::judge::one_value;

/// What these rows ask.
pub(crate) const QUESTION: &str =
    "Do the equation and the loss intervals give what RFC 4654 makes of the same packets?";

/// What all ids of these rows begin with.
pub(crate) const ID: &str = "worked";

/// Packets come so far apart.
const GAP: Duration = Duration::from_millis(10);

/// The round trip: losses of five packets in a row are one event.
const RTT: Duration = Duration::from_millis(50);

/// Later packets that show a loss (src: RFC 4654 s5.1).
const THRESHOLD: u32 = 3;

/// Whether `--only` chooses any of these rows.
pub(crate) fn is_chosen(only: Option<&str>) -> bool {
    cases(only).next().is_some()
}

/// The rows that `--only` chooses.
pub(crate) fn rows(only: Option<&str>) -> Vec<Row> {
    cases(only).map(|case| case.row()).collect()
}

fn cases(only: Option<&str>) -> impl Iterator<Item = Case> {
    let all = equation().into_iter().chain(intervals()).chain(first_intervals());
    all.filter(move |case| only.is_none_or(|text| case.id.contains(text)))
}

/// A value with what it must be.
struct Case {
    id: String,
    title: String,
    unit: &'static str,
    worked: f64,
    ours: f64,
    /// How far ours may be from it.
    within: f64,
    why: &'static str,
}

impl Case {
    fn row(self) -> Row {
        let Self { id, title, unit, worked, ours, within, why } = self;
        Row {
            id,
            title,
            unit: unit.into(),
            paper: Some(worked),
            accept_low: Some(worked - within),
            accept_high: Some(worked + within),
            // A value that is not a number holds nothing.
            holds: (ours - worked).abs() <= within,
            absolute: Some(within),
            tolerance_reason: why.into(),
            group: "Worked by hand".into(),
            experiment: ID.into(),
            question: QUESTION.into(),
            ..one_value(ours)
        }
    }
}

/// 8s / (R (sqrt(2p/3) + 12 sqrt(3p/8) p (1 + 32p^2))) with s = 1000 bytes and R = 100 ms (src:
/// RFC 4654 s2.1), to whole bits per second.
fn equation() -> Vec<Case> {
    let worked = [
        (0.001, "0.1", 3_070_749.0),
        (0.01, "1", 898_658.0),
        (0.05, "5", 294_871.0),
        (0.1, "10", 141_608.0),
    ];
    let case = |(loss, percent, worked): (f64, &str, f64)| Case {
        id: format!("{ID}.equation.{percent}"),
        title: format!("the equation at {percent} % loss events, 1000 bytes, 100 ms"),
        unit: "bit/s",
        worked,
        ours: throughput_bits_per_s(1000.0, 0.1, loss),
        within: 0.5,
        why: "worked out to whole bits per second",
    };
    worked.into_iter().map(case).collect()
}

fn intervals() -> Vec<Case> {
    // Nine events make eight closed intervals; what was made up for the time before them is gone.
    let even: Vec<u32> = (1..=9).map(|k| 100 * k).collect();
    let mut falling = vec![100];
    for step in [80, 70, 60, 50, 40, 30, 20, 10] {
        falling.push(falling.last().map_or(0, |last| last + step));
    }
    vec![
        losses("even", "a loss in each 100 packets", &even, 909, false, 100.0),
        // s5.4: (10 + 20 + 30 + 40 + 0.8 * 50 + 0.6 * 60 + 0.4 * 70 + 0.2 * 80) / 6 = 220 / 6.
        losses(
            "weights",
            "intervals of 80 to 10 packets, then 5",
            &falling,
            464,
            false,
            220.0 / 6.0,
        ),
        // s5.4: the open interval counts where it makes the mean larger:
        // (100 + 10 + 20 + 30 + 0.8 * 40 + 0.6 * 50 + 0.4 * 60 + 0.2 * 70) / 6 = 260 / 6.
        losses("open", "the same, then 100", &falling, 559, false, 260.0 / 6.0),
        // s5.2: the second loss begins no event where it is not more than a round trip after the first:
        // 50 ms are not, and 60 ms are. Before the first are 100 packets by agreement; with two
        // intervals both weigh 1: (6 + 100) / 2. Open are 15 of 10..=24.
        losses(
            "one-event",
            "two losses 50 ms apart, round trip 50 ms",
            &[10, 15],
            24,
            false,
            100.0,
        ),
        losses(
            "two-events",
            "two losses 60 ms apart, round trip 50 ms",
            &[10, 16],
            24,
            false,
            53.0,
        ),
        // s5.5: I_0 = 250 is more than twice the mean of 100, so DF = 200 / 250 = 0.8, and
        // (250 + 0.8 * 5 * 100) / (1 + 0.8 * 5) = 130; the weights of the seven others sum to 5.
        losses(
            "discount",
            "a loss in each 100, then 250 without, past discounted",
            &even,
            1149,
            true,
            130.0,
        ),
        // s5.5: 200 / 1000 is less than the least factor, 0.5:
        // (1000 + 0.5 * 5 * 100) / (1 + 0.5 * 5) = 1250 / 3.5.
        losses(
            "least-discount",
            "then 1000 without, past discounted by half at most",
            &even,
            1899,
            true,
            1250.0 / 3.5,
        ),
        // s5.5: the next event closes the interval of 1000, and the older keep their 0.5.
        losses(
            "kept-discount",
            "then 1000 without and a loss, which keeps the discount",
            &[&even[..], &[1900]].concat(),
            1903,
            true,
            1250.0 / 3.5,
        ),
        // s5.4 without s5.5: (1000 + 5 * 100) / 6.
        losses("no-discount", "then 1000 without, past not discounted", &even, 1899, false, 250.0),
    ]
}

/// The mean loss interval, 1/p, that the RFC makes of these losses where packets arrive up to `last`.
fn losses(
    name: &str,
    title: &str,
    lost: &[u32],
    last: u32,
    discounting: bool,
    worked: f64,
) -> Case {
    let first = FirstInterval { packets: 100.0, guessed_rtt_s: None };
    let mut arrivals = Arrivals::new(THRESHOLD, discounting);
    for seq in (0..=last).filter(|seq| !lost.contains(seq)) {
        let now = Time::ZERO + GAP * u64::from(seq);
        arrivals.received(now, Seq::new(seq), false, RTT, &|| first);
    }
    interval(name, title.to_string(), worked, &arrivals)
}

fn interval(name: &str, title: String, worked: f64, arrivals: &Arrivals) -> Case {
    Case {
        id: format!("{ID}.interval.{name}"),
        title: format!("mean interval: {title}"),
        unit: "packets",
        worked,
        ours: 1.0 / arrivals.loss(),
        within: 1e-6,
        why: "nothing is random, and a mean of whole numbers is exact but for rounding",
    }
}

/// s5.6: l_0 = (X_recv R / (sqrt(3/2) 8s))^2, of 1 Mbit/s, 100 ms and 1000 bytes (100 000 / 9797.96)^2
/// = 104.1667; where 500 ms was a guess of the round trip and it turns out to be 200 ms, (0.2/0.5)^2 of
/// (500 000 / 9797.96)^2 = 2604.1667.
fn first_intervals() -> Vec<Case> {
    let after_first_loss = |rtt_s: f64, guessed: bool| {
        let first = FirstInterval::of(1e6, 1000.0, rtt_s, guessed);
        let mut arrivals = Arrivals::new(THRESHOLD, true);
        for seq in [0, 2, 3, 4] {
            let now = Time::ZERO + GAP * u64::from(seq);
            arrivals.received(now, Seq::new(seq), false, RTT, &|| first);
        }
        arrivals
    };
    let measured = after_first_loss(0.1, false);
    let mut guessed = after_first_loss(0.5, true);
    guessed.correct_first_interval(0.2);
    vec![
        interval(
            "first",
            "before the first loss, at 1 Mbit/s and 100 ms".into(),
            625.0 / 6.0,
            &measured,
        ),
        interval(
            "first-guessed",
            "the same of a guess of 500 ms that is put right by 200 ms".into(),
            1250.0 / 3.0,
            &guessed,
        ),
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
            assert!(is_chosen(Some(&row.id)));
        }
        assert!(!is_chosen(Some("beside-tcp")));
    }

    #[test]
    fn a_value_that_is_off_or_no_number_does_not_hold() {
        for ours in [1.1, f64::NAN, f64::INFINITY] {
            let case = Case {
                id: String::new(),
                title: String::new(),
                unit: "bit/s",
                worked: 1.0,
                ours,
                within: 0.01,
                why: "",
            };
            assert!(!case.row().holds, "{ours}");
        }
    }
}
