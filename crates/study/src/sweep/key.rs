//! Hash that identifies a run.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use faircast_scenario::{Data, Scenario};
use faircast_trace::{On, SCHEMA_VERSION};

use crate::Error;

/// Program that runs a sweep. Another build may behave differently, so it has other keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub version: String,
    /// Hash of the executable file; empty if the file cannot be read.
    pub build: String,
}

impl Program {
    /// Returns the running program.
    pub fn current() -> Self {
        static BUILD: LazyLock<String> = LazyLock::new(|| {
            std::env::current_exe().and_then(|path| hash_of(&path)).unwrap_or_default()
        });
        Self { version: env!("CARGO_PKG_VERSION").to_string(), build: BUILD.clone() }
    }
}

pub(super) struct Keys<'a> {
    program: &'a Program,
    on: On,
    files: BTreeMap<PathBuf, String>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(program: &'a Program, on: On) -> Self {
        Self { program, on, files: BTreeMap::new() }
    }

    pub(super) fn of(&mut self, scenario: &Scenario) -> Result<String, Error> {
        let mut hasher = blake3::Hasher::new();
        // The scenario's path, text and title do not affect a run. All other fields do.
        let (file, title) = (PathBuf::new(), String::new());
        let run = Scenario { file, text: String::new(), title, ..scenario.clone() };
        let written = write!(hasher, "{:?} {SCHEMA_VERSION} {:?} {run:?}", self.program, self.on);
        written.expect("a hash takes everything");
        for flow in &scenario.flows {
            let Data::File(path) = &flow.data else { continue };
            if !self.files.contains_key(path) {
                let content = hash_of(path).map_err(|error| Error::read(path, error))?;
                self.files.insert(path.clone(), content);
            }
            hasher.update(self.files[path].as_bytes());
        }
        Ok(short(&hasher))
    }
}

fn hash_of(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path)?)?;
    Ok(short(&hasher))
}

/// Returns 96 bits of the hash, enough to avoid collisions.
fn short(hasher: &blake3::Hasher) -> String {
    hasher.finalize().to_hex()[..24].to_string()
}
