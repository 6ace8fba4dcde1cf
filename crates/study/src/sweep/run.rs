//! Execution of a sweep's runs, several at a time.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use faircast_report::Summary;
use faircast_trace::Writer;
use rayon::prelude::*;

use super::{Job, Store, Sweep};
use crate::monitor::{Runs, Watch};
use crate::run::{TRIES_MAX, until_valid};

/// Run without a result.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The failed run.
    pub job: Job,
    /// Reason of the failure.
    pub why: String,
}

/// Results of a sweep's runs.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Number of runs that completed and were stored.
    pub done: usize,
    /// Runs that failed, in the order of the sweep.
    pub failed: Vec<Failed>,
    /// True if the sweep was stopped early.
    pub stopped: bool,
    /// Notes for readers of the figures, in sentences.
    pub notes: BTreeSet<String>,
}

enum Ended {
    Done(Vec<String>),
    Failed(Failed),
    Stopped,
}

/// Does `jobs` and stores each completed run. In the lab runs are serial: parallel work delays it.
pub fn run(sweep: &Sweep<'_>, jobs: &[&Job], store: &Store, traces: bool) -> Ran {
    let (monitor, long) = (sweep.study.monitor, sweep.study.is_real_time());
    let mut jobs: Vec<&Job> = jobs.to_vec();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.weight));
    let weight = jobs.iter().map(|job| job.weight).sum();
    monitor.begin(Runs { name: "sweep", count: jobs.len(), weight, long });
    let one = |job: &&Job| {
        let ended = match monitor.is_to_stop() {
            true => Ended::Stopped,
            false => guarded(sweep, job, store, traces),
        };
        if !matches!(ended, Ended::Stopped) {
            monitor.ended(job.weight);
        }
        ended
    };
    let ended: Vec<Ended> = match long {
        true => jobs.iter().map(one).collect(),
        false => jobs.par_iter().with_max_len(1).map(one).collect(),
    };
    monitor.finish();
    let mut ran = Ran::default();
    for ended in ended {
        match ended {
            Ended::Done(notes) => {
                ran.done += 1;
                ran.notes.extend(notes);
            }
            Ended::Failed(failed) => ran.failed.push(failed),
            Ended::Stopped => ran.stopped = true,
        }
    }
    ran.failed.sort_by(|a, b| (&a.job.choice, a.job.seed).cmp(&(&b.job.choice, b.job.seed)));
    ran
}

fn guarded(sweep: &Sweep<'_>, job: &Job, store: &Store, traces: bool) -> Ended {
    let failed = |why: String| Ended::Failed(Failed { job: job.clone(), why });
    match catch_unwind(AssertUnwindSafe(|| one(sweep, job, store, traces))) {
        Ok(Ok(Some(notes))) => Ended::Done(notes),
        Ok(Ok(None)) => Ended::Stopped,
        Ok(Err(why)) => failed(why),
        Err(panic) => failed(format!("the program failed: {}", said(&*panic))),
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn one(
    sweep: &Sweep<'_>,
    job: &Job,
    store: &Store,
    traces: bool,
) -> Result<Option<Vec<String>>, String> {
    let scenario = sweep.scenario(&job.choice, job.seed).map_err(|error| error.to_string())?;
    let path = store.begun(job, "trace");
    let wrong = |error: std::io::Error| format!("{}: cannot be written: {error}", path.display());
    let ended = until_valid(|| {
        let mut trace = match traces {
            true => Some(Writer::create(&path, &sweep.study.header(&scenario)).map_err(wrong)?),
            false => None,
        };
        let mut watch = Watch(sweep.study.monitor);
        let done = sweep.study.run(&scenario, &mut watch, &mut trace);
        Ok::<_, String>((done.map_err(|error| error.to_string())?, trace))
    });
    let refused = match &ended {
        Err(why) => Some(Err(why.clone())),
        Ok((done, _)) if done.outcome.interrupted => Some(Ok(None)),
        Ok((done, _)) => done.invalid().map(|why| Err(format!("{TRIES_MAX} times in a row {why}"))),
    };
    if let Some(refused) = refused {
        drop(ended);
        let _ = std::fs::remove_file(&path);
        return refused;
    }
    let (done, trace) = ended?;
    if let Some(writer) = trace {
        writer.finish(&done.outcome).map_err(wrong)?;
        std::fs::rename(&path, store.trace(job)).map_err(wrong)?;
    }
    keep(sweep, job, store, &done.summary)?;
    Ok(Some(done.notes))
}

fn keep(sweep: &Sweep<'_>, job: &Job, store: &Store, summary: &Summary) -> Result<(), String> {
    store
        .keep(sweep, job, summary)
        .map_err(|error| format!("{}: cannot be written: {error}", store.path(job).display()))
}
