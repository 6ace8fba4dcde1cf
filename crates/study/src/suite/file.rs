//! Suite from a TOML file (example: docs/research.md): scenarios, figures and expected values.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Duration, Quantity};
use faircast_report::{BINS_GIVEN_MAX, Plots, spread};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::measure::Measure;
use super::worth;
use crate::optimum::Objective;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuiteFile {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) seeds: u32,
    /// Flow that `--scheme` replaces. A suite without this flow takes no `--scheme`.
    pub(crate) session: Option<String>,
    /// True if the scenarios run in the lab, and rows are compared with the simulator's medians.
    #[serde(default)]
    pub(crate) against_sim: bool,
    #[serde(rename = "experiment", default)]
    pub(crate) experiments: Vec<Experiment>,
    #[serde(rename = "variant", default)]
    pub(crate) variants: BTreeMap<String, Variant>,
}

/// Set of changes with which experiments run again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    question: String,
    /// Changes to the scenario, applied after the experiment's.
    set: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) group: String,
    pub(crate) question: String,
    /// Statement of the source, in our words.
    #[serde(default)]
    pub(crate) paper_says: String,
    pub(crate) scenario: String,
    #[serde(default)]
    pub(crate) set: Vec<String>,
    /// Flows that `--scheme` replaces, if they differ from the suite's.
    #[serde(default)]
    pub(crate) sessions: Vec<String>,
    pub(crate) seeds: Option<u32>,
    #[serde(default)]
    pub(crate) variants: Vec<String>,
    /// Number of seeds with which the experiment also runs in the lab, on request.
    pub(crate) lab: Option<u32>,
    /// True if `--scheme` runs the experiment; false for comparisons of cures of one scheme.
    #[serde(default = "yes")]
    pub(crate) judges_schemes: bool,
    #[serde(default)]
    pub(crate) bottlenecks: Vec<String>,
    #[serde(default)]
    pub(crate) plot: Plots,
    /// Span of throughput, as `"2 s"`; the default depends on the run's length.
    #[serde(default)]
    pub(crate) sample: Option<String>,
    #[serde(rename = "row", default)]
    pub(crate) rows: Vec<RowFile>,
}

impl Experiment {
    pub(crate) fn row_id<'a>(&'a self, row: &'a RowFile) -> &'a str {
        row.id.as_ref().unwrap_or(&self.id)
    }

    fn twin(&self, name: &str, question: &str) -> Self {
        let mut twin = self.clone();
        twin.id = format!("{}-{name}", self.id);
        twin.question = format!("{} {question}", self.question);
        for row in &mut twin.rows {
            row.id = Some(format!("{}-{name}", self.row_id(row)));
            row.fairer_than = row.fairer_than.as_ref().map(|other| format!("{other}-{name}"));
            // The setting was fitted to the figure of the experiment itself.
            row.fitted = None;
        }
        // A row over other rows belongs to the whole suite, and exists once.
        twin.rows.retain(|row| row.measure.rows().is_none());
        twin
    }

    pub(crate) fn sample(&self, duration: Duration) -> Result<Option<Duration>, String> {
        let Some(text) = &self.sample else { return Ok(None) };
        if self.plot == Plots::Sequence {
            return Err(
                "has no meaning beside plot = \"sequence\"; expected \"rate\" or \"mean\"".into()
            );
        }
        let sample = Duration::parse(text).map_err(|error| error.to_string())?;
        let spans = duration.as_nanos().checked_div(sample.as_nanos()).unwrap_or(u64::MAX);
        if !(1..BINS_GIVEN_MAX).contains(&spans) {
            return Err(format!(
                "is {sample}; a plot of {duration} can have from 1 to {} spans",
                BINS_GIVEN_MAX - 1
            ));
        }
        Ok(Some(sample))
    }
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RowFile {
    /// Unique within the suite; by default the experiment's id.
    pub(crate) id: Option<String>,
    pub(crate) title: String,
    pub(crate) measure: Measure,
    pub(crate) unit: String,
    #[serde(default)]
    pub(crate) statistic: Statistic,
    pub(crate) paper: Option<f64>,
    /// Largest distance from the published figure, as a share of the figure.
    pub(crate) tolerance: Option<f64>,
    /// Largest distance from the published figure, in the row's unit.
    pub(crate) absolute: Option<f64>,
    /// Least accepted value, if the source gives an ordering and no figure.
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
    /// Row whose ratio must be farther from 1 than this row's: a cure against its problem.
    pub(crate) fairer_than: Option<String>,
    #[serde(default)]
    pub(crate) reason: String,
    /// Value of the figure without the effect of the row, which the row must not accept.
    pub(crate) no_effect: Option<f64>,
    /// True to accept a figure of one run between the 10th and 90th percentile of the seeds.
    #[serde(default)]
    pub(crate) within_seeds: bool,
    /// Mechanism of the miss, which the rows `proved_by` prove.
    pub(crate) explained: Option<String>,
    #[serde(default)]
    pub(crate) proved_by: Vec<String>,
    pub(crate) conjecture: Option<String>,
    /// Setting that was chosen to produce this figure, and its origin.
    pub(crate) fitted: Option<String>,
    /// True if the row tests the network and its TCP, not the suite's session.
    #[serde(default)]
    pub(crate) baseline: bool,
    pub(crate) optimum: Option<Objective>,
    /// True if this is the fairness figure of its experiment in a score table.
    #[serde(default)]
    pub(crate) fairness: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Statistic {
    #[default]
    Median,
    Mean,
}

impl Statistic {
    pub(crate) fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Mean => values.iter().sum::<f64>() / values.len() as f64,
            Self::Median => {
                spread(values.iter().copied()).map_or(f64::NAN, |[_, median, _]| median)
            }
        }
    }
}

impl RowFile {
    pub(crate) fn is_measured_only(&self) -> bool {
        let expected = [self.paper, self.tolerance, self.absolute, self.at_least, self.at_most];
        expected.iter().all(Option::is_none) && self.fairer_than.is_none()
    }

    pub(crate) fn range(&self) -> (f64, f64) {
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut narrow = |from: f64, to: f64| {
            low = low.max(from);
            high = high.min(to);
        };
        if let Some(paper) = self.paper {
            if let Some(share) = self.tolerance {
                narrow(paper - share * paper.abs(), paper + share * paper.abs());
            }
            if let Some(distance) = self.absolute {
                narrow(paper - distance, paper + distance);
            }
        }
        narrow(self.at_least.unwrap_or(f64::NEG_INFINITY), self.at_most.unwrap_or(f64::INFINITY));
        (low, high)
    }
}

pub(crate) struct Bundled {
    pub(crate) folder: &'static str,
    pub(crate) suite: &'static str,
    pub(crate) files: &'static [(&'static str, &'static str)],
}

impl Bundled {
    pub(crate) fn find(&self, name: &str) -> Option<&'static str> {
        self.files.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }
}

impl SuiteFile {
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, String> {
        let mut suite: Self = from_toml(file, text)?;
        let checked = suite.add_variants().and_then(|()| suite.check());
        let checked = checked.and_then(|()| suite.in_lab().check());
        checked.map_err(|problem| format!("{file}: {problem}"))?;
        Ok(suite)
    }

    pub(crate) fn experiments(
        &self,
        only: Option<&str>,
        judging: bool,
    ) -> impl Iterator<Item = &Experiment> {
        self.experiments.iter().filter(move |experiment| {
            only.is_none_or(|text| experiment.id.contains(text))
                && (!judging || experiment.judges_schemes)
        })
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &RowFile)> {
        self.experiments.iter().flat_map(|of| of.rows.iter().map(|row| (of.row_id(row), row)))
    }

    fn add_variants(&mut self) -> Result<(), String> {
        for experiment in std::mem::take(&mut self.experiments) {
            self.experiments.push(experiment.clone());
            for name in &experiment.variants {
                let variant = self.variants.get(name).ok_or_else(|| {
                    format!("experiment \"{}\": there is no [variant.{name}]", experiment.id)
                })?;
                plain("variant", name)?;
                let mut twin = experiment.twin(name, &variant.question);
                twin.set.extend(variant.set.iter().cloned());
                twin.lab = None;
                self.experiments.push(twin);
            }
        }
        Ok(())
    }

    pub(crate) fn in_lab(&self) -> Self {
        let there = |experiment: &Experiment| {
            let seeds = experiment.lab?;
            let mut there = experiment.twin("lab", "In the lab, with the kernel's TCP.");
            there.seeds = Some(seeds);
            for row in &mut there.rows {
                // A mechanism that rows of the simulator prove is a conjecture in the lab.
                row.conjecture = row.explained.take().or(row.conjecture.take());
                row.proved_by = Vec::new();
                row.optimum = None;
            }
            Some(there)
        };
        let experiments = self.experiments.iter().filter_map(there).collect();
        Self { experiments, ..self.clone() }
    }

    /// Checks names, ids, rows without a verdict, and the [worth](super::worth) of verdicts.
    fn check(&self) -> Result<(), String> {
        plain("name", &self.name)?;
        let mut experiments = BTreeSet::new();
        let mut rows: BTreeMap<&str, &RowFile> = BTreeMap::new();
        for experiment in &self.experiments {
            let id = &experiment.id;
            if !experiments.insert(id) {
                return Err(format!("experiment \"{id}\": the id is there twice"));
            }
            if [Some(self.seeds), experiment.seeds, experiment.lab].contains(&Some(0)) {
                return Err(format!("experiment \"{id}\": seeds is 0; expected at least 1"));
            }
            if experiment.rows.is_empty() {
                return Err(format!("experiment \"{id}\": has no row, and so no verdict"));
            }
        }
        for (id, row) in self.rows() {
            if rows.insert(id, row).is_some() {
                return Err(format!(
                    "row \"{id}\": the id is there twice; several rows of one experiment need ids \
                     of their own"
                ));
            }
        }
        for (id, row) in &rows {
            worth::check(id, row, &rows, self.against_sim)
                .map_err(|problem| format!("row \"{id}\": {problem}"))?;
        }
        Ok(())
    }
}

pub(crate) fn from_toml<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        format!("{file}:{line}: {}", error.message().replace('\n', " "))
    })
}

pub(crate) fn plain(key: &str, name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(format!("{key}: is \"{name}\"; expected letters, digits and - _ ."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "name = 'x'\ntitle = 'x'\nseeds = 1\n[[experiment]]\nid = 'a'\n\
        question = '?'\nscenario = 's'\n[[experiment.row]]\ntitle = 't'\n\
        measure = 'timeouts a'\nunit = 'n'\nreason = 'r'\n";

    #[test]
    fn a_row_that_cannot_fail_is_refused() {
        for forgotten in ["paper = 2.0\n", "tolerance = 0.1\n"] {
            let error = SuiteFile::parse("f", &format!("{ROW}{forgotten}")).unwrap_err();
            assert!(error.contains("no value could fail it"), "{error}");
        }
        let suite = SuiteFile::parse("f", &format!("{ROW}paper = 2.0\ntolerance = 0.1\n")).unwrap();
        let (low, high) = suite.experiments[0].rows[0].range();
        assert!((low - 1.8).abs() < 1e-12 && (high - 2.2).abs() < 1e-12);
    }

    #[test]
    fn a_suite_whose_verdict_would_mean_nothing_is_refused() {
        let good = format!("{ROW}at_least = 1.0\n");
        assert!(SuiteFile::parse("f", &good).is_ok());
        for (from, to, want) in [
            ("name = 'x'", "name = '../x'", "f: name: is \"../x\""),
            ("seeds = 1", "seeds = 0", "expected at least 1"),
            ("at_least = 1.0", "at_least = 1.0\nat_most = 0.5", "no value could hold"),
            ("at_least = 1.0", "at_least = nan", "no value could fail it"),
            ("at_least = 1.0", "paper = nan\ntolerance = 0.1", "no value could"),
        ] {
            let error = SuiteFile::parse("f", &good.replace(from, to)).unwrap_err();
            assert!(error.contains(want), "{to}: {error}");
        }
        let row = &good[good.find("[[experiment.row]]").unwrap()..];
        let error = SuiteFile::parse("f", &format!("{good}{row}")).unwrap_err();
        assert!(error.contains("row \"a\": the id is there twice"), "{error}");
        let experiment = &good[good.find("[[experiment]]").unwrap()..];
        let error = SuiteFile::parse("f", &format!("{good}{experiment}")).unwrap_err();
        assert!(error.contains("experiment \"a\": the id is there twice"), "{error}");
        let bare = &good[..good.find("[[experiment.row]]").unwrap()];
        assert!(SuiteFile::parse("f", bare).unwrap_err().contains("has no row"));
    }

    #[test]
    fn a_row_without_any_expectation_is_measured_only_and_needs_no_reason() {
        let bare = ROW.replace("reason = 'r'\n", "");
        let suite = SuiteFile::parse("f", &bare).unwrap();
        assert!(suite.experiments[0].rows[0].is_measured_only());
        let judged = SuiteFile::parse("f", &format!("{bare}at_least = 1.0\n")).unwrap_err();
        assert!(judged.contains("row \"a\": has no reason"), "{judged}");
        let judged = SuiteFile::parse("f", &format!("{ROW}at_least = 1.0\n")).unwrap();
        assert!(!judged.experiments[0].rows[0].is_measured_only());
    }

    #[test]
    fn mistakes_name_file_and_line() {
        let error = SuiteFile::parse("f", &format!("{ROW}papr = 2.0\n")).unwrap_err();
        assert!(error.starts_with("f:13: "), "{error}");
    }

    #[test]
    fn an_experiment_has_twins_for_its_variants_and_for_the_lab() {
        let keys = "variants = ['reno']\nlab = 3\nset = ['x=1']\n[[experiment.row]]\nid = 'b'\n";
        let more = "paper = 2.0\ntolerance = 0.1\nconjecture = 'e'\n\
            [[experiment.row]]\ntitle = 't'\nmeasure = 'timeouts a'\nunit = 'n'\nreason = 'r'\n\
            fairer_than = 'b'\n[variant.reno]\nquestion = 'And?'\nset = ['y=2']\n";
        let text = ROW.replace("[[experiment.row]]\n", keys) + more;
        let suite = SuiteFile::parse("f", &text).unwrap();
        let shown = |suite: &SuiteFile| {
            let all = suite.experiments.iter().map(|it| {
                let row = |row: &RowFile| row.id.clone().unwrap_or("–".into());
                let rows: Vec<String> = it.rows.iter().map(row).collect();
                let (last, first) = (&it.rows[1], &it.rows[0]);
                let why = first.conjecture.clone().unwrap();
                let fairer = last.fairer_than.clone().unwrap();
                let seeds = it.seeds.unwrap_or(0);
                format!("{} {} {} {why} {fairer} {seeds}", it.id, it.set.join(","), rows.join(","))
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&suite),
            ["a x=1 b,– e b 0", "a-reno x=1,y=2 b-reno,a-reno e b-reno 0"],
            "a variant is none of the lab's"
        );
        assert_eq!(shown(&suite.in_lab()), ["a-lab x=1 b-lab,a-lab e b-lab 3"]);
        assert_eq!(suite.experiments[1].question, "? And?");
        let error = SuiteFile::parse("f", &text.replace("['reno']", "['sack']")).unwrap_err();
        assert!(error.contains("experiment \"a\": there is no [variant.sack]"), "{error}");
    }

    #[test]
    fn medians_and_means() {
        assert_eq!(Statistic::Median.of(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(Statistic::Median.of(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(Statistic::Mean.of(&[4.0, 1.0]), 2.5);
        assert!(Statistic::Median.of(&[]).is_nan());
    }

    #[test]
    fn a_plot_says_how_often_it_samples() {
        let read = |keys: &str| {
            let text = ROW.replace("scenario = 's'\n", &format!("scenario = 's'\n{keys}"));
            let suite = SuiteFile::parse("f", &format!("{text}at_least = 1.0\n"))?;
            let experiment = &suite.experiments[0];
            Ok::<_, String>((experiment.plot, experiment.sample(Duration::from_secs(400))?))
        };
        let two = Some(Duration::from_secs(2));
        assert_eq!(read(""), Ok((Plots::Sequence, None)));
        assert_eq!(read("plot = 'mean'\n"), Ok((Plots::Mean, None)));
        assert_eq!(read("plot = 'rate'\nsample = '2 s'\n"), Ok((Plots::Rate, two)));
        for (keys, want) in [
            ("plot = 'ratio'\n", "unknown variant `ratio`"),
            ("sample = '2 s'\n", "has no meaning beside plot = \"sequence\""),
            ("plot = 'rate'\nsample = '2'\n", "expected a duration"),
            ("plot = 'rate'\nsample = '0 s'\n", "from 1 to 479 spans"),
            ("plot = 'rate'\nsample = '1 ms'\n", "is 0.001 s; a plot of 400 s can have"),
            ("plot = 'rate'\nsample = '401 s'\n", "from 1 to 479 spans"),
        ] {
            let error = read(keys).unwrap_err();
            assert!(error.contains(want), "{keys}: {error}");
        }
    }
}
