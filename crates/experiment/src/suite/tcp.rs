//! The suite `tcp`: our TCP, queues and links against ns-2.35, figure by figure.
//!
//! Its rows come from the table of reference values, `scenarios/tcp/ns2_reference.csv`; here stands
//! what each of its sets means as a scenario, and how near to ns-2 each figure must come. Where two
//! standard errors of the difference, from the spread of ns-2's own runs, are wider than that, they
//! decide: two sets of ten runs of ns-2 itself would differ by as much.

use std::collections::BTreeMap;

use super::bundled::bundled;
use super::file::{Bundled, Experiment, RowFile, Statistic, SuiteFile};
use super::measure::Measure;

/// The suite's files.
pub(crate) static FILES: Bundled =
    bundled!("tcp", "ns2_reference.csv", "one-flow" "two-flows" "drop-list" "chain");

/// Seeds of each experiment, as many as most rows of the reference have.
const SEEDS: u32 = 10;

/// One line of the reference: set, flavours and number of flows, with its metrics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case<'a> {
    set: &'a str,
    flavour: &'a str,
    flows: u32,
}

/// Mean and standard deviation by metric.
type Metrics<'a> = BTreeMap<&'a str, (f64, f64)>;

/// The suite.
pub(crate) fn suite() -> SuiteFile {
    let mut cases: BTreeMap<Case<'_>, Metrics<'_>> = BTreeMap::new();
    for line in FILES.suite.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let [set, flavour, flows, metric, mean, sd] =
            line.split(',').collect::<Vec<_>>().try_into().expect("the reference has six columns");
        let number = |text: &str| text.parse::<f64>().expect("the reference has numbers");
        let flows = flows.parse().expect("the reference counts flows");
        let case = Case { set, flavour, flows };
        cases.entry(case).or_default().insert(metric, (number(mean), number(sd)));
    }
    let dumbbells = cases.iter().filter(|(case, _)| !case.set.starts_with("v."));
    let dumbbells = dumbbells.map(|(case, metrics)| dumbbell(case, metrics));
    // Set v: chaotic in its shares, so only its trend is checked.
    let chains = [("base", 50), ("base", 100), ("ovh", 50), ("ovh", 100)];
    let chains = chains.into_iter().map(|(variant, packets)| chain(variant, packets));
    SuiteFile {
        against_sim: false,
        variants: BTreeMap::new(),
        name: "tcp".into(),
        title: "Does our TCP do what ns-2's does?".into(),
        seeds: SEEDS,
        session: None,
        experiments: dumbbells.chain(chains).collect(),
    }
}

/// Sets i to iv: one or two flows over one bottleneck.
fn dumbbell(case: &Case<'_>, metrics: &Metrics<'_>) -> Experiment {
    let parts: Vec<&str> = case.set.split('.').collect();
    let mut set = Vec::new();
    let variant = parts[1].trim_start_matches("mix-");
    let flavours: Vec<&str> = match case.flavour.split_once('+') {
        Some((first, second)) => vec![first, second],
        None => vec![case.flavour; case.flows as usize],
    };
    let mut overhead_ms = 10;
    match parts[0] {
        "ii" => {
            // 2 x (1 + L + 1) ms of propagation give the set's round trip.
            let (delay_ms, loss) = match (parts[2], case.set.rsplit_once(".p0.")) {
                (rtt, Some((_, digits))) => (if rtt == "rtt400" { 198 } else { 98 }, digits),
                _ => unreachable!("set ii names round trip and loss"),
            };
            set.push(format!("link.0.loss=0.{loss}"));
            set.extend(bottleneck("10 Mbit/s", delay_ms, 1_000_000));
        }
        "iii" => {
            let (rate, delay_ms) = match parts[2] {
                "low-owd200" => ("500 kbit/s", 200),
                "low-rtt200" => ("500 kbit/s", 98),
                "high-owd800" => ("1 Mbit/s", 800),
                _ => ("1 Mbit/s", 398),
            };
            set.extend(bottleneck(rate, delay_ms, 30));
        }
        "iv" => {
            overhead_ms = 8;
            let rate = if case.set.ends_with("0.9Mb") { "900 kbit/s" } else { "1 Mbit/s" };
            set.extend(bottleneck(rate, 49, 50));
            if parts[2] != "dt" {
                let gentle = parts[2] == "redg";
                set.push(format!(
                    "link.0.queue={{kind=\"red\",min=5,max=15,weight=0.002,max_p=0.1,\
                     gentle={gentle},packets=50,mean_packet=\"1000 B\"}}"
                ));
            }
            set.push("duration=1000 s".into());
        }
        _ => {}
    }
    for (index, flavour) in flavours.iter().enumerate() {
        let flow = format!("flow.tcp-{}", index + 1);
        set.push(format!("{flow}.protocol={}", protocol(flavour)));
        if parts[0] == "iv" {
            set.push(format!("{flow}.packet=1000 B"));
        }
        set.extend(variant_settings(variant, overhead_ms, &flow));
    }
    Experiment {
        id: format!("{}.{}.{}", case.set, case.flavour, case.flows),
        group: group(parts[0]).into(),
        question: format!(
            "{} x {} in set {}: same figures as ns-2?",
            case.flows, case.flavour, case.set
        ),
        scenario: if case.flows == 1 { "one-flow.toml" } else { "two-flows.toml" }.into(),
        set,
        rows: dumbbell_rows(case, &parts, metrics),
        ..Experiment::default()
    }
}

fn bottleneck(rate: &str, delay_ms: u32, packets: u32) -> Vec<String> {
    let both =
        |key: &str, value: &str| [format!("link.0.{key}={value}"), format!("link.1.{key}={value}")];
    let mut set: Vec<String> = both("rate", rate).into();
    set.extend(both("delay", &format!("{delay_ms} ms")));
    set.push(format!("link.0.queue={{kind=\"droptail\",packets={packets}}}"));
    set
}

pub(super) fn protocol(flavour: &str) -> &'static str {
    match flavour {
        "Reno" => "tcp-reno",
        "Newreno" => "tcp-newreno",
        _ => "tcp-sack",
    }
}

fn group(set: &str) -> &'static str {
    match set {
        "i" => "Set i: 500 kbit/s, 50 ms, drop-tail",
        "ii" => "Set ii: independent loss",
        "iii" => "Set iii: low and high bandwidth-delay product",
        "iv" => "Set iv: drop-tail and RED",
        _ => "Set v: a chain of bottlenecks",
    }
}

/// What a variant of the reference changed in ns-2.
fn variant_settings(variant: &str, overhead_ms: u32, flow: &str) -> Vec<String> {
    let option = |key: &str, value: &str| format!("{flow}.options.{key}={value}");
    let mut settings = Vec::new();
    if variant.ends_with("ovh") {
        settings.push(option("overhead", &format!("{overhead_ms} ms")));
    }
    if variant.starts_with("era") {
        // The defaults of 2001 and 2002.
        settings.push(option("clock_granularity", "100 ms"));
        settings.push(option("min_rto", "1 s"));
        settings.push(option("initial_rto", "6 s"));
        settings.push(option("limited_transmit", "false"));
        settings.push(option("precision_reduce", "false"));
    }
    if variant == "delack" {
        settings.push(option("delayed_ack", "true"));
    }
    if variant == "hdr" {
        settings.push(format!("{flow}.header=40 B"));
    }
    settings
}

/// The figures of a dumbbell case with their tolerances: those recommended with the reference.
fn dumbbell_rows(case: &Case<'_>, parts: &[&str], metrics: &Metrics<'_>) -> Vec<RowFile> {
    let rows = Rows { case, metrics };
    let overhead = parts[1].ends_with("ovh");
    let red = parts.get(2).is_some_and(|queue| queue.starts_with("red"));
    let high = parts.get(2).is_some_and(|link| link.starts_with("high"));
    let one = case.flows == 1;
    match (parts[0], overhead, red) {
        ("ii", ..) => rows.lossy(),
        (_, _, true) => vec![
            rows.near("sum_pps", Near::Share(0.003)),
            rows.near("queue_loss", Near::Share(0.04)),
            rows.near("flow_cuts", Near::Share(0.04)),
            rows.near("mean_queue_pkts", Near::Share(0.02)),
            rows.near("flow_timeouts", Near::AtMost(4.0)),
        ],
        ("iii", true, _) if !high => vec![rows.near("sum_pps", Near::Share(0.005))],
        ("iii", true, _) => vec![rows.near("sum_pps", Near::Share(0.03))],
        (_, true, _) => rows.with_overhead(parts),
        (_, false, _) if one => vec![
            rows.near("sum_pps", Near::Share(if high { 0.005 } else { 0.001 })),
            rows.near("flow_cuts", Near::Distance(1.0)),
            rows.near("queue_loss", Near::Share(if high { 0.05 } else { 0.01 })),
            rows.near("mean_queue_pkts", Near::Distance(0.05)),
            rows.near("flow_timeouts", Near::Distance(0.5)),
        ],
        _ => vec![
            rows.near("sum_pps", Near::Share(if high { 0.005 } else { 0.001 })),
            rows.near("queue_loss", Near::Share(0.02)),
            rows.near("mean_queue_pkts", Near::Share(0.02)),
        ],
    }
}

/// How near a figure must come.
enum Near {
    Share(f64),
    Distance(f64),
    AtMost(f64),
}

struct Rows<'a> {
    case: &'a Case<'a>,
    metrics: &'a Metrics<'a>,
}

impl Rows<'_> {
    fn near(&self, metric: &str, near: Near) -> RowFile {
        let (mean, sd) = self.metrics[metric];
        // ns-2's table has loss as a ratio.
        let scale = if metric == "queue_loss" { 100.0 } else { 1.0 };
        let (title, measure, unit) = describe(metric);
        let (mut tolerance, mut absolute, mut at_most) = (None, None, None);
        let noise = 2.0 * sd * scale * faircast_base::math::sqrt(2.0 / f64::from(SEEDS));
        let wanted = match near {
            Near::Share(share) => share * (mean * scale).abs(),
            Near::Distance(distance) => distance,
            Near::AtMost(_) => f64::INFINITY,
        };
        let reason = match near {
            Near::Share(_) | Near::Distance(_) if noise > wanted => {
                absolute = Some(noise);
                "two standard errors of the difference, from the spread of ns-2's own runs"
            }
            Near::Share(share) => {
                tolerance = Some(share);
                "as recommended with the reference, from the spread of ns-2's own runs"
            }
            Near::Distance(distance) => {
                absolute = Some(distance);
                "as recommended with the reference: rare events, or nothing random but the start"
            }
            Near::AtMost(most) => {
                at_most = Some(most);
                "rare events"
            }
        };
        let Case { set, flavour, flows } = self.case;
        RowFile {
            title: format!("{set}, {flows} x {flavour}: {title}"),
            paper: Some(mean * scale),
            tolerance,
            absolute,
            at_most,
            ..mean_row(format!("{set}.{flavour}.{flows}.{metric}"), measure, unit, reason)
        }
    }

    fn lossy(&self) -> Vec<RowFile> {
        let high_loss = self.case.set.ends_with("0.08");
        let low_loss = self.case.set.ends_with("0.004");
        let timeouts = match self.case.flavour {
            "Reno" if !low_loss => Near::Share(0.08),
            _ if low_loss => Near::Distance(3.0),
            _ => Near::Share(0.2),
        };
        vec![
            self.near("sum_pps", Near::Share(if high_loss { 0.03 } else { 0.02 })),
            self.near("queue_loss", Near::Share(0.02)),
            self.near("flow_timeouts", timeouts),
        ]
    }

    /// Sets i and iv with a random overhead at the sender.
    fn with_overhead(&self, parts: &[&str]) -> Vec<RowFile> {
        let mut rows = vec![
            self.near("sum_pps", Near::Share(0.005)),
            self.near("queue_loss", Near::Share(0.05)),
        ];
        if parts[1].contains("mix") {
            if self.case.flavour == "Reno+Sack1" && parts[1] == "mix-ovh" {
                rows.push(self.near("flow0.flow_kbps", Near::Distance(10.0)));
                rows.push(self.near("flow1.flow_kbps", Near::Distance(10.0)));
            }
            return rows;
        }
        rows.push(self.near("flow_cuts", Near::Share(0.03)));
        let timeouts = self.metrics["flow_timeouts"].0;
        rows.push(match self.case.flavour {
            "Reno" => self.near("flow_timeouts", Near::Share(0.1)),
            "Newreno" if timeouts > 3.0 => self.near("flow_timeouts", Near::Share(0.35)),
            "Newreno" => self.near("flow_timeouts", Near::Distance(3.0)),
            _ => self.near("flow_timeouts", Near::AtMost(3.0)),
        });
        rows
    }
}

/// A row of the mean over the seeds, of which nothing is expected yet.
fn mean_row(id: String, measure: &str, unit: &str, reason: &str) -> RowFile {
    RowFile {
        id: Some(id),
        title: String::new(),
        measure: Measure::try_from(measure.to_string()).expect("the measures here are valid"),
        unit: unit.into(),
        statistic: Statistic::Mean,
        paper: None,
        tolerance: None,
        absolute: None,
        at_least: None,
        at_most: None,
        fairer_than: None,
        reason: reason.into(),
        no_effect: None,
        within_seeds: false,
        explained: None,
        proved_by: Vec::new(),
        conjecture: None,
        conjecture_in_lab: None,
        fitted: None,
        baseline: false,
        fairness: false,
    }
}

/// A metric of the reference: in words, as a measure, with its unit.
fn describe(metric: &str) -> (&'static str, &'static str, &'static str) {
    match metric {
        "sum_pps" => ("packets of all flows", "sum packets_per_s tcp-*", "packets/s"),
        "flow_cuts" => ("window cuts of a flow", "cuts tcp-*", "count"),
        "flow_timeouts" => ("timeouts of a flow", "timeouts tcp-*", "count"),
        "queue_loss" => ("loss at the bottleneck", "loss_percent r1>r2", "%"),
        "mean_queue_pkts" => ("mean queue", "queue_mean r1>r2", "packets"),
        "flow0.flow_kbps" => ("throughput of the first", "throughput_kbps tcp-1", "kbit/s"),
        "flow1.flow_kbps" => ("throughput of the second", "throughput_kbps tcp-2", "kbit/s"),
        other => unreachable!("the reference has no metric {other}"),
    }
}

fn chain(variant: &str, packets: u32) -> Experiment {
    let id = format!("v.{variant}.q{packets}");
    let mut set: Vec<String> = (0..5)
        .map(|link| format!("link.{link}.queue={{kind=\"droptail\",packets={packets}}}"))
        .collect();
    for flow in ["long", "hop-1", "hop-2", "hop-3", "hop-4", "hop-5"] {
        set.extend(variant_settings(variant, 4, &format!("flow.{flow}")));
    }
    let reason = "shares on a chain are chaotic in ns-2 too: a trend and no number";
    let row = |name: &str, title: String, measure: String, low: Option<f64>, high: Option<f64>| {
        let unit = if name.contains("falls") { "ratio" } else { "bit/s" };
        let row = mean_row(format!("{id}.{name}"), &measure, unit, reason);
        RowFile { title, at_least: low, at_most: high, ..row }
    };
    let window = |phase: u32| format!("{}..{}", 150 * phase + 30, 150 * phase + 150);
    let long = |phase: u32| format!("throughput_bps@{} long", window(phase));
    let mut rows = vec![
        row("alone", format!("{id}: the long flow alone"), long(0), Some(1.996e6), Some(2.004e6)),
        row("phase-1", format!("{id}: beside one"), long(1), Some(230e3), Some(900e3)),
        row("phase-2", format!("{id}: beside two"), long(2), None, Some(450e3)),
        row("phase-5", format!("{id}: beside five"), long(5), None, Some(60e3)),
    ];
    for phase in 1..=5 {
        let before = long(phase - 1);
        let falls = format!("{} / {before}", long(phase));
        let title = format!("{id}: the long flow's share falls in phase {phase}");
        rows.push(row(&format!("falls-{phase}"), title, falls, None, Some(0.999)));
        let title = format!("{id}: both flows fill the first link in phase {phase}");
        let fills = format!("sum throughput_bps@{} long,hop-1", window(phase));
        rows.push(row(&format!("fills-{phase}"), title, fills, Some(1.97e6), Some(2.001e6)));
    }
    Experiment {
        id,
        group: group("v").into(),
        question: format!("What is left over five links, queues of {packets}, {variant}?"),
        scenario: "chain.toml".into(),
        set,
        rows,
        ..Experiment::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_reference_becomes_an_experiment_with_rows_that_can_fail() {
        let suite = suite();
        assert!(suite.experiments.len() > 150, "{}", suite.experiments.len());
        for experiment in &suite.experiments {
            assert!(!experiment.rows.is_empty(), "{}", experiment.id);
            for row in &experiment.rows {
                let (low, high) = row.range();
                assert!(low.is_finite() || high.is_finite(), "{:?}", row.id);
            }
        }
    }
}
