//! Comparison of schemes: all of them in the same cases, by the same figures.

mod cases;
mod cell;

use std::collections::BTreeMap;
use std::path::PathBuf;

use faircast_report::{Matrix, MatrixCase, MatrixCell, RunPage};
use faircast_scenario::Catalog;
use rayon::prelude::*;

use self::cases::{Case, MatrixFile};
use self::cell::Figures;
use crate::files::make_folder;
use crate::monitor::Runs;
use crate::suite::runner::{Files, Runner};
use crate::suite::{Bundled, Experiment, Question, Selection, SuiteFile, TestedScheme, bundled};
use crate::{Error, Study};

/// File of the matrix, and the scenarios of its cases, some shared with other suites.
static FILES: Bundled = bundled!("matrix", "matrix.toml",
    "changing-bandwidth" "lossy-star" "round-trips" "tree"
    "../fairness/set1-one-bottleneck" "../fairness/set2-independent-loss"
    "../fairness/set2-two-bottlenecks" "../fairness/set3-set4-far-receiver"
    "../ormcc/changing" "../ormcc/linear" "../ormcc/simple" "../ormcc/star" "../ormcc/star-tcp");

/// Cases with the schemes to compare, loaded and checked.
pub struct Comparison {
    file: MatrixFile,
    files: Files,
    /// A selection of one scheme for each column.
    schemes: Vec<Selection>,
    quick: bool,
}

/// Selection of cases and schemes.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// File with the cases, instead of the built-in cases.
    pub cases: Option<PathBuf>,
    /// Ids of the selected cases or parts of ids, separated by commas.
    pub only: Option<String>,
    /// Names of the schemes, separated by commas; `None` for all.
    pub schemes: Option<String>,
    /// Options of the only scheme, `KEY=VALUE`.
    pub options: Vec<String>,
    /// True for fewer and shorter cases.
    pub quick: bool,
}

impl Comparison {
    /// Loads the selected cases.
    ///
    /// # Errors
    /// The file is wrong, or a selected case or scheme does not exist.
    pub fn load(columns: &Columns, catalog: &Catalog) -> Result<Self, Error> {
        let (mut file, files) = match &columns.cases {
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
            choose_cases(file, columns)?;
        }
        let (file, schemes) = (file.map_err(Error::Usage)?, schemes(columns, catalog)?);
        let alone = |scheme| Selection { scheme: Some(scheme), ..Selection::default() };
        let schemes = schemes.into_iter().map(alone).collect();
        Ok(Self { file, files, schemes, quick: columns.quick })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Returns the question of all cases together.
    pub fn title(&self) -> &str {
        &self.file.title
    }

    /// Returns the selected cases.
    pub fn questions(&self) -> impl Iterator<Item = Question<'_>> {
        let cases = self.file.cases.iter();
        cases.map(|it| Question { group: &it.group, id: &it.id, question: &it.question })
    }

    /// Runs every case with every scheme. With the folder `runs` each run has a page there.
    ///
    /// # Errors
    /// A case cannot run or was interrupted, or a page cannot be written.
    pub fn run(
        &self,
        study: &Study<'_>,
        seeds: Option<u32>,
        runs: Option<PathBuf>,
    ) -> Result<Matrix, Error> {
        if let Some(runs) = &runs {
            make_folder(runs)?;
        }
        let monitor = study.monitor;
        let suite = SuiteFile {
            name: self.file.name.clone(),
            title: self.file.title.clone(),
            seeds: self.file.seeds,
            ..SuiteFile::default()
        };
        let runner = |selection| Runner { study, suite: &suite, files: &self.files, selection };
        let runners: Vec<Runner<'_>> = self.schemes.iter().map(runner).collect();
        let work = |case| self.work(case, seeds);
        let experiments: Vec<Work<'_>> = self.file.cases.iter().map(work).collect();
        let mut jobs = self.jobs(&runners, &experiments)?;
        jobs.sort_by_key(|job| std::cmp::Reverse(job.weight));
        // Costs of runs differ by a factor of a thousand, so progress counts their weights.
        let total = jobs.iter().map(|job| job.weight).sum();
        let (name, count) = (&*self.file.name, jobs.len());
        monitor.begin(Runs { name, count, weight: total, long: false });
        let ended: Result<Vec<(Job, Figures)>, Error> = jobs
            .into_par_iter()
            .with_max_len(1)
            .map(|job| {
                let (runner, work) = (&runners[job.scheme], &experiments[job.case]);
                let name = self.page(work.case, job.scheme, job.seed);
                let page = runs.as_ref().map(|folder| folder.join(name));
                let figures = cell::measure(runner, &self.file, work, job.seed, page.as_deref())?;
                monitor.ended(job.weight);
                Ok((job, figures))
            })
            .collect();
        monitor.finish();
        let mut cells = vec![vec![BTreeMap::new(); runners.len()]; experiments.len()];
        for (job, figures) in ended? {
            cells[job.case][job.scheme].insert(job.seed, figures);
        }
        let has_pages = runs.is_some();
        let cases = experiments.iter().zip(cells);
        let cases = cases.map(|(work, cells)| self.case(work, &cells, has_pages));
        Ok(Matrix {
            name: self.file.name.clone(),
            title: self.file.title.clone(),
            faircast: env!("CARGO_PKG_VERSION").to_string(),
            quick: self.quick,
            schemes: self.names().into_iter().map(str::to_string).collect(),
            cases: cases.collect(),
        })
    }

    fn jobs(&self, runners: &[Runner<'_>], all: &[Work<'_>]) -> Result<Vec<Job>, Error> {
        let mut jobs = Vec::new();
        for (case, work) in all.iter().enumerate() {
            for (scheme, runner) in runners.iter().enumerate() {
                if !work.case.is_for(self.names()[scheme], &runner.study.catalog) {
                    continue;
                }
                let weight = self.check(runner, work)?;
                let job = |seed| Job { scheme, case, seed, weight };
                jobs.extend((1..=u64::from(work.seeds)).map(job));
            }
        }
        match jobs.is_empty() {
            true => Err(Error::Usage(format!(
                "--scheme {}: knows no objects, of which all cases are",
                self.names()[0]
            ))),
            false => Ok(jobs),
        }
    }

    /// Returns the name of the page of a run.
    fn page(&self, case: &Case, scheme: usize, seed: u64) -> String {
        format!("{}-{}-{seed}.html", case.id, self.names()[scheme])
    }

    fn case(
        &self,
        work: &Work<'_>,
        cells: &[BTreeMap<u64, Figures>],
        has_pages: bool,
    ) -> MatrixCase {
        let cells = cells.iter().enumerate().map(|(scheme, runs)| {
            let page = |seed: &u64| {
                let page = format!("runs/{}", self.page(work.case, scheme, *seed));
                RunPage { seed: *seed, page }
            };
            MatrixCell {
                scheme: self.names()[scheme].to_string(),
                figures: cell::spreads(runs),
                runs: runs.keys().filter(|_| has_pages).map(page).collect(),
            }
        });
        MatrixCase {
            id: work.case.id.clone(),
            group: work.case.group.clone(),
            question: work.case.question.clone(),
            scenario: work.case.scenario.clone(),
            set: work.experiment.set.clone(),
            seeds: work.seeds,
            note: work.case.note.clone(),
            cells: cells.collect(),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.schemes.iter().flat_map(|of| &of.scheme).map(|scheme| &*scheme.name).collect()
    }

    fn work<'a>(&self, case: &'a Case, seeds: Option<u32>) -> Work<'a> {
        let usual = if self.quick { 1 } else { case.seeds.unwrap_or(self.file.seeds) };
        Work {
            case,
            seeds: seeds.unwrap_or(usual),
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

struct Work<'a> {
    case: &'a Case,
    seeds: u32,
    experiment: Experiment,
    alone: Option<Experiment>,
}

struct Job {
    scheme: usize,
    case: usize,
    seed: u64,
    weight: u64,
}

fn choose_cases(file: &mut MatrixFile, columns: &Columns) -> Result<(), Error> {
    if columns.quick {
        file.cases.retain(|case| case.quick.is_some());
    }
    if let Some(only) = &columns.only {
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

fn schemes(columns: &Columns, catalog: &Catalog) -> Result<Vec<TestedScheme>, Error> {
    let known = || catalog.reliable_multicast().map(|stack| stack.name());
    let Some(given) = &columns.schemes else {
        return Ok(known().map(|name| TestedScheme { name, options: Vec::new() }).collect());
    };
    let names: Vec<&str> = given.split(',').collect();
    if names.len() > 1 && !columns.options.is_empty() {
        return Err(Error::Usage(format!(
            "--option {}: which of {given}? give one scheme",
            columns.options[0]
        )));
    }
    for (index, name) in names.iter().enumerate() {
        if !known().any(|known| known == *name) {
            let known: Vec<String> = known().collect();
            return Err(Error::Usage(format!(
                "--scheme {name}: there is no such scheme; there are {}",
                known.join(", ")
            )));
        }
        if names[..index].contains(name) {
            return Err(Error::Usage(format!("--scheme {given}: {name} is there twice")));
        }
    }
    let scheme = |name: &str| TestedScheme { name: name.into(), options: columns.options.clone() };
    Ok(names.into_iter().map(scheme).collect())
}
