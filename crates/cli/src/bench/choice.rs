//! Benchmarks by name: suites, the comparison of schemes, and measurements on this machine.

use std::path::Path;

use faircast_experiment::{COLUMNS, LIVE, LiveBench, Request, Results};
use faircast_study::matrix::Comparison;
use faircast_study::suite::{BUNDLED, LoadedSuite, no_session};
use faircast_study::{Error, Study};

use super::{matrix, suites};
use crate::args::BenchArgs;
use crate::error::{Failure, Result, this_program};

const MATRIX: &str = "matrix";

pub(super) enum Bench {
    Live(&'static LiveBench, Request),
    Matrix(Box<Comparison>),
    Suite(Box<LoadedSuite>),
}

fn live(name: &str) -> Option<&'static LiveBench> {
    LIVE.iter().find(|live| live.name == name)
}

pub(super) fn has_verdicts(name: &str) -> bool {
    name != MATRIX && live(name).is_none()
}

/// Reads the named benchmarks before any runs. Without names: the bundled suites; with a scheme
/// `fairness`; to `list`, all.
pub(super) fn choose(args: &BenchArgs, study: &Study<'_>) -> Result<Vec<Bench>> {
    let names: Vec<&str> = match (&args.suites[..], &args.scheme) {
        // Only a suite with a session can take another scheme.
        ([], Some(_)) => vec!["fairness"],
        ([], None) if args.list => {
            let live = LIVE.iter().map(|live| live.name);
            BUNDLED.iter().copied().chain(["tram-scale"]).chain(live).chain([MATRIX]).collect()
        }
        ([], None) => BUNDLED.to_vec(),
        (given, _) => given.iter().map(String::as_str).collect(),
    };
    let chosen = names.into_iter().map(|name| by_name(name, args, study));
    let mut chosen = chosen.collect::<Result<Vec<_>, _>>()?;
    if args.list {
        return Ok(chosen);
    }
    let empty = |bench: &Bench| match bench {
        Bench::Suite(suite) if suite.questions().is_empty() => Some(suite.name().to_string()),
        _ => None,
    };
    let wrong = match (&args.only, chosen.iter().find_map(empty)) {
        (None, Some(name)) => {
            Some(format!("{name}: has no experiment; expected [[experiment]] with rows"))
        }
        (Some(only), _) if chosen.iter().all(|bench| empty(bench).is_some()) => {
            Some(format!("--only {only}: no experiment has that in its id; --list shows them"))
        }
        _ => None,
    };
    chosen.retain(|bench| empty(bench).is_none());
    wrong.map_or(Ok(chosen), |text| Err(Failure::Usage(text)))
}

fn by_name(name: &str, args: &BenchArgs, study: &Study<'_>) -> Result<Bench> {
    if has_verdicts(name) {
        return Ok(Bench::Suite(Box::new(suites::load(name, args, study)?)));
    }
    if study.is_real_time() {
        return Err(Failure::Usage(format!("--on lab: {name} has no experiment for the lab")));
    }
    let Some(live) = live(name) else {
        return Ok(Bench::Matrix(Box::new(matrix::load(args, study)?)));
    };
    if let (Some(scheme), false) = (&args.scheme, live.takes_scheme) {
        return Err(no_session(scheme, name).into());
    }
    let request = Request {
        only: args.only.clone(),
        scheme: args.scheme.clone(),
        options: args.options.clone(),
        own: this_program()?,
        program: args.program.clone(),
        size: args.size,
        rounds: args.rounds,
    };
    live.check(&request)?;
    Ok(Bench::Live(live, request))
}

/// Reads a page of the documentation that begins with `heading`; `None` if the file is missing.
pub(super) fn read_page(path: &Path, heading: &str) -> Result<Option<String>, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::read(path, error)),
    };
    match text.lines().next() {
        Some(first) if first == heading => Ok(Some(text)),
        _ => Err(Error::Usage(format!(
            "--docs {}: does not begin with \"{heading}\", and would be replaced; name that page, or a new file",
            path.display()
        ))),
    }
}

impl Bench {
    pub(super) fn title(&self) -> Result<String, Error> {
        let list = self.list()?;
        let title: Vec<&str> = list.lines().take_while(|line| !line.starts_with(' ')).collect();
        let title = title.join(" ");
        let (name, question) = title.split_once(": ").unwrap_or((&title, ""));
        let line = format!("{name:<13} {question}");
        Ok(match line.chars().count() > COLUMNS {
            true => line.chars().take(COLUMNS - 1).collect::<String>() + "…\n",
            false => line + "\n",
        })
    }

    pub(super) fn list(&self) -> Result<String, Error> {
        match self {
            Self::Live(live, request) => (live.list)(request),
            Self::Matrix(comparison) => Ok(matrix::list(comparison)),
            Self::Suite(suite) => Ok(suites::list(suite)),
        }
    }

    pub(super) fn run(&self, args: &BenchArgs, study: &Study<'_>) -> Result<Results, Error> {
        match self {
            Self::Live(live, request) => (live.run)(request, study.monitor),
            Self::Matrix(comparison) => matrix::run(comparison, args, study),
            Self::Suite(suite) => suites::run(suite, args, study),
        }
    }
}
