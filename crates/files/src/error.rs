//! Errors of files.

use std::io;
use std::path::{Path, PathBuf};

use faircast_proto::object::ObjectError;

use crate::manifest::ManifestError;
use crate::name::shown_path;

pub(crate) type Result<T, E = FilesError> = std::result::Result<T, E>;

/// Error of sending or receiving files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what fields are")]
pub enum FilesError {
    #[error("{}: {what}: {}", shown_path(path), hint(error))]
    Io { path: PathBuf, what: &'static str, error: io::Error },
    /// The given paths cannot be sent, or the received object is not accepted.
    #[error("{0}")]
    Unwanted(String),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{}: {what}", shown_path(path))]
    Refused { path: PathBuf, what: String },
    #[error("the sender is at fault: {0}")]
    Sender(String),
}

impl FilesError {
    pub(crate) fn io(path: &Path, what: &'static str, error: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_path_buf(), what, error: error.into() }
    }

    pub(crate) fn refused(path: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self::Refused { path: path.as_ref().to_path_buf(), what: what.into() }
    }
}

impl From<FilesError> for ObjectError {
    fn from(error: FilesError) -> Self {
        Self::new(error.to_string())
    }
}

pub(crate) fn refuse<T>(path: impl AsRef<Path>, what: impl Into<String>) -> Result<T> {
    Err(FilesError::refused(path, what))
}

/// Adds path and failed step to the error of a system call.
pub(crate) trait At<T> {
    fn at(self, path: impl AsRef<Path>, what: &'static str) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, path: impl AsRef<Path>, what: &'static str) -> Result<T> {
        self.map_err(|error| FilesError::io(path.as_ref(), what, error))
    }
}

/// Returns the cause and what to do: disk full, quota, permissions, ...
fn hint(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull => "make room there and run it again",
        io::ErrorKind::QuotaExceeded => "your quota is used up; make room and run it again",
        io::ErrorKind::PermissionDenied => "look at its permissions and owner",
        io::ErrorKind::ReadOnlyFilesystem => "choose a directory that can be written to",
        io::ErrorKind::InvalidFilename => "its file system has no room for such a long name",
        io::ErrorKind::CrossesDevices => {
            "a file system is mounted inside the directory; receive into that one directly"
        }
        _ => return error.to_string(),
    };
    // Without the error number: reports to the sender keep only the end of a long text.
    let said = error.to_string();
    format!("{}; {advice}", said.split(" (os error").next().unwrap_or_default())
}
