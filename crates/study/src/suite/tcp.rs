//! Suite `tcp`: our TCP, queues and links compared with ns-2.35, figure by figure.
//!
//! A tolerance is at least two standard errors of the difference, from the spread of ns-2.

use super::bundled::bundled;
use super::file::{Bundled, Experiment, RowFile, SuiteFile, from_toml};

pub(crate) const NAME: &str = "tcp";

pub(crate) static FILES: Bundled =
    bundled!("tcp", "suite.toml", "one-flow" "two-flows" "drop-list" "chain");

const REFERENCE: &str = include_str!("../../../../scenarios/tcp/ns2_reference.csv");

struct Line<'a> {
    set: &'a str,
    flavour: &'a str,
    flows: usize,
    metric: &'a str,
    mean: f64,
    sd: f64,
    /// Kind and size of the tolerance; empty for a metric that is not judged.
    near: &'a str,
}

pub(crate) fn suite() -> SuiteFile {
    let mut suite: SuiteFile = read(FILES.suite);
    let (chains, sets): (Vec<_>, Vec<_>) =
        suite.experiments.drain(..).partition(|experiment| experiment.id.starts_with("v."));
    let lines = REFERENCE.lines().filter(|line| !line.starts_with('#')).skip(1).map(parse);
    let judged: Vec<Line<'_>> = lines.filter(|line| !line.near.is_empty()).collect();
    let cases = judged.chunk_by(|a, b| case(a) == case(b)).map(|lines| {
        let set = sets.iter().find(|set| set.id == lines[0].set).expect("the suite has all sets");
        dumbbell(set, lines, suite.seeds)
    });
    suite.experiments = cases.chain(chains).collect();
    suite
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    from_toml("tcp", text).unwrap_or_else(|problem| panic!("the suite is valid: {problem}"))
}

fn parse(line: &str) -> Line<'_> {
    let [set, flavour, flows, metric, mean, sd, near] =
        line.split(',').collect::<Vec<_>>().try_into().expect("the reference has seven columns");
    let flows = flows.parse().expect("the reference counts flows");
    Line { set, flavour, flows, metric, mean: number(mean), sd: number(sd), near }
}

fn number(text: &str) -> f64 {
    text.parse().expect("the reference has numbers")
}

fn case(line: &Line<'_>) -> String {
    format!("{}.{}.{}", line.set, line.flavour, line.flows)
}

fn dumbbell(set: &Experiment, lines: &[Line<'_>], seeds: u32) -> Experiment {
    let Line { flavour, flows, .. } = lines[0];
    let (per_flow, shared): (Vec<_>, Vec<_>) =
        set.set.iter().cloned().partition(|setting| setting.contains("tcp-*"));
    let mut changes = shared;
    for (index, flavour) in flavour.split('+').cycle().take(flows).enumerate() {
        let flow = format!("tcp-{}", index + 1);
        changes.push(format!("flow.{flow}.protocol={}", protocol(flavour)));
        changes.extend(per_flow.iter().map(|setting| setting.replace("tcp-*", &flow)));
    }
    Experiment {
        id: case(&lines[0]),
        question: format!("{flows} x {flavour} {}", set.question),
        scenario: if flows == 1 { "one-flow.toml" } else { "two-flows.toml" }.into(),
        set: changes,
        rows: lines.iter().map(|line| row(line, seeds)).collect(),
        ..set.clone()
    }
}

pub(super) fn protocol(flavour: &str) -> &'static str {
    match flavour {
        "Reno" => "tcp-reno",
        "Newreno" => "tcp-newreno",
        _ => "tcp-sack",
    }
}

fn row(line: &Line<'_>, seeds: u32) -> RowFile {
    let Line { set, flavour, flows, metric, mean, sd, near } = line;
    let (title, measure, unit) = describe(metric);
    // ns-2's table has loss as a ratio.
    let scale = if *metric == "queue_loss" { 100.0 } else { 1.0 };
    let paper = mean * scale;
    let noise = 2.0 * sd * scale * faircast_base::math::sqrt(2.0 / f64::from(seeds));
    let (kind, distance) = near.rsplit_once(' ').expect("a distance has a kind");
    let distance = number(distance);
    let wanted = if kind == "share" { distance * paper.abs() } else { distance };
    let (bound, reason) = match kind {
        "at most" => (format!("at_most = {distance:?}"), "rare events"),
        _ if noise > wanted => (
            format!("absolute = {noise:?}"),
            "two standard errors of the difference, from the spread of ns-2's own runs",
        ),
        "share" => (
            format!("tolerance = {distance:?}"),
            "as recommended with the reference, from the spread of ns-2's own runs",
        ),
        _ => (
            format!("absolute = {distance:?}"),
            "as recommended with the reference: rare events, or nothing random but the start",
        ),
    };
    read(&format!(
        "id = '{}.{metric}'\ntitle = '{set}, {flows} x {flavour}: {title}'\n\
         measure = '{measure}'\nunit = '{unit}'\nstatistic = 'mean'\n\
         paper = {paper:?}\n{bound}\nreason = \"{reason}\"\n",
        case(line)
    ))
}

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
