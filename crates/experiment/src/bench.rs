//! Benchmarks by name: suites, the comparison of schemes, and measurements on this machine.

use faircast_proto::catalog;
use faircast_study::matrix::Comparison;
use faircast_study::suite::{BUNDLED, Suite, no_session};
use faircast_study::{Error, Monitor, Study};

use crate::request::{COLUMNS, Request, Results};
use crate::{attack, matrix, overlay, speed, suites, wire};

/// Measurement on this machine, without a scenario for the lab.
#[derive(Debug)]
pub struct Live {
    pub(crate) name: &'static str,
    /// True if the measurement can send with any scheme.
    takes_scheme: bool,
    list: fn(&Request) -> Result<String, Error>,
    run: fn(&Request, &dyn Monitor) -> Result<Results, Error>,
}

/// All measurements on this machine.
pub(crate) static LIVE: [Live; 4] = [
    Live { name: "speed", takes_scheme: false, list: speed::list, run: speed::run },
    Live { name: "wire", takes_scheme: true, list: wire::list, run: wire::run },
    Live { name: "overlay", takes_scheme: false, list: overlay::list, run: overlay::run },
    Live { name: "attack", takes_scheme: true, list: attack::list, run: attack::run },
];

const MATRIX: &str = "matrix";

/// Benchmark selected by its name.
pub enum Bench {
    /// Measurement on this machine.
    Live(&'static Live),
    /// Comparison of all schemes in the same cases, without expected results.
    Matrix(Box<Comparison>),
    /// Experiments with published figures.
    Suite(Box<Suite>),
}

fn live(name: &str) -> Option<&'static Live> {
    LIVE.iter().find(|live| live.name == name)
}

/// True if the benchmark of this name is a suite, whose rows have verdicts.
pub fn has_verdicts(name: &str) -> bool {
    name != MATRIX && live(name).is_none()
}

/// Reads the named benchmarks before any runs. Without names: the bundled suites; with a scheme
/// `fairness`; to `list`, all.
///
/// # Errors
/// A benchmark does not exist, its file is wrong, or the request does not fit it.
pub fn choose(
    names: &[String],
    list: bool,
    request: &Request,
    study: &Study<'_>,
) -> Result<Vec<Bench>, Error> {
    let names: Vec<&str> = match (names, &request.scheme) {
        // Only a suite with a session can take another scheme.
        ([], Some(_)) => vec!["fairness"],
        ([], None) if list => {
            let live = LIVE.iter().map(|live| live.name);
            BUNDLED.iter().copied().chain(["tram-scale"]).chain(live).chain([MATRIX]).collect()
        }
        ([], None) => BUNDLED.to_vec(),
        (given, _) => given.iter().map(String::as_str).collect(),
    };
    let chosen = names.into_iter().map(|name| by_name(name, request, study));
    let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
    if list {
        return Ok(chosen);
    }
    without_empty(chosen, request)
}

fn by_name(name: &str, request: &Request, study: &Study<'_>) -> Result<Bench, Error> {
    if has_verdicts(name) {
        return Ok(Bench::Suite(Box::new(suites::load(name, request, study)?)));
    }
    if study.is_real_time() {
        return Err(Error::Usage(format!("--on lab: {name} has no experiment for the lab")));
    }
    let Some(live) = live(name) else {
        return Ok(Bench::Matrix(Box::new(matrix::load(request, study)?)));
    };
    let Some(scheme) = &request.scheme else { return Ok(Bench::Live(live)) };
    if !live.takes_scheme {
        return Err(no_session(scheme, name));
    }
    let known: Vec<String> = catalog::live_stacks().map(|stack| stack.name()).collect();
    match known.contains(scheme) {
        true => Ok(Bench::Live(live)),
        false => Err(Error::Usage(format!(
            "--scheme {scheme}: no such scheme; there are {}",
            known.join(", ")
        ))),
    }
}

fn without_empty(chosen: Vec<Bench>, request: &Request) -> Result<Vec<Bench>, Error> {
    let mut full = Vec::new();
    for bench in chosen {
        match &bench {
            Bench::Suite(suite) if suite.questions().is_empty() => {
                if request.only.is_none() {
                    let name = suite.name();
                    return Err(Error::Usage(format!(
                        "{name}: has no experiment; expected [[experiment]] with rows"
                    )));
                }
            }
            _ => full.push(bench),
        }
    }
    match &request.only {
        Some(only) if full.is_empty() => Err(Error::Usage(format!(
            "--only {only}: no experiment has that in its id; --list shows them"
        ))),
        _ => Ok(full),
    }
}

impl Bench {
    /// Returns the name and question of the benchmark, in one line.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub fn title(&self, request: &Request) -> Result<String, Error> {
        let list = self.list(request)?;
        let title: Vec<&str> = list.lines().take_while(|line| !line.starts_with(' ')).collect();
        let title = title.join(" ");
        let (name, question) = title.split_once(": ").unwrap_or((&title, ""));
        let line = format!("{name:<13} {question}");
        Ok(match line.chars().count() > COLUMNS {
            true => line.chars().take(COLUMNS - 1).collect::<String>() + "…\n",
            false => line + "\n",
        })
    }

    /// Lists the experiments with their questions.
    ///
    /// # Errors
    /// The request selects no experiment.
    pub fn list(&self, request: &Request) -> Result<String, Error> {
        match self {
            Self::Live(live) => (live.list)(request),
            Self::Matrix(comparison) => Ok(matrix::list(comparison)),
            Self::Suite(suite) => Ok(suites::list(suite)),
        }
    }

    /// Runs the benchmark.
    ///
    /// # Errors
    /// The work fails or is interrupted, or the machine lacks a feature.
    pub fn run(&self, request: &Request, study: &Study<'_>) -> Result<Results, Error> {
        match self {
            Self::Live(live) => (live.run)(request, study.monitor),
            Self::Matrix(comparison) => matrix::run(comparison, request, study),
            Self::Suite(suite) => suites::run(suite, request, study),
        }
    }
}
