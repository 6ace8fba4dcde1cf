//! A suite of experiments against published figures.

use std::fmt::Write as _;

use serde::Serialize;

use crate::Series;
use crate::text::{COLUMNS_MAX, Table, count, significant, wrap};

/// Experiments that answer for the figures of a paper. Serialises to the `--json` of `faircast
/// bench`.
#[derive(Clone, Debug, Serialize)]
pub struct Suite {
    /// Its name, as `faircast bench NAME` takes it.
    #[serde(rename = "suite")]
    pub name: String,
    /// What it is about, in a sentence, for the page.
    #[serde(skip)]
    pub about: String,
    /// One row per published figure.
    pub rows: Vec<Row>,
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
    /// Ours: the median over all seeds.
    pub ours: f64,
    /// The least over all seeds.
    pub low: f64,
    /// The greatest over all seeds.
    pub high: f64,
    /// How many seeds were run.
    pub seeds: u32,
    /// How far ours may lie from the paper's, as a share of the latter.
    pub tolerance: f64,
    /// Whether it does not lie further.
    pub holds: bool,
    /// Why it does not hold, in a sentence, where that is understood.
    pub explained: Option<String>,
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
    #[serde(skip)]
    pub per_seed: Vec<(u64, f64)>,
    /// The scenario's file and text.
    #[serde(skip)]
    pub scenario: Option<(String, String)>,
    /// The curves of one of its runs.
    #[serde(skip)]
    pub series: Option<Series>,
}

impl Suite {
    /// Whether every row holds.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.holds)
    }

    /// The suite as `faircast bench --json` prints it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a suite has no map with keys that JSON lacks")
    }

    /// The suite as text, at most 100 columns wide.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut table =
            Table::new(2, &["Row", "Title", "Unit", "Paper", "Ours", "Spread", "±", "Holds"]);
        for row in &self.rows {
            table.push(vec![
                row.id.clone(),
                row.title.clone(),
                row.unit.clone(),
                row.paper.map_or_else(|| "–".into(), number),
                number(row.ours),
                format!("{}–{}", number(row.low), number(row.high)),
                // Bounds without a figure have no distance from it.
                row.paper.map_or_else(|| "–".into(), |_| format!("{:.0} %", row.tolerance * 100.0)),
                if row.holds { "yes".into() } else { "NO".into() },
            ]);
        }
        let heading = match self.about.as_str() {
            "" => self.name.clone(),
            about => format!("{}: {about}", self.name),
        };
        let _ = writeln!(out, "{}\n", wrap(&heading, COLUMNS_MAX).join("\n"));
        table.write(&mut out);
        out.push('\n');
        for row in &self.rows {
            let why = match (&row.explained, row.holds) {
                (Some(why), _) => why.as_str(),
                (None, false) => "not explained",
                (None, true) => continue,
            };
            let lines = wrap(&format!("{}: {why}", row.id), COLUMNS_MAX - 2);
            lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
        }
        let _ = writeln!(
            out,
            "{} of {} rows hold.",
            self.rows.iter().filter(|row| row.holds).count(),
            self.rows.len()
        );
        out
    }
}

/// A number of a suite, whatever its unit.
pub(crate) fn number(value: f64) -> String {
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
            "paper": 0.74, "ours": 0.77, "low": 0.71, "high": 0.82, "seeds": 10,
            "tolerance": 0.15, "holds": true, "explained": null
        }] });
        assert_eq!(json["suite"], want["suite"]);
        assert_eq!(json["rows"][0], want["rows"][0]);
    }

    #[test]
    fn a_suite_as_text_fits_and_explains_what_does_not_hold() {
        let text = suite().table();
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{text}");
        assert!(text.contains("fig-5: The paper leaves") && text.contains("-241,000"), "{text}");
        assert!(text.ends_with("1 of 2 rows hold.\n"), "{text}");
    }
}
