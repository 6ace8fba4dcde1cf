//! Sweeps: a scenario with every combination of values of its settings, each with several seeds.
//!
//! A completed run is a file named after its *key*, a hash of everything that determines the run
//! ([`Store`]). Thus no run is repeated, and several machines can work on a sweep in one folder.

mod axis;
mod key;
mod run;
mod store;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use faircast_scenario::{Draft, Overrides, Scenario, ScenarioError};

pub use axis::Axis;
pub use run::{FailedRun, SweepOutcome, run};
pub use store::{Store, StoredRun};
pub use tables::{RECEIVER_ROWS_MAX, Tables};

use crate::{Error, Study};
use key::{Keys, Program};

const RUNS_MAX: u64 = 100_000;

/// Scenario, values of its settings, and seeds.
#[derive(Clone)]
pub struct Sweep<'a> {
    /// Surroundings of the runs.
    pub study: &'a Study<'a>,
    /// Scenario without the settings of the axes.
    pub draft: Draft,
    /// Settings with their values, in the order of their application.
    pub axes: Vec<Axis>,
    /// Seeds, each once.
    pub seeds: Vec<u64>,
    /// Program of the runs.
    pub program: Program,
}

/// Single run of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Hash of the run, in hexadecimal.
    pub key: String,
    /// Index of the chosen value for each axis.
    pub choice: Vec<usize>,
    /// Seed of the run.
    pub seed: u64,
    /// Expected cost compared with other runs, in an arbitrary unit.
    pub weight: u64,
}

impl<'a> Sweep<'a> {
    /// Makes a sweep, and checks its first combination.
    ///
    /// # Errors
    /// The first combination is wrong, a setting is repeated, or there are too many runs.
    pub fn new(
        study: &'a Study<'a>,
        draft: Draft,
        axes: Vec<Axis>,
        seeds: impl IntoIterator<Item = u64>,
    ) -> Result<Self, Error> {
        let seeds: Vec<u64> = seeds.into_iter().collect();
        for (index, axis) in axes.iter().enumerate() {
            if axes[..index].iter().any(|other| other.key == axis.key) {
                return Err(Error::Usage(format!(
                    "--set {}: is there twice; give all its values at once, with commas between",
                    axis.key
                )));
            }
        }
        let combinations: u128 = axes.iter().map(|axis| axis.values.len() as u128).product();
        let runs = combinations.saturating_mul(seeds.len() as u128);
        if runs > u128::from(RUNS_MAX) {
            return Err(Error::Usage(format!(
                "{runs} runs; expected at most {RUNS_MAX}: give fewer values or seeds"
            )));
        }
        let sweep = Self { study, draft, axes, seeds, program: Program::current() };
        sweep.scenario(&vec![0; sweep.axes.len()], None)?;
        Ok(sweep)
    }

    /// Returns the question that the scenario answers.
    pub fn title(&self) -> Result<String, ScenarioError> {
        Ok(self.scenario(&vec![0; self.axes.len()], None)?.title)
    }

    /// Returns all runs, checked, with the seeds of a combination one after the other.
    pub fn jobs(&self) -> Result<Vec<Job>, Error> {
        let mut keys = Keys::new(&self.program, self.study.backend.on());
        let choices = self.axes.iter().fold(vec![Vec::new()], |choices: Vec<Vec<usize>>, axis| {
            let with = |choice: &Vec<usize>, index| [&choice[..], &[index]].concat();
            let each = choices.iter();
            each.flat_map(|choice| (0..axis.values.len()).map(move |i| with(choice, i))).collect()
        });
        let mut jobs = Vec::new();
        for choice in choices {
            for seed in &self.seeds {
                let scenario = self.scenario(&choice, Some(*seed))?;
                let (key, weight) = (keys.of(&scenario)?, weight(&scenario));
                jobs.push(Job { key, choice: choice.clone(), seed: *seed, weight });
            }
        }
        Ok(jobs)
    }

    /// Returns the scenario of a combination with a seed, or with the scenario's own seed.
    ///
    /// # Errors
    /// The combination is wrong.
    pub fn scenario(&self, choice: &[usize], seed: Option<u64>) -> Result<Scenario, ScenarioError> {
        let overrides = Overrides { set: self.set(choice), seed };
        self.draft.check_with(&overrides, &self.study.catalog)
    }

    /// Runs all combinations with all seeds, and returns their rows. Nothing is stored.
    ///
    /// # Errors
    /// A combination is wrong, a run failed, or the monitor stopped the runs.
    pub fn tables(&self) -> Result<Tables, Error> {
        let jobs = self.jobs()?;
        let run = |job: &Job| Ok(run::attempt(self, job, |_| Ok(()))?.map(|(run, ())| run.summary));
        let mut summaries = BTreeMap::new();
        for (job, ended) in run::all(self, &unique(&jobs), run) {
            match ended {
                Ok(Some(summary)) => _ = summaries.insert(&*job.key, summary),
                Ok(None) => {
                    return Err(Error::Interrupted("a sweep that is not finished has no rows"));
                }
                Err(reason) => return Err(Error::Work(format!("{}: {reason}", self.named(job)))),
            }
        }
        let mut tables = Tables::new(self);
        jobs.iter().for_each(|job| tables.add(job, summaries[&*job.key].clone()));
        Ok(tables)
    }

    /// Returns the settings of a combination, `KEY=VALUE`.
    pub fn set(&self, choice: &[usize]) -> Vec<String> {
        let chosen = self.axes.iter().zip(choice);
        chosen.map(|(axis, index)| format!("{}={}", axis.key, axis.values[*index])).collect()
    }

    /// Returns the name of a run for people: its settings and its seed.
    pub fn named(&self, job: &Job) -> String {
        let set = self.set(&job.choice).into_iter().map(|set| format!("{set}, "));
        format!("{}seed {}", set.collect::<String>(), job.seed)
    }
}

/// Returns the expected cost of a run: packets cross the links from every sender to every receiver.
pub(crate) fn weight(scenario: &Scenario) -> u64 {
    let pairs = scenario.flows.iter().map(|flow| 10 + flow.from.len() * flow.to.len());
    1 + (scenario.duration.as_secs_f64() * pairs.sum::<usize>() as f64) as u64
}

/// Returns the runs without duplicates.
pub fn unique(jobs: &[Job]) -> Vec<&Job> {
    let mut keys = BTreeSet::new();
    jobs.iter().filter(|job| keys.insert(&job.key)).collect()
}

#[cfg(test)]
mod tests;
