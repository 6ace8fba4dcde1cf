//! A suite of experiments against published figures.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::Series;
use crate::class::{Class, Counts};
use crate::interval::{Interval, median_interval};
use crate::text::{COLUMNS_MAX, Table, count, significant, wrap};

/// Suite of experiments that answer for the figures of a paper.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name, as `faircast bench NAME` takes it.
    pub name: String,
    /// Subject of the suite in a sentence, for the page.
    pub about: String,
    /// One row per published figure.
    pub rows: Vec<Row>,
}

/// Offline optimum beside a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Optimum {
    /// Objective: `throughput`, `fair` or `concave`.
    pub objective: &'static str,
    /// Value of the figure at the optimum.
    pub value: f64,
}

/// One published figure, and what we measure for it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// A short name, unique in the suite: `fig-4`.
    pub id: String,
    /// What is measured, in a few words.
    pub title: String,
    /// Unit of all its numbers: `ratio`, `bit/s`, `s`, `packets`.
    pub unit: String,
    /// The paper's number; `None` where it gives only words.
    pub paper: Option<f64>,
    /// Ours is the lab's, and the simulator's number stands in the place of the paper's.
    #[serde(skip)]
    pub against_sim: bool,
    /// Where ours is the lab's, what the simulator gives.
    pub simulated: Option<f64>,
    /// Ours: the median over all seeds.
    pub ours: f64,
    /// The least over all seeds.
    pub low: f64,
    /// The greatest over all seeds.
    pub high: f64,
    /// Offline optimum on the same network, where the row has one.
    pub optimum: Option<Optimum>,
    /// How many seeds were run.
    pub seeds: u32,
    /// How far ours may lie from the paper's, as a share of the latter.
    pub tolerance: f64,
    /// The least value that holds; `None` where there is no such bound.
    pub accept_low: Option<f64>,
    /// The greatest value that holds; `None` where there is no such bound.
    pub accept_high: Option<f64>,
    /// Whether ours lies within these bounds; true where there are none.
    pub holds: bool,
    /// Whether it is measured and not judged, since nothing is expected of it.
    pub measured_only: bool,
    /// Cause of the miss; a conjecture where `proved_by` is empty.
    pub explained: Option<String>,
    /// Rows of the same run, all of which hold, that prove the cause of the miss.
    pub proved_by: Vec<String>,
    /// Setting that was chosen by this figure, where there is one: the row then proves nothing.
    pub fitted: Option<String>,
    /// True if the row tests the network and its TCP, and not the scheme.
    pub baseline: bool,
    /// How far ours may lie from the paper's in the row's unit, where that is how it is given.
    #[serde(skip)]
    pub absolute: Option<f64>,
    /// The row that ours must be closer to 1 than, as ratios: a cure against what it cures.
    #[serde(skip)]
    pub fairer_than: Option<String>,
    /// The heading under which the experiment stands; empty where there is none.
    #[serde(skip)]
    pub group: String,
    /// The experiment it belongs to; empty where it is one of its own.
    pub experiment: String,
    /// The scenario's file; empty where the row comes from none.
    #[serde(rename = "scenario")]
    pub file: String,
    /// What was changed in the scenario, `KEY=VALUE`.
    pub set: Vec<String>,
    /// What was measured, as the suite's file has it; empty where the row comes from none.
    pub measure: String,
    /// The question that the experiment answers.
    #[serde(skip)]
    pub question: String,
    /// What the paper says, in words, with the place: "Fig. 4: both flows near 0.22 Mbit/s".
    #[serde(skip)]
    pub paper_says: String,
    /// Why the tolerance is what it is.
    #[serde(skip)]
    pub tolerance_reason: String,
    /// The result of each seed.
    #[serde(serialize_with = "per_seed")]
    pub per_seed: Vec<(u64, f64)>,
    /// The scenario's file and text.
    #[serde(skip)]
    pub scenario: Option<(String, String)>,
    /// The curves of one of its runs.
    #[serde(skip)]
    pub series: Option<Series>,
    /// What of these curves the page shows.
    #[serde(skip)]
    pub plots: Plots,
}

fn per_seed<S: serde::Serializer>(values: &[(u64, f64)], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Of {
        seed: u64,
        value: f64,
    }
    to.collect_seq(values.iter().map(|(seed, value)| Of { seed: *seed, value: *value }))
}

/// What a page shows of an experiment's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plots {
    /// Sequence numbers over time, with losses and what follows of them.
    #[default]
    Sequence,
    /// Throughput over time, with changes of the representative.
    Rate,
    /// Mean throughput from the start to each moment, with changes of the representative.
    Mean,
}

impl Row {
    /// Whose number is expected, and whose is compared with it.
    pub(crate) fn sides(&self) -> [&'static str; 2] {
        match (self.against_sim, self.simulated) {
            (true, _) => ["Simulator", "Lab"],
            (false, Some(_)) => ["Paper", "Lab"],
            (false, None) => ["Paper", "Ours"],
        }
    }

    /// What the simulator gives, where that stands beside the paper's.
    pub(crate) fn beside(&self) -> Option<f64> {
        self.simulated.filter(|_| !self.against_sim)
    }

    /// Ours over the offline optimum.
    pub(crate) fn of_optimum(&self) -> Option<f64> {
        self.optimum.as_ref().map(|optimum| self.ours / optimum.value)
    }

    /// From where to where the seeds go; `None` of one seed, whose number stands there already.
    pub(crate) fn spread(&self) -> Option<String> {
        (self.seeds > 1).then(|| format!("{}–{}", number(self.low), number(self.high)))
    }

    /// Between which values the median of all seeds that could be lies.
    pub(crate) fn interval(&self) -> Option<Interval> {
        median_interval(self.per_seed.iter().map(|(_, value)| *value))
    }

    /// Remark below the table: the cause of a miss with its proof, or the setting that was fitted.
    pub(crate) fn remark(&self) -> Option<String> {
        let why = self.explained.as_deref();
        match Class::of(self) {
            Class::Explained => Some(format!(
                "{} (proved by {})",
                why.unwrap_or_default(),
                self.proved_by.join(", ")
            )),
            Class::NotReproduced => why.map(|why| format!("Not reproduced, cause unknown. {why}")),
            Class::Fitted => self.fitted.as_ref().map(|fitted| format!("Fitted: {fitted}")),
            Class::Holds | Class::Baseline | Class::Measured => self.explained.clone(),
        }
    }

    /// Which values hold, in as few words as do: `± 15 %`, `≥ 0.5`, `fairer than fig-4`.
    pub(crate) fn accepts(&self) -> String {
        match &self.fairer_than {
            Some(other) => format!("fairer than {other}"),
            None => self.accepted_range(),
        }
    }

    fn accepted_range(&self) -> String {
        match (self.paper, self.accept_low, self.accept_high) {
            (Some(paper), Some(low), Some(high)) if is_middle(paper, low, high) => {
                match self.absolute {
                    _ if low == high => format!("= {}", bound(low)),
                    Some(distance) => format!("± {}", bound(distance)),
                    None => format!("± {:.0} %", self.tolerance * 100.0),
                }
            }
            (_, Some(low), Some(high)) => format!("{}–{}", bound(low), bound(high)),
            (_, Some(low), None) => format!("≥ {}", bound(low)),
            (_, None, Some(high)) => format!("≤ {}", bound(high)),
            (_, None, None) => "–".into(),
        }
    }
}

/// Whether the value lies in the middle between the two, but for rounding.
fn is_middle(value: f64, low: f64, high: f64) -> bool {
    ((high - value) - (value - low)).abs() <= 1e-9 * high.abs().max(low.abs())
}

/// A bound as it was given where that is short: `0.5`, not `0.500`.
fn bound(value: f64) -> String {
    let given = value.to_string();
    if value.abs() < 1_000.0 && given.len() <= 5 { given } else { number(value) }
}

impl Suite {
    /// Whether every row holds.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.holds)
    }

    /// Table of the rows that have an offline optimum; empty without such rows.
    fn optima(&self) -> String {
        let mut table = Table::new(2, &["Row", "Optimum of", "Ours", "Optimum", "Ours / optimum"]);
        let mut out = String::new();
        for row in &self.rows {
            let (Some(optimum), Some(ratio)) = (&row.optimum, row.of_optimum()) else { continue };
            let [ours, best, ratio] = [row.ours, optimum.value, ratio].map(number);
            table.push(vec![row.id.clone(), optimum.objective.into(), ours, best, ratio]);
        }
        if !table.is_empty() {
            table.write(&mut out);
            out.push('\n');
        }
        out
    }

    fn has_beside(&self) -> bool {
        self.rows.iter().any(|row| row.beside().is_some())
    }

    /// Rows of each class.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.rows)
    }

    /// The suite as `faircast bench --json` prints it.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            suite: &'a str,
            counts: Counts,
            rows: Vec<Classed<'a>>,
        }
        #[derive(Serialize)]
        struct Classed<'a> {
            #[serde(flatten)]
            row: &'a Row,
            class: Class,
            /// Confidence interval of the median; null of fewer than five seeds.
            interval: Option<Interval>,
            /// Ours over the offline optimum; null without one.
            of_optimum: Option<f64>,
        }
        let classed = |row| Classed {
            row,
            class: Class::of(row),
            interval: Row::interval(row),
            of_optimum: Row::of_optimum(row),
        };
        let rows = self.rows.iter().map(classed).collect();
        let document = Document { suite: &self.name, counts: self.counts(), rows };
        serde_json::to_string_pretty(&document).expect("every key of a suite is a string")
    }

    /// The suite as text, at most 100 columns wide.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let [theirs, ours] = self.rows.first().map_or(["Paper", "Ours"], Row::sides);
        let has_beside = self.has_beside();
        let mut head = vec!["Row", "Title", "Unit", theirs];
        head.extend(has_beside.then_some("Simulator"));
        head.extend([ours, "Spread", "Accepted", "Verdict"]);
        let mut table = Table::new(2, &head);
        for row in &self.rows {
            let mut cells = vec![
                row.id.clone(),
                row.title.clone(),
                row.unit.clone(),
                row.paper.map_or_else(|| "–".into(), number),
            ];
            cells.extend(has_beside.then(|| row.beside().map_or_else(|| "–".into(), number)));
            cells.extend([
                number(row.ours),
                row.spread().unwrap_or_else(|| "–".into()),
                // Numbers alone: the name of another row would take the room of the titles.
                row.accepted_range(),
                Class::of(row).word().into(),
            ]);
            table.push(cells);
        }
        let heading = match self.about.as_str() {
            "" => self.name.clone(),
            about => format!("{}: {about}", self.name),
        };
        let _ = writeln!(out, "{}\n", wrap(&heading, COLUMNS_MAX).join("\n"));
        table.write(&mut out);
        out.push('\n');
        out.push_str(&self.optima());
        for row in &self.rows {
            let Some(remark) = row.remark() else { continue };
            let lines = wrap(&format!("{}: {remark}", row.id), COLUMNS_MAX - 2);
            lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
        }
        wrap(&self.counts().sentence(), COLUMNS_MAX).iter().for_each(|line| {
            out.push_str(&format!("{line}\n"));
        });
        out
    }
}

/// A number of a suite, whatever its unit; what never came about has taken for ever.
pub(crate) fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value < 0.0 { "-∞" } else { "∞" }.to_string();
    }
    if value.abs() >= 1_000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(value.abs().round() as u64));
    }
    significant(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> Suite {
        let row = Row {
            id: "fig-4".into(),
            title: "pgmcc beside TCP Reno, 3000 s".into(),
            unit: "ratio".into(),
            paper: Some(0.74),
            ours: 0.77,
            low: 0.71,
            high: 0.82,
            seeds: 10,
            tolerance: 0.15,
            accept_low: Some(0.629),
            accept_high: Some(0.851),
            holds: true,
            per_seed: vec![(1, 0.77)],
            ..Row::default()
        };
        let missed = Row {
            id: "fig-5".into(),
            paper: None,
            ours: -241_000.4,
            holds: false,
            explained: Some("The paper leaves the queue's limit open. ".repeat(5)),
            title: "t".repeat(120),
            ..row.clone()
        };
        Suite { name: "fairness".into(), about: String::new(), rows: vec![row, missed] }
    }

    #[test]
    fn a_suite_serialises_to_the_documented_keys_and_nothing_else() {
        let json: serde_json::Value = serde_json::from_str(&suite().to_json()).unwrap();
        let want = serde_json::json!({ "suite": "fairness", "rows": [{
            "id": "fig-4", "title": "pgmcc beside TCP Reno, 3000 s", "unit": "ratio",
            "paper": 0.74, "simulated": null, "ours": 0.77, "low": 0.71, "high": 0.82, "seeds": 10,
            "tolerance": 0.15, "accept_low": 0.629, "accept_high": 0.851, "holds": true, "explained": null,
            "proved_by": [], "fitted": null, "baseline": false, "class": "holds",
            "measured_only": false, "experiment": "", "scenario": "", "set": [], "measure": "",
            "per_seed": [{ "seed": 1, "value": 0.77 }], "interval": null, "optimum": null, "of_optimum": null
        }] });
        assert_eq!(json["suite"], want["suite"]);
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["counts", "rows", "suite"]);
        assert_eq!(json["rows"][0], want["rows"][0]);
    }

    #[test]
    fn what_a_row_accepts_is_said_as_it_was_given() {
        let row = |paper, absolute, accept_low, accept_high| Row {
            paper,
            tolerance: 0.15,
            absolute,
            accept_low,
            accept_high,
            ..Row::default()
        };
        for (row, want) in [
            (row(Some(0.74), None, Some(0.629), Some(0.851)), "± 15 %"),
            (row(Some(0.0), Some(1.0), Some(-1.0), Some(1.0)), "± 1"),
            (row(Some(0.74), None, Some(0.7), Some(0.851)), "0.7–0.851"),
            (row(None, None, Some(70_000.0), Some(80_000.0)), "70,000–80,000"),
            (row(None, None, Some(0.5), None), "≥ 0.5"),
            (row(None, None, None, Some(0.4)), "≤ 0.4"),
            (row(None, None, Some(1.0 / 3.0), None), "≥ 0.333"),
            (row(None, None, None, None), "–"),
        ] {
            assert_eq!(row.accepts(), want);
        }
        let cure =
            Row { fairer_than: Some("fig-15".into()), ..row(None, None, Some(0.8), Some(1.25)) };
        assert_eq!(cure.accepts(), "fairer than fig-15");
        let text = Suite { rows: vec![cure], ..suite() }.table();
        assert!(text.contains("0.8–1.25"), "{text}");
    }

    #[test]
    fn a_suite_as_text_fits_and_explains_what_does_not_hold() {
        let text = suite().table();
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{text}");
        assert!(text.contains("fig-5: Not reproduced, cause unknown. The paper leaves"), "{text}");
        assert!(text.contains("-241,000"), "{text}");
        let end = "2 rows: 1 judged, hold; 1 not reproduced, cause unknown.\n";
        assert!(text.ends_with(end), "{text}");
        let mut proved = suite();
        proved.rows[1].proved_by = vec!["fig-4".into()];
        assert!(proved.table().contains("(proved by fig-4)"), "{}", proved.table());
        let mut fitted = suite();
        fitted.rows[0].fitted = Some("The delay.".into());
        assert!(fitted.table().contains("fig-4: Fitted: The delay."), "{}", fitted.table());
        // Table, JSON and sentence use equal words.
        let json: serde_json::Value = serde_json::from_str(&fitted.to_json()).unwrap();
        assert_eq!(
            (&json["counts"]["fitted"], &json["rows"][0]["class"]),
            (&1.into(), &"fitted".into())
        );
    }

    #[test]
    fn an_optimum_stands_beside_ours_with_the_ratio() {
        let mut suite = suite();
        assert!(!suite.table().contains("ptimum"), "{}", suite.table());
        suite.rows[0].optimum = Some(Optimum { objective: "fair", value: 0.8 });
        let text = suite.table();
        assert!(text.contains("Row    Optimum of   Ours  Optimum  Ours / optimum\n"), "{text}");
        assert!(text.contains("fig-4  fair        0.770    0.800           0.963\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&suite.to_json()).unwrap();
        let [first, second] = [&json["rows"][0], &json["rows"][1]];
        assert_eq!(first["optimum"], serde_json::json!({ "objective": "fair", "value": 0.8 }));
        assert!((first["of_optimum"].as_f64().unwrap() - 0.9625).abs() < 1e-12);
        assert!(second["of_optimum"].is_null());
    }

    #[test]
    fn what_is_measured_only_is_counted_apart_and_has_no_verdict() {
        let mut suite = suite();
        suite.rows[0].measured_only = true;
        let text = suite.table();
        assert!(text.ends_with("1 not reproduced, cause unknown; 1 measured only.\n"), "{text}");
        let row = text.lines().find(|line| line.starts_with("fig-4"));
        assert!(row.is_some_and(|line| line.trim_end().ends_with("measured")), "{text}");
        suite.rows.truncate(1);
        assert!(suite.table().ends_with("1 row: 1 measured only.\n"));
        assert!(suite.holds());
    }

    #[test]
    fn of_a_lab_the_simulator_stands_beside_it_and_of_one_seed_no_number_stands_twice() {
        let mut suite = suite();
        suite.rows.truncate(1);
        assert!(suite.table().contains("Paper") && suite.table().contains("0.710–0.820"));
        (suite.rows[0].against_sim, suite.rows[0].seeds) = (true, 1);
        suite.rows[0].simulated = Some(0.5);
        let text = suite.table();
        assert!(
            text.contains("Simulator") && text.contains("Lab") && !text.contains("Paper"),
            "{text}"
        );
        assert!(!text.contains("0.710"), "{text}");
        assert!(!text.contains("0.500"), "it is the expected one: {text}");
        // And what a paper printed stands beside both.
        (suite.rows[0].against_sim, suite.rows[0].simulated) = (false, Some(0.5));
        let text = suite.table();
        assert!(text.contains("Paper  Simulator    Lab"), "{text}");
        assert!(text.contains("0.740      0.500  0.770"), "{text}");
    }

    #[test]
    fn numbers_are_as_short_as_they_say_something() {
        for (value, want) in [
            (0.5, "0.500"),
            (-241_000.4, "-241,000"),
            (f64::INFINITY, "∞"),
            (f64::NEG_INFINITY, "-∞"),
        ] {
            assert_eq!(number(value), want);
        }
    }
}
