//! Row of a suite: a published figure, our values and the verdict.

use serde::{Deserialize, Serialize};

use super::number;
use crate::Series;
use crate::class::Class;
use crate::interval::{Interval, median_interval};
use crate::text::DASH;

/// Offline optimum of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Optimum {
    /// Objective: `throughput`, `fair` or `concave`.
    pub objective: &'static str,
    /// Value of the figure at the optimum.
    pub value: f64,
}

/// Published figure, and our measurement of it. In JSON all groups of fields are one object.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Short name, unique in the suite: `fig-4`.
    pub id: String,
    /// Measured quantity, in a few words.
    pub title: String,
    /// Unit of all values: `ratio`, `bit/s`, `s`, `packets`.
    pub unit: String,
    /// Published or simulated value.
    #[serde(flatten)]
    pub expected: Expected,
    /// Measured values.
    #[serde(flatten)]
    pub values: Values,
    /// Accepted values, and the verdict.
    #[serde(flatten)]
    pub accepted: Acceptance,
    /// Cause of a miss, and limits of the verdict.
    #[serde(flatten)]
    pub cause: MissCause,
    /// Experiment of the row.
    #[serde(flatten)]
    pub source: Source,
    /// Seed and value of every run.
    #[serde(serialize_with = "per_seed")]
    pub per_seed: Vec<(u64, f64)>,
    /// Curves of one of the runs.
    #[serde(skip)]
    pub series: Option<Series>,
    /// Plot that the page shows of these curves.
    #[serde(skip)]
    pub plots: Plots,
}

/// Value with which a row's value is compared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Expected {
    /// Paper's value; `None` if the paper has only a statement in words.
    pub paper: Option<f64>,
    /// True if our value is the lab's, and `paper` holds the simulator's value.
    #[serde(skip)]
    pub against_sim: bool,
    /// Simulator's value, if ours is the lab's.
    pub simulated: Option<f64>,
}

/// Values of a row's runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Values {
    /// Our value: the median over all seeds.
    pub ours: f64,
    /// Smallest value over all seeds.
    pub low: f64,
    /// Largest value over all seeds.
    pub high: f64,
    /// Offline optimum on the same network, if the row has one.
    pub optimum: Option<Optimum>,
    /// Number of seeds.
    pub seeds: u32,
}

/// Values that a row accepts, and the verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Acceptance {
    /// Largest accepted difference from the paper's value, as a share of it.
    pub tolerance: f64,
    /// Smallest accepted value; `None` without such a bound.
    #[serde(rename = "accept_low")]
    pub low: Option<f64>,
    /// Largest accepted value; `None` without such a bound.
    #[serde(rename = "accept_high")]
    pub high: Option<f64>,
    /// True if our value is within the bounds, or if there are none.
    pub holds: bool,
    /// True if the row is measured but not judged, since no value is expected.
    pub measured_only: bool,
    /// Largest accepted difference from the paper's value in the row's unit, if given so.
    #[serde(skip)]
    pub absolute: Option<f64>,
    /// Row that must be farther from 1 than ours, as ratios: a remedy is compared with the problem.
    #[serde(skip)]
    pub fairer_than: Option<String>,
    /// Reason for the tolerance.
    #[serde(skip)]
    pub reason: String,
}

/// Cause of a row's miss, and limits of its verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MissCause {
    /// Cause of the miss; a conjecture if `proved_by` is empty.
    pub explained: Option<String>,
    /// Rows of the same run, all of which hold, that prove the cause of the miss.
    pub proved_by: Vec<String>,
    /// Setting that was fitted to this figure, if any: the row then proves nothing.
    pub fitted: Option<String>,
    /// True if the row tests the network and its TCP, not the scheme.
    pub baseline: bool,
}

/// Experiment of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Source {
    /// Heading of the experiment; empty without one.
    #[serde(skip)]
    pub group: String,
    /// Experiment of the row; empty for an experiment of its own.
    pub experiment: String,
    /// Path of the scenario's file; empty without a scenario.
    #[serde(rename = "scenario")]
    pub file: String,
    /// Changes of the scenario, as `KEY=VALUE`.
    pub set: Vec<String>,
    /// Measured expression in the suite's file; empty without a scenario.
    pub measure: String,
    /// Question that the experiment answers.
    #[serde(skip)]
    pub question: String,
    /// Paper's statement with its place: "Fig. 4: both flows near 0.22 Mbit/s".
    #[serde(skip)]
    pub paper_says: String,
    /// Path and text of the scenario's file.
    #[serde(skip)]
    pub scenario: Option<(String, String)>,
}

fn per_seed<S: serde::Serializer>(values: &[(u64, f64)], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Of {
        seed: u64,
        value: f64,
    }
    to.collect_seq(values.iter().map(|(seed, value)| Of { seed: *seed, value: *value }))
}

/// Plot of an experiment's run on a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plots {
    /// Sequence numbers over time, with losses and their effects.
    #[default]
    Sequence,
    /// Throughput over time, with changes of the representative.
    Rate,
    /// Mean throughput from the start to each time, with changes of the representative.
    Mean,
}

impl Row {
    pub(crate) fn sides(&self) -> [&'static str; 2] {
        match (self.expected.against_sim, self.expected.simulated) {
            (true, _) => ["Simulator", "Lab"],
            (false, Some(_)) => ["Paper", "Lab"],
            (false, None) => ["Paper", "Ours"],
        }
    }

    pub(crate) fn beside(&self) -> Option<f64> {
        self.expected.simulated.filter(|_| !self.expected.against_sim)
    }

    pub(crate) fn of_optimum(&self) -> Option<f64> {
        self.values.optimum.as_ref().map(|optimum| self.values.ours / optimum.value)
    }

    pub(crate) fn spread(&self) -> Option<String> {
        let Values { low, high, seeds, .. } = self.values;
        (seeds > 1).then(|| format!("{}–{}", number(low), number(high)))
    }

    pub(crate) fn interval(&self) -> Option<Interval> {
        median_interval(self.per_seed.iter().map(|(_, value)| *value))
    }

    pub(crate) fn remark(&self) -> Option<String> {
        let why = self.cause.explained.as_deref();
        match Class::of(self) {
            Class::Explained => Some(format!(
                "{} (proved by {})",
                why.unwrap_or_default(),
                self.cause.proved_by.join(", ")
            )),
            Class::NotReproduced => why.map(|why| format!("Not reproduced, cause unknown. {why}")),
            Class::Fitted => self.cause.fitted.as_ref().map(|fitted| format!("Fitted: {fitted}")),
            Class::Holds | Class::Baseline | Class::Measured => self.cause.explained.clone(),
        }
    }

    pub(crate) fn accepts(&self) -> String {
        match &self.accepted.fairer_than {
            Some(other) => format!("fairer than {other}"),
            None => self.accepted_range(),
        }
    }

    pub(super) fn accepted_range(&self) -> String {
        let Acceptance { tolerance, low, high, absolute, .. } = self.accepted;
        match (self.expected.paper, low, high) {
            (Some(paper), Some(low), Some(high))
                if ((high - paper) - (paper - low)).abs() <= 1e-9 * high.abs().max(low.abs()) =>
            {
                match absolute {
                    _ if low == high => format!("= {}", bound(low)),
                    Some(distance) => format!("± {}", bound(distance)),
                    None => format!("± {:.0} %", tolerance * 100.0),
                }
            }
            (_, Some(low), Some(high)) => format!("{}–{}", bound(low), bound(high)),
            (_, Some(low), None) => format!("≥ {}", bound(low)),
            (_, None, Some(high)) => format!("≤ {}", bound(high)),
            (_, None, None) => DASH.into(),
        }
    }
}

fn bound(value: f64) -> String {
    let given = value.to_string();
    if value.abs() < 1_000.0 && given.len() <= 5 { given } else { number(value) }
}
