//! What can be wrong with files, in words for people.

use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::ManifestError;

/// What comes of something with files.
pub(crate) type Result<T, E = FilesError> = std::result::Result<T, E>;

/// Why files cannot be sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// The system refused something.
    #[error("{}: {what}: {}", path.display(), hint(source))]
    Io {
        /// What it was about.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A path has no name under which it could be sent.
    #[error("{}: has no name under which it could be sent; give a directory in it", path.display())]
    NoName {
        /// The path.
        path: PathBuf,
    },
    /// A name is not UTF-8.
    #[error("{}: its name is not UTF-8; rename it", path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// Two paths would arrive under one name.
    #[error("{} and {} would both arrive as `{name}`; send them one after the other", first.display(), second.display())]
    SameName {
        /// The first.
        first: PathBuf,
        /// The second.
        second: PathBuf,
        /// Their name.
        name: String,
    },
    /// A path is neither a file nor a directory.
    #[error("{}: is neither a file nor a directory", path.display())]
    Special {
        /// The path.
        path: PathBuf,
    },
    /// Nothing was given.
    #[error("nothing to send: no path was given")]
    Nothing,
    /// Another object came than the one that was asked for.
    #[error("this is the object `{sent}`, and only `{wanted}` is taken")]
    OtherObject {
        /// The name that was asked for.
        wanted: Box<str>,
        /// That of the object that came.
        sent: Box<str>,
    },
    /// In what was given there is no file and no link that could be sent.
    #[error("nothing to send: there is no file in {}{}", some(paths), reasons(skipped))]
    Empty {
        /// What was given.
        paths: Vec<String>,
        /// What was left out and why, a line each.
        skipped: Vec<String>,
    },
    /// Names that cannot be sent.
    #[error(
        "names that cannot be sent: {}{}; rename them, or leave them out with --skip-bad-names",
        names.join("; "),
        if *more > 0 { format!("; and {more} more") } else { String::new() }
    )]
    BadNames {
        /// Each with what is wrong with it.
        names: Vec<String>,
        /// How many more there are.
        more: u64,
    },
    /// What the system does not let us read.
    #[error(
        "cannot be read: {}{}; look at permissions and owners, or leave them out with --exclude",
        paths.join(", "),
        if *more > 0 { format!(" and {more} more") } else { String::new() }
    )]
    Unreadable {
        /// The paths.
        paths: Vec<String>,
        /// How many more there are.
        more: u64,
    },
    /// A pattern of what is to be left out is none.
    #[error(
        "the pattern {pattern:?} cannot be used: {what}; expected one as in a .gitignore, such as '*.tmp' or /photos/raw"
    )]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        what: String,
    },
    /// A file was changed while it was sent.
    #[error("{}: changed while it was being sent; send again when nothing writes to it", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The files make no manifest.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// Something that is in the way, or should not be; with what to do.
    #[error("{}: {what}", path.display())]
    Refused {
        /// What it is about.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
    /// What a source announces or sends cannot be.
    #[error("the sender is at fault: {0}")]
    Sender(String),
}

impl FilesError {
    pub(crate) fn io(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_path_buf(), what, source: source.into() }
    }

    pub(crate) fn refused(path: &Path, what: impl Into<String>) -> Self {
        Self::Refused { path: path.to_path_buf(), what: what.into() }
    }
}

/// The first paths, and how many more there are.
fn some(paths: &[String]) -> String {
    const SHOWN: usize = 3;
    let first = paths[..paths.len().min(SHOWN)].join(", ");
    match paths.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn reasons(skipped: &[String]) -> String {
    match skipped {
        [] => ", and an empty directory is not sent by itself".to_string(),
        _ => format!(". {}", skipped.join(". ")),
    }
}

/// What the system said, and what to do.
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
    // Without its number: of what is told to others the end is kept, which has no room for all.
    let said = error.to_string();
    format!("{}; {advice}", said.split(" (os error").next().unwrap_or_default())
}
