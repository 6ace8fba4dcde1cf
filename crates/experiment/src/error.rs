//! Errors of experiments.

use std::fmt::Display;
use std::path::Path;

use faircast_lab::LabError;
use faircast_scenario::ScenarioError;
use faircast_sim::SimError;

/// Failure of an experiment without results. The message is one line and names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Wrong request, or wrong file that the request names.
    #[error("{0}")]
    Usage(String),
    /// Invalid scenario.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// Scenario refused by the simulator, or unreadable file that a flow is to send.
    #[error("{0}")]
    Sim(#[from] SimError),
    /// Feature that the machine or the lab lacks.
    #[error("{0}")]
    Lab(#[from] LabError),
    /// Interruption by the user.
    #[error("interrupted; {0}")]
    Interrupted(&'static str),
    /// Failure of the work itself.
    #[error("{0}")]
    Work(String),
}

impl Error {
    /// True if the request is at fault, not the work.
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
