//! Files and links that a sender leaves out, counted by reason, with texts for people.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::name::shown_path;

const EXAMPLES_MAX: usize = 10;

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

    /// True if receivers lack an entry that they should have.
    const fn is_lacking(self) -> bool {
        !self.is_wanted() && !matches!(self, Self::Socket | Self::State)
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
        let one = count == 1;
        let number = |one_is: &str, more_are: &str| match one {
            true => one_is.to_string(),
            false => format!("{count} {more_are}"),
        };
        let links = number("a symbolic link is", "symbolic links are");
        let text = match why {
            Skip::Outside => format!("{links} not sent: absolute, or out of what is sent"),
            Skip::Unwanted => format!("{links} not sent"),
            Skip::Dangling => format!("{links} not sent: nothing is where it should lead to"),
            Skip::Loop => format!("{links} not followed: back to a directory that it is in"),
            Skip::Special => {
                format!("{} not sent: a device or a pipe", number("one is", "are"))
            }
            Skip::Socket => {
                format!("{} not sent", number("a socket is", "sockets are"))
            }
            Skip::State => format!(
                "{} not sent: what faircast keeps while it receives",
                number("a folder is", "folders are")
            ),
            Skip::BadName => format!(
                "{} not sent: too long, too deep, or `.faircast`",
                number("a name is", "names are")
            ),
            Skip::Excluded => format!("{} excluded", number("one is", "are")),
        };
        write!(f, "{text}: {}", listed(examples, count))?;
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
pub(super) struct Examples(u64, Vec<PathBuf>);

impl Examples {
    pub(super) fn add(&mut self, path: impl FnOnce() -> PathBuf) {
        self.0 += 1;
        if self.1.len() < EXAMPLES_MAX {
            self.1.push(path());
        }
    }

    pub(super) fn warning(self) -> Option<Warning> {
        let Self(count, examples) = self;
        (count > 0).then_some(Warning::SpecialBits { count, examples })
    }
}

#[derive(Debug, Default)]
pub(super) struct Skips(BTreeMap<Skip, Examples>);

impl Skips {
    pub(super) fn add(&mut self, why: Skip, path: impl FnOnce() -> PathBuf) {
        self.0.entry(why).or_default().add(path);
    }

    pub(super) fn counts(&self) -> Skipped {
        let count = |whys: &[Skip]| {
            whys.iter().filter_map(|why| self.0.get(why)).map(|found| found.0).sum()
        };
        Skipped {
            links: count(&[Skip::Outside, Skip::Unwanted, Skip::Dangling, Skip::Loop]),
            special: count(&[Skip::Special, Skip::Socket, Skip::State]),
            names: count(&[Skip::BadName]),
            excluded: count(&[Skip::Excluded]),
            lacking: self
                .0
                .iter()
                .filter(|(why, _)| why.is_lacking())
                .map(|(_, found)| found.0)
                .sum(),
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
