//! Execution of a sweep's runs, several at a time.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use faircast_scenario::Scenario;
use faircast_trace::{Sink, Writer};
use rayon::prelude::*;

use super::{Job, Store, Sweep};
use crate::Error;
use crate::monitor::{Runs, Watch};
use crate::run::{Run, TRIES_MAX, until_valid};

/// Run without a result.
#[derive(Clone, Debug)]
pub struct FailedRun {
    /// Failed job.
    pub job: Job,
    /// Reason of the failure.
    pub reason: String,
}

/// Results of a sweep's runs.
#[derive(Clone, Debug, Default)]
pub struct SweepOutcome {
    /// Number of runs that completed and were stored.
    pub done: usize,
    /// Runs that failed, in the order of the sweep.
    pub failed: Vec<FailedRun>,
    /// True if the sweep was stopped early.
    pub stopped: bool,
    /// Notes for readers of the figures, in sentences.
    pub notes: BTreeSet<String>,
}

/// Result of a run: `None` if the sweep was stopped before the run had ended.
type Ended<R> = Result<Option<R>, String>;

/// Does `jobs` and stores each completed run. In the lab runs are serial: parallel work delays it.
pub fn run(sweep: &Sweep<'_>, jobs: &[&Job], store: &Store, traces: bool) -> SweepOutcome {
    let mut ran = SweepOutcome::default();
    for (job, ended) in all(sweep, jobs, |job| stored(sweep, job, store, traces)) {
        match ended {
            Ok(Some(notes)) => {
                ran.done += 1;
                ran.notes.extend(notes);
            }
            Ok(None) => ran.stopped = true,
            Err(reason) => ran.failed.push(FailedRun { job: job.clone(), reason }),
        }
    }
    ran.failed.sort_by(|a, b| (&a.job.choice, a.job.seed).cmp(&(&b.job.choice, b.job.seed)));
    ran
}

/// Does `jobs`, the longest first, in parallel unless they take real time. A panic is a failure.
pub(super) fn all<'j, R: Send>(
    sweep: &Sweep<'_>,
    jobs: &[&'j Job],
    one: impl Fn(&Job) -> Ended<R> + Sync,
) -> Vec<(&'j Job, Ended<R>)> {
    let (monitor, long) = (sweep.study.monitor, sweep.study.is_real_time());
    let mut jobs: Vec<&Job> = jobs.to_vec();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.weight));
    let weight = jobs.iter().map(|job| job.weight).sum();
    monitor.begin(Runs { name: "sweep", count: jobs.len(), weight, long });
    let one = |job: &&'j Job| {
        let ended = match monitor.is_to_stop() {
            true => Ok(None),
            false => catch_unwind(AssertUnwindSafe(|| one(job))).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(format!("the program failed: {}", text.unwrap_or_default()))
            }),
        };
        if !matches!(ended, Ok(None)) {
            monitor.ended(job.weight);
        }
        (*job, ended)
    };
    let ended = match long {
        true => jobs.iter().map(one).collect(),
        false => jobs.par_iter().with_max_len(1).map(one).collect(),
    };
    monitor.finish();
    ended
}

/// Runs `job` with a new listener for each attempt, until a run is valid.
pub(super) fn attempt<T: Sink>(
    sweep: &Sweep<'_>,
    job: &Job,
    listener: impl Fn(&Scenario) -> Result<T, String>,
) -> Ended<(Run, T)> {
    let scenario =
        sweep.scenario(&job.choice, Some(job.seed)).map_err(|error| error.to_string())?;
    let (run, listener) = until_valid(|| {
        let mut listener = listener(&scenario)?;
        let mut watch = Watch(sweep.study.monitor);
        let run = sweep.study.run(&scenario, &mut watch, &mut listener);
        Ok::<_, String>((run.map_err(|error| error.to_string())?, listener))
    })?;
    match run.invalid() {
        _ if run.outcome.interrupted => Ok(None),
        Some(reason) => Err(format!("{TRIES_MAX} times in a row {reason}")),
        None => Ok(Some((run, listener))),
    }
}

fn stored(sweep: &Sweep<'_>, job: &Job, store: &Store, traces: bool) -> Ended<Vec<String>> {
    let unwritten = |path: &Path, error: io::Error| Error::write(path, error).to_string();
    let path = store.part_path(job, "trace");
    let wrong = |error| unwritten(&path, error);
    let writer = |scenario: &Scenario| match traces {
        true => Writer::create(&path, &sweep.study.header(scenario)).map(Some).map_err(wrong),
        false => Ok(None),
    };
    let (run, trace) = match attempt(sweep, job, writer) {
        Ok(Some(ended)) => ended,
        ended => {
            let _ = std::fs::remove_file(&path);
            return ended.map(|_| None);
        }
    };
    if let Some(trace) = trace {
        trace.finish(&run.outcome).map_err(wrong)?;
        std::fs::rename(&path, store.trace(job)).map_err(wrong)?;
    }
    let stored = store.store_summary(sweep, job, &run.summary);
    stored.map_err(|error| unwritten(&store.path(job), error))?;
    Ok(Some(run.notes))
}
