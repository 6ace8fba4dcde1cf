//! Comparison of schemes: all of them in the same cases, by the same figures.

mod cases;
mod cell;
mod document;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use faircast_proto::catalog;
use faircast_report::{Matrix, MatrixCase, MatrixCell, matrix_page};
use faircast_trace::On;
use rayon::prelude::*;

use self::cases::{Case, MatrixFile};
use self::cell::Cell;
use crate::Error;
use crate::files::{make_folder, read_page};
use crate::monitor::{Monitor, Runs};
use crate::request::{Request, Results, listing};
use crate::suite::runner::{Files, Runner, Scheme};
use crate::suite::{Bundled, Experiment, SuiteFile, bundled};

/// File of the matrix, and the scenarios of its cases, some shared with other suites.
static FILES: Bundled = bundled!("matrix", "matrix.toml",
    "changing-bandwidth" "lossy-star" "round-trips" "tree"
    "../fairness/set1-one-bottleneck" "../fairness/set2-independent-loss"
    "../fairness/set2-two-bottlenecks" "../fairness/set3-set4-far-receiver"
    "../ormcc/changing" "../ormcc/linear" "../ormcc/simple" "../ormcc/star" "../ormcc/star-tcp");

/// Matrix with the selection of its runs.
pub struct LoadedMatrix {
    file: MatrixFile,
    files: Files,
    schemes: Vec<Scheme>,
    quick: bool,
}

impl LoadedMatrix {
    pub(crate) fn new(request: &Request) -> Result<Self, Error> {
        let (mut file, files) = match &request.cases {
            None => {
                let file = MatrixFile::parse("scenarios/matrix/matrix.toml", FILES.suite);
                (file, Files::Bundled(&FILES))
            }
            Some(path) => {
                let (text, files) = Files::beside(path)?;
                (MatrixFile::parse(&path.display().to_string(), &text), files)
            }
        };
        if let Ok(file) = &mut file {
            choose_cases(file, request)?;
        }
        let file = file.map_err(Error::Usage)?;
        Ok(Self { file, files, schemes: schemes(request)?, quick: request.quick })
    }

    pub(crate) fn list(&self) -> String {
        let rows = self.file.cases.iter().map(|case| (&*case.group, &*case.id, &*case.question));
        listing(&self.file.name, &self.file.title, rows)
    }

    pub(crate) fn run(&self, request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
        let runs = request.out.as_ref().map(|out| out.join("runs"));
        if let Some(runs) = &runs {
            make_folder(runs)?;
        }
        // A scheme measured alone replaces its column in an existing page.
        let is_plain = request.cases.is_none()
            && request.only.is_none()
            && request.seeds.is_none()
            && request.options.is_empty()
            && !self.quick;
        let mut kept = None;
        if let Some(page) = &request.document
            && let Some(text) = read_page(page, document::heading())?
        {
            if !is_plain {
                return Err(at(page, "has the whole matrix; name a new file for a part of it"));
            }
            if request.scheme.is_some() {
                kept = Some(document::tables(&text).map_err(|problem| at(page, &problem))?);
            }
        }
        let matrix = self.measure(request.seeds, runs, monitor)?;
        let json = matrix.to_json() + "\n";
        let page = format!("{}.html", matrix.name);
        let mut files = Vec::new();
        if request.out.is_some() {
            files.push((format!("{}.json", matrix.name), json.clone()));
            files.push((page.clone(), matrix_page(&matrix)));
        }
        let whole = is_plain && (request.scheme.is_none() || kept.is_some());
        let document = request.document.as_ref().map(|_| match &kept {
            Some(kept) => document::document(&document::with_others(&matrix, kept)?, whole),
            None => document::document(&matrix, whole),
        });
        Ok(Results {
            table: matrix.table(),
            json,
            files,
            page: Some(page),
            document: document.transpose().map_err(Error::Work)?,
            holds: true,
            ..Results::default()
        })
    }

    fn measure(
        &self,
        seeds: Option<u32>,
        runs: Option<PathBuf>,
        monitor: &dyn Monitor,
    ) -> Result<Matrix, Error> {
        let suite = SuiteFile {
            name: self.file.name.clone(),
            title: self.file.title.clone(),
            seeds: self.file.seeds,
            ..SuiteFile::default()
        };
        let runners: Vec<Runner<'_>> =
            self.schemes.iter().map(|scheme| self.runner(&suite, scheme, monitor)).collect();
        let experiments: Vec<Work<'_>> = self.file.cases.iter().map(|c| self.work(c)).collect();
        let seeds = |case: &Case| match (seeds, self.quick) {
            (Some(seeds), _) => seeds,
            (None, true) => 1,
            (None, false) => case.seeds.unwrap_or(self.file.seeds),
        };
        let mut jobs = Vec::new();
        for (place, work) in experiments.iter().enumerate() {
            for (scheme, runner) in runners.iter().enumerate() {
                if !work.case.is_for(&self.schemes[scheme].name) {
                    continue;
                }
                let weight = self.check(runner, work)?;
                let job = |seed| Job { scheme, case: place, seed, weight };
                jobs.extend((1..=u64::from(seeds(work.case))).map(job));
            }
        }
        if jobs.is_empty() {
            let name = &self.schemes[0].name;
            return Err(Error::Usage(format!(
                "--scheme {name}: knows no objects, of which all cases are"
            )));
        }
        jobs.sort_by_key(|job| std::cmp::Reverse(job.weight));
        let cells: Vec<Vec<Mutex<Cell>>> = experiments
            .iter()
            .map(|work| {
                let cell = |scheme: &Scheme| {
                    let page = format!("{}-{}", work.case.id, scheme.name);
                    Mutex::new(Cell::new(page, runs.clone()))
                };
                self.schemes.iter().map(cell).collect()
            })
            .collect();
        // Costs of runs differ by a factor of a thousand, so progress counts their weights.
        let total = jobs.iter().map(|job| job.weight).sum();
        let (name, count) = (&*self.file.name, jobs.len());
        monitor.begin(Runs { name, count, weight: total, long: false });
        let ended: Result<(), Error> = jobs.into_par_iter().with_max_len(1).try_for_each(|job| {
            let (runner, work) = (&runners[job.scheme], &experiments[job.case]);
            let measured = cell::measure(runner, &self.file, work, job.seed, runs.is_some())?;
            let cell = &cells[job.case][job.scheme];
            cell.lock().expect("nobody panics with it").take(job.seed, measured)?;
            monitor.ended(job.weight);
            Ok(())
        });
        monitor.finish();
        ended?;
        let cases = experiments.iter().zip(cells).map(|(work, cells)| {
            let cells = self.schemes.iter().zip(cells).map(|(scheme, cell)| {
                let cell = cell.into_inner().expect("nobody panics with it");
                let (figures, runs) = (cell.figures(), cell.pages());
                MatrixCell { scheme: scheme.name.clone(), figures, runs }
            });
            MatrixCase {
                id: work.case.id.clone(),
                group: work.case.group.clone(),
                question: work.case.question.clone(),
                scenario: work.case.scenario.clone(),
                set: work.experiment.set.clone(),
                seeds: seeds(work.case),
                note: work.case.note.clone(),
                cells: cells.collect(),
            }
        });
        Ok(Matrix {
            name: self.file.name.clone(),
            title: self.file.title.clone(),
            faircast: env!("CARGO_PKG_VERSION").to_string(),
            quick: self.quick,
            schemes: self.schemes.iter().map(|scheme| scheme.name.clone()).collect(),
            cases: cases.collect(),
        })
    }

    fn runner<'a>(
        &'a self,
        suite: &'a SuiteFile,
        scheme: &'a Scheme,
        monitor: &'a dyn Monitor,
    ) -> Runner<'a> {
        Runner {
            suite,
            files: &self.files,
            seeds: None,
            scheme: Some(scheme),
            only: None,
            plots: false,
            on: On::Sim,
            side_by_side: false,
            monitor,
        }
    }

    fn work<'a>(&self, case: &'a Case) -> Work<'a> {
        Work {
            case,
            experiment: case.experiment(&self.file, self.quick),
            alone: case.alone(&self.file, self.quick),
        }
    }

    /// Checks a case. Returns its weight: the expected cost, in an arbitrary unit.
    fn check(&self, runner: &Runner<'_>, work: &Work<'_>) -> Result<u64, Error> {
        let mut weight = 0;
        for experiment in std::iter::once(&work.experiment).chain(&work.alone) {
            let scenario = runner.scenario(experiment, 1)?;
            runner.check(experiment, &scenario)?;
            work.case
                .check(&self.file, &scenario)
                .map_err(|problem| Error::Usage(format!("{}: {problem}", self.file.name)))?;
            weight += crate::sweep::weight(&scenario);
        }
        Ok(weight)
    }
}

fn at(page: &Path, problem: &str) -> Error {
    Error::Usage(format!("--docs {}: {problem}", page.display()))
}

struct Work<'a> {
    case: &'a Case,
    experiment: Experiment,
    alone: Option<Experiment>,
}

struct Job {
    scheme: usize,
    case: usize,
    seed: u64,
    weight: u64,
}

fn choose_cases(file: &mut MatrixFile, request: &Request) -> Result<(), Error> {
    if request.quick {
        file.cases.retain(|case| case.quick.is_some());
    }
    if let Some(only) = &request.only {
        // The full id of a case selects this case alone, without others of the same prefix.
        let exact = |part: &str| file.cases.iter().any(|case| case.id == part);
        let parts: Vec<(&str, bool)> = only.split(',').map(|part| (part, exact(part))).collect();
        let is_meant = |case: &Case| {
            let by = |(part, exact): &(&str, bool)| match exact {
                true => case.id == *part,
                false => case.id.contains(part),
            };
            parts.iter().any(by)
        };
        for (part, _) in &parts {
            if !file.cases.iter().any(|case| case.id.contains(part)) {
                let ids: Vec<&str> = file.cases.iter().map(|case| &*case.id).collect();
                return Err(Error::Usage(format!(
                    "--only {part}: no case has that in its id; there are {}",
                    ids.join(", ")
                )));
            }
        }
        file.cases.retain(is_meant);
    }
    match file.cases.is_empty() {
        true => Err(Error::Usage("--quick: no case has quick = [...]".into())),
        false => Ok(()),
    }
}

fn schemes(request: &Request) -> Result<Vec<Scheme>, Error> {
    let known = || catalog::reliable_multicast().map(|stack| stack.name());
    let Some(given) = &request.scheme else {
        return Ok(known().map(|name| Scheme { name, options: Vec::new() }).collect());
    };
    let names: Vec<&str> = given.split(',').collect();
    if names.len() > 1 && !request.options.is_empty() {
        return Err(Error::Usage(format!(
            "--option {}: which of {given}? give one scheme",
            request.options[0]
        )));
    }
    for (place, name) in names.iter().enumerate() {
        if !known().any(|known| known == *name) {
            let known: Vec<String> = known().collect();
            return Err(Error::Usage(format!(
                "--scheme {name}: there is no such scheme; there are {}",
                known.join(", ")
            )));
        }
        if names[..place].contains(name) {
            return Err(Error::Usage(format!("--scheme {given}: {name} is there twice")));
        }
    }
    let scheme = |name: &str| Scheme { name: name.into(), options: request.options.clone() };
    Ok(names.into_iter().map(scheme).collect())
}
