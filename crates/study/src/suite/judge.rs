//! Verdicts of a suite's rows.

use std::ops::RangeInclusive;

use faircast_report::{
    Acceptance, Expected, MissCause, Optimum, Row, Source, Values, median_interval,
};

use super::file::{RowFile, SuiteFile};
use super::measure::is_target;
use super::runner::{Measured, MeasuredRun};
use super::worth;
use crate::monitor::Monitor;
use crate::run::TRIES_MAX;

pub(super) fn rows(
    suite: &SuiteFile,
    measured: Vec<Measured<'_>>,
    monitor: &dyn Monitor,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for Measured { experiment, runs, invalid, plot, optima } in measured {
        let experiment =
            suite.experiments.iter().find(|e| e.id == experiment.id).unwrap_or(experiment);
        for (seed, why) in &invalid {
            monitor.note(&format!(
                "{}, seed {seed}: left out after {TRIES_MAX} tries: {why}",
                experiment.id
            ));
        }
        let (mut scenario, mut series) =
            plot.map(|plot| ((plot.header.scenario, plot.header.text), plot.series)).unzip();
        for (file, optimum) in experiment.rows.iter().zip(optima) {
            let value =
                |run: &MeasuredRun| (run.summary.seed, file.measure.of(&run.summary, &run.probe));
            let optimum = file.optimum.zip(optimum);
            let optimum =
                optimum.map(|(objective, value)| Optimum { objective: objective.name(), value });
            let words = Row {
                id: experiment.row_id(file).to_string(),
                source: Source {
                    group: experiment.group.clone(),
                    experiment: experiment.id.clone(),
                    file: experiment.scenario.clone(),
                    set: experiment.set.clone(),
                    question: experiment.question.clone(),
                    paper_says: experiment.paper_says.clone(),
                    scenario: scenario.take(),
                    ..Source::default()
                },
                values: Values { optimum, ..Values::default() },
                series: series.take(),
                plots: experiment.plot,
                ..Row::default()
            };
            let mut row = judge(file, runs.iter().map(value).collect(), words);
            if let ([], Some((_, why))) = (&runs[..], invalid.first()) {
                leave(&mut row, &format!("no run was valid: {why}"));
            }
            rows.push(row);
        }
    }
    judge_rows_of_rows(suite, &mut rows);
    compare_cures(suite, &mut rows);
    prove(&mut rows);
    rows
}

fn judge_rows_of_rows(suite: &SuiteFile, rows: &mut [Row]) {
    for (id, file) in suite.rows() {
        let Some(targets) = file.measure.rows() else { continue };
        let Some(index) = rows.iter().position(|row| row.id == id) else { continue };
        let is_wanted = |id: &&str| targets.iter().any(|target| is_target(id, target));
        let wanted: Vec<&str> = suite.rows().map(|(id, _)| id).filter(is_wanted).collect();
        let ran = |id: &&str| rows.iter().any(|row| row.id == **id && !row.per_seed.is_empty());
        let missing: Vec<&str> = wanted.iter().copied().filter(|id| !ran(id)).collect();
        let values = match missing.is_empty() {
            true => seed_by_seed(file, &wanted, rows),
            false => Vec::new(),
        };
        let words = std::mem::take(&mut rows[index]);
        rows[index] = judge(file, values, words);
        if !missing.is_empty() {
            let why = format!("these rows were not run: {}", missing.join(", "));
            leave(&mut rows[index], &why);
        }
    }
}

fn leave(row: &mut Row, why: &str) {
    row.accepted.holds = false;
    row.cause.explained = Some(format!("not judged, since {why}"));
    row.cause.proved_by.clear();
}

fn seed_by_seed(file: &RowFile, wanted: &[&str], rows: &[Row]) -> Vec<(u64, f64)> {
    let of: Vec<&Row> = rows.iter().filter(|row| wanted.contains(&&*row.id)).collect();
    let optima: Vec<(&str, f64)> =
        of.iter().filter_map(|row| Some((&*row.id, row.values.optimum.as_ref()?.value))).collect();
    let Some(first) = of.first() else { return Vec::new() };
    let mut seeds = Vec::new();
    for (seed, _) in &first.per_seed {
        let mut values: Vec<(&str, f64)> = Vec::new();
        for row in &of {
            let found = row.per_seed.iter().find(|(other, _)| other == seed);
            values.extend(found.map(|(_, value)| (&*row.id, *value)));
        }
        if values.len() == of.len() {
            seeds.push((*seed, file.measure.of_named(&values, &optima)));
        }
    }
    seeds
}

/// Keeps mechanisms whose proofs all hold. All other mechanisms become conjectures.
fn prove(rows: &mut [Row]) {
    let held: Vec<(String, bool)> =
        rows.iter().map(|row| (row.id.clone(), row.accepted.holds)).collect();
    for row in rows.iter_mut().filter(|row| !row.cause.proved_by.is_empty()) {
        let state =
            |id: &String| held.iter().find(|(other, _)| other == id).map(|(_, holds)| *holds);
        let open = row.cause.proved_by.iter().find(|id| state(id) != Some(true));
        if row.accepted.holds {
            row.cause.proved_by.clear();
        } else if let Some(open) = open {
            let why = if state(open).is_some() { "misses itself" } else { "was not run" };
            let explained = row.cause.explained.take().unwrap_or_default();
            row.cause.explained = Some(format!("Unproved, since {open} {why}: {explained}"));
            row.cause.proved_by.clear();
        }
    }
}

/// Sets the verdicts of rows that must be fairer than another row, which must have run.
fn compare_cures(suite: &SuiteFile, rows: &mut [Row]) {
    let unfairness = |ratio: f64| faircast_base::math::ln(ratio).abs();
    for (id, file) in suite.rows() {
        let Some(other) = &file.fairer_than else { continue };
        let other_ours = rows.iter().find(|row| row.id == *other).map(|row| row.values.ours);
        // A row without a valid run has its reason already.
        let is_row = |row: &&mut Row| row.id == id && !row.per_seed.is_empty();
        let Some(row) = rows.iter_mut().find(is_row) else { continue };
        // Medians differ by chance, so the row's whole confidence interval must be fairer.
        let interval = median_interval(row.per_seed.iter().map(|(_, value)| *value));
        let ends = interval.map_or([row.values.ours; 2], |interval| [interval.low, interval.high]);
        let is_fairer = |other: f64| ends.iter().all(|end| unfairness(*end) < unfairness(other));
        row.accepted.holds &= other_ours.is_some_and(is_fairer);
        row.cause = cause(file, row.accepted.holds);
        match other_ours {
            Some(ours) => accept_fairer(row, ours),
            None => row.accepted.reason = format!("{other} was not run: {}", file.reason),
        }
    }
}

fn cause(file: &RowFile, holds: bool) -> MissCause {
    MissCause {
        explained: file.explained.clone().or(file.conjecture.clone()).filter(|_| !holds),
        proved_by: if holds { Vec::new() } else { file.proved_by.clone() },
        fitted: file.fitted.clone(),
        baseline: file.baseline,
    }
}

fn accept_fairer(row: &mut Row, other: f64) {
    let (from, to) = (other.min(1.0 / other), other.max(1.0 / other));
    let (low, high) = (row.accepted.low.unwrap_or(from), row.accepted.high.unwrap_or(to));
    row.accepted.low = finite(low.max(from));
    row.accepted.high = finite(high.min(to));
}

fn finite(bound: f64) -> Option<f64> {
    Some(bound).filter(|bound| bound.is_finite())
}

#[cfg(test)]
pub(super) fn unmeasured(file: &RowFile) -> Row {
    judge(file, Vec::new(), Row::default())
}

fn judge(file: &RowFile, per_seed: Vec<(u64, f64)>, words: Row) -> Row {
    let values: Vec<f64> = per_seed.iter().map(|(_, value)| *value).collect();
    let ours = file.statistic.of(&values);
    let (mut low, mut high) = file.range();
    let paper = file.paper.filter(|_| file.within_seeds);
    if let Some((from, to)) = paper.and_then(|paper| within_seeds(paper, ours, &values)) {
        (low, high) = worth::without_no_effect(file, (low.min(from), high.max(to)));
    }
    let paper_size = file.paper.map_or(0.0, f64::abs);
    let distance = file.absolute.map(|distance| distance / paper_size);
    // NaN never holds. The simulator's value beside a row is no expectation.
    let measured_only =
        low == f64::NEG_INFINITY && high == f64::INFINITY && file.fairer_than.is_none();
    let holds = measured_only || (ours >= low && ours <= high);
    Row {
        title: file.title.clone(),
        unit: file.unit.clone(),
        expected: Expected { paper: file.paper, ..words.expected },
        values: Values {
            ours,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            seeds: values.len() as u32,
            ..words.values
        },
        accepted: Acceptance {
            tolerance: file.tolerance.or(distance.filter(|d| d.is_finite())).unwrap_or(0.0),
            low: finite(low),
            high: finite(high),
            holds,
            measured_only,
            absolute: file.absolute,
            fairer_than: file.fairer_than.clone(),
            reason: file.reason.clone(),
        },
        cause: cause(file, holds),
        source: Source { measure: file.measure.text.clone(), ..words.source },
        per_seed,
        ..words
    }
}

/// Returns the medians for which `paper` is within the seeds' 10th to 90th percentile.
fn within_seeds(paper: f64, median: f64, values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at =
        |share: f64| sorted.get((share * (sorted.len() as f64 - 1.0)).round() as usize).copied();
    let (low, high) = (at(0.1)?, at(0.9)?);
    let is_usable = low > 0.0 && high.is_finite() && high / low <= SEEDS_APART_MAX && median > 0.0;
    is_usable.then(|| (paper * median / high, paper * median / low))
}

/// Largest ratio of the 90th to the 10th percentile at which a spread is meaningful.
const SEEDS_APART_MAX: f64 = 2.0;

/// Returns a row of a single deterministic value. A value that is not a number does not hold.
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
        values: Values { ours, low: ours, high: ours, seeds: 1, optimum: None },
        per_seed: vec![(1, ours)],
        accepted: Acceptance {
            low: Some(*accept.start()),
            high: Some(*accept.end()),
            holds: accept.contains(&ours),
            reason: reason.into(),
            ..Acceptance::default()
        },
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
            assert_eq!(row.accepted.holds, holds, "{ours}");
        }
    }

    #[test]
    fn a_figure_of_one_run_is_accepted_within_the_spread_of_seeds_that_says_something() {
        let values: Vec<f64> = (0..11).map(|i| 10.0 + f64::from(i) / 2.0).collect();
        // Percentiles 10.5 and 14.5, median 12.5: figures of 14 and 11 are within.
        let range = |paper| within_seeds(paper, 12.5, &values).unwrap();
        for (paper, holds) in [(14.0, true), (11.0, true), (15.0, false), (10.0, false)] {
            let (low, high) = range(paper);
            assert_eq!((low..=high).contains(&12.5), holds, "{paper}: {low} to {high}");
        }
        // No statement about a session in one of two states, or about one without progress.
        assert_eq!(within_seeds(1.0, 1.0, &[0.1, 0.1, 0.1, 3.0, 3.0]), None);
        assert_eq!(within_seeds(1.0, 0.0, &[0.0, 0.0, 0.0]), None);
        assert_eq!(within_seeds(1.0, f64::NAN, &[]), None);
    }

    #[test]
    fn fairer_than_another_row_is_a_range_around_one() {
        for (other, want) in [
            (0.5, (Some(0.5), Some(2.0))),
            (4.0, (Some(0.25), Some(4.0))),
            // Any positive ratio is fairer than 0.
            (0.0, (Some(0.0), None)),
        ] {
            let mut row = Row::default();
            accept_fairer(&mut row, other);
            assert_eq!((row.accepted.low, row.accepted.high), want, "{other}");
        }
        let mut row = Row::default();
        (row.accepted.low, row.accepted.high) = (Some(0.8), Some(9.0));
        accept_fairer(&mut row, 0.5);
        assert_eq!((row.accepted.low, row.accepted.high), (Some(0.8), Some(2.0)));
    }

    #[test]
    fn a_cure_without_a_valid_run_says_so_and_is_not_explained() {
        let text = "
            name = 's'\ntitle = 't'\nseeds = 3
            [[experiment]]\nid = 'a'\nquestion = 'q'\nscenario = 'x.toml'
            row = [{ id = 'ill', title = 't', measure = 'cuts a / cuts b', unit = 'ratio' },
                { id = 'proof', title = 't', measure = 'cuts a', unit = '1', at_least = 1.0, reason = 'r' },
                { id = 'cure', title = 't', measure = 'cuts a / cuts b', unit = 'ratio', fairer_than = 'ill',
                  reason = 'r', explained = 'e', proved_by = ['proof'] }]";
        let suite =
            SuiteFile::parse("s.toml", &text.replace("]\n                {", "] {")).unwrap();
        let not_judged = Row {
            id: "cure".into(),
            cause: MissCause { explained: Some("not judged".into()), ..MissCause::default() },
            values: Values { ours: f64::NAN, ..Values::default() },
            ..Row::default()
        };
        let values = Values { ours: 0.5, ..Values::default() };
        let ill = Row { id: "ill".into(), values, per_seed: vec![(1, 0.5)], ..Row::default() };
        let mut rows = vec![ill, not_judged];
        compare_cures(&suite, &mut rows);
        assert_eq!(rows[1].cause.explained.as_deref(), Some("not judged"));
        assert!(rows[1].cause.proved_by.is_empty() && !rows[1].accepted.holds);
    }
}
