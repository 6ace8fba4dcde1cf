//! Documentation page with the verdict of each row of some suites, and counts by class.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::class::{Class, Counts};
use crate::suite::{Row, Suite, number};
use crate::text::{DASH, or_dash};

/// Page of verdicts: one section for each suite. Sections of suites not run stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// Rows of each suite by its name.
    pub suites: BTreeMap<String, Vec<RowVerdict>>,
}

/// Row of a suite on the page; figures are as printed.
#[derive(Clone, Debug, PartialEq)]
pub struct RowVerdict {
    /// Id of the row.
    pub id: String,
    /// Published figure.
    pub paper: String,
    /// Measured figure.
    pub ours: String,
    seeds: String,
    /// Accepted range.
    pub accepted: String,
    optimum: Option<String>,
    /// Class of the row.
    pub class: Class,
}

impl RowVerdict {
    /// Converts a row of a suite.
    pub fn of(row: &Row) -> Self {
        let optimum = row.values.optimum.as_ref().zip(row.of_optimum()).map(|(optimum, ratio)| {
            format!("{} {}, {}", optimum.objective, number(optimum.value), number(ratio))
        });
        Self {
            id: row.id.clone(),
            paper: or_dash(row.expected.paper.map(number)),
            ours: number(row.values.ours),
            seeds: row.values.seeds.to_string(),
            accepted: row.accepts(),
            optimum,
            class: Class::of(row),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [id, paper, ours, seeds, accepted, ref optimum @ .., word] = cells[..] else {
            return None;
        };
        let optimum = match optimum {
            [] | [DASH] => None,
            [optimum] => Some(optimum.to_string()),
            _ => return None,
        };
        let class = Class::ALL.into_iter().find(|class| class.texts()[0] == word)?;
        let id = id.strip_prefix('`')?.strip_suffix('`')?;
        let [id, paper, ours, seeds, accepted] =
            [id, paper, ours, seeds, accepted].map(String::from);
        Some(Self { id, paper, ours, seeds, accepted, optimum, class })
    }
}

impl Verdicts {
    /// First line of the page.
    pub const HEADING: &str = "# Verdicts of the suites";

    /// Parses a page made by [`to_markdown`](Self::to_markdown); other text is ignored.
    pub fn parse(page: &str) -> Self {
        let mut suites = BTreeMap::new();
        for section in page.split("\n## ").skip(1) {
            let name = section.lines().next().unwrap_or_default().trim().to_string();
            suites.insert(name, section.lines().filter_map(RowVerdict::parse).collect());
        }
        Self { suites }
    }

    /// Replaces the rows of a suite.
    pub fn put(&mut self, suite: &Suite) {
        self.suites.insert(suite.name.clone(), suite.rows.iter().map(RowVerdict::of).collect());
    }

    /// Returns the table of the number of rows by suite and class.
    pub fn counts(&self) -> String {
        let words = Class::ALL.map(|class| class.texts()[1]).join(" | ");
        let mut text =
            format!("| suite | rows | {words} |\n|{}\n", " --- |".repeat(2 + Class::ALL.len()));
        for (name, rows) in &self.suites {
            let counts = Counts::of(rows.iter().map(|row| row.class));
            let of = Class::ALL.map(|class| counts.get(class).to_string()).join(" | ");
            let _ = writeln!(text, "| `{name}` | {} | {of} |", counts.total());
        }
        text
    }

    /// Returns the page as Markdown.
    pub fn to_markdown(&self) -> String {
        let names: Vec<&str> = self.suites.keys().map(String::as_str).collect();
        let mut text = format!(
            "{}\n\nMade by `faircast bench {} --docs docs/verdicts.md`; what was published, and what\n\
             was measured, row by row. [research.md](research.md#suites) says what each verdict means.\n\n{}",
            Self::HEADING,
            names.join(" "),
            self.counts()
        );
        for (name, rows) in &self.suites {
            let column = |cell: &str| match rows.iter().any(|row| row.optimum.is_some()) {
                true => format!(" {cell} |"),
                false => String::new(),
            };
            let (head, rule) = (column("optimum, ours / optimum"), column("---"));
            let _ = write!(
                text,
                "\n## {name}\n\n| row | published | ours | seeds | accepted |{head} verdict |\n| --- | --- | --- | --- | --- |{rule} --- |\n"
            );
            for RowVerdict { id, paper, ours, seeds, accepted, optimum, class } in rows {
                let ([word, ..], optimum) =
                    (class.texts(), column(optimum.as_deref().unwrap_or(DASH)));
                let _ = writeln!(
                    text,
                    "| `{id}` | {paper} | {ours} | {seeds} | {accepted} |{optimum} {word} |"
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acceptance, Expected, Optimum, Values};

    fn suite(name: &str, rows: Vec<Row>) -> Suite {
        Suite { name: name.into(), about: String::new(), rows }
    }

    fn row(id: &str, ours: f64) -> Row {
        let holds = ours < 2.0;
        Row {
            id: id.into(),
            expected: Expected { paper: Some(1.0), ..Expected::default() },
            values: Values { ours, seeds: 3, ..Values::default() },
            accepted: Acceptance { holds, high: Some(2.0), ..Acceptance::default() },
            ..Row::default()
        }
    }

    #[test]
    fn a_page_is_read_as_it_was_written_and_other_suites_stay() {
        let mut page = Verdicts::default();
        page.put(&suite("a", vec![row("one", 1.0), row("two", 3.0)]));
        page.put(&suite("b", vec![row("x", 1.0)]));
        let text = page.to_markdown();
        assert_eq!(Verdicts::parse(&text), page);
        let mut optimal = row("best", 1.9);
        optimal.values.optimum = Some(Optimum { objective: "fair", value: 2.0 });
        page.put(&suite("b", vec![row("x", 1.0), optimal]));
        let with = page.to_markdown();
        assert!(with.contains("| `x` | 1.000 | 1.000 | 3 | ≤ 2 | – | holds |\n"), "{with}");
        let line = "| `best` | 1.000 | 1.900 | 3 | ≤ 2 | fair 2.000, 0.950 | holds |\n";
        assert!(with.contains(line), "{with}");
        assert_eq!(Verdicts::parse(&with), page);
        let mut again = Verdicts::parse(&text);
        again.put(&suite("b", vec![row("x", 5.0)]));
        assert_eq!(again.suites["a"], page.suites["a"]);
        assert_eq!(again.suites["b"][0].class, Class::NotReproduced);
        assert!(text.contains("| `a` | 2 | 1 | 0 | 1 | 0 | 0 | 0 |\n"), "{text}");
        assert!(text.contains("| `two` | 1.000 | 3.000 | 3 | ≤ 2 | UNKNOWN |\n"), "{text}");
    }
}
