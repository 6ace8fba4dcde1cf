//! Errors of studies.

use std::fmt::Display;
use std::path::Path;

use faircast_scenario::ScenarioError;
use faircast_sim::SimError;

/// Failure of a study without results. The message is one line and names the remedy.
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
    /// Failure of another backend than the simulator.
    #[error("{error}")]
    Backend {
        /// Error of the backend.
        error: Box<dyn std::error::Error + Send + Sync>,
        /// True if the scenario or the machine is at fault, not the work.
        is_usage: bool,
    },
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
            Self::Backend { is_usage, .. } => *is_usage,
            _ => true,
        }
    }

    /// Returns the error for an unreadable file.
    pub fn read(path: &Path, error: impl Display) -> Self {
        Self::Usage(format!("{}: cannot be read: {error}", path.display()))
    }

    /// Returns the error for a file that cannot be written.
    pub fn write(path: &Path, error: impl Display) -> Self {
        Self::Work(format!("{}: cannot be written: {error}", path.display()))
    }

    /// Returns the error of work that `what` names.
    pub fn doing(what: impl Display, error: impl Display) -> Self {
        Self::Work(format!("{what}: {error}"))
    }
}
