//! Suite of experiments, compared with published figures.

mod row;

use serde::Serialize;

use crate::class::{Class, Counts};
use crate::interval::Interval;
use crate::text::{COLUMNS_MAX, Table, count, or_dash, significant, wrap, wrapped};
pub use row::{Acceptance, Expected, MissCause, Optimum, Plots, Row, Source, Values};

/// Suite of experiments that reproduce the figures of a paper.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name, as in `faircast bench NAME`.
    pub name: String,
    /// Subject of the suite in a sentence, for the page.
    pub about: String,
    /// Rows, one for each published figure.
    pub rows: Vec<Row>,
}

impl Suite {
    /// True if every row holds.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.accepted.holds)
    }

    fn optima(&self) -> String {
        let mut table = Table::new(2, &["Row", "Optimum of", "Ours", "Optimum", "Ours / optimum"]);
        let mut out = String::new();
        for row in &self.rows {
            let (Some(optimum), Some(ratio)) = (&row.values.optimum, row.of_optimum()) else {
                continue;
            };
            let [ours, best, ratio] = [row.values.ours, optimum.value, ratio].map(number);
            table.push(vec![row.id.clone(), optimum.objective.into(), ours, best, ratio]);
        }
        if !table.is_empty() {
            table.write(&mut out);
            out.push('\n');
        }
        out
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts::of(self.rows.iter().map(Class::of))
    }

    /// Returns the suite as printed by `faircast bench --json`.
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
            interval: Option<Interval>,
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

    /// Returns the suite as text, at most 100 columns wide.
    pub fn table(&self) -> String {
        let [theirs, ours] = self.rows.first().map_or(["Paper", "Ours"], Row::sides);
        let has_beside = self.rows.iter().any(|row| row.beside().is_some());
        let mut head = vec!["Row", "Title", "Unit", theirs];
        head.extend(has_beside.then_some("Simulator"));
        head.extend([ours, "Spread", "Accepted", "Verdict"]);
        let mut table = Table::new(2, &head);
        for row in &self.rows {
            let mut cells = vec![
                row.id.clone(),
                row.title.clone(),
                row.unit.clone(),
                or_dash(row.expected.paper.map(number)),
            ];
            cells.extend(has_beside.then(|| or_dash(row.beside().map(number))));
            cells.extend([
                number(row.values.ours),
                or_dash(row.spread()),
                // Numbers only: the name of another row would take space from the titles.
                row.accepted_range(),
                Class::of(row).texts()[0].into(),
            ]);
            table.push(cells);
        }
        let heading = match self.about.as_str() {
            "" => self.name.clone(),
            about => format!("{}: {about}", self.name),
        };
        let mut out = wrapped(&heading) + "\n";
        table.write(&mut out);
        out.push('\n');
        out.push_str(&self.optima());
        for row in &self.rows {
            let Some(remark) = row.remark() else { continue };
            let lines = wrap(&format!("{}: {remark}", row.id), COLUMNS_MAX - 2);
            lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
        }
        out + &wrapped(&self.counts().sentence())
    }
}

/// Formats a number of any unit; infinity, for a time that was never reached, as `∞`.
pub(crate) fn number(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    match value.abs() {
        f64::INFINITY => format!("{sign}∞"),
        size if size >= 1_000.0 => format!("{sign}{}", count(size.round() as u64)),
        _ => significant(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> Suite {
        let row = Row {
            id: "fig-4".into(),
            title: "pgmcc beside TCP Reno, 3000 s".into(),
            unit: "ratio".into(),
            expected: Expected { paper: Some(0.74), ..Expected::default() },
            values: Values { ours: 0.77, low: 0.71, high: 0.82, seeds: 10, optimum: None },
            accepted: Acceptance {
                tolerance: 0.15,
                low: Some(0.629),
                high: Some(0.851),
                holds: true,
                ..Acceptance::default()
            },
            per_seed: vec![(1, 0.77)],
            ..Row::default()
        };
        let missed = Row {
            id: "fig-5".into(),
            expected: Expected::default(),
            values: Values { ours: -241_000.4, ..row.values.clone() },
            accepted: Acceptance { holds: false, ..row.accepted.clone() },
            cause: MissCause {
                explained: Some("The paper leaves the queue's limit open. ".repeat(5)),
                ..MissCause::default()
            },
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
        let row = |paper, absolute, low, high| Row {
            expected: Expected { paper, ..Expected::default() },
            accepted: Acceptance { tolerance: 0.15, absolute, low, high, ..Acceptance::default() },
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
        let mut cure = row(None, None, Some(0.8), Some(1.25));
        cure.accepted.fairer_than = Some("fig-15".into());
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
        proved.rows[1].cause.proved_by = vec!["fig-4".into()];
        assert!(proved.table().contains("(proved by fig-4)"), "{}", proved.table());
        let mut fitted = suite();
        fitted.rows[0].cause.fitted = Some("The delay.".into());
        assert!(fitted.table().contains("fig-4: Fitted: The delay."), "{}", fitted.table());
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
        suite.rows[0].values.optimum = Some(Optimum { objective: "fair", value: 0.8 });
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
        suite.rows[0].accepted.measured_only = true;
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
        (suite.rows[0].expected.against_sim, suite.rows[0].values.seeds) = (true, 1);
        suite.rows[0].expected.simulated = Some(0.5);
        let text = suite.table();
        assert!(
            text.contains("Simulator") && text.contains("Lab") && !text.contains("Paper"),
            "{text}"
        );
        assert!(!text.contains("0.710"), "{text}");
        assert!(!text.contains("0.500"), "it is the expected one: {text}");
        (suite.rows[0].expected.against_sim, suite.rows[0].expected.simulated) = (false, Some(0.5));
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
