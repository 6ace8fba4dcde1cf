//! Store of a sweep's completed runs, a file each, named after the run's key.

use std::io;
use std::path::{Path, PathBuf};

use faircast_report::Summary;
use serde::{Deserialize, Serialize};

use super::{Job, Sweep};

/// Stored run, as in its file.
#[derive(Serialize, Deserialize)]
struct StoredSummary {
    /// Hash of the file's text with this field empty.
    hash: String,
    key: String,
    build: String,
    set: Vec<String>,
    summary: Summary,
}

/// State of a run's file.
#[derive(Clone, Debug)]
pub enum StoredRun {
    /// Summary of an unchanged file.
    Intact(Box<Summary>),
    /// Missing file.
    Missing,
    /// File at this path that was edited or damaged after a run had written it.
    Altered(PathBuf),
}

const BEGIN: &str = "{\"hash\":\"";

/// Returns the text of a file with its hash, from the text with an empty hash.
fn with_hash(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    text.replacen(BEGIN, &format!("{BEGIN}{}", &hash[..32]), 1)
}

fn has_its_hash(text: &str, hash: &str) -> bool {
    let begin = format!("{BEGIN}{hash}");
    !hash.is_empty()
        && text.starts_with(&begin)
        && with_hash(&text.replacen(&begin, BEGIN, 1)) == text
}

/// Folder of a sweep's runs.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the store in the output folder `out`, and makes its folder `runs` if needed.
    pub fn open(out: &Path) -> io::Result<Self> {
        let folder = out.join("runs");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Returns the path of a run's file.
    pub fn path(&self, job: &Job) -> PathBuf {
        self.folder.join(format!("{}.json", job.key))
    }

    /// Returns the path of a run's trace.
    pub fn trace(&self, job: &Job) -> PathBuf {
        self.folder.join(format!("{}.trace.jsonl.gz", job.key))
    }

    /// True if the run is stored, together with its trace if `trace`.
    pub fn has(&self, job: &Job, trace: bool) -> bool {
        self.get(job).is_some() && (!trace || self.trace(job).is_file())
    }

    /// Returns the summary of a run; `None` if it is missing or its file was altered.
    pub fn get(&self, job: &Job) -> Option<Summary> {
        match self.find(job) {
            StoredRun::Intact(summary) => Some(*summary),
            StoredRun::Missing | StoredRun::Altered(_) => None,
        }
    }

    /// Reads the file of a run, and checks that it is unaltered.
    pub fn find(&self, job: &Job) -> StoredRun {
        let path = self.path(job);
        let Ok(text) = std::fs::read_to_string(&path) else {
            return if path.exists() { StoredRun::Altered(path) } else { StoredRun::Missing };
        };
        match serde_json::from_str::<StoredSummary>(&text) {
            Ok(kept) if kept.key == job.key && has_its_hash(&text, &kept.hash) => {
                StoredRun::Intact(Box::new(kept.summary))
            }
            _ => StoredRun::Altered(path),
        }
    }

    /// Stores a run. The file appears as a whole, even with other writers.
    pub fn store_summary(&self, sweep: &Sweep<'_>, job: &Job, summary: &Summary) -> io::Result<()> {
        let kept = StoredSummary {
            hash: String::new(),
            key: job.key.clone(),
            build: sweep.program.build.clone(),
            set: sweep.set(&job.choice),
            summary: summary.clone(),
        };
        let part_path = self.part_path(job, "json");
        std::fs::write(&part_path, with_hash(&serde_json::to_string(&kept)?))?;
        std::fs::rename(&part_path, self.path(job)).inspect_err(|_| {
            let _ = std::fs::remove_file(&part_path);
        })
    }

    pub(super) fn part_path(&self, job: &Job, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{}.{kind}.part", job.key, std::process::id()))
    }

    /// Returns the number of runs in the folder that are not in `jobs`.
    pub fn others(&self, jobs: &[Job]) -> usize {
        let known: std::collections::BTreeSet<&str> = jobs.iter().map(|job| &*job.key).collect();
        let Ok(files) = std::fs::read_dir(&self.folder) else { return 0 };
        let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
        let is_other =
            |name: &String| name.strip_suffix(".json").is_some_and(|key| !known.contains(key));
        names.filter(is_other).count()
    }
}
