//! The hash that says what a run is.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use faircast_scenario::{Data, Scenario};
use faircast_trace::{On, SCHEMA_VERSION};

use crate::Error;

/// The program that runs a sweep. Another build may do otherwise, so it has other keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// A hash of its executable file; empty where that cannot be read.
    pub build: String,
}

impl Program {
    /// The program that runs.
    pub fn current() -> Self {
        let hash = || {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(std::fs::File::open(std::env::current_exe()?)?)?;
            Ok::<_, std::io::Error>(short(&hasher))
        };
        let build = hash().unwrap_or_default();
        Self { version: env!("CARGO_PKG_VERSION").to_string(), build }
    }
}

/// Makes keys. Files that flows send are read once.
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
        let mut text = Hashed(blake3::Hasher::new());
        // What the scenario's file and its text are called or look like changes no run.
        let Scenario { file: _, text: _, title: _, duration, warmup, seed, .. } = scenario;
        let Scenario { nodes, links, flows, relays, faults, .. } = scenario;
        let written = write!(
            text,
            "{:?} {SCHEMA_VERSION} {:?} {:?}",
            self.program,
            self.on,
            (duration, warmup, seed, nodes, links, flows, relays, faults)
        );
        written.expect("a hash takes everything");
        for flow in flows {
            if let Data::File(path) = &flow.data {
                let content = self.content(path)?;
                text.0.update(content.as_bytes());
            }
        }
        Ok(short(&text.0))
    }

    fn content(&mut self, path: &Path) -> Result<&str, Error> {
        if !self.files.contains_key(path) {
            let mut hasher = blake3::Hasher::new();
            let read =
                std::fs::File::open(path).and_then(|file| hasher.update_reader(file).map(|_| ()));
            read.map_err(|error| Error::read(path, error))?;
            self.files.insert(path.to_owned(), short(&hasher));
        }
        Ok(&self.files[path])
    }
}

/// 96 bits of the hash: enough that no two runs of anybody share them.
fn short(hasher: &blake3::Hasher) -> String {
    hasher.finalize().to_hex()[..24].to_string()
}

struct Hashed(blake3::Hasher);

impl fmt::Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
