//! Output files of experiments: folders, pages, tables, JSON.

use std::path::Path;

use serde::Serialize;

use crate::Error;

/// Makes an output folder and its parents. A failure counts as a wrong request.
pub fn make_folder(out: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(out).map_err(|error| {
        Error::Usage(format!(
            "--out {}: the folder cannot be made: {error}; expected a place to write to",
            out.display()
        ))
    })
}

/// Writes a whole file.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|error| Error::write(path, error))
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::read(path, error))
}

pub(crate) fn read_page(path: &Path, heading: &str) -> Result<Option<String>, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::read(path, error)),
    };
    match text.lines().next() {
        Some(first) if first == heading => Ok(Some(text)),
        _ => Err(Error::Usage(format!(
            "--docs {}: does not begin with \"{heading}\", and would be replaced; name that page, or a new file",
            path.display()
        ))),
    }
}

pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain values serialise") + "\n"
}
