//! A walk through directories of a sender, which makes entries of what it finds.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::attributes;
use super::holes::find_holes;
use super::scan::{Links, ScanOptions};
use super::skipped::{Skip, Skips};
use super::sources::{identity, mtime};
use crate::error::{FilesError, Result};
use crate::layout::GROUP_BYTES;
use crate::manifest::{ENTRIES_MAX, Entry, HOLES_MAX, Kind, ManifestError, Owner};
use crate::name::{self, NameError};

/// Paths that cannot be sent and are told; more are counted.
const REFUSED_SHOWN: usize = 20;

/// An entry, and the device and inode of what it was made of.
pub(super) struct Found {
    pub(super) entry: Entry,
    pub(super) identity: (u64, u64),
}

pub(super) struct Walk<'a> {
    pub(super) found: Vec<Found>,
    pub(super) skips: Skips,
    bad_names: Refused,
    unreadable: Refused,
    options: &'a ScanOptions,
    exclude: Gitignore,
    owners: BTreeMap<(u32, u32), Arc<Owner>>,
    /// Holes of all files so far.
    holes: u64,
}

/// Paths that cannot be sent, all of which are told at once: the first ones, and how many more.
#[derive(Default)]
struct Refused {
    shown: Vec<String>,
    more: u64,
}

impl Refused {
    fn add(&mut self, path: impl FnOnce() -> String) {
        match self.shown.len() < REFUSED_SHOWN {
            true => self.shown.push(path()),
            false => self.more += 1,
        }
    }

    /// All that are told in a line; nothing where there is none.
    fn list(&self, between: &str, and: &str) -> Option<String> {
        let shown = self.shown.join(between);
        let more = match self.more {
            0 => String::new(),
            more => format!("{and} {more} more"),
        };
        (!self.shown.is_empty()).then(|| shown + &more)
    }
}

/// Identities of a directory and of those that it is in: by this a loop of links is known.
type Trail = Vec<(u64, u64)>;

/// A directory that is still to be read.
struct Open {
    at: PathBuf,
    path: String,
    trail: Trail,
}

impl<'a> Walk<'a> {
    pub(super) fn new(options: &'a ScanOptions) -> Result<Self> {
        let mut patterns = GitignoreBuilder::new("");
        let wrong = |text: &str, error: ignore::Error| {
            FilesError::Unwanted(format!(
                "the pattern {text:?} cannot be used: {error}; expected one as in a .gitignore, such \
                 as '*.tmp' or /photos/raw"
            ))
        };
        for text in &options.exclude {
            patterns.add_line(None, text).map_err(|error| wrong(text, error))?;
        }
        let exclude = patterns.build().map_err(|error| wrong("--exclude", error))?;
        let (found, skips) = (Vec::new(), Skips::default());
        Ok(Self {
            found,
            skips,
            bad_names: Refused::default(),
            unreadable: Refused::default(),
            options,
            exclude,
            owners: BTreeMap::new(),
            holes: 0,
        })
    }

    /// Whether all that was met can be sent, or what cannot is left out.
    ///
    /// # Errors
    /// It cannot: with all of that, as far as a line has room.
    pub(super) fn check(&self) -> Result<()> {
        let what = if let Some(names) = self.bad_names.list("; ", "; and") {
            format!(
                "names that cannot be sent: {names}; rename them, or leave them out with \
                 --skip-bad-names"
            )
        } else if let Some(paths) = self.unreadable.list(", ", " and") {
            format!(
                "cannot be read: {paths}; look at permissions and owners, or leave them out with \
                 --exclude"
            )
        } else {
            return Ok(());
        };
        Err(FilesError::Unwanted(what))
    }

    /// A name that cannot be sent: it is left out where that is wanted, and else an error in the end,
    /// so that all of them are told at once.
    fn bad_name(&mut self, at: PathBuf, what: &dyn std::fmt::Display) {
        if self.options.skip_bad_names {
            self.skips.add(Skip::BadName, || at);
        } else {
            // With what would move a terminal's cursor escaped.
            self.bad_names.add(|| format!("{at:?}: {what}"));
        }
    }

    /// What is wrong with a path, where it would be sent.
    fn wrong_with(&self, path: &str, metadata: &Metadata) -> Option<NameError> {
        let wrong = name::check_path(path).err()?;
        let state = wrong == NameError::State && metadata.is_dir();
        (!state && !self.is_excluded(path, metadata.is_dir())).then_some(wrong)
    }

    /// Takes a file, or a directory and all that is in it. A stack of our own, so that depth costs
    /// no more than it must; what is too deep is refused by its name.
    pub(super) fn root(&mut self, at: PathBuf, path: String, metadata: &Metadata) -> Result<()> {
        let mut open = Vec::new();
        self.take(at, path, metadata, None, &mut open)?;
        while let Some(Open { at, path, trail }) = open.pop() {
            let cannot = |error| FilesError::io(&at, "cannot be read", error);
            let all = match fs::read_dir(&at) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.unreadable.add(|| at.display().to_string());
                    continue;
                }
                all => all.map_err(cannot)?,
            };
            for found in all {
                let found = found.map_err(cannot)?;
                let at = found.path();
                let name = found.file_name();
                let Some(name) = name.to_str() else {
                    self.bad_name(at, &"it is not UTF-8");
                    continue;
                };
                let metadata = fs::symlink_metadata(&at)
                    .map_err(|error| FilesError::io(&at, "cannot be read", error))?;
                let path = format!("{path}/{name}");
                match self.wrong_with(&path, &metadata) {
                    Some(wrong) => self.bad_name(at, &wrong),
                    None => self.take(at, path, &metadata, Some(&trail), &mut open)?,
                }
            }
        }
        Ok(())
    }

    /// Takes one thing, or leaves it out; a directory is to be read afterwards.
    fn take(
        &mut self,
        at: PathBuf,
        path: String,
        metadata: &Metadata,
        above: Option<&Trail>,
        open: &mut Vec<Open>,
    ) -> Result<()> {
        let followed = match metadata.is_symlink() {
            true => match self.links(&at, &path, metadata, above)? {
                Some(followed) => followed,
                None => return Ok(()),
            },
            false => metadata.clone(),
        };
        let metadata = &followed;
        if self.is_excluded(&path, metadata.is_dir()) {
            self.skips.add(Skip::Excluded, || at);
        } else if metadata.is_dir() {
            let name = path.rsplit('/').next().unwrap_or(&path);
            // A path that was named is what is meant, and refused by its name.
            if above.is_some() && name.eq_ignore_ascii_case(name::STATE_FOLDER) {
                self.skips.add(Skip::State, || at);
                return Ok(());
            }
            self.push(&at, path.clone(), Kind::Directory, metadata)?;
            let mut trail = Trail::new();
            if self.options.links == Links::Follow {
                trail.extend(above.into_iter().flatten());
                trail.push(identity(metadata));
            }
            open.push(Open { at, path, trail });
        } else if metadata.is_file() {
            // Now, and not when receivers wait for it.
            let denied =
                accessat(CWD, &at, Access::READ_OK, AtFlags::EACCESS).is_err_and(|error| {
                    io::Error::from(error).kind() == io::ErrorKind::PermissionDenied
                });
            if denied {
                self.unreadable.add(|| at.display().to_string());
                return Ok(());
            }
            let holes = self.holes(&at, metadata)?;
            self.push(&at, path, Kind::File { size: metadata.len(), holes }, metadata)?;
        } else {
            self.skips.add(Skip::Special, || at);
        }
        Ok(())
    }

    /// Takes a link as such, or leaves it out, or tells what is where it leads to.
    fn links(
        &mut self,
        at: &Path,
        path: &str,
        metadata: &Metadata,
        above: Option<&Trail>,
    ) -> Result<Option<Metadata>> {
        let skip = match self.options.links {
            _ if self.options.links != Links::Follow && self.is_excluded(path, false) => {
                Skip::Excluded
            }
            Links::Skip => Skip::Unwanted,
            Links::Keep => {
                let target = fs::read_link(at)
                    .map_err(|error| FilesError::io(at, "cannot be read", error))?;
                match target.to_str() {
                    Some(target) => {
                        // Whether it leads outside is known when everything was found.
                        let kind = Kind::Link { target: target.into() };
                        self.push(at, path.to_string(), kind, metadata)?;
                        return Ok(None);
                    }
                    None => Skip::Outside,
                }
            }
            Links::Follow => match fs::metadata(at) {
                Ok(followed) => {
                    let loops = above.is_some_and(|above| above.contains(&identity(&followed)));
                    if !(followed.is_dir() && loops) {
                        return Ok(Some(followed));
                    }
                    Skip::Loop
                }
                Err(_) => Skip::Dangling,
            },
        };
        self.skips.add(skip, || at.to_path_buf());
        Ok(None)
    }

    fn push(&mut self, at: &Path, path: String, kind: Kind, metadata: &Metadata) -> Result<()> {
        if self.found.len() == ENTRIES_MAX as usize {
            return Err(ManifestError::Entries(u64::from(ENTRIES_MAX) + 1).into());
        }
        // Now, so that a tree that is too deep is not walked to its end.
        name::check_path(&path)
            .map_err(|what| ManifestError::Name { path: path.as_str().into(), what })?;
        let is_link = matches!(kind, Kind::Link { .. });
        // The mode of a link says nothing.
        let mode = if is_link { 0 } else { metadata.mode() & 0o777 };
        let mode = u16::try_from(mode).expect("nine bits");
        let mut entry = Entry::new(path, kind, mode, mtime(metadata));
        if self.options.owner {
            let key = (metadata.uid(), metadata.gid());
            let owner = self.owners.entry(key).or_insert_with(|| attributes::owner(key).into());
            entry.owner = Some(owner.clone());
        }
        if self.options.xattrs && !is_link {
            entry.xattrs = attributes::xattrs(at)?;
        }
        self.found.push(Found { entry, identity: identity(metadata) });
        Ok(())
    }

    /// The holes of a file. Only one that takes less room than it has bytes is looked into.
    fn holes(&mut self, at: &Path, metadata: &Metadata) -> Result<Box<[crate::manifest::Hole]>> {
        let size = metadata.len();
        if size < GROUP_BYTES || metadata.blocks().saturating_mul(512) >= size {
            return Ok(Box::default());
        }
        let most = usize::try_from(HOLES_MAX - self.holes).unwrap_or(0);
        let holes = find_holes(at, metadata, most)?;
        self.holes += holes.len() as u64;
        Ok(holes)
    }

    fn is_excluded(&self, path: &str, is_dir: bool) -> bool {
        !self.options.exclude.is_empty() && self.exclude.matched(path, is_dir).is_ignore()
    }
}
