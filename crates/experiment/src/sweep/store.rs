//! The runs of a sweep that have been done, each in a file that is named after its key.

use std::io;
use std::path::{Path, PathBuf};

use faircast_report::Summary;
use serde::{Deserialize, Serialize};

use super::{Job, Sweep};

/// A run that has been done, as its file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Its key.
    pub key: String,
    /// Hash of the program's executable file.
    pub build: String,
    /// The settings, `KEY=VALUE`.
    pub set: Vec<String>,
    /// What came out.
    pub summary: Summary,
}

/// The folder of a sweep.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in the output folder `out`; its folder `runs` is made where it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(out: &Path) -> io::Result<Self> {
        let folder = out.join("runs");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// The file of a run.
    pub fn path(&self, job: &Job) -> PathBuf {
        self.folder.join(format!("{}.json", job.key))
    }

    /// The trace of a run, where it was kept.
    pub fn trace(&self, job: &Job) -> PathBuf {
        self.folder.join(format!("{}.trace.jsonl.gz", job.key))
    }

    /// Whether the run has been done, with its trace where that is wanted.
    pub fn has(&self, job: &Job, trace: bool) -> bool {
        self.get(job).is_some() && (!trace || self.trace(job).is_file())
    }

    /// What came out of a run; `None` where it has not been done, or its file is damaged.
    pub fn get(&self, job: &Job) -> Option<Summary> {
        let kept: Kept = serde_json::from_slice(&std::fs::read(self.path(job)).ok()?).ok()?;
        (kept.key == job.key).then_some(kept.summary)
    }

    /// Keeps a run. The file appears whole or not at all, whoever else writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, sweep: &Sweep, job: &Job, summary: &Summary) -> io::Result<()> {
        let kept = Kept {
            key: job.key.clone(),
            build: sweep.program.build.clone(),
            set: sweep.set(&job.choice),
            summary: summary.clone(),
        };
        let begun = self.begun(job, "json");
        std::fs::write(&begun, serde_json::to_vec(&kept)?)?;
        std::fs::rename(&begun, self.path(job)).inspect_err(|_| {
            // Nobody will come back for it.
            let _ = std::fs::remove_file(&begun);
        })
    }

    /// A file that is being written, which no other process has.
    pub(super) fn begun(&self, job: &Job, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{}.{kind}.part", job.key, std::process::id()))
    }

    /// How many runs in the folder are none of `jobs`: of other values, or of another build of the
    /// program.
    pub fn others(&self, jobs: &[Job]) -> usize {
        let known: std::collections::BTreeSet<&str> = jobs.iter().map(|job| &*job.key).collect();
        let Ok(files) = std::fs::read_dir(&self.folder) else { return 0 };
        let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
        names
            .filter_map(|name| name.strip_suffix(".json").map(str::to_string))
            .filter(|key| !known.contains(key.as_str()))
            .count()
    }
}
