//! Options of a store of files.

use std::path::{Path, PathBuf};

/// Where and how an object is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The directory that it goes into; made where it is not there.
    pub dir: PathBuf,
    /// Whether files that are there and differ are replaced. They stay until the whole object is
    /// there. Default: no.
    pub overwrite: bool,
    /// Whether files, directories and links get the owners that the sender tells of. Default: no.
    pub owner: bool,
    /// Whether files and directories get the extended attributes that the sender tells of.
    /// Default: no.
    pub xattrs: bool,
    /// Whether an object counts as received only once it is on the disk. Default: yes.
    pub sync: bool,
    /// Whether what was received stays for a later run where this one ends early. Default: yes.
    pub keep_partial: bool,
}

impl StoreOptions {
    /// The defaults, in a directory.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref().to_path_buf();
        let [overwrite, owner, xattrs] = [false; 3];
        Self { dir, overwrite, owner, xattrs, sync: true, keep_partial: true }
    }
}
