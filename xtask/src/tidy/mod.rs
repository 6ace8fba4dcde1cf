//! Rules that no compiler checks. Each rule maps the files to complaints with file and line.

mod code;
mod documents;
mod prose;
mod words;

use std::path::{Path, PathBuf};

use crate::shell;
use crate::workspace::Crate;

pub(crate) struct TextFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl TextFile {
    fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }

    fn complaint(&self, line: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{line}: {what}", self.path.display())
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    fn is_below(&self, folder: &str) -> bool {
        self.path.parent().is_some_and(|path| path.iter().any(|part| part == folder))
    }
}

/// Returns the lines of all files with an extension, with their numbers.
fn lines<'a>(
    files: &'a [TextFile],
    extension: &'a str,
) -> impl Iterator<Item = (&'a TextFile, usize, &'a str)> {
    let files = files.iter().filter(move |file| file.has_extension(extension));
    files.flat_map(|file| file.lines().map(move |(number, line)| (file, number, line)))
}

pub(crate) fn check(crates: &[Crate]) -> Result<String, String> {
    let files = files()?;
    let complaints: Vec<String> = [
        code::lengths(&files),
        code::leftovers(&files),
        code::pure_crates(&files, crates),
        code::addresses(&files),
        code::lints(&files, crates),
        code::unsafety(&files),
        documents::sources(&files),
        documents::schemes(&files),
        documents::links(&files),
        documents::commands(&files),
        documents::scenarios(&files),
        words::private_words(&files),
        words::type_names(&files),
        words::first_lines(&files),
        prose::complaints(&files),
    ]
    .concat();
    match complaints.len() {
        0 => Ok(format!("{} files, nothing to complain of", files.len())),
        count => Err(format!("{count} complaints:\n{}", complaints.join("\n"))),
    }
}

fn files() -> Result<Vec<TextFile>, String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let list = shell::output("git", &arguments)?;
    let paths = list.split('\0').map(Path::new);
    let paths = paths.filter(|path| !path.iter().any(|part| part == "vendor"));
    // A tracked file may be deleted, and a file that is not UTF-8 is not text.
    let read = |path: &Path| {
        let text = std::fs::read_to_string(shell::root().join(path)).ok()?;
        Some(TextFile { path: path.to_owned(), text })
    };
    Ok(paths.filter_map(read).collect())
}

#[cfg(test)]
pub(crate) fn text_file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.into(), text: text.to_string() }
}
