//! From paths to entries, by `stat` alone.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::device;
use crate::error::FilesError;
use crate::layout::Layout;
use crate::manifest::{ENTRIES_MAX, Entry, Kind, Manifest, ManifestError, Mtime};
use crate::name;

/// Warnings that are kept; more are counted.
const WARNINGS_MAX: usize = 100;

/// Something that a sender should know and that is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A symbolic link, which is not sent.
    Symlink(PathBuf),
    /// A device, socket or pipe, which is not sent.
    Special(PathBuf),
    /// A folder of a receiver's state, which is not sent.
    State(PathBuf),
    /// A device that is in use, and by whom: what is written to it meanwhile may not fit together.
    InUse(PathBuf, String),
    /// Two names that differ in case alone: one of them gets lost on some file systems.
    Case(String, String),
    /// So many more warnings, which are not kept.
    More(u64),
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Symlink(path) => write!(f, "{}: is a symbolic link; not sent", path.display()),
            Self::Special(path) => {
                write!(f, "{}: is neither a file nor a directory; not sent", path.display())
            }
            Self::State(path) => {
                write!(f, "{}: is what faircast keeps while it receives; not sent", path.display())
            }
            Self::InUse(path, user) => write!(
                f,
                "{}: {user}; what is written to it while it is sent may be torn there",
                path.display()
            ),
            Self::Case(a, b) => write!(
                f,
                "{a} and {b} differ in case alone: receivers whose file system ignores case refuse them"
            ),
            Self::More(count) => write!(f, "and {count} more warnings"),
        }
    }
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) layout: Layout,
    pub(crate) sources: Sources,
    pub(crate) warnings: Vec<Warning>,
}

/// Where files come from.
#[derive(Debug)]
pub(crate) struct Sources {
    /// First component of an entry's path to where that is.
    pub(super) roots: BTreeMap<String, PathBuf>,
    /// Device and inode of each file, in the layout's order.
    pub(super) identities: Vec<(u64, u64)>,
}

impl Sources {
    pub(crate) fn path(&self, layout: &Layout, file: u32) -> PathBuf {
        let path = &*layout.entry(file).path;
        match path.split_once('/') {
            Some((root, rest)) => self.roots[root].join(rest),
            None => self.roots[path].clone(),
        }
    }

    /// Whether a file is still the one that was scanned.
    pub(crate) fn same(&self, layout: &Layout, file: u32, now: &Metadata) -> bool {
        let entry = layout.entry(file);
        // What is written to a device leaves no trace on its name.
        let changed = entry.is_file() && (entry.size() != now.len() || entry.mtime != mtime(now));
        self.identities[file as usize] == (now.dev(), now.ino()) && !changed
    }
}

/// What is taken of paths, and what it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// What the object is called. Default: the last component of the first path.
    pub name: Option<String>,
}

/// Scans `paths`, each of which arrives under its last component.
pub(crate) fn scan(paths: &[PathBuf], options: &ScanOptions) -> Result<Scan, FilesError> {
    let Some(first) = paths.first() else { return Err(FilesError::Nothing) };
    let name = match &options.name {
        Some(name) => name.clone(),
        None => root(first)?.0,
    };
    if let Some(found) = device::scan(paths, &name)? {
        return Ok(found);
    }
    let mut walk = Walk::default();
    let mut roots: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in paths {
        let (name, absolute) = root(path)?;
        if let Some(first) = roots.insert(name.clone(), absolute.clone()) {
            return Err(FilesError::SameName { first, second: path.clone(), name });
        }
        // A link that was named is what was meant; one that was met is not.
        let metadata = fs::metadata(&absolute)
            .map_err(|error| FilesError::io(path, "cannot be read", error))?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(FilesError::Special { path: path.clone() });
        }
        walk.entry(absolute, name, &metadata)?;
    }
    // What is ordered by names must take the identities along.
    walk.found.sort_by(|(a, _), (b, _)| name::compare(&a.path, &b.path));
    let has_content = |(entry, _): &&(Entry, (u64, u64))| entry.has_content();
    let identities = walk.found.iter().filter(has_content).map(|(_, identity)| *identity).collect();
    let entries = walk.found.into_iter().map(|(entry, _)| entry).collect();
    let manifest = Manifest::new(&name, entries)?;
    let room = WARNINGS_MAX.saturating_sub(walk.warnings.len());
    for (a, b) in manifest.case_collisions(room) {
        walk.warnings.push(Warning::Case(a.into(), b.into()));
    }
    if walk.warnings_more > 0 {
        walk.warnings.push(Warning::More(walk.warnings_more));
    }
    let sources = Sources { roots, identities };
    Ok(Scan { layout: Layout::new(manifest), sources, warnings: walk.warnings })
}

/// The name under which a path arrives, and where it is.
fn root(path: &Path) -> Result<(String, PathBuf), FilesError> {
    let cannot = |error| FilesError::io(path, "cannot be found", error);
    let ends_in_dots =
        path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/.");
    let absolute = match ends_in_dots {
        // `.` and `..` have the name of the directory that they stand for.
        true => fs::canonicalize(path).map_err(cannot)?,
        false => std::path::absolute(path).map_err(cannot)?,
    };
    let Some(name) = absolute.file_name() else {
        return Err(FilesError::NoName { path: path.to_path_buf() });
    };
    match name.to_str() {
        Some(name) => Ok((name.to_owned(), absolute)),
        None => Err(FilesError::NotUtf8 { path: path.to_path_buf() }),
    }
}

#[derive(Default)]
struct Walk {
    found: Vec<(Entry, (u64, u64))>,
    warnings: Vec<Warning>,
    warnings_more: u64,
}

impl Walk {
    /// Takes a file, or a directory and all that is in it. A stack of our own, so that depth costs
    /// no more than it must; what is too deep is refused by its name.
    fn entry(&mut self, at: PathBuf, path: String, metadata: &Metadata) -> Result<(), FilesError> {
        self.push(path.clone(), metadata)?;
        let mut open = match metadata.is_dir() {
            true => vec![(at, path)],
            false => Vec::new(),
        };
        while let Some((at, path)) = open.pop() {
            let cannot = |error| FilesError::io(&at, "cannot be read", error);
            for found in fs::read_dir(&at).map_err(cannot)? {
                let found = found.map_err(cannot)?;
                let at = found.path();
                let name = found.file_name();
                let Some(name) = name.to_str() else {
                    return Err(FilesError::NotUtf8 { path: at });
                };
                let kind = found.file_type().map_err(cannot)?;
                if kind.is_symlink() {
                    self.warn(Warning::Symlink(at));
                } else if !kind.is_file() && !kind.is_dir() {
                    self.warn(Warning::Special(at));
                } else if kind.is_dir() && name.eq_ignore_ascii_case(name::STATE_FOLDER) {
                    self.warn(Warning::State(at));
                } else {
                    let path = format!("{path}/{name}");
                    let metadata = fs::symlink_metadata(&at)
                        .map_err(|error| FilesError::io(&at, "cannot be read", error))?;
                    // It may have been replaced since the directory was read.
                    if metadata.is_file() != kind.is_file() || metadata.is_dir() != kind.is_dir() {
                        return Err(FilesError::Changed { path: at });
                    }
                    self.push(path.clone(), &metadata)?;
                    if kind.is_dir() {
                        open.push((at, path));
                    }
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, path: String, metadata: &Metadata) -> Result<(), FilesError> {
        if self.found.len() == ENTRIES_MAX as usize {
            return Err(ManifestError::Entries(u64::from(ENTRIES_MAX) + 1).into());
        }
        // Now, so that a tree that is too deep is not walked to its end.
        name::check_path(&path)
            .map_err(|what| ManifestError::Name { path: path.as_str().into(), what })?;
        let kind = match metadata.is_dir() {
            true => Kind::Directory,
            false => Kind::file(metadata.len()),
        };
        let mode = u16::try_from(metadata.mode() & 0o777).expect("nine bits");
        let entry = Entry::new(path, kind, mode, mtime(metadata));
        self.found.push((entry, (metadata.dev(), metadata.ino())));
        Ok(())
    }

    fn warn(&mut self, warning: Warning) {
        match self.warnings.len() < WARNINGS_MAX {
            true => self.warnings.push(warning),
            false => self.warnings_more += 1,
        }
    }
}

fn mtime(metadata: &Metadata) -> Mtime {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Mtime { seconds: metadata.mtime(), nanos }
}
