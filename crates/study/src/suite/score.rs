//! Scores of any scheme in the experiments of a suite.

use faircast_report::{LinkSummary, Summary};
use serde::Serialize;

use super::TestedScheme;
use super::file::{Statistic, SuiteFile};
use super::runner::Measured;

/// Scores of a scheme.
#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// Name of the suite.
    pub suite: String,
    /// Name of the scheme.
    pub scheme: String,
    /// Options of the scheme, `KEY=VALUE`.
    pub options: Vec<String>,
    /// Score in each experiment.
    pub experiments: Vec<Score>,
    /// Geometric mean of all fairness figures, 0 to 1.
    pub fairness: f64,
    /// Least fairness figure.
    pub fairness_worst: f64,
    /// Mean utilisation of the bottlenecks.
    pub utilisation: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Score {
    pub id: String,
    pub question: String,
    pub seeds: usize,
    /// Median ratio of each TCP flow's throughput to the session's; below 1 the session has more.
    pub ratios: Vec<Ratio>,
    /// Least min(f, 1/f) of the ratios: 1 is fair, 0 starves a flow.
    pub fairness: f64,
    /// Utilisation of the bottlenecks; `None` if losses are not from congestion.
    pub utilisation: Option<f64>,
    /// Median throughput of the session.
    pub session_bps: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub title: String,
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

pub(super) fn scores(
    suite: &SuiteFile,
    scheme: &TestedScheme,
    measured: &[Measured<'_>],
) -> Scores {
    let session = suite.session.as_deref().unwrap_or_default();
    let experiments: Vec<Score> =
        measured.iter().map(|measured| score(measured, session)).collect();
    let logs = experiments.iter().map(|score| faircast_base::math::ln(score.fairness));
    let utilisations: Vec<f64> = experiments.iter().filter_map(|s| s.utilisation).collect();
    Scores {
        suite: suite.name.clone(),
        scheme: scheme.name.clone(),
        options: scheme.options.clone(),
        fairness: faircast_base::math::exp(Statistic::Mean.of(&logs.collect::<Vec<_>>())),
        fairness_worst: experiments.iter().map(|s| s.fairness).fold(f64::INFINITY, f64::min),
        utilisation: Statistic::Mean.of(&utilisations),
        experiments,
    }
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
    let over_runs = |value: &dyn Fn(&super::runner::MeasuredRun) -> f64| {
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
    Statistic::Mean.of(&chosen.map(|link| link.utilisation).collect::<Vec<_>>())
}
