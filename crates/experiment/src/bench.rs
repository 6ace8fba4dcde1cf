//! Benchmarks by name: selection, listing and runs of suites, the matrix, timings and attacks.

use faircast_proto::catalog;
use faircast_trace::On;

use crate::monitor::Monitor;
use crate::request::{COLUMNS, Request, Results};
use crate::suite::BUNDLED;
use crate::{Error, attack, matrix, overlay, speed, suite, wire};

/// Benchmark selected by its name.
pub enum Bench {
    /// Speed of the simulator: timings without expected results.
    Speed,
    /// Speed of file transfers on real sockets: timings without expected results.
    Wire,
    /// Speed of groups on real sockets.
    Overlay,
    /// Attacks of hostile hosts on a transfer.
    Attack,
    /// Comparison of all schemes in the same cases, without expected results.
    Matrix(Box<matrix::LoadedMatrix>),
    /// Experiments with published figures.
    Suite(Box<suite::LoadedSuite>),
}

/// Reads the named benchmarks before any runs. Without names: the bundled suites; with a scheme
/// `fairness`; to `list`, all.
pub fn choose(names: &[String], list: bool, request: &Request) -> Result<Vec<Bench>, Error> {
    let names: Vec<&str> = match (names, &request.scheme) {
        // Only a suite with a session can take another scheme.
        ([], Some(_)) => vec!["fairness"],
        ([], None) if list => {
            [BUNDLED, &["tram-scale", "speed", "wire", "overlay", "attack", "matrix"]].concat()
        }
        ([], None) => BUNDLED.to_vec(),
        (given, _) => given.iter().map(String::as_str).collect(),
    };
    let chosen =
        names.into_iter().map(|name| by_name(name, request)).collect::<Result<Vec<_>, _>>()?;
    if list {
        return Ok(chosen);
    }
    without_empty(chosen, request)
}

fn by_name(name: &str, request: &Request) -> Result<Bench, Error> {
    let bench = match name {
        "matrix" | "speed" | "wire" | "overlay" | "attack" if request.on == On::Lab => {
            return Err(Error::Usage(format!("--on lab: {name} has no experiment for the lab")));
        }
        "matrix" => {
            return Ok(Bench::Matrix(Box::new(matrix::LoadedMatrix::new(request)?)));
        }
        "speed" => Bench::Speed,
        "wire" => Bench::Wire,
        "overlay" => Bench::Overlay,
        "attack" => Bench::Attack,
        _ => return Ok(Bench::Suite(Box::new(suite::LoadedSuite::new(name, request)?))),
    };
    match (&request.scheme, &bench) {
        (None, _) => Ok(bench),
        (Some(scheme), Bench::Wire | Bench::Attack)
            if catalog::live_stacks().any(|stack| stack.name() == *scheme) =>
        {
            Ok(bench)
        }
        (Some(scheme), Bench::Wire | Bench::Attack) => {
            let known: Vec<String> = catalog::live_stacks().map(|stack| stack.name()).collect();
            let known = known.join(", ");
            Err(Error::Usage(format!("--scheme {scheme}: no such scheme; there are {known}")))
        }
        (Some(scheme), _) => Err(suite::no_session(scheme, name)),
    }
}

fn without_empty(chosen: Vec<Bench>, request: &Request) -> Result<Vec<Bench>, Error> {
    let mut full = Vec::new();
    for bench in chosen {
        match &bench {
            Bench::Suite(loaded) if loaded.is_empty(request) => {
                if request.only.is_none() {
                    let name = loaded.name();
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
    pub fn list(&self, request: &Request) -> Result<String, Error> {
        match self {
            Self::Speed => Ok(speed::list()),
            Self::Wire => wire::list(request),
            Self::Overlay => overlay::list(request),
            Self::Attack => attack::list(request),
            Self::Matrix(matrix) => Ok(matrix.list()),
            Self::Suite(suite) => Ok(suite.list(request)),
        }
    }

    /// Runs the benchmark.
    pub fn run(&self, request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
        match self {
            Self::Speed => speed::run(request),
            Self::Wire => wire::run(request, monitor),
            Self::Overlay => overlay::run(request, monitor),
            Self::Attack => attack::run(request, monitor),
            Self::Matrix(matrix) => matrix.run(request, monitor),
            Self::Suite(suite) => suite.run(request, monitor),
        }
    }
}
