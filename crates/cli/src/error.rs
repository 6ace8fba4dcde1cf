//! How the program fails.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use faircast_scenario::ScenarioError;
use faircast_sim::SimError;

/// Why a command did not succeed. The message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The arguments or a file that they name are wrong: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// The work itself failed: exit status 1.
    #[error("{0}")]
    Work(String),
    /// The work was done and its result, already printed, is a failure: exit status 1.
    #[error("")]
    Verdict,
}

impl Failure {
    /// A file that cannot be written.
    pub(crate) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Work(format!("{}: cannot be written: {error}", path.display()))
    }

    /// Says what went wrong on standard error.
    pub fn print(&self) {
        if !matches!(self, Self::Verdict) {
            eprintln!("faircast: {self}");
        }
    }

    /// The exit status.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Work(_) | Self::Verdict => ExitCode::from(1),
        }
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        match error {
            SimError::Data { .. } => Self::Usage(error.to_string()),
            _ => Self::Work(error.to_string()),
        }
    }
}

/// Writes to standard output. A reader that went away, such as `head`, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use io::Write as _;
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Work(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
