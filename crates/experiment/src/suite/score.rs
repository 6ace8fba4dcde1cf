//! `faircast bench fairness --scheme NAME`: scores of any scheme in the suite.

use std::fmt::Write as _;

use faircast_report::{LinkSummary, Summary};
use serde::Serialize;

use super::file::{Statistic, SuiteFile};
use super::runner::{Measured, Scheme};
use crate::files::json;
use crate::request::Results;

#[derive(Debug, Serialize)]
struct Scores {
    suite: String,
    scheme: String,
    options: Vec<String>,
    experiments: Vec<Score>,
    /// Geometric mean of all fairness figures, 0 to 1.
    fairness: f64,
    fairness_worst: f64,
    utilisation: f64,
}

#[derive(Debug, Serialize)]
struct Score {
    id: String,
    question: String,
    seeds: usize,
    /// Median ratio of each TCP flow's throughput to the session's; below 1 the session has more.
    ratios: Vec<Ratio>,
    /// Least min(f, 1/f) of the ratios: 1 is fair, 0 starves a flow.
    fairness: f64,
    /// Utilisation of the bottlenecks; `None` if losses are not from congestion.
    utilisation: Option<f64>,
    session_bps: f64,
}

#[derive(Debug, Serialize)]
struct Ratio {
    title: String,
    median: f64,
    low: f64,
    high: f64,
}

pub(crate) fn results(suite: &SuiteFile, scheme: &Scheme, measured: &[Measured<'_>]) -> Results {
    let session = suite.session.as_deref().unwrap_or_default();
    let experiments: Vec<Score> =
        measured.iter().map(|measured| score(measured, session)).collect();
    let mean = |values: &dyn Fn(&Score) -> f64| {
        experiments.iter().map(values).sum::<f64>() / experiments.len() as f64
    };
    let logs = mean(&|score| faircast_base::math::ln(score.fairness));
    let scores = Scores {
        suite: suite.name.clone(),
        scheme: scheme.name.clone(),
        options: scheme.options.clone(),
        fairness: faircast_base::math::exp(logs),
        fairness_worst: experiments.iter().map(|s| s.fairness).fold(f64::INFINITY, f64::min),
        utilisation: {
            let known: Vec<f64> = experiments.iter().filter_map(|s| s.utilisation).collect();
            known.iter().sum::<f64>() / known.len() as f64
        },
        experiments,
    };
    let json = json(&scores);
    let files = vec![(format!("{}-{}.json", suite.name, scheme.name), json.clone())];
    Results { table: table(&scores), json, files, holds: true, ..Results::default() }
}

fn score(measured: &Measured<'_>, session: &str) -> Score {
    let Measured { experiment, runs, .. } = measured;
    let ratios: Vec<Ratio> = experiment
        .rows
        .iter()
        .filter(|row| row.fairness)
        .map(|row| {
            let values: Vec<f64> =
                runs.iter().map(|run| row.measure.of(&run.summary, &run.probe)).collect();
            Ratio {
                title: row.title.clone(),
                median: Statistic::Median.of(&values),
                low: values.iter().copied().fold(f64::INFINITY, f64::min),
                high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            }
        })
        .collect();
    let over_runs = |value: &dyn Fn(&super::runner::Run) -> f64| {
        Statistic::Median.of(&runs.iter().map(value).collect::<Vec<_>>())
    };
    Score {
        id: experiment.id.clone(),
        question: experiment.question.clone(),
        seeds: runs.len(),
        fairness: ratios.iter().map(|r| r.median.min(1.0 / r.median)).fold(1.0, f64::min),
        ratios,
        utilisation: (!experiment.bottlenecks.is_empty())
            .then(|| over_runs(&|run| utilisation(&run.summary, &experiment.bottlenecks))),
        session_bps: over_runs(&|run| {
            let flow = run.summary.flows.iter().find(|flow| flow.name == session);
            flow.map_or(f64::NAN, |flow| flow.rates.throughput_bps)
        }),
    }
}

pub(crate) fn utilisation(summary: &Summary, links: &[String]) -> f64 {
    let name = |link: &LinkSummary| format!("{}>{}", link.from, link.to);
    let chosen = summary.links.iter().filter(|link| links.contains(&name(link)));
    let chosen: Vec<f64> = chosen.map(|link| link.utilisation).collect();
    chosen.iter().sum::<f64>() / chosen.len() as f64
}

fn table(scores: &Scores) -> String {
    let options = if scores.options.is_empty() {
        String::new()
    } else {
        format!(" with {}", scores.options.join(", "))
    };
    let mut text = format!("{}: {}{options}\n\n", scores.suite, scores.scheme);
    let _ = writeln!(
        text,
        "{:<16} {:>7} {:>15} {:>9} {:>12} {:>13}",
        "experiment", "f", "spread", "fairness", "utilisation", "session kb/s"
    );
    for score in &scores.experiments {
        for (index, ratio) in score.ratios.iter().enumerate() {
            let spread = format!("{:.2} to {:.2}", ratio.low, ratio.high);
            let (id, rest) = if index == 0 {
                let used = score
                    .utilisation
                    .map_or("-".into(), |utilisation| format!("{:.1} %", 100.0 * utilisation));
                let session = score.session_bps / 1e3;
                let rest = format!("{:>9.2} {used:>12} {session:>13.1}", score.fairness);
                (score.id.as_str(), rest)
            } else {
                ("", String::new())
            };
            let _ = writeln!(text, "{id:<16} {:>7.2} {spread:>15} {rest}", ratio.median);
        }
    }
    let _ = write!(
        text,
        "\nfairness {:.3} (geometric mean), worst {:.3}, utilisation {:.1} %\n\
         f is TCP's throughput over the session's: 1 is fair, below 1 TCP gets too little.\n",
        scores.fairness,
        scores.fairness_worst,
        100.0 * scores.utilisation
    );
    text
}
