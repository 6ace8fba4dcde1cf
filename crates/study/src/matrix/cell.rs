//! Cell of the matrix, one scheme in one case: the figures of each run, and its page.

use std::collections::BTreeMap;
use std::path::Path;

use faircast_base::Time;
use faircast_report::{Figure, FlowSummary, Rates, Spread, run_page};

use super::Work;
use super::cases::MatrixFile;
use crate::Error;
use crate::files::write;
use crate::suite::runner::{MeasuredRun, Runner};
use crate::suite::score::utilisation;

/// Figures of one run.
pub(super) type Figures = Vec<(Figure, f64)>;

/// Runs one seed of a case, and again with the slowest receiver alone if the case has such a run.
pub(super) fn measure(
    runner: &Runner<'_>,
    file: &MatrixFile,
    work: &Work<'_>,
    seed: u64,
    page: Option<&Path>,
) -> Result<Figures, Error> {
    let session = work.case.session(file);
    let header = runner.study.header(&runner.scenario(&work.experiment, seed)?);
    let mut rates = Rates::new(&header);
    let (run, plot) = runner.run_one(&work.experiment, seed, page.is_some(), &mut rates)?;
    let goal_bps = match &work.alone {
        None => work.case.fair_bps,
        Some(alone) => {
            let (run, _) = runner.run_one(alone, seed, false, &mut ())?;
            let flow = run.summary.flows.iter().find(|flow| flow.name == session);
            flow.map(|flow| flow.rates.sent_bps)
        }
    };
    let MeasuredRun { summary, probe, .. } = run;
    let index = header.flows.iter().position(|flow| flow.name == session);
    let index = index.expect("the case was checked against its scenario");
    let (case, flow) = (work.case, &summary.flows[index]);
    let [from_s, to_s] = case.span_s.map(|span| span.map(f64::from)).unwrap_or([
        header.flows[index].start_s,
        // A stopped session is silent afterwards, not unsteady.
        header.flows[index].stop_s.unwrap_or(summary.ended_s).min(summary.ended_s),
    ]);
    let [from, warm, to] = [from_s, from_s.max(summary.warmup_s), to_s].map(Time::from_secs_f64);
    let ratios = case.fairness.iter().map(|measure| measure.of(&summary, &probe));
    let used = || utilisation(&summary, &case.bottlenecks);
    let share = |goal: f64| if goal > 0.0 { flow.rates.sent_bps / goal } else { 0.0 };
    let figures = [
        (Figure::Fairness, fairness(ratios)),
        (Figure::Utilisation, (!case.bottlenecks.is_empty()).then(used)),
        (Figure::SettledS, rates.settled_s(index, from, to).or(Some(f64::INFINITY))),
        (Figure::RateVariation, rates.variation(index, warm, to).or(Some(f64::INFINITY))),
        (Figure::FeedbackPerS, Some(flow.rates.feedback_per_s)),
        (Figure::SlowestShare, goal_bps.map(share)),
        (Figure::Repairs, Some(repairs(flow))),
    ];
    let figures = figures.into_iter().filter_map(|(figure, value)| Some((figure, value?)));
    let figures = figures.collect();
    if let Some((page, plot)) = page.zip(plot) {
        write(page, run_page(&plot.header, &summary, &plot.series))?;
    }
    Ok(figures)
}

/// Returns the ratio farthest from 1. Flows without any throughput count as 0.
fn fairness(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let shared = |f: f64| if f.is_nan() { 0.0 } else { f };
    ratios.map(shared).reduce(|a, b| Figure::Fairness.worse(a, b))
}

fn repairs(flow: &FlowSummary) -> f64 {
    if flow.counts.sent_packets > 0 {
        flow.counts.repair_packets as f64 / flow.counts.sent_packets as f64
    } else {
        0.0
    }
}

pub(super) fn spreads(runs: &BTreeMap<u64, Figures>) -> Vec<Spread> {
    let spread = |figure: Figure| {
        let values = runs.iter().filter_map(|(seed, figures)| {
            let (_, value) = figures.iter().find(|(known, _)| *known == figure)?;
            Some((*seed, *value))
        });
        Spread::of(figure, values.collect())
    };
    Figure::ALL.into_iter().filter_map(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_the_ratio_farthest_from_one_either_way() {
        for (ratios, want) in [
            (&[1.0][..], 1.0),
            (&[2.0, 0.8], 2.0),
            (&[1.5, 0.5], 0.5),
            (&[0.25], 0.25),
            (&[0.0, 3.0], 0.0),
            (&[f64::INFINITY, 0.5], f64::INFINITY),
            (&[f64::NAN], 0.0),
        ] {
            assert_eq!(fairness(ratios.iter().copied()), Some(want), "{ratios:?}");
        }
    }

    #[test]
    fn a_cell_has_the_spread_of_every_figure_whatever_came_first() {
        let run = |fairness: f64, feedback: f64| {
            vec![(Figure::FeedbackPerS, feedback), (Figure::Fairness, fairness)]
        };
        let figures = spreads(&BTreeMap::from([(2, run(0.5, 10.0)), (1, run(0.9, 30.0))]));
        assert_eq!(figures.len(), 2);
        let [fairness, feedback] = [&figures[0], &figures[1]];
        assert_eq!(
            (fairness.figure, fairness.worst, fairness.worst_seed),
            (Figure::Fairness, 0.5, 2)
        );
        assert_eq!(fairness.per_seed, [(1, 0.9), (2, 0.5)]);
        assert_eq!((feedback.worst, feedback.worst_seed), (30.0, 1));
    }
}
