//! Errors of experiments, which then gave nothing.

use std::io;
use std::path::{Path, PathBuf};

use faircast_lab::LabError;
use faircast_scenario::ScenarioError;
use faircast_sim::SimError;

use crate::sweep::RUNS_MAX;

/// Why an experiment gave nothing. The message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for, or a file that it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// A scenario is not accepted.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// There are too many runs in a sweep.
    #[error("{runs} runs; expected at most {RUNS_MAX}: give fewer values or seeds")]
    TooMany {
        /// How many there are.
        runs: u128,
    },
    /// A setting of a sweep is there twice.
    #[error("--set {key}: is there twice; give all its values at once, with commas between")]
    Twice {
        /// Its key.
        key: String,
    },
    /// A file that is needed cannot be read.
    #[error("{path}: cannot be read: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("{path}: cannot be written: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The simulator refused the scenario, or cannot read a file that it is to send.
    #[error("{0}")]
    Sim(#[from] SimError),
    /// The machine lacks what the lab needs, or the scenario asks for what the lab has not.
    #[error("{0}")]
    Lab(#[from] LabError),
    /// It was told to stop.
    #[error("interrupted; {0}")]
    Interrupted(&'static str),
    /// The work itself failed.
    #[error("{0}")]
    Work(String),
}

impl Error {
    /// Whether what was asked for is at fault, and not the work.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Work(_) | Self::Interrupted(_) | Self::Write { .. } => false,
            Self::Sim(error) => matches!(error, SimError::Data { .. } | SimError::LabOnly { .. }),
            Self::Lab(error) => error.is_usage(),
            _ => true,
        }
    }

    pub(crate) fn read(path: &Path, error: io::Error) -> Self {
        Self::Read { path: path.to_owned(), error }
    }

    pub(crate) fn write(path: &Path, error: io::Error) -> Self {
        Self::Write { path: path.to_owned(), error }
    }

    pub(crate) fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Self::Work(format!("{what}: {error}"))
    }
}
