//! Walk through directories of a sender, which creates the entries of a manifest.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::{BStr, BString, ByteSlice as _};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::attributes;
use super::holes::find_holes;
use super::scan::{Links, ScanOptions};
use super::skipped::{Examples, Skip, Skips};
use super::sources::{identity, mtime};
use crate::error::{FilesError, Result};
use crate::layout::GROUP_BYTES;
use crate::manifest::{ENTRIES_MAX, Entry, HOLES_MAX, Kind, ManifestError, Owner, boxed};
use crate::name::{self, NameError};

const REFUSED_SHOWN: usize = 20;

/// Entry with the device and inode of its file.
pub(super) struct ScannedEntry {
    pub(super) entry: Entry,
    pub(super) identity: (u64, u64),
    /// True for a file with several names.
    has_links: bool,
}

impl ScannedEntry {
    /// Turns all names of a file but the first into hard links. `all` is in manifest order.
    pub(super) fn join_names(all: &mut [Self]) {
        let mut first: BTreeMap<(u64, u64), BString> = BTreeMap::new();
        for Self { entry, identity, .. } in all.iter_mut().filter(|found| found.has_links) {
            match first.get(identity) {
                Some(to) => *entry = Entry::hard_link(&*entry.path, to),
                None => drop(first.insert(*identity, (*entry.path).to_owned())),
            }
        }
    }
}

/// Walk in progress, with the entries found and those left out.
pub(super) struct Walk<'a> {
    pub(super) found: Vec<ScannedEntry>,
    pub(super) skips: Skips,
    pub(super) special_bits: Examples,
    unreadable: Unreadable,
    options: &'a ScanOptions,
    exclude: Gitignore,
    /// Owners by user and group id.
    owners: BTreeMap<(u32, u32), Arc<Owner>>,
    /// Holes of all files so far.
    holes: u64,
}

/// Unreadable files and directories: the first paths, and the number of others.
#[derive(Default)]
struct Unreadable {
    shown: Vec<String>,
    more: u64,
}

impl Unreadable {
    fn add(&mut self, path: impl FnOnce() -> String) {
        if self.shown.len() < REFUSED_SHOWN { self.shown.push(path()) } else { self.more += 1 }
    }

    fn list(&self, between: &str, and: &str) -> Option<String> {
        let shown = self.shown.join(between);
        let more = match self.more {
            0 => String::new(),
            more => format!("{and} {more} more"),
        };
        (!self.shown.is_empty()).then(|| shown + &more)
    }
}

/// Device and inode of each directory above, to detect loops of followed links.
type Trail = Vec<(u64, u64)>;

/// Directory whose entries are still to be taken.
struct OpenDirectory {
    at: PathBuf,
    path: BString,
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
            special_bits: Examples::default(),
            unreadable: Unreadable::default(),
            options,
            exclude,
            owners: BTreeMap::new(),
            holes: 0,
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        let Some(paths) = self.unreadable.list(", ", " and") else { return Ok(()) };
        Err(FilesError::Unwanted(format!(
            "cannot be read: {paths}; look at permissions and owners, or leave them out with --exclude"
        )))
    }

    fn is_bad(&self, path: &BStr, metadata: &Metadata) -> bool {
        let Err(wrong) = name::check_path(path) else { return false };
        let state = wrong == NameError::State && metadata.is_dir();
        !state && !self.is_excluded(path, metadata.is_dir())
    }

    /// Adds a file, or a directory with its content. A stack replaces recursion: trees may be deep.
    pub(super) fn root(&mut self, at: PathBuf, path: BString, metadata: &Metadata) -> Result<()> {
        let mut open = Vec::new();
        self.take(at, path, metadata, None, &mut open)?;
        while let Some(OpenDirectory { at, path, trail }) = open.pop() {
            let cannot = |error| FilesError::io(&at, "cannot be read", error);
            let all = match fs::read_dir(&at) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.unreadable.add(|| name::shown_path(&at));
                    continue;
                }
                all => all.map_err(cannot)?,
            };
            for found in all {
                let found = found.map_err(cannot)?;
                let at = found.path();
                let name = found.file_name();
                let metadata = fs::symlink_metadata(&at)
                    .map_err(|error| FilesError::io(&at, "cannot be read", error))?;
                let path = BString::from([&**path, b"/", name.as_bytes()].concat());
                match self.is_bad(path.as_bstr(), &metadata) {
                    true => self.skips.add(Skip::BadName, || at),
                    false => self.take(at, path, &metadata, Some(&trail), &mut open)?,
                }
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        at: PathBuf,
        path: BString,
        metadata: &Metadata,
        above: Option<&Trail>,
        open: &mut Vec<OpenDirectory>,
    ) -> Result<()> {
        let followed = match metadata.is_symlink() {
            true => match self.links(&at, path.as_bstr(), metadata, above)? {
                Some(followed) => followed,
                None => return Ok(()),
            },
            false => metadata.clone(),
        };
        let metadata = &followed;
        if self.is_excluded(path.as_bstr(), metadata.is_dir()) {
            self.skips.add(Skip::Excluded, || at);
        } else if metadata.is_dir() {
            let (_, name) = name::split(&path);
            // A path given by the user is refused because of its name instead.
            if above.is_some() && name.eq_ignore_ascii_case(name::STATE_FOLDER.as_bytes()) {
                self.skips.add(Skip::State, || at);
                return Ok(());
            }
            self.push(&at, path.as_bstr(), Kind::Directory, metadata)?;
            let mut trail = Trail::new();
            if self.options.links == Links::Follow {
                trail.extend(above.into_iter().flatten());
                trail.push(identity(metadata));
            }
            open.push(OpenDirectory { at, path, trail });
        } else if metadata.is_file() {
            let denied =
                accessat(CWD, &at, Access::READ_OK, AtFlags::EACCESS).is_err_and(|error| {
                    io::Error::from(error).kind() == io::ErrorKind::PermissionDenied
                });
            if denied {
                self.unreadable.add(|| name::shown_path(&at));
                return Ok(());
            }
            let holes = self.holes(&at, metadata)?;
            self.push(&at, path.as_bstr(), Kind::File { size: metadata.len(), holes }, metadata)?;
        } else {
            let socket = metadata.file_type().is_socket();
            self.skips.add(if socket { Skip::Socket } else { Skip::Special }, || at);
        }
        Ok(())
    }

    fn links(
        &mut self,
        at: &Path,
        path: &BStr,
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
                // Links that lead outside are found once all entries are known.
                let kind = Kind::Link { target: boxed(target.as_os_str().as_bytes()) };
                self.push(at, path, kind, metadata)?;
                return Ok(None);
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

    fn push(&mut self, at: &Path, path: &BStr, kind: Kind, metadata: &Metadata) -> Result<()> {
        if self.found.len() == ENTRIES_MAX as usize {
            return Err(ManifestError::Entries(u64::from(ENTRIES_MAX) + 1).into());
        }
        // Checked now, so that the walk of a tree that is too deep stops.
        name::check_path(path)
            .map_err(|what| ManifestError::Name { path: name::shown(path).into(), what })?;
        let is_link = matches!(kind, Kind::Link { .. });
        // The mode of a link has no meaning.
        if !is_link && metadata.mode() & 0o7000 != 0 {
            self.special_bits.add(|| at.to_path_buf());
        }
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
        let has_links = metadata.nlink() > 1 && entry.is_file();
        self.found.push(ScannedEntry { entry, identity: identity(metadata), has_links });
        Ok(())
    }

    /// Finds the holes of a file. Only files with fewer bytes on disk than in length are searched.
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

    fn is_excluded(&self, path: &BStr, is_dir: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        !self.options.exclude.is_empty() && self.exclude.matched(path, is_dir).is_ignore()
    }
}
