//! Verdicts on the figures: the ratios that they must come to.

use faircast_report::{Row, spread};
use serde::Deserialize;

use super::transports::{Class, TABLES};
use super::{Figures, Measured};
use crate::host::Unprepared;

/// A goal: ours over something else, round by round. At least `at_least` where more is better, or
/// else below `below`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    id: String,
    title: String,
    question: String,
    ours: String,
    /// The transport that ours is compared with; without one, of peers of the classes `best` the
    /// best one by the median.
    theirs: Option<String>,
    #[serde(default)]
    best: Vec<Class>,
    value: Value,
    at_least: Option<f64>,
    below: Option<f64>,
    reason: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Value {
    Goodput,
    CpuSend,
    CpuReceive,
    SentBytes,
}

impl Value {
    fn of(self, run: &Figures) -> f64 {
        match self {
            Self::Goodput => run.mbit_per_s,
            Self::CpuSend => run.cpu_send_s_per_gb,
            Self::CpuReceive => run.cpu_receive_s_per_gb,
            Self::SentBytes => run.sent_per_useful,
        }
    }
}

/// A row for each goal, and one for the copies; where only `some` transports were chosen, without
/// those of which a side was not.
pub(super) fn rows(measured: &[Measured], some: bool) -> Vec<Row> {
    let goals = TABLES.goals.iter().filter(|goal| !some || goal.is_chosen(measured));
    let mut rows: Vec<Row> = goals.map(|goal| goal.row(measured)).collect();
    if !some || measured.iter().any(|one| one.transport.class == Class::Ours) {
        rows.push(whole(measured));
    }
    rows
}

impl Goal {
    fn is_chosen(&self, measured: &[Measured]) -> bool {
        let ours = measured.iter().any(|one| one.transport.id == self.ours);
        ours && self.theirs(measured).next().is_some()
    }

    /// All that ours may be compared with.
    fn theirs<'a>(&'a self, measured: &'a [Measured]) -> impl Iterator<Item = &'a Measured> {
        measured.iter().filter(move |one| match &self.theirs {
            Some(id) => one.transport.id == *id,
            None => self.best.contains(&one.transport.class),
        })
    }

    fn row(&self, measured: &[Measured]) -> Row {
        let (low, high) = (self.at_least, self.below);
        let mut row = Row {
            id: self.id.clone(),
            title: self.title.clone(),
            unit: "ratio".into(),
            accept_low: low,
            accept_high: high,
            question: self.question.clone(),
            tolerance_reason: self.reason.clone(),
            ..Row::default()
        };
        match self.compare(measured) {
            Ok((against, ratios)) => {
                let spread = spread(ratios.iter().copied()).expect("there is a ratio");
                [row.low, row.ours, row.high] = spread;
                row.seeds = ratios.len() as u32;
                row.per_seed = (1..).zip(ratios).collect();
                row.holds = low.is_none_or(|low| row.ours >= low)
                    && high.is_none_or(|high| row.ours < high);
                if self.theirs.is_none() {
                    row.title = format!("{}, {against}", self.title);
                }
            }
            Err(why) => {
                (row.ours, row.low, row.high) = (f64::NAN, f64::NAN, f64::NAN);
                row.explained = Some(format!("not measured: {why}"));
                // That a peer is not installed says nothing of us.
                let is_missing = |one: &Measured| matches!(one.runs, Err(Unprepared::Missing(_)));
                row.measured_only = self.theirs(measured).all(is_missing);
                row.holds = row.measured_only;
            }
        }
        row
    }

    /// With whom ours was compared, and the ratio of each round in which both were whole.
    fn compare<'a>(&'a self, measured: &'a [Measured]) -> Result<(&'a str, Vec<f64>), String> {
        let runs = |id: &str| {
            let one = measured.iter().find(|one| one.transport.id == id);
            let one = one.ok_or_else(|| format!("{id} was not chosen"))?;
            one.runs.as_ref().map_err(|why| format!("{id}: {why}"))
        };
        let against = match &self.theirs {
            Some(id) => id,
            None => self.best(measured).ok_or("there is no whole run")?,
        };
        let pairs = runs(&self.ours)?.iter().zip(runs(against)?);
        let whole = pairs.filter(|(ours, theirs)| ours.complete && theirs.complete);
        let ratios: Vec<f64> =
            whole.map(|(ours, theirs)| self.value.of(ours) / self.value.of(theirs)).collect();
        match ratios.is_empty() {
            true => Err(format!("no round with whole copies of {} and {against}", self.ours)),
            false => Ok((against, ratios)),
        }
    }

    fn best<'a>(&self, measured: &'a [Measured]) -> Option<&'a str> {
        let medians = self
            .theirs(measured)
            .filter_map(|one| Some((&*one.transport.id, one.spread(|run| self.value.of(run))?[1])));
        let better = |a: &(&str, f64), b: &(&str, f64)| match self.below {
            None => b.1.total_cmp(&a.1),
            Some(_) => a.1.total_cmp(&b.1),
        };
        medians.min_by(better).map(|(id, _)| id)
    }
}

/// The share of our runs in which every copy was whole.
fn whole(measured: &[Measured]) -> Row {
    let ours = measured.iter().filter(|one| one.transport.class == Class::Ours);
    let runs: Vec<&Figures> = ours.filter_map(|one| one.runs.as_ref().ok()).flatten().collect();
    let share = runs.iter().filter(|run| run.complete).count() as f64 / runs.len() as f64;
    let trouble = runs.iter().find_map(|run| run.trouble.clone());
    Row {
        id: "whole".into(),
        title: "runs in which every copy is whole".into(),
        unit: "ratio".into(),
        ours: share,
        low: share,
        high: share,
        seeds: runs.len() as u32,
        accept_low: Some(1.0),
        holds: share >= 1.0,
        explained: trouble.or_else(|| runs.is_empty().then(|| "not measured".into())),
        question: "Does everybody have everything, by a hash that the transport knows nothing of?"
            .into(),
        tolerance_reason: "that is what it is for".into(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(id: &str, speeds: &[f64]) -> Measured {
        let run = |speed: &f64| Figures {
            complete: *speed > 0.0,
            mbit_per_s: *speed,
            cpu_send_s_per_gb: 1e3 / speed,
            cpu_receive_s_per_gb: 1e3 / speed,
            ..Figures::default()
        };
        let transport = TABLES.transports.iter().find(|transport| transport.id == id).unwrap();
        Measured { transport, runs: Ok(speeds.iter().map(run).collect()) }
    }

    fn row(rows: &[Row], id: &str) -> Row {
        rows.iter().find(|row| row.id == id).unwrap().clone()
    }

    #[test]
    fn ratios_are_of_rounds_in_which_both_were_whole() {
        let all = [
            measured("faircast", &[900.0, 1000.0, 0.0, 1200.0]),
            measured("norm-cc", &[300.0, 200.0, 100.0, 0.0]),
        ];
        let row = row(&rows(&all, false), "norm-cc");
        assert_eq!((row.ours, row.low, row.high, row.seeds), (4.0, 3.0, 5.0, 2));
        assert!(row.holds);
    }

    #[test]
    fn the_best_peer_is_the_fastest_or_the_cheapest_by_the_median() {
        let all = [
            measured("faircast", &[900.0]),
            measured("uftp-600", &[500.0]),
            measured("norm-1000", &[800.0]),
            measured("norm-cc", &[950.0]),
        ];
        let rows = rows(&all, false);
        let fixed = row(&rows, "fixed");
        assert!(fixed.title.ends_with("norm-1000") && !fixed.holds, "{}", fixed.title);
        let cpu = row(&rows, "cpu-send");
        assert!(cpu.title.ends_with("norm-cc") && !cpu.holds && cpu.ours > 1.0, "{}", cpu.title);
    }

    #[test]
    fn a_peer_that_is_not_installed_is_no_fault_and_one_that_gave_no_whole_copy_is() {
        let none = |why| Measured { runs: Err(why), ..measured("norm-cc", &[]) };
        let (missing, broken) = ("norm is not installed", "norm does not compile");
        for (peer, judged, want) in [
            (none(Unprepared::Missing(missing.into())), false, missing),
            (none(Unprepared::Failed(broken.into())), true, broken),
            (measured("norm-cc", &[0.0]), true, "no round with whole copies"),
        ] {
            let row = row(&rows(&[measured("faircast", &[900.0]), peer], false), "norm-cc");
            assert_eq!((row.measured_only, row.holds), (!judged, !judged), "{want}");
            assert!(row.ours.is_nan() && row.explained.unwrap().contains(want), "{want}");
        }
    }

    #[test]
    fn a_choice_of_transports_has_only_the_rows_that_it_can_have() {
        let all = [measured("faircast", &[900.0]), measured("limit", &[1000.0])];
        let ids: Vec<String> = rows(&all, true).into_iter().map(|row| row.id).collect();
        assert_eq!(ids, ["limit", "whole"]);
        assert!(rows(&[measured("udpcast", &[400.0])], true).is_empty());
    }

    #[test]
    fn every_goal_names_transports_that_there_are() {
        let there = |id: &str| TABLES.transports.iter().any(|transport| transport.id == id);
        for goal in &TABLES.goals {
            assert!(there(&goal.ours), "{}", goal.id);
            assert!(goal.theirs.as_deref().is_none_or(there), "{}", goal.id);
            assert!(goal.theirs.is_some() == goal.best.is_empty(), "{}", goal.id);
            assert!(goal.at_least.is_some() != goal.below.is_some(), "{}", goal.id);
        }
    }
}
