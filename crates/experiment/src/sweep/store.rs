//! The runs of a sweep that have been done, each in a file that is named after its key.

use std::io;
use std::path::{Path, PathBuf};

use faircast_report::Summary;
use serde::{Deserialize, Serialize};

use super::{Job, Sweep};

/// A run that has been done, as its file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Hash of the file's text with this field empty.
    pub hash: String,
    /// Its key.
    pub key: String,
    /// Hash of the program's executable file.
    pub build: String,
    /// The settings, `KEY=VALUE`.
    pub set: Vec<String>,
    /// What came out.
    pub summary: Summary,
}

/// The file of a run.
#[derive(Clone, Debug)]
pub enum StoredRun {
    /// The file is as it was written.
    Kept(Box<Kept>),
    /// There is no such file.
    Missing,
    /// The file at this path was edited or damaged after a run had written it.
    Altered(PathBuf),
}

const BEGIN: &str = "{\"hash\":\"";

/// The text of a file, of which the hash is empty, with its hash.
fn sealed(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    text.replacen(BEGIN, &format!("{BEGIN}{}", &hash[..32]), 1)
}

fn is_sealed(text: &str, hash: &str) -> bool {
    let begin = format!("{BEGIN}{hash}");
    !hash.is_empty() && text.starts_with(&begin) && sealed(&text.replacen(&begin, BEGIN, 1)) == text
}

/// The folder of a sweep.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in the output folder `out`; its folder `runs` is made where it is not there.
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

    /// The summary of a run; `None` where it has not been done, or its file was altered.
    pub fn get(&self, job: &Job) -> Option<Summary> {
        match self.find(job) {
            StoredRun::Kept(kept) => Some(kept.summary),
            StoredRun::Missing | StoredRun::Altered(_) => None,
        }
    }

    /// The file of a run, as far as it is what was written.
    pub fn find(&self, job: &Job) -> StoredRun {
        let path = self.path(job);
        let Ok(text) = std::fs::read_to_string(&path) else {
            return if path.exists() { StoredRun::Altered(path) } else { StoredRun::Missing };
        };
        match serde_json::from_str::<Kept>(&text) {
            Ok(kept) if kept.key == job.key && is_sealed(&text, &kept.hash) => {
                StoredRun::Kept(Box::new(kept))
            }
            _ => StoredRun::Altered(path),
        }
    }

    /// Keeps a run. The file appears whole or not at all, whoever else writes it.
    pub fn keep(&self, sweep: &Sweep, job: &Job, summary: &Summary) -> io::Result<()> {
        let kept = Kept {
            hash: String::new(),
            key: job.key.clone(),
            build: sweep.program.build.clone(),
            set: sweep.set(&job.choice),
            summary: summary.clone(),
        };
        let begun = self.begun(job, "json");
        std::fs::write(&begun, sealed(&serde_json::to_string(&kept)?))?;
        std::fs::rename(&begun, self.path(job)).inspect_err(|_| {
            // Nobody will come back for it.
            let _ = std::fs::remove_file(&begun);
        })
    }

    /// A file that is being written, which no other process has.
    pub(super) fn begun(&self, job: &Job, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{}.{kind}.part", job.key, std::process::id()))
    }

    /// Runs in the folder that are none of `jobs`: of other values, or of another build.
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
