//! Files and links that a sender leaves out, counted by reason, with texts for people.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::name::shown_path;

pub(super) const EXAMPLES_MAX: usize = 10;

/// Reason to leave an entry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Skip {
    /// A symbolic link is absolute, or leads out of the object.
    Outside,
    /// Symbolic link, if links are excluded.
    Unwanted,
    /// A symbolic link to follow has no target.
    Dangling,
    /// A symbolic link to follow leads to a directory above.
    Loop,
    /// Device or pipe.
    Special,
    /// Socket, which is useless without its program.
    Socket,
    /// State folder of a receiver.
    State,
    /// A path is too long or too deep, or a file is called `.faircast`; a directory counts once.
    BadName,
    /// A pattern excludes the entry; a directory counts once.
    Excluded,
}

impl Skip {
    const fn is_wanted(self) -> bool {
        matches!(self, Self::Unwanted | Self::Excluded)
    }
}

/// Counts of entries left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Symbolic links.
    pub links: u64,
    /// Devices, sockets, pipes, and state folders of receivers.
    pub special: u64,
    /// Invalid names; a directory counts once.
    pub names: u64,
    /// Entries that patterns exclude; a directory counts once.
    pub excluded: u64,
    /// Entries left out against the user's wish, unlike excluded ones, unwanted links and sockets.
    pub lacking: u64,
}

impl Skipped {
    /// Returns the number of all entries left out.
    pub const fn total(&self) -> u64 {
        self.links + self.special + self.names + self.excluded
    }
}

/// Warning to a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Entries are left out.
    Skipped {
        /// Reason.
        why: Skip,
        /// Number of entries.
        count: u64,
        /// First paths.
        examples: Vec<PathBuf>,
    },
    /// A device is in use, with its user: writes meanwhile may make its image inconsistent.
    InUse(PathBuf, String),
    /// Files and directories with set-user-ID, set-group-ID or sticky bits, which are not sent.
    SpecialBits {
        /// Number of files and directories.
        count: u64,
        /// First paths.
        examples: Vec<PathBuf>,
    },
    /// Two names differ in case alone: one of them is lost on some file systems.
    Case(String, String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, count, examples) = match self {
            Self::Skipped { why, count, examples } => (why, *count, examples),
            Self::InUse(path, user) => {
                let path = shown_path(path);
                return write!(
                    f,
                    "{path}: {user}; what is written to it while it is sent may be torn there"
                );
            }
            Self::SpecialBits { count, examples } => {
                let one = *count == 1;
                return write!(
                    f,
                    "{count} {} set-user-ID, set-group-ID or sticky, and arrive{} without these bits, \
                     which give rights: {}",
                    if one { "file or folder is" } else { "files or folders are" },
                    if one { "s" } else { "" },
                    listed(examples, *count)
                );
            }
            Self::Case(a, b) => {
                return write!(
                    f,
                    "{a} and {b} differ in case alone: receivers whose file system ignores case \
                     leave out the latter"
                );
            }
        };
        const LINK: (&str, &str) = ("a symbolic link is", "symbolic links are");
        let ((one, more), what) = match why {
            Skip::Outside => (LINK, "not sent: absolute, or out of what is sent"),
            Skip::Unwanted => (LINK, "not sent"),
            Skip::Dangling => (LINK, "not sent: nothing is where it should lead to"),
            Skip::Loop => (LINK, "not followed: back to a directory that it is in"),
            Skip::Special => (("one is", "are"), "not sent: a device or a pipe"),
            Skip::Socket => (("a socket is", "sockets are"), "not sent"),
            Skip::State => {
                (("a folder is", "folders are"), "not sent: what faircast keeps while it receives")
            }
            Skip::BadName => {
                (("a name is", "names are"), "not sent: too long, too deep, or `.faircast`")
            }
            Skip::Excluded => (("one is", "are"), "excluded"),
        };
        match count {
            1 => write!(f, "{one} {what}")?,
            _ => write!(f, "{count} {more} {what}")?,
        }
        write!(f, ": {}", listed(examples, count))?;
        if *why == Skip::Outside {
            write!(f, "; --links follow sends what they lead to")?;
        }
        Ok(())
    }
}

pub(super) fn listed(examples: &[impl AsRef<Path>], count: u64) -> String {
    let names: Vec<String> = examples.iter().map(shown_path).collect();
    let more = count.saturating_sub(names.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

#[derive(Debug, Default)]
pub(super) struct Examples(pub(super) u64, pub(super) Vec<PathBuf>);

impl Examples {
    pub(super) fn add(&mut self, shown_max: usize, path: impl FnOnce() -> PathBuf) {
        self.0 += 1;
        if self.1.len() < shown_max {
            self.1.push(path());
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Skips(BTreeMap<Skip, Examples>);

impl Skips {
    pub(super) fn add(&mut self, why: Skip, path: impl FnOnce() -> PathBuf) {
        self.0.entry(why).or_default().add(EXAMPLES_MAX, path);
    }

    pub(super) fn counts(&self) -> Skipped {
        let count = |is_counted: &dyn Fn(Skip) -> bool| {
            self.0.iter().filter(|(why, _)| is_counted(**why)).map(|(_, found)| found.0).sum()
        };
        Skipped {
            links: count(&|why| {
                matches!(why, Skip::Outside | Skip::Unwanted | Skip::Dangling | Skip::Loop)
            }),
            special: count(&|why| matches!(why, Skip::Special | Skip::Socket | Skip::State)),
            names: count(&|why| why == Skip::BadName),
            excluded: count(&|why| why == Skip::Excluded),
            lacking: count(&|why| !why.is_wanted() && !matches!(why, Skip::Socket | Skip::State)),
        }
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        self.all().filter(|(why, _)| !why.is_wanted()).map(|(_, warning)| warning).collect()
    }

    pub(super) fn reasons(&self) -> Vec<String> {
        self.all().map(|(_, warning)| warning.to_string()).collect()
    }

    fn all(&self) -> impl Iterator<Item = (Skip, Warning)> + '_ {
        self.0.iter().map(|(why, Examples(count, examples))| {
            (*why, Warning::Skipped { why: *why, count: *count, examples: examples.clone() })
        })
    }
}
