//! How the program fails.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use faircast_experiment::RunError;
use faircast_lab::LabError;
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
    /// Makes an output folder, with all above it. That it cannot be made is a mistake in the
    /// arguments, and found before any work is done.
    pub(crate) fn make_folder(out: &Path) -> Result<(), Self> {
        std::fs::create_dir_all(out).map_err(|error| {
            Self::Usage(format!(
                "--out {}: the folder cannot be made: {error}; expected a place to write to",
                out.display()
            ))
        })
    }

    /// A file that cannot be written.
    pub(crate) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Work(format!("{}: cannot be written: {error}", path.display()))
    }

    /// Says what went wrong on standard error.
    pub fn print(&self) {
        if !matches!(self, Self::Verdict) {
            note(&self.to_string());
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

/// A mistake in the arguments, as the parser of the command line found it, in one line.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Usage(one_line(&error.to_string()))
    }
}

/// The parser's message without its heading, its usage and its advice to ask for help, on one line.
fn one_line(message: &str) -> String {
    let mut line = String::new();
    let said = message.lines().map(str::trim).take_while(|part| !part.starts_with("Usage:"));
    for part in said.filter(|part| !part.is_empty() && !part.starts_with("For more information")) {
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.push_str(part.strip_prefix("error: ").unwrap_or(part));
    }
    line + "; see --help"
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        match error {
            SimError::Data { .. } | SimError::LabOnly { .. } => Self::Usage(error.to_string()),
            _ => Self::Work(error.to_string()),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Sim(error) => error.into(),
            RunError::Lab(error) => error.into(),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error.is_usage() {
            true => Self::Usage(error.to_string()),
            false => Self::Work(error.to_string()),
        }
    }
}

/// Says something on standard error.
pub(crate) fn note(text: &str) {
    use io::Write as _;
    // Nobody may be listening; there is nowhere else to say so.
    let _ = writeln!(io::stderr(), "faircast: {text}");
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn wrong_arguments_make_one_line_with_what_is_allowed() {
        for (arguments, want) in [
            (&["run"][..], "the following required arguments were not provided: <FILE>"),
            (&["run", "f", "--on", "moon"], "[possible values: sim, lab]"),
            (&["run", "f", "--jsn"], "tip: a similar argument exists: '--json'"),
            (
                &["run", "f", "--seed", "x"],
                "expected a whole number from 0 to 18446744073709551615",
            ),
            (&["bench", "--jobs", "0"], "0 is not in 1..=1024"),
            (&["dance"], "unrecognized subcommand 'dance'"),
        ] {
            let arguments = ["faircast"].iter().chain(arguments);
            let error = crate::args::Args::try_parse_from(arguments).unwrap_err();
            let Failure::Usage(line) = Failure::from(error) else { panic!("no mistake of usage") };
            assert!(line.contains(want) && !line.contains('\n'), "{line}");
            assert!(!line.contains("error:") && line.ends_with("; see --help"), "{line}");
        }
    }
}
