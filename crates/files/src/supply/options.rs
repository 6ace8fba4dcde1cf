//! Options of a scan.

/// What is taken of paths, and what it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// What the object is called. Default: the last component of the first path.
    pub name: Option<String>,
    /// What becomes of symbolic links that are met inside directories. Default: they are kept.
    pub links: Links,
    /// What is left out: patterns as in a `.gitignore`, of paths as they arrive; the last one that
    /// fits counts, and what begins with `!` takes in again. Default: nothing.
    pub exclude: Vec<String>,
    /// Whether it is told whose everything is. Default: no.
    pub owner: bool,
    /// Whether extended attributes are sent. Default: no.
    pub xattrs: bool,
    /// Whether what has a name that cannot be sent is left out. Default: it is an error.
    pub skip_bad_names: bool,
}

/// What becomes of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// They arrive as links where they lead to something in what is sent, and are left out where
    /// not.
    #[default]
    Keep,
    /// What they lead to arrives in their place.
    Follow,
    /// They are left out.
    Skip,
}
