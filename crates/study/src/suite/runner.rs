//! Runner of a suite's experiments, several at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use faircast_base::{Duration, NodeId};
use faircast_report::{Series, Summary};
use faircast_scenario::{Overrides, Scenario};
use faircast_trace::{Header, Sink, Tee};
use rayon::prelude::*;

use super::Selection;
use super::file::{Bundled, Experiment, RowFile, SuiteFile};
use super::measure::link_names;
use super::offline::{self, Goodputs};
use super::probe::Probe;
use crate::files;
use crate::monitor::{Runs, Watch};
use crate::run::until_valid;
use crate::{Error, Study};

pub(crate) enum Files {
    Bundled(&'static Bundled),
    Folder(PathBuf),
}

pub(crate) struct Runner<'a> {
    pub(crate) study: &'a Study<'a>,
    pub(crate) suite: &'a SuiteFile,
    pub(crate) files: &'a Files,
    pub(crate) selection: &'a Selection,
}

pub(crate) struct Measured<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) runs: Vec<MeasuredRun>,
    pub(crate) invalid: Vec<(u64, String)>,
    pub(crate) plot: Option<Plot>,
    pub(crate) optima: Vec<Option<f64>>,
}

pub(crate) struct Measurements<'a> {
    pub(crate) measured: Vec<Measured<'a>>,
    /// True if the runs were stopped early; `measured` is then incomplete.
    pub(crate) stopped: bool,
}

pub(crate) struct MeasuredRun {
    pub(crate) summary: Summary,
    pub(crate) probe: Probe,
    /// Reason why the figures must not be used: every attempt in the lab was too late.
    pub(crate) invalid: Option<String>,
}

pub(crate) struct Plot {
    pub(crate) header: Header,
    pub(crate) series: Series,
}

impl Files {
    pub(crate) fn beside(path: &Path) -> Result<(String, Self), Error> {
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok((files::read(path)?, Self::Folder(folder)))
    }

    fn read(&self, name: &str) -> Result<(PathBuf, String), Error> {
        let bundled = match self {
            Self::Bundled(bundled) => bundled,
            Self::Folder(folder) => {
                let path = folder.join(name);
                let text = files::read(&path)?;
                return Ok((path, text));
            }
        };
        let text = bundled.find(name).ok_or_else(|| {
            Error::Usage(format!(
                "{}: the suite names \"{name}\", which does not come with the program",
                bundled.folder
            ))
        })?;
        Ok((Path::new(bundled.folder).join(name), text.to_string()))
    }
}

impl<'a> Runner<'a> {
    pub(crate) fn scenario(&self, experiment: &Experiment, seed: u64) -> Result<Scenario, Error> {
        let (path, text) = self.files.read(&experiment.scenario)?;
        let mut set = experiment.set.clone();
        let scheme = self.selection.scheme.as_ref();
        if let Some(scheme) = scheme {
            let suites = self.suite.session.iter().filter(|_| experiment.sessions.is_empty());
            for session in experiment.sessions.iter().chain(suites) {
                // Another scheme gets no options of the suite's scheme, except stream or object.
                let own = format!("flow.{session}.options");
                let delivery = format!("{own}.delivery=");
                let (mine, mut others): (Vec<_>, Vec<_>) =
                    set.into_iter().partition(|change| change.starts_with(&own));
                others.push(format!("flow.{session}.protocol={}", scheme.name));
                others.push(format!("{own}={{}}"));
                others.extend(mine.into_iter().filter(|change| change.starts_with(&delivery)));
                set = others;
                set.extend(scheme.options.iter().map(|option| format!("{own}.{option}")));
            }
        }
        let parse = |set| {
            let overrides = Overrides { set, seed: Some(seed) };
            Scenario::parse(&path, &text, &overrides, &self.study.catalog)
        };
        let scenario = parse(set.clone())?;
        // Credits need routers: all routers take part.
        let stack = scheme.and_then(|scheme| self.study.catalog.stack(&scheme.name));
        let under_credits = stack.is_some_and(|stack| stack.hop.is_some());
        match under_credits.then(|| routers(&scenario)) {
            Some(routers) if !routers.is_empty() => {
                let names: Vec<String> = routers.iter().map(|name| format!("{name:?}")).collect();
                let program =
                    format!("node=[{{ name = [{}], program = \"credit\" }}]", names.join(", "));
                set.push(program);
                Ok(parse(set)?)
            }
            _ => Ok(scenario),
        }
    }

    /// Checks measures: a measure of a missing flow must not look like a wrong figure.
    pub(crate) fn check(&self, experiment: &Experiment, scenario: &Scenario) -> Result<(), Error> {
        let wrong = |key: &str, problem: String| self.wrong(experiment, key, &problem);
        for row in &experiment.rows {
            row.measure.check(scenario).map_err(|problem| wrong(&row.title, problem))?;
        }
        self.sample(experiment, scenario)?;
        let links = link_names(scenario);
        match experiment.bottlenecks.iter().find(|name| !links.contains(name)) {
            Some(name) => {
                Err(wrong("bottlenecks", format!("\"{name}\" is no link of its scenario")))
            }
            None => Ok(()),
        }
    }

    fn wrong(&self, experiment: &Experiment, key: &str, problem: &str) -> Error {
        let (suite, id) = (&self.suite.name, &experiment.id);
        Error::Usage(format!("{suite}: experiment \"{id}\": {key}: {problem}"))
    }

    fn sample(
        &self,
        experiment: &Experiment,
        scenario: &Scenario,
    ) -> Result<Option<Duration>, Error> {
        let sample = experiment.sample(scenario.duration);
        sample.map_err(|problem| self.wrong(experiment, "sample", &problem))
    }

    pub(crate) fn run(&self, name: &str) -> Result<Measurements<'a>, Error> {
        let Selection { only, scheme, .. } = self.selection;
        let experiments: Vec<&Experiment> =
            self.suite.experiments(only.as_deref(), scheme.is_some()).collect();
        let (monitor, long) = (self.study.monitor, self.study.is_real_time());
        let seeds = |e: &Experiment| self.selection.seeds.or(e.seeds).unwrap_or(self.suite.seeds);
        let mut jobs: Vec<(usize, u64)> = Vec::new();
        let mut weights = Vec::new();
        for (index, experiment) in experiments.iter().enumerate() {
            let scenario = self.scenario(experiment, 1)?;
            self.check(experiment, &scenario)?;
            jobs.extend((1..=u64::from(seeds(experiment))).map(|seed| (index, seed)));
            // A run in the lab takes its duration in real time.
            weights.push(if long { 1 + scenario.duration.as_secs_f64() as u64 } else { 1 });
        }
        let mut goodputs = Goodputs::new(self.study);
        let optima: Result<Vec<_>, Error> =
            experiments.iter().map(|of| self.optima(of, &mut goodputs)).collect();
        let optima = optima?;
        let total = jobs.iter().map(|(index, _)| weights[*index]).sum();
        monitor.begin(Runs { name, count: jobs.len(), weight: total, long });
        let run = |(index, seed): (usize, u64)| {
            let plots = self.selection.plots && seed == 1;
            let outcome = self.run_one(experiments[index], seed, plots, &mut ())?;
            monitor.ended(weights[index]);
            Ok(((index, seed), outcome))
        };
        // A stopped run in the lab does not discard other runs.
        let run = |job| match run(job) {
            Err(_) if long && monitor.is_to_stop() => Ok(None),
            outcome => outcome.map(Some),
        };
        // One run at a time by default: parallel runs may make a lab late.
        let done: Result<Vec<Option<_>>, Error> = match long && !self.selection.side_by_side {
            true => jobs.into_iter().map(run).collect(),
            false => jobs.into_par_iter().map(run).collect(),
        };
        monitor.finish();
        let done = done?;
        let stopped = done.iter().any(Option::is_none);
        let done: BTreeMap<_, _> = done.into_iter().flatten().collect();
        let mut measured: Vec<_> = experiments
            .into_iter()
            .zip(optima)
            .map(|(experiment, optima)| Measured {
                experiment,
                runs: Vec::new(),
                invalid: Vec::new(),
                plot: None,
                optima,
            })
            .collect();
        for ((index, seed), (run, plot)) in done {
            let measured = &mut measured[index];
            match run.invalid {
                Some(why) => measured.invalid.push((seed, why)),
                None => {
                    measured.runs.push(run);
                    measured.plot = measured.plot.take().or(plot);
                }
            }
        }
        if stopped {
            measured.retain(|of| !of.runs.is_empty() || !of.invalid.is_empty());
        }
        Ok(Measurements { measured, stopped })
    }

    fn optima(
        &self,
        experiment: &Experiment,
        goodputs: &mut Goodputs<'_>,
    ) -> Result<Vec<Option<f64>>, Error> {
        let scenario = self.scenario(experiment, 1)?;
        let of = |row: &RowFile| {
            let optimum = row.optimum.map(|it| offline::of_row(row, it, &scenario, goodputs));
            optimum.transpose().map_err(|error| match error {
                Error::Usage(problem) => self.wrong(experiment, &row.title, &problem),
                other => other,
            })
        };
        experiment.rows.iter().map(of).collect()
    }

    pub(crate) fn run_one(
        &self,
        experiment: &Experiment,
        seed: u64,
        plots: bool,
        also: &mut dyn Sink,
    ) -> Result<(MeasuredRun, Option<Plot>), Error> {
        let stopped = || Error::Interrupted("a suite that is not finished has no rows");
        if self.study.monitor.is_to_stop() {
            return Err(stopped());
        }
        let scenario = self.scenario(experiment, seed)?;
        let header = self.study.header(&scenario);
        let sample = self.sample(experiment, &scenario)?;
        let (run, (probe, series)) = until_valid(|| {
            let series = plots.then(|| Series::sampled(&header, sample));
            let mut listener = Tee(Tee(Probe::new(&header), series), &mut *also);
            let mut watch = Watch(self.study.monitor);
            let run = self.study.run(&scenario, &mut watch, &mut listener)?;
            let Tee(Tee(probe, series), _) = listener;
            Ok::<_, Error>((run, (probe, series)))
        })?;
        if run.outcome.interrupted {
            return Err(stopped());
        }
        let invalid = run.invalid();
        let plot = series.map(|series| Plot { header, series });
        Ok((MeasuredRun { summary: run.summary, probe, invalid }, plot))
    }
}

fn routers(scenario: &Scenario) -> Vec<&str> {
    let ends: BTreeSet<NodeId> =
        scenario.flows.iter().flat_map(|flow| flow.from.iter().chain(&flow.to).copied()).collect();
    let all = (0..).map(NodeId).zip(&scenario.nodes);
    all.filter(|(id, _)| !ends.contains(id)).map(|(_, node)| &*node.name).collect()
}
