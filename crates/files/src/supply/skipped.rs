//! Files and links that a sender leaves out, counted by reason and in words for people.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::name::shown_path;

/// Examples that are named of each reason.
const EXAMPLES_MAX: usize = 10;

/// Why something is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Skip {
    /// A symbolic link that is absolute, or leads out of what is sent.
    Outside,
    /// A symbolic link where none are wanted.
    Unwanted,
    /// A symbolic link that is to be followed, and leads to nothing.
    Dangling,
    /// A symbolic link that is to be followed, and leads to a directory that it is in.
    Loop,
    /// A device or pipe.
    Special,
    /// A socket, which is nothing without its program.
    Socket,
    /// A folder of a receiver's state.
    State,
    /// A path that is too long or too deep, or a file called `.faircast`; a directory with all that is
    /// in it counts as one.
    BadName,
    /// What a pattern excludes; a directory with all that is in it counts as one.
    Excluded,
}

impl Skip {
    /// True if leaving this out was asked for.
    const fn is_wanted(self) -> bool {
        matches!(self, Self::Unwanted | Self::Excluded)
    }

    /// True if receivers lack something that they should have.
    const fn is_lacking(self) -> bool {
        !self.is_wanted() && !matches!(self, Self::Socket | Self::State)
    }
}

/// How much is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Symbolic links.
    pub links: u64,
    /// Devices, sockets, pipes, and folders of a receiver's state.
    pub special: u64,
    /// Names that cannot be sent; a directory with all that is in it counts as one.
    pub names: u64,
    /// What patterns exclude; a directory with all that is in it counts as one.
    pub excluded: u64,
    /// Entries that receivers lack although they were not asked to be left out. Excluded paths, unwanted links,
    /// sockets and state folders do not count.
    pub lacking: u64,
}

impl Skipped {
    /// All of it.
    pub const fn total(&self) -> u64 {
        self.links + self.special + self.names + self.excluded
    }
}

/// Something that a sender should know and that is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Something is left out.
    Skipped {
        /// Why.
        why: Skip,
        /// How often.
        count: u64,
        /// Some of them.
        examples: Vec<PathBuf>,
    },
    /// A device that is in use, and by whom: what is written to it meanwhile may not fit together.
    InUse(PathBuf, String),
    /// Files and directories with set-user-ID, set-group-ID or sticky bits, which are not sent.
    SpecialBits {
        /// Number of files and directories.
        count: u64,
        /// Some of them.
        examples: Vec<PathBuf>,
    },
    /// Two names that differ in case alone: one of them gets lost on some file systems.
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

/// Some paths of `count`, and how many more there are.
pub(super) fn listed(examples: &[impl AsRef<Path>], count: u64) -> String {
    let names: Vec<String> = examples.iter().map(shown_path).collect();
    let more = count.saturating_sub(names.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

/// A number of paths, and the first ones of them.
#[derive(Debug, Default)]
pub(super) struct Examples(u64, Vec<PathBuf>);

impl Examples {
    pub(super) fn add(&mut self, path: impl FnOnce() -> PathBuf) {
        self.0 += 1;
        if self.1.len() < EXAMPLES_MAX {
            self.1.push(path());
        }
    }

    /// The warning of special bits; `None` where no path has any.
    pub(super) fn warning(self) -> Option<Warning> {
        let Self(count, examples) = self;
        (count > 0).then_some(Warning::SpecialBits { count, examples })
    }
}

/// Counts what is left out, with some examples of each reason.
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
