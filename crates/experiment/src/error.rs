//! Errors of experiments, which then gave nothing.

use std::fmt::Display;
use std::path::Path;

use faircast_lab::LabError;
use faircast_scenario::ScenarioError;
use faircast_sim::SimError;

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
            Self::Work(_) | Self::Interrupted(_) => false,
            Self::Sim(error) => matches!(error, SimError::Data { .. } | SimError::LabOnly { .. }),
            Self::Lab(error) => error.is_usage(),
            _ => true,
        }
    }

    pub(crate) fn read(path: &Path, error: impl Display) -> Self {
        Self::Usage(format!("{}: cannot be read: {error}", path.display()))
    }

    pub(crate) fn write(path: &Path, error: impl Display) -> Self {
        Self::Work(format!("{}: cannot be written: {error}", path.display()))
    }

    pub(crate) fn doing(what: impl Display, error: impl Display) -> Self {
        Self::Work(format!("{what}: {error}"))
    }
}
