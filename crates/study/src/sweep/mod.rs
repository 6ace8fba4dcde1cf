//! Sweeps: a scenario with every combination of values of its settings, each with several seeds.
//!
//! A completed run is a file named after its *key*, a hash of everything that determines the run
//! ([`Store`]). Thus no run is repeated, and several machines can work on a sweep in one folder.

mod axis;
mod key;
mod run;
mod store;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use faircast_scenario::{Overrides, Scenario, ScenarioError};

pub use axis::Axis;
pub use key::Program;
pub use run::{Failed, Ran, run};
pub use store::{Kept, Store, StoredRun};
pub use tables::{RECEIVER_ROWS_MAX, Tables};

use crate::{Error, Study};
use key::Keys;

/// Most runs of one sweep.
pub const RUNS_MAX: u64 = 100_000;

/// Scenario, values of its settings, and seeds.
#[derive(Clone)]
pub struct Sweep<'a> {
    /// Surroundings of the runs.
    pub study: &'a Study<'a>,
    /// Scenario file, as named by the user.
    pub file: PathBuf,
    /// Text of the scenario, read once: later edits of the file have no effect.
    text: String,
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
    /// Loads the scenario, and checks it before combinations are made.
    ///
    /// # Errors
    /// The first combination is wrong, a setting is repeated, or there are too many runs.
    pub fn new(
        study: &'a Study<'a>,
        file: &Path,
        axes: Vec<Axis>,
        seeds: Vec<u64>,
    ) -> Result<Self, Error> {
        for (place, axis) in axes.iter().enumerate() {
            if axes[..place].iter().any(|other| other.key == axis.key) {
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
        let (file, text, program) = (file.to_owned(), String::new(), Program::current());
        let mut sweep = Self { study, file, text, axes, seeds, program };
        let file = &sweep.file;
        let first = vec![0; sweep.axes.len()];
        let overrides = Overrides { set: sweep.set(&first), seed: None };
        let first = Scenario::load(file, &overrides, &study.catalog)?;
        // A loaded scenario's text ends in a record of the changes, which the sweep must not have.
        sweep.text = std::fs::read_to_string(file).map_err(|error| Error::read(file, error))?;
        debug_assert!(first.text.starts_with(&sweep.text), "nobody edits it just now");
        Ok(sweep)
    }

    /// Returns the question that the scenario answers.
    pub fn title(&self) -> Result<String, ScenarioError> {
        let first = vec![0; self.axes.len()];
        Ok(self.scenario(&first, self.seeds.first().copied().unwrap_or(1))?.title)
    }

    /// Returns all runs, checked, with the seeds of a combination one after the other.
    pub fn jobs(&self) -> Result<Vec<Job>, Error> {
        let mut keys = Keys::new(&self.program, self.study.backend.on());
        let choices = self.axes.iter().fold(vec![Vec::new()], |choices: Vec<Vec<usize>>, axis| {
            let with = |choice: &Vec<usize>, place| [&choice[..], &[place]].concat();
            let each = choices.iter();
            each.flat_map(|choice| (0..axis.values.len()).map(move |i| with(choice, i))).collect()
        });
        let mut jobs = Vec::new();
        for choice in choices {
            for seed in &self.seeds {
                let scenario = self.scenario(&choice, *seed)?;
                let (key, weight) = (keys.of(&scenario)?, weight(&scenario));
                jobs.push(Job { key, choice: choice.clone(), seed: *seed, weight });
            }
        }
        Ok(jobs)
    }

    /// Returns the scenario of a combination with a seed.
    pub fn scenario(&self, choice: &[usize], seed: u64) -> Result<Scenario, ScenarioError> {
        let overrides = Overrides { set: self.set(choice), seed: Some(seed) };
        Scenario::parse(&self.file, &self.text, &overrides, &self.study.catalog)
    }

    /// Returns the settings of a combination, `KEY=VALUE`.
    pub fn set(&self, choice: &[usize]) -> Vec<String> {
        let chosen = self.axes.iter().zip(choice);
        chosen.map(|(axis, place)| format!("{}={}", axis.key, axis.values[*place])).collect()
    }

    /// Returns the name of a run for people: its settings and its seed.
    pub fn named(&self, job: &Job) -> String {
        let set = self.set(&job.choice).into_iter().map(|set| format!("{set}, "));
        format!("{}seed {}", set.collect::<String>(), job.seed)
    }

    /// Returns the arguments that run `job` and store it in `out`, plain for shells and `xargs`.
    pub fn command(&self, job: &Job, out: &Path, traces: bool) -> String {
        let mut words = vec!["sweep".to_string(), self.file.display().to_string()];
        for set in self.set(&job.choice) {
            words.extend(["--set".to_string(), set]);
        }
        if self.study.is_real_time() {
            words.extend(["--on".to_string(), "lab".to_string()]);
        }
        let (seed, out) = (job.seed.to_string(), out.display().to_string());
        words.extend(["--seed".to_string(), seed, "--out".to_string(), out]);
        if traces {
            words.push("--traces".to_string());
        }
        words.push("--part".to_string());
        words.iter().map(|word| plain(word)).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the expected cost of a run: packets cross the links from every sender to every receiver.
pub(crate) fn weight(scenario: &Scenario) -> u64 {
    let pairs = scenario.flows.iter().map(|flow| 10 + flow.from.len() * flow.to.len());
    1 + (scenario.duration.as_secs_f64() * pairs.sum::<usize>() as f64) as u64
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte)
}

const ESCAPED: &str = "url:";

/// Returns a word in plain characters: unchanged, or after `url:` with percent escapes.
pub fn plain(word: &str) -> String {
    if !word.is_empty() && word.bytes().all(is_plain) && !word.starts_with(ESCAPED) {
        return word.to_string();
    }
    let escaped = word.bytes().map(|byte| match is_plain(byte) && byte != b'%' {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    ESCAPED.to_string() + &escaped.collect::<String>()
}

/// Returns the word that [`plain`] wrote, or the word itself if it does not begin with `url:`.
pub fn from_plain(word: &str) -> Result<String, String> {
    let Some(escaped) = word.strip_prefix(ESCAPED) else { return Ok(word.to_string()) };
    let mut parts = escaped.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or_default();
        let digits =
            Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(|| {
                format!(
                    "{word}: %{part}: expected two hexadecimal digits after each %, such as %20"
                )
            })?;
        bytes.push(byte);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| format!("{word}: the escapes are not UTF-8"))
}

/// Quotes a word for a shell.
pub fn for_shell(word: &str) -> String {
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Returns the runs without duplicates.
pub fn once(jobs: &[Job]) -> Vec<&Job> {
    let unique: BTreeMap<&str, &Job> = jobs.iter().rev().map(|job| (&*job.key, job)).collect();
    let first = |job: &&Job| std::ptr::eq(unique[&*job.key], *job);
    jobs.iter().filter(first).collect()
}

#[cfg(test)]
mod tests;
