//! Documentation page with the verdict of each row of some suites, and counts by class.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::class::{Class, Counts};
use crate::suite::{Row, Suite, number};

/// Page of verdicts: one section for each suite. Sections of suites not run stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    suites: BTreeMap<String, Vec<RowVerdict>>,
}

/// Row of a suite on the page.
#[derive(Clone, Debug, PartialEq)]
pub struct RowVerdict {
    /// Row's id.
    pub id: String,
    /// Published figure, measured figure, number of seeds and accepted range, as printed.
    cells: [String; 4],
    optimum: Option<String>,
    /// Row's class.
    pub class: Class,
}

const NO_OPTIMUM: &str = "–";

impl RowVerdict {
    /// Converts a row of a suite.
    pub fn of(row: &Row) -> Self {
        let paper = row.expected.paper.map_or_else(|| "–".into(), number);
        let cells = [paper, number(row.values.ours), row.values.seeds.to_string(), row.accepts()];
        let optimum = row.values.optimum.as_ref().zip(row.of_optimum()).map(|(optimum, ratio)| {
            format!("{} {}, {}", optimum.objective, number(optimum.value), number(ratio))
        });
        Self { id: row.id.clone(), cells, optimum, class: Class::of(row) }
    }

    /// Returns the published figure as printed.
    pub fn paper(&self) -> &str {
        &self.cells[0]
    }

    /// Returns the measured figure as printed.
    pub fn ours(&self) -> &str {
        &self.cells[1]
    }

    /// Returns the accepted range as printed.
    pub fn accepted(&self) -> &str {
        &self.cells[3]
    }

    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let (id, paper, ours, seeds, accepted, optimum, word) = match cells[..] {
            [id, paper, ours, seeds, accepted, word] => {
                (id, paper, ours, seeds, accepted, NO_OPTIMUM, word)
            }
            [id, paper, ours, seeds, accepted, optimum, word] => {
                (id, paper, ours, seeds, accepted, optimum, word)
            }
            _ => return None,
        };
        let class = Class::ALL.into_iter().find(|class| class.word() == word)?;
        let id = id.strip_prefix('`')?.strip_suffix('`')?.to_string();
        let optimum = Some(optimum.to_string()).filter(|optimum| optimum != NO_OPTIMUM);
        let cells = [paper, ours, seeds, accepted].map(String::from);
        Some(Self { id, cells, optimum, class })
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

    /// Returns the names of the page's suites.
    pub fn suites(&self) -> impl Iterator<Item = &str> {
        self.suites.keys().map(String::as_str)
    }

    /// Returns the rows of a suite, if the page has it.
    pub fn rows(&self, suite: &str) -> Option<&[RowVerdict]> {
        self.suites.get(suite).map(Vec::as_slice)
    }

    /// Returns the table of the number of rows by suite and class.
    pub fn counts(&self) -> String {
        let words = Class::ALL.map(Class::meaning).join(" | ");
        let mut text =
            format!("| suite | rows | {words} |\n|{}\n", " --- |".repeat(2 + Class::ALL.len()));
        for (name, rows) in &self.suites {
            let mut counts = Counts::default();
            rows.iter().for_each(|row| counts.add(row.class));
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
            for RowVerdict { id, cells: [paper, ours, seeds, accepted], optimum, class } in rows {
                let (word, optimum) =
                    (class.word(), column(optimum.as_deref().unwrap_or(NO_OPTIMUM)));
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
        assert_eq!(again.rows("a"), page.rows("a"));
        assert_eq!(again.rows("b").map(|rows| rows[0].class), Some(Class::NotReproduced));
        assert!(text.contains("| `a` | 2 | 1 | 0 | 1 | 0 | 0 | 0 |\n"), "{text}");
        assert!(text.contains("| `two` | 1.000 | 3.000 | 3 | ≤ 2 | UNKNOWN |\n"), "{text}");
    }
}
