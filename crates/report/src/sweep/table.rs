//! Table of a sweep as text: medians of each combination of settings and flow.

use std::fmt::Write as _;

use super::{SWEEP_FIGURES, Sweep, SweepLine, short};
use crate::interval::{Interval, median_interval};
use crate::text::{Table, or_dash, rate, spread, wrapped};

const ROWS_MAX: usize = 40;

const THROUGHPUT: usize = 0;
const SLOWEST: usize = 1;
const ROUND_TRIP: usize = 3;
const LOSS: usize = 4;
const DONE: usize = 5;

impl Sweep {
    /// Returns the sweep as text, at most 100 columns wide: medians and intervals over the seeds.
    pub fn table(&self) -> String {
        SweepTable::new(self).to_text()
    }
}

struct SweepTable<'a> {
    sweep: &'a Sweep,
    lines: Vec<Vec<SweepLine>>,
    varied: Vec<usize>,
    has_spread: bool,
    /// Least confidence of all intervals; `None` if a row has too few seeds for one.
    confidence: Option<f64>,
}

impl<'a> SweepTable<'a> {
    fn new(sweep: &'a Sweep) -> Self {
        let varied = (0..sweep.axes.len()).filter(|axis| sweep.axes[*axis].values.len() > 1);
        let mut table = Self {
            sweep,
            lines: (0..SWEEP_FIGURES.len()).map(|figure| sweep.lines(figure)).collect(),
            varied: varied.collect(),
            has_spread: sweep.values.values().any(|runs| runs.len() > 1),
            confidence: None,
        };
        let confidences =
            table.rows().map(|(choice, line)| Some(interval(choice, line)?.confidence));
        table.confidence = confidences.reduce(|a, b| Some(a?.min(b?))).flatten();
        table
    }

    /// Combinations of settings with their flows.
    fn rows(&self) -> impl Iterator<Item = (&Vec<usize>, &SweepLine)> {
        self.sweep.choices().into_iter().flat_map(move |choice| {
            let lines = self.lines[THROUGHPUT].iter();
            let with_runs = lines.filter(move |line| line.values.contains_key(choice));
            with_runs.map(move |line| (choice, line))
        })
    }

    /// Least, median and greatest value.
    fn spread(&self, figure: usize, name: &str, choice: &Vec<usize>) -> Option<[f64; 3]> {
        let line = self.lines[figure].iter().find(|line| line.name == name)?;
        spread(line.values.get(choice)?.iter().copied())
    }

    /// Figures in the last columns: the round trip only if no flow completes.
    fn last_figures(&self) -> [usize; 3] {
        let time = if self.lines[DONE].is_empty() { ROUND_TRIP } else { DONE };
        [SLOWEST, time, LOSS]
    }

    fn to_text(&self) -> String {
        let mut head: Vec<&str> =
            self.varied.iter().map(|axis| short(&self.sweep.axes[*axis].key)).collect();
        head.push("Flow");
        let left = head.len();
        head.push("Throughput");
        if self.has_spread {
            head.extend(match self.confidence {
                Some(_) => ["From", "To"],
                None => ["Least", "Most"],
            });
        }
        head.extend(self.last_figures().map(|figure| SWEEP_FIGURES[figure].short));
        let mut table = Table::new(left, &head);
        for (choice, line) in self.rows().take(ROWS_MAX) {
            table.push(self.cells(choice, line));
        }
        let mut out = wrapped(&self.sweep.title) + "\n";
        table.write(&mut out);
        self.write_notes(&mut out);
        out
    }

    fn cells(&self, choice: &Vec<usize>, line: &SweepLine) -> Vec<String> {
        let axes = self.varied.iter();
        let mut cells: Vec<String> =
            axes.map(|axis| self.sweep.axes[*axis].values[choice[*axis]].clone()).collect();
        cells.push(line.name.clone());
        let [low, median, high] =
            self.spread(THROUGHPUT, &line.name, choice).expect("a line with runs has values");
        cells.push(rate(median));
        if self.has_spread {
            let interval = interval(choice, line).filter(|_| self.confidence.is_some());
            let [low, high] = interval.map_or([low, high], |ends| [ends.low, ends.high]);
            cells.extend([rate(low), rate(high)]);
        }
        cells.extend(self.last_figures().map(|figure| {
            let median = self.spread(figure, &line.name, choice).map(|[_, median, _]| median);
            or_dash(median.map(SWEEP_FIGURES[figure].shown))
        }));
        cells
    }

    fn write_notes(&self, out: &mut String) {
        let rows = self.rows().count();
        if rows > ROWS_MAX {
            let _ = writeln!(out, "… and {} rows more", rows - ROWS_MAX);
        }
        let seeds = match self.sweep.seeds {
            1 => "1 seed".to_string(),
            seeds => format!("{seeds} seeds"),
        };
        let statistics = match (self.has_spread, self.confidence) {
            (false, _) => "of",
            (true, None) => "medians, least and most over",
            (true, Some(_)) => "medians over",
        };
        let _ = writeln!(
            out,
            "\nFigures are {statistics} {seeds}; throughput is that while a flow was on."
        );
        if let Some(confidence) = self.confidence {
            let percent = (confidence * 100.0).floor();
            let _ = writeln!(
                out,
                "From and To enclose the median of the throughput with {percent} % confidence."
            );
        }
    }
}

fn interval(choice: &Vec<usize>, line: &SweepLine) -> Option<Interval> {
    median_interval(line.values.get(choice)?.iter().copied())
}
