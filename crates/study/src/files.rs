//! Output files of studies: folders, pages, tables, JSON.

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

/// Reads a whole file as text.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::read(path, error))
}

/// Returns a value as JSON text, ended by a line break.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain values serialise") + "\n"
}
