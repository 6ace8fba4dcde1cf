//! Errors of scenarios, with their place in the file.

use std::fmt;
use std::path::{Path, PathBuf};

/// Error of a scenario, in one line: `FILE:LINE: key.path: what is wrong; what is allowed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Path of the file, as the user gave it.
    pub file: PathBuf,
    /// Place of the mistake.
    pub place: ErrorPlace,
    /// Path of the key as for `--set`, such as `link.0.queue.packets`; empty for the whole file.
    pub key: String,
    /// Mistake, with the value and the allowed values.
    pub message: String,
}

/// Place of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    /// Whole file, or settings from code.
    File,
    /// Line of the file, from 1 on.
    Line(u32),
    /// Text of a `--set` argument.
    Set(String),
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.file.display().to_string();
        match &self.place {
            ErrorPlace::File => {}
            ErrorPlace::Line(number) => line.push_str(&format!(":{number}")),
            ErrorPlace::Set(text) => line.push_str(&format!(": --set {}", shortened(text))),
        }
        line.push_str(": ");
        if !self.key.is_empty() {
            line.push_str(&format!("{}: ", self.key));
        }
        line.push_str(&self.message);
        f.write_str(&faircast_base::escaped(&line))
    }
}

impl std::error::Error for ScenarioError {}

/// Place of a value: a line of the file, the position of a `--set` argument, or the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Line(u32),
    Set(u32),
    Code,
}

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    place: Place,
    path: Vec<String>,
    message: String,
}

impl Problem {
    pub(crate) fn at(place: Place, message: impl Into<String>) -> Self {
        Self { place, path: Vec::new(), message: message.into() }
    }

    pub(crate) fn within(mut self, key: impl fmt::Display) -> Self {
        self.path.push(key.to_string());
        self
    }

    pub(crate) fn into_error(self, file: &Path, set: &[String]) -> ScenarioError {
        let place = match self.place {
            Place::Line(number) => ErrorPlace::Line(number),
            Place::Set(index) => ErrorPlace::Set(set[index as usize].clone()),
            Place::Code => ErrorPlace::File,
        };
        let keys: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
        let key = keys.join(".");
        ScenarioError { file: file.to_owned(), place, key, message: self.message }
    }
}

pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_string(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

const SHOWN_CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_shows_the_start_of_long_values() {
        let long = "x".repeat(1000);
        let problem = Problem::at(Place::Set(0), format!("is {}", quoted(&long))).within("a\nb");
        let text = problem.into_error(Path::new("f"), &["a\nb=1".to_string()]).to_string();
        assert!(!text.contains('\n') && text.len() < 200, "{text}");
        assert!(text.starts_with("f: --set a\\nb=1: a\\nb: is \"xxx"), "{text}");
        let evil = "\u{1b}[2J\u{9b}\u{85}\u{202e}\u{2028}\u{2066}";
        let problem = Problem::at(Place::Set(0), format!("is {}", quoted(evil))).within(evil);
        let text = problem.into_error(Path::new(evil), &[format!("{evil}=1")]).to_string();
        assert!(!text.contains(faircast_base::is_format), "{text}");
    }
}
