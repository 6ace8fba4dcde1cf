//! Record of fuzzing, `fuzz/RECORD.md`: fuzzing time and results of each target.

use std::fs;
use std::path::Path;

use crate::shell;

/// Counters of AFL++ for a target, in this run and the runs that it resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    executions: u64,
    edges: u64,
    edges_total: u64,
}

impl Counts {
    pub(crate) fn of(results: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(results.join("fuzzer_stats")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let of_key = |line: &str| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().parse().ok())?
            };
            text.lines().find_map(of_key)
        };
        let (executions, edges) = (value("execs_done")?, value("edges_found")?);
        Some(Self { executions, edges, edges_total: value("total_edges")? })
    }
}

/// Row of the table: sums over all runs, except for the coverage of the last run.
#[derive(Default)]
struct Row {
    target: String,
    hours: f64,
    counts: Counts,
    findings: usize,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.trim().strip_prefix('|')?.split('|').map(str::trim).collect();
        let [target, hours, executions, edges, edges_total, findings, ""] = cells[..] else {
            return None;
        };
        let counts = Counts {
            executions: executions.parse().ok()?,
            edges: edges.parse().ok()?,
            edges_total: edges_total.parse().ok()?,
        };
        let (hours, findings) = (hours.parse().ok()?, findings.parse().ok()?);
        Some(Self { target: target.into(), hours, counts, findings })
    }

    fn line(&self) -> String {
        let Self { target, hours, counts, findings } = self;
        let Counts { executions, edges, edges_total } = counts;
        format!("| {target} | {hours:.2} | {executions} | {edges} | {edges_total} | {findings} |\n")
    }
}

pub(crate) struct Run<'a> {
    pub(crate) target: &'a str,
    pub(crate) hours: f64,
    pub(crate) before: Option<Counts>,
    pub(crate) after: Counts,
    pub(crate) findings: usize,
}

impl Run<'_> {
    pub(crate) fn add(&self) -> Result<(), String> {
        let path = shell::root().join("fuzz/RECORD.md");
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, self.added(&text)).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn added(&self, text: &str) -> String {
        let mut rows: Vec<Row> = text.lines().filter_map(Row::parse).collect();
        let place = rows.iter().position(|row| row.target == self.target);
        let mut row = place.map(|place| rows.remove(place)).unwrap_or_default();
        row.target = self.target.into();
        // A resumed run continues the counters of the earlier run.
        let (before, after) = (self.before.unwrap_or_default(), self.after);
        let executions = after.executions - before.executions.min(after.executions);
        row.counts = Counts { executions: row.counts.executions + executions, ..after };
        row.hours += self.hours;
        row.findings = row.findings.max(self.findings);
        rows.push(row);
        rows.sort_by(|a, b| a.target.cmp(&b.target));
        let lines: String = rows.iter().map(Row::line).collect();
        format!("{HEAD}{lines}")
    }
}

const HEAD: &str = "# How long each target was fuzzed

`cargo xtask fuzz TARGET` adds to this table: hours and executions of all runs, the edges
of the target's code that were reached and how many there are in the program of all targets, and
the inputs that crashed or hung. What was found is mended, and its inputs are in `fuzz/corpus`.

| target | hours | executions | edges reached | edges in all | crashes and hangs |
| --- | --- | --- | --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_target_are_summed_in_a_line_of_their_own() {
        let counts = |executions, edges| Counts { executions, edges, edges_total: 900 };
        let run = |target, hours, before, after, findings, text: &str| {
            Run { target, hours, before, after, findings }.added(text)
        };
        let first = run("objects", 0.5, None, counts(1000, 70), 1, "");
        let other = run("element", 1.0, None, counts(5, 6), 0, &first);
        let resumed = run("objects", 1.0, Some(counts(1000, 70)), counts(4000, 90), 0, &other);
        let want =
            "| element | 1.00 | 5 | 6 | 900 | 0 |\n| objects | 1.50 | 4000 | 90 | 900 | 1 |\n";
        assert_eq!(resumed, format!("{HEAD}{want}"));
    }

    #[test]
    fn statistics_of_afl_are_read() {
        let text = "run_time          : 60\nexecs_done        : 12\nedges_found       : 3\n\
                    total_edges       : 9\n";
        assert_eq!(Counts::parse(text), Some(Counts { executions: 12, edges: 3, edges_total: 9 }));
        assert_eq!(Counts::parse("execs_done : many"), None);
    }
}
