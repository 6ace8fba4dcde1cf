//! Suites: scenarios with expected figures, run with several seeds and judged.

mod against_sim;
mod bundled;
mod file;
mod judge;
pub(crate) mod measure;
mod offline;
mod oracle;
mod overlay;
pub(crate) mod probe;
pub(crate) mod runner;
pub(crate) mod score;
mod tcp;
#[cfg(test)]
mod tests;
mod worked;
mod worth;

use std::path::PathBuf;

use faircast_report::{self as report, Row, Source};

pub use bundled::BUNDLED;
pub(crate) use bundled::bundled;
pub use score::Scores;

pub(crate) use file::{Bundled, Experiment, SuiteFile, from_toml, plain};

use crate::{Error, Study};
use runner::{Files, Measurements, Runner};

/// Suite with the files beside it, and the selection of its experiments.
pub struct LoadedSuite {
    file: SuiteFile,
    files: Files,
    selection: Selection,
    in_lab: bool,
    from_code: Vec<&'static FromCode>,
}

/// Selection of experiments of a suite, and settings of their runs.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Text that the ids of the selected experiments contain.
    pub only: Option<String>,
    /// Seeds for each experiment, instead of the suite's number.
    pub seeds: Option<u32>,
    /// Scheme that replaces the suite's sessions.
    pub scheme: Option<TestedScheme>,
    /// True to keep the series of the first seed of each experiment, for plots.
    pub plots: bool,
    /// True if runs in real time may run at the same time.
    pub side_by_side: bool,
}

/// Scheme under test.
#[derive(Clone, Debug)]
pub struct TestedScheme {
    /// Name of the protocol.
    pub name: String,
    /// Options, `KEY=VALUE`.
    pub options: Vec<String>,
}

/// Experiment in a list.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Heading above related experiments; may be empty.
    pub group: &'a str,
    /// Id of the experiment.
    pub id: &'a str,
    /// Question that the experiment answers.
    pub question: &'a str,
}

/// Judged rows of a suite.
pub struct Judged {
    /// Name, title and rows of the suite.
    pub suite: report::Suite,
    /// Numbers of completed and of planned experiments, if the runs were stopped early.
    pub stopped: Option<(usize, usize)>,
}

/// Rows of a suite that code computes without a scenario.
struct FromCode {
    suite: &'static str,
    id: &'static str,
    group: &'static str,
    question: &'static str,
    is_chosen: fn(Option<&str>) -> bool,
    rows: fn(Option<&str>, &Study<'_>) -> Result<Vec<Row>, Error>,
}

const FROM_CODE: &[FromCode] = &[
    FromCode {
        suite: tcp::NAME,
        id: "droplist",
        group: "Drop lists: every retransmission of ns-2",
        question: "Does TCP retransmit the same packets at the same moments as ns-2?",
        is_chosen: oracle::is_chosen,
        rows: oracle::rows,
    },
    FromCode {
        suite: "tfmcc",
        id: worked::ID,
        group: "Worked by hand",
        question: "Do the equation and the loss intervals give what RFC 4654 makes of the same packets?",
        is_chosen: |only| !worked::rows(only).is_empty(),
        rows: |only, _| Ok(worked::rows(only)),
    },
];

/// Returns the error for a suite without a session that a scheme could replace.
pub fn no_session(scheme: &str, suite: &str) -> Error {
    Error::Usage(format!(
        "--scheme {scheme}: the suite \"{suite}\" has no session that a scheme could replace; try \
         fairness"
    ))
}

/// True if a suite of this name comes with the program.
pub fn is_bundled(name: &str) -> bool {
    name == tcp::NAME || bundled::find(name).is_some()
}

impl LoadedSuite {
    /// Loads a bundled suite, or the suite of a file that ends in `.toml`.
    ///
    /// # Errors
    /// There is no such suite, its file is wrong, or the selection does not fit it.
    pub fn load(name: &str, selection: Selection, study: &Study<'_>) -> Result<Self, Error> {
        let (mut file, files) = load(name)?;
        if let (Some(scheme), None) = (&selection.scheme, &file.session) {
            return Err(no_session(&scheme.name, &file.name));
        }
        let in_lab = study.is_real_time() && !file.against_sim;
        if in_lab {
            file = against_sim::in_lab(&file, &selection)?;
        }
        let only = selection.only.as_deref();
        let from_code = FROM_CODE
            .iter()
            .filter(|rows| rows.suite == name && (rows.is_chosen)(only) && !study.is_real_time());
        let from_code = from_code.collect();
        Ok(Self { file, files, selection, in_lab, from_code })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Returns the question of the whole suite.
    pub fn title(&self) -> &str {
        &self.file.title
    }

    /// True if the suite compares the lab with the simulator, and so always needs the lab.
    pub fn needs_lab(&self) -> bool {
        self.file.against_sim
    }

    /// Returns the number of rows that also run in the lab, on request.
    pub fn rows_in_lab(&self) -> usize {
        match self.in_lab {
            true => 0,
            false => self.file.in_lab().experiments.iter().map(|of| of.rows.len()).sum(),
        }
    }

    /// Returns the selected experiments.
    pub fn questions(&self) -> Vec<Question<'_>> {
        let experiments = self.experiments();
        let experiments =
            experiments.map(|of| Question { group: &of.group, id: &of.id, question: &of.question });
        let mut all: Vec<Question<'_>> = experiments.collect();
        let group = all.last().map_or("", |last| last.group);
        let from_code = self.from_code.iter();
        all.extend(from_code.map(|of| Question { group, id: of.id, question: of.question }));
        all
    }

    fn experiments(&self) -> impl Iterator<Item = &Experiment> {
        self.file.experiments(self.selection.only.as_deref(), false)
    }

    fn runner<'a>(&'a self, study: &'a Study<'a>) -> Runner<'a> {
        Runner { study, suite: &self.file, files: &self.files, selection: &self.selection }
    }

    /// Runs the selected experiments with the selected scheme, and returns its scores. `None` if
    /// no scheme is selected.
    ///
    /// # Errors
    /// An experiment cannot run, or was interrupted.
    pub fn score(&self, study: &Study<'_>) -> Result<Option<Scores>, Error> {
        let Some(scheme) = &self.selection.scheme else { return Ok(None) };
        let measured = self.runner(study).run(&self.file.name)?.measured;
        Ok(Some(score::scores(&self.file, scheme, &measured)))
    }

    /// Runs the selected experiments, and judges their rows.
    ///
    /// # Errors
    /// An experiment cannot run, or was interrupted in the simulator.
    pub fn run(&self, study: &Study<'_>) -> Result<Judged, Error> {
        let suite = &self.file;
        // The simulator runs first, so that completed runs of a stopped lab can be judged.
        let simulated = match suite.against_sim || self.in_lab {
            true => Some(against_sim::simulated(self, study)?),
            false => None,
        };
        let expected = match &simulated {
            Some(simulated) if suite.against_sim => Some(against_sim::expected(suite, simulated)),
            _ => None,
        };
        let Measurements { measured, stopped } = self.runner(study).run(&suite.name)?;
        let stopped = stopped.then(|| (measured.len(), self.experiments().count()));
        let mut rows = judge::rows(expected.as_ref().unwrap_or(suite), measured, study.monitor);
        for row in &mut rows {
            row.expected.against_sim = expected.is_some();
            row.expected.simulated = simulated.as_ref().and_then(|all| all.get(&row.id).copied());
        }
        for from_code in self.from_code.iter().filter(|_| stopped.is_none()) {
            let only = self.selection.only.as_deref();
            let own = (from_code.rows)(only, study)?.into_iter().map(|row| Row {
                source: Source {
                    group: from_code.group.into(),
                    experiment: from_code.id.into(),
                    question: from_code.question.into(),
                    ..row.source
                },
                ..row
            });
            rows.extend(own);
        }
        let suite = report::Suite { name: suite.name.clone(), about: suite.title.clone(), rows };
        Ok(Judged { suite, stopped })
    }
}

fn load(name: &str) -> Result<(SuiteFile, Files), Error> {
    if name == tcp::NAME {
        return Ok((tcp::suite(), Files::Bundled(&tcp::FILES)));
    }
    if let Some(files) = bundled::find(name) {
        let suite = SuiteFile::parse(&format!("{}/suite.toml", files.folder), files.suite);
        return Ok((suite.map_err(Error::Usage)?, Files::Bundled(files)));
    }
    let path = PathBuf::from(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(Error::Usage(format!(
            "no suite is called \"{name}\"; there are {}, and files that end in .toml",
            BUNDLED.join(", ")
        )));
    }
    let (text, files) = Files::beside(&path)?;
    Ok((SuiteFile::parse(name, &text).map_err(Error::Usage)?, files))
}
