//! Failures of the program, and their exit status.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use faircast_base::escaped_lines;
use faircast_scenario::ScenarioError;

pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Failure of a command. The message is one line and names the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Wrong arguments, or a wrong file that an argument names: exit status 2.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Work(String),
    /// Completed work whose printed result is a failure: exit status 1.
    #[error("")]
    AlreadyTold,
}

impl Failure {
    pub(crate) fn usage(error: impl ToString) -> Self {
        Self::Usage(error.to_string())
    }

    pub(crate) fn work(error: impl ToString) -> Self {
        Self::Work(error.to_string())
    }

    pub(crate) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Work(format!("{}: cannot be written: {error}", path.display()))
    }

    /// Writes the message to standard error, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Self::AlreadyTold) {
            note(&self.to_string());
        }
        ExitCode::from(if matches!(self, Self::Usage(_)) { 2 } else { 1 })
    }
}

/// One line of the parser's message, without its heading, usage and reference to the help.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let (message, mut line) = (error.to_string(), String::new());
        let said = message.lines().map(str::trim).take_while(|part| !part.starts_with("Usage:"));
        let is_kept = |part: &&str| !part.is_empty() && !part.starts_with("For more information");
        for part in said.filter(is_kept) {
            match line.chars().last() {
                None => {}
                Some(':') => line.push(' '),
                Some(_) => line.push_str("; "),
            }
            line.push_str(part.strip_prefix("error: ").unwrap_or(part));
        }
        Self::Usage(line + "; see --help")
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        Self::usage(error)
    }
}

impl From<faircast_study::Error> for Failure {
    fn from(error: faircast_study::Error) -> Self {
        match error.is_usage() {
            true => Self::usage(error),
            false => Self::work(error),
        }
    }
}

pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|error| Failure::Work(format!("this program cannot find itself: {error}")))
}

pub(crate) fn note(text: &str) {
    use io::Write as _;
    let _ = writeln!(io::stderr(), "faircast: {}", escaped_lines(text));
}

/// Writes to standard output, escaped. A reader that closed the pipe, like `head`, is no failure.
pub(crate) fn print(text: &str) -> Result {
    use io::Write as _;
    match io::stdout().lock().write_all(escaped_lines(text).as_bytes()) {
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
