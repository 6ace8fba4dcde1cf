//! Comparison of all schemes: the same cases and figures for each scheme.

use serde::Serialize;

use crate::figure::Figure;
use crate::interval::{Interval, median_interval};
use crate::text::{Table, or_dash, shorten};

/// Results of all schemes in all cases. Serialises to the `--json` of `faircast bench matrix`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Matrix {
    /// Name.
    #[serde(rename = "suite")]
    pub name: String,
    /// Question that the matrix answers.
    pub title: String,
    /// Version of faircast.
    pub faircast: String,
    /// True if cases were shortened or left out to save time.
    pub quick: bool,
    /// Schemes, in the order of the catalog.
    pub schemes: Vec<String>,
    /// Cases, in the order of their file.
    pub cases: Vec<MatrixCase>,
}

/// Case with the results of each scheme.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MatrixCase {
    /// Unique name.
    pub id: String,
    /// Heading of the case.
    pub group: String,
    /// Question that the case answers, in a sentence.
    pub question: String,
    /// Path of the scenario's file.
    pub scenario: String,
    /// Changes of the scenario, in the syntax of `--set`.
    pub set: Vec<String>,
    /// Number of seeds, from 1 on.
    pub seeds: u32,
    /// Remark for readers: fewer seeds than in other cases, reason for a value.
    pub note: Option<String>,
    /// Results by scheme, in the order of the schemes.
    pub cells: Vec<MatrixCell>,
}

/// Result of one scheme in one case.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MatrixCell {
    /// Name of the scheme.
    pub scheme: String,
    /// Figures that apply to the case.
    #[serde(serialize_with = "with_intervals")]
    pub figures: Vec<Spread>,
    /// Pages of the runs in the order of their seeds; empty if none were written.
    pub runs: Vec<RunPage>,
}

fn with_intervals<S: serde::Serializer>(figures: &[Spread], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Of<'a> {
        #[serde(flatten)]
        figure: &'a Spread,
        interval: Option<Interval>,
    }
    to.collect_seq(figures.iter().map(|figure| Of { figure, interval: figure.interval() }))
}

/// Page of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunPage {
    /// Seed of the run.
    pub seed: u64,
    /// Path of the page, relative to the matrix's own page.
    pub page: String,
}

/// Figure over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Figure.
    pub figure: Figure,
    /// Median; infinite, and null in JSON, for a time that was never reached.
    pub median: f64,
    /// Worst value of all seeds; null in JSON if infinite.
    pub worst: f64,
    /// Seed of the worst value, the first of equal ones.
    pub worst_seed: u64,
    /// Seed and value of every run.
    pub per_seed: Vec<(u64, f64)>,
}

impl Spread {
    /// Makes a spread of all seeds' values; `None` without values, or if one is NaN.
    pub fn of(figure: Figure, per_seed: Vec<(u64, f64)>) -> Option<Self> {
        if per_seed.iter().any(|(_, value)| value.is_nan()) {
            return None;
        }
        let values: Vec<f64> = per_seed.iter().map(|(_, value)| *value).collect();
        let [_, median, _] = crate::text::spread(values.iter().copied())?;
        let worst = values.iter().copied().reduce(|a, b| figure.worse(a, b))?;
        let worst_seed = per_seed.iter().find(|(_, value)| *value == worst)?.0;
        Some(Self { figure, median, worst, worst_seed, per_seed })
    }

    /// Returns the confidence interval of the median.
    pub fn interval(&self) -> Option<Interval> {
        median_interval(self.per_seed.iter().map(|(_, value)| *value))
    }

    /// Formats the median and the worst value as `0.74 (0.51)`; only the median for a single seed.
    pub fn shown(&self) -> String {
        let median = self.figure.shown(self.median);
        match self.per_seed.len() {
            1 => median,
            _ => format!("{median} ({})", self.figure.shown(self.worst)),
        }
    }
}

impl MatrixCell {
    /// Returns one of the figures.
    pub fn figure(&self, figure: Figure) -> Option<&Spread> {
        self.figures.iter().find(|spread| spread.figure == figure)
    }
}

impl MatrixCase {
    pub(crate) fn has(&self, figure: Figure) -> bool {
        self.cells.iter().any(|cell| cell.figure(figure).is_some())
    }

    fn shown(&self, figure: Figure) -> impl Iterator<Item = String> {
        self.cells.iter().map(move |cell| or_dash(cell.figure(figure).map(Spread::shown)))
    }
}

impl Matrix {
    /// Returns the matrix as one JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values serialise")
    }

    pub(crate) fn figures(&self) -> impl Iterator<Item = Figure> {
        let any = |figure: &Figure| self.cases.iter().any(|case| case.has(*figure));
        Figure::ALL.into_iter().filter(any)
    }

    /// Returns one table for each figure: cases in rows, schemes in columns.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for figure in self.figures() {
            let mut head = vec![figure.title()];
            head.extend(self.schemes.iter().map(String::as_str));
            let mut table = Table::new(1, &head);
            for case in self.cases.iter().filter(|case| case.has(figure)) {
                let name = shorten(&case.id, 40);
                table.push(std::iter::once(name).chain(case.shown(figure)).collect());
            }
            table.write(&mut text);
            text.push('\n');
        }
        text.push_str(&format!("Median of the seeds (the worst of them). {}\n", self.seeds()));
        let notes = self.cases.iter().filter_map(|case| Some((&case.id, case.note.as_ref()?)));
        for (id, note) in notes {
            text.push_str(&format!("{id}: {note}\n"));
        }
        text
    }

    /// Describes the number of seeds, with the exceptions.
    pub fn seeds(&self) -> String {
        let most = self.cases.iter().map(|case| case.seeds).max().unwrap_or(0);
        let word = if most == 1 { "seed" } else { "seeds" };
        let fewer: Vec<String> = self
            .cases
            .iter()
            .filter(|case| case.seeds < most)
            .map(|case| format!("{} of {}", case.seeds, case.id))
            .collect();
        let but = if fewer.is_empty() { "" } else { "; fewer: " };
        format!("{most} {word} of each case{but}{}.", fewer.join(", "))
    }

    /// Returns the tables in Markdown, each below a heading and a description of its figure.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for figure in self.figures() {
            text.push_str(&format!("### {}\n\n{}\n\n", figure.title(), figure.about()));
            let dashes = " --- |".repeat(self.schemes.len() + 1);
            text.push_str(&format!("| case | {} |\n|{dashes}\n", self.schemes.join(" | ")));
            for case in self.cases.iter().filter(|case| case.has(figure)) {
                let cells: Vec<String> = case.shown(figure).collect();
                text.push_str(&format!("| `{}` | {} |\n", case.id, cells.join(" | ")));
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn matrix(name: &str) -> Matrix {
        let spread = |figure, values: &[f64]| {
            let per_seed = (1..).zip(values.iter().copied()).collect();
            Spread::of(figure, per_seed).unwrap()
        };
        let cell = |scheme: &str, fairness: &[f64], settled: f64| MatrixCell {
            scheme: scheme.into(),
            figures: vec![
                spread(Figure::Fairness, fairness),
                spread(Figure::SettledS, &[12.0, settled]),
            ],
            runs: (1..)
                .zip(fairness)
                .map(|(seed, _)| RunPage { seed, page: format!("runs/{name}-{seed}.html") })
                .collect(),
        };
        let case = |id: &str, seeds, note: Option<&str>| MatrixCase {
            id: id.into(),
            group: "Beside TCP".into(),
            question: format!("Is {name} fair?"),
            scenario: "scenarios/x.toml".into(),
            set: vec!["duration=10 s".into()],
            seeds,
            note: note.map(String::from),
            cells: vec![
                cell(name, &[0.9, 0.1, 0.8], f64::INFINITY),
                cell("other", &[0.5, 0.6], 30.0),
            ],
        };
        Matrix {
            name: "matrix".into(),
            title: format!("How do {name} and other compare?"),
            faircast: "0.1.0".into(),
            quick: false,
            schemes: vec![name.into(), "other".into()],
            cases: vec![case("set-1", 3, None), case("far", 2, Some("Two seeds: it is long."))],
        }
    }

    #[test]
    fn the_worst_seed_is_the_one_that_is_worst_by_the_figures_own_direction() {
        let of = |figure, values: [f64; 3]| {
            let spread = Spread::of(figure, (1..).zip(values).collect()).unwrap();
            (spread.median, spread.worst, spread.worst_seed)
        };
        assert_eq!(of(Figure::Fairness, [0.9, 0.1, 0.8]), (0.8, 0.1, 2));
        assert_eq!(of(Figure::FeedbackPerS, [3.0, 9.0, 9.0]), (9.0, 9.0, 2));
        assert_eq!(of(Figure::SlowestShare, [0.7, 1.5, 1.0]), (1.0, 1.5, 2));
        assert_eq!(of(Figure::Fairness, [1.9, 0.5, 1.0]), (1.0, 0.5, 2));
        assert_eq!(of(Figure::Fairness, [1.0, f64::INFINITY, 0.5]).1, f64::INFINITY);
        let never = of(Figure::SettledS, [3.0, f64::INFINITY, 5.0]);
        assert_eq!(never, (5.0, f64::INFINITY, 2));
        assert_eq!(Spread::of(Figure::Fairness, vec![(1, 0.5), (2, f64::NAN)]), None);
        assert_eq!(Spread::of(Figure::Fairness, Vec::new()), None);
    }

    #[test]
    fn tables_have_a_column_for_each_scheme_and_say_where_seeds_are_fewer() {
        let text = matrix("mine").table();
        assert!(text.starts_with("Fairness         mine        other\n"), "{text}");
        assert!(text.contains("set-1     0.80 (0.10)  0.55 (0.50)\n"), "{text}");
        assert!(text.contains("set-1             never (never)  21 (30)\n"), "{text}");
        assert!(!text.contains("Utilisation"), "nobody has it: {text}");
        assert!(text.contains("3 seeds of each case; fewer: 2 of far."), "{text}");
        assert!(text.ends_with("far: Two seeds: it is long.\n"), "{text}");
        let markdown = matrix("mine").markdown();
        let head = "| case | mine | other |\n| --- | --- | --- |\n";
        assert_eq!(markdown.matches(head).count(), 2);
        assert!(markdown.contains("| `far` | 0.80 (0.10) | 0.55 (0.50) |\n"), "{markdown}");
    }

    #[test]
    fn what_never_came_is_null_in_json() {
        let json: serde_json::Value = serde_json::from_str(&matrix("mine").to_json()).unwrap();
        let settled = &json["cases"][0]["cells"][0]["figures"][1];
        assert_eq!(settled["figure"], "settled_s");
        assert!(settled["worst"].is_null() && settled["per_seed"][1][1].is_null());
        assert_eq!(json["suite"], "matrix");
    }
}
