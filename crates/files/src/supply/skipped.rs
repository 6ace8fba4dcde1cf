//! Files and links that a sender leaves out, counted by reason and in words for people.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Examples that are named of each reason.
const EXAMPLES_MAX: usize = 3;

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
    /// A device, socket or pipe.
    Special,
    /// A folder of a receiver's state.
    State,
    /// A name that cannot be sent; a directory with all that is in it counts as one.
    BadName,
    /// What a pattern excludes; a directory with all that is in it counts as one.
    Excluded,
}

impl Skip {
    /// Whether it was asked for.
    const fn is_wanted(self) -> bool {
        matches!(self, Self::Unwanted | Self::Excluded)
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
    /// Two names that differ in case alone: one of them gets lost on some file systems.
    Case(String, String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, count, examples) = match self {
            Self::Skipped { why, count, examples } => (why, *count, examples),
            Self::InUse(path, user) => {
                let path = path.display();
                return write!(
                    f,
                    "{path}: {user}; what is written to it while it is sent may be torn there"
                );
            }
            Self::Case(a, b) => {
                return write!(
                    f,
                    "{a} and {b} differ in case alone: receivers whose file system ignores case \
                     refuse them"
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
                format!("{} not sent: no file, directory or link", number("one is", "are"))
            }
            Skip::State => format!(
                "{} not sent: what faircast keeps while it receives",
                number("a folder is", "folders are")
            ),
            Skip::BadName => format!(
                "{} not sent: receivers could not have it so",
                number("a name is", "names are")
            ),
            Skip::Excluded => format!("{} excluded", number("one is", "are")),
        };
        // What would move a terminal's cursor is written so that it does not.
        let shown = |path: &PathBuf| {
            let plain =
                |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
            path.display().to_string().chars().map(plain).collect()
        };
        let names: Vec<String> = examples.iter().map(shown).collect();
        write!(f, "{text}: {}", names.join(", "))?;
        let more = count.saturating_sub(names.len() as u64);
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        if *why == Skip::Outside {
            write!(f, "; --links follow sends what they lead to")?;
        }
        Ok(())
    }
}

/// Counts what is left out, with some examples of each reason.
#[derive(Debug, Default)]
pub(super) struct Skips(BTreeMap<Skip, (u64, Vec<PathBuf>)>);

impl Skips {
    pub(super) fn add(&mut self, why: Skip, path: impl FnOnce() -> PathBuf) {
        let (count, examples) = self.0.entry(why).or_default();
        *count += 1;
        if examples.len() < EXAMPLES_MAX {
            examples.push(path());
        }
    }

    pub(super) fn counts(&self) -> Skipped {
        let count = |whys: &[Skip]| {
            whys.iter().filter_map(|why| self.0.get(why)).map(|(count, _)| count).sum()
        };
        Skipped {
            links: count(&[Skip::Outside, Skip::Unwanted, Skip::Dangling, Skip::Loop]),
            special: count(&[Skip::Special, Skip::State]),
            names: count(&[Skip::BadName]),
            excluded: count(&[Skip::Excluded]),
        }
    }

    /// What was left out against expectation.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        self.all().filter(|(why, _)| !why.is_wanted()).map(|(_, warning)| warning).collect()
    }

    /// Everything, in words.
    pub(super) fn reasons(&self) -> Vec<String> {
        self.all().map(|(_, warning)| warning.to_string()).collect()
    }

    fn all(&self) -> impl Iterator<Item = (Skip, Warning)> + '_ {
        self.0.iter().map(|(why, (count, examples))| {
            (*why, Warning::Skipped { why: *why, count: *count, examples: examples.clone() })
        })
    }
}
