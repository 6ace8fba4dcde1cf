//! Verdicts of a suite's rows.

use std::ops::RangeInclusive;

use faircast_report::Row;

use super::file::{RowFile, SuiteFile};
use super::runner::{Measured, Run};
use crate::execute::TRIES_MAX;
use crate::monitor::Monitor;

/// The rows of all experiments, with the verdicts.
pub(super) fn rows(
    suite: &SuiteFile,
    measured: Vec<Measured<'_>>,
    monitor: &dyn Monitor,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for Measured { experiment, runs, invalid, plot } in measured {
        // What the figures of a suite in the lab were expected to be is in `suite`.
        let experiment =
            suite.experiments.iter().find(|e| e.id == experiment.id).unwrap_or(experiment);
        for (seed, why) in &invalid {
            monitor.note(&format!(
                "{}, seed {seed}: left out after {TRIES_MAX} tries: {why}",
                experiment.id
            ));
        }
        let (mut scenario, mut series) = (None, None);
        if let Some(plot) = plot {
            scenario = Some((plot.header.scenario, plot.header.text));
            series = Some(plot.series);
        }
        for file in &experiment.rows {
            let mut row = judge(file, &runs);
            if let ([], Some((_, why))) = (&runs[..], invalid.first()) {
                row.holds = false;
                row.explained = Some(format!("not judged, since no run was valid: {why}"));
            }
            row.id = file.id.clone().unwrap_or_else(|| experiment.id.clone());
            row.group.clone_from(&experiment.group);
            row.experiment.clone_from(&experiment.id);
            row.file.clone_from(&experiment.scenario);
            row.set.clone_from(&experiment.set);
            row.question.clone_from(&experiment.question);
            row.paper_says.clone_from(&experiment.paper_says);
            // The first row of an experiment carries its plots.
            row.scenario = scenario.take();
            row.series = series.take();
            row.plots = experiment.plot;
            rows.push(row);
        }
    }
    compare_cures(suite, &mut rows);
    rows
}

/// The verdicts of rows that must be fairer than another one. Where that one was not run they
/// cannot hold.
fn compare_cures(suite: &SuiteFile, rows: &mut [Row]) {
    let unfairness = |ratio: f64| faircast_base::math::ln(ratio).abs();
    for experiment in &suite.experiments {
        for file in &experiment.rows {
            let Some(other) = &file.fairer_than else { continue };
            let id = file.id.as_ref().unwrap_or(&experiment.id);
            let other_ours = rows.iter().find(|row| row.id == *other).map(|row| row.ours);
            let Some(row) = rows.iter_mut().find(|row| row.id == *id) else { continue };
            let fairer = other_ours.is_some_and(|o| unfairness(row.ours) < unfairness(o));
            row.holds &= fairer;
            row.explained = file.explained.clone().filter(|_| !row.holds);
            match other_ours {
                Some(ours) => accept_fairer(row, ours),
                None => row.tolerance_reason = format!("{other} was not run: {}", file.reason),
            }
        }
    }
}

/// Narrows what the row accepts to the ratios that are closer to 1 than `other`, either way.
fn accept_fairer(row: &mut Row, other: f64) {
    let (from, to) = (other.min(1.0 / other), other.max(1.0 / other));
    let (low, high) = (row.accept_low.unwrap_or(from), row.accept_high.unwrap_or(to));
    row.accept_low = finite(low.max(from));
    row.accept_high = finite(high.min(to));
}

fn finite(bound: f64) -> Option<f64> {
    Some(bound).filter(|bound| bound.is_finite())
}

/// A row with the values of all seeds and the verdict. Its id and words about its experiment are
/// left empty.
fn judge(file: &RowFile, runs: &[Run]) -> Row {
    let value = |run: &Run| (run.summary.seed, file.measure.of(&run.summary, &run.probe));
    let per_seed: Vec<(u64, f64)> = runs.iter().map(value).collect();
    let values: Vec<f64> = per_seed.iter().map(|(_, value)| *value).collect();
    let ours = file.statistic.of(&values);
    let (low, high) = file.range();
    let paper_size = file.paper.map_or(0.0, f64::abs);
    let distance = file.absolute.map(|distance| distance / paper_size);
    // A value that is not a number holds nothing.
    // What the simulator gave may stand beside it, and is no expectation.
    let measured_only =
        low == f64::NEG_INFINITY && high == f64::INFINITY && file.fairer_than.is_none();
    let holds = measured_only || (ours >= low && ours <= high);
    Row {
        title: file.title.clone(),
        unit: file.unit.clone(),
        paper: file.paper,
        ours,
        low: values.iter().copied().fold(f64::INFINITY, f64::min),
        high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        seeds: values.len() as u32,
        tolerance: file.tolerance.or(distance.filter(|d| d.is_finite())).unwrap_or(0.0),
        accept_low: finite(low),
        accept_high: finite(high),
        holds,
        measured_only,
        measure: file.measure.text().to_string(),
        absolute: file.absolute,
        fairer_than: file.fairer_than.clone(),
        explained: file.explained.clone().filter(|_| !holds),
        tolerance_reason: file.reason.clone(),
        per_seed,
        ..Row::default()
    }
}

/// A row of a single value that nothing random decides. One that is not a number holds nothing.
pub(super) fn one_value(
    id: String,
    title: String,
    unit: &str,
    ours: f64,
    accept: RangeInclusive<f64>,
    reason: &str,
) -> Row {
    Row {
        id,
        title,
        unit: unit.into(),
        ours,
        low: ours,
        high: ours,
        seeds: 1,
        per_seed: vec![(1, ours)],
        accept_low: Some(*accept.start()),
        accept_high: Some(*accept.end()),
        holds: accept.contains(&ours),
        tolerance_reason: reason.into(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_or_no_number_does_not_hold() {
        for (ours, holds) in [(0.3, true), (0.6, false), (f64::NAN, false), (f64::INFINITY, false)]
        {
            let row = one_value(String::new(), String::new(), "ratio", ours, 0.0..=0.5, "");
            assert_eq!(row.holds, holds, "{ours}");
        }
    }

    #[test]
    fn fairer_than_another_row_is_a_range_around_one() {
        for (other, want) in [
            (0.5, (Some(0.5), Some(2.0))),
            (4.0, (Some(0.25), Some(4.0))),
            // Anything above nothing is fairer than nothing.
            (0.0, (Some(0.0), None)),
        ] {
            let mut row = Row::default();
            accept_fairer(&mut row, other);
            assert_eq!((row.accept_low, row.accept_high), want, "{other}");
        }
        let mut row = Row { accept_low: Some(0.8), accept_high: Some(9.0), ..Row::default() };
        accept_fairer(&mut row, 0.5);
        assert_eq!((row.accept_low, row.accept_high), (Some(0.8), Some(2.0)));
    }
}
