//! Scan of paths into a manifest, by `stat` and a search for holes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bstr::BString;

use super::skipped::{Examples, Skip, Skipped, Skips, Warning, listed};
use super::walk::{ScannedEntry, Walk};
use super::{Sources, identity};
use crate::error::{At as _, FilesError, Result, refuse};
use crate::image::device_user;
use crate::layout::Layout;
use crate::manifest::{self, Entry, Kind, Manifest, Mtime};
use crate::name;

/// Options of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Name of the object. Default: the last component of the first path.
    pub name: Option<String>,
    /// Treatment of symbolic links inside directories. Default: kept.
    pub links: Links,
    /// Patterns of paths to leave out, as in a `.gitignore`; the last match counts. Default: none.
    pub exclude: Vec<String>,
    /// True if owners are sent. Default: no.
    pub owner: bool,
    /// True if extended attributes are sent. Default: no.
    pub xattrs: bool,
}

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Links arrive as links if their targets are sent; others are left out.
    #[default]
    Keep,
    /// Targets arrive in the place of links.
    Follow,
    /// Links are left out.
    Skip,
}

/// Result of a scan: content to send.
#[derive(Debug)]
pub struct Scan {
    pub(super) layout: Layout,
    pub(super) sources: Sources,
    pub(super) warnings: Vec<Warning>,
    pub(super) totals: ScanTotals,
}

/// Totals of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanTotals {
    /// Files; an image counts as one.
    pub files: u32,
    /// Directories.
    pub directories: u32,
    /// Symbolic links sent as links.
    pub links: u32,
    /// Hard links: further names of files.
    pub hard_links: u32,
    /// Bytes of content: all files without their holes.
    pub bytes: u64,
    /// Bytes of holes, which are not sent.
    pub hole_bytes: u64,
    /// Entries that are left out.
    pub skipped: Skipped,
}

impl Scan {
    /// Scans `paths`, and follows links among them. A block device must be alone (an image).
    ///
    /// # Errors
    /// A path is unreadable or has an invalid name, a limit is exceeded, or there are no files.
    pub fn new<P: AsRef<Path>>(paths: &[P], options: &ScanOptions) -> Result<Self> {
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        let Some(first) = paths.first() else {
            return Err(FilesError::Unwanted("nothing to send: no path was given".into()));
        };
        let object = match &options.name {
            Some(name) => name.clone(),
            None => name::title(&root(first)?.0),
        };
        if let Some(device) = scan_device(&paths, &object)? {
            return Ok(device);
        }
        let mut walk = Walk::new(options)?;
        let mut roots: BTreeMap<BString, PathBuf> = BTreeMap::new();
        for path in &paths {
            let (name, absolute) = root(path)?;
            if let Some(first) = roots.insert(name.clone(), absolute.clone()) {
                let (first, second, name) =
                    (name::shown_path(first), name::shown_path(path), name::shown(&name));
                return Err(FilesError::Unwanted(format!(
                    "{first} and {second} would both arrive as `{name}`; send them one after the other"
                )));
            }
            let metadata = fs::metadata(&absolute).at(path, "cannot be read")?;
            if metadata.file_type().is_fifo() {
                let how = "is a pipe, which is sent alone: `faircast send - < PIPE`";
                return refuse(path, how);
            }
            if !metadata.is_file() && !metadata.is_dir() {
                return refuse(path, "is neither a file nor a directory");
            }
            walk.root(absolute, name, &metadata)?;
        }
        walk.check()?;
        let Walk { mut found, mut skips, special_bits, .. } = walk;
        found.sort_by(|a, b| name::compare(&a.entry.path, &b.entry.path));
        ScannedEntry::join_names(&mut found);
        let files = found.iter().filter(|found| found.entry.is_file());
        let identities = files.map(|found| found.identity).collect();
        let sources = Sources { roots, identities };
        let entries = found.into_iter().map(|found| found.entry).collect();
        let entries = keep_links(entries, &sources, &mut skips);
        let manifest = Manifest::new(&object, entries)?;
        let layout = Layout::new(manifest);
        let totals = totals(&layout, skips.counts());
        if totals.files == 0 && totals.links == 0 {
            return Err(nothing_in(&paths, &skips.reasons()));
        }
        let mut warnings = skips.warnings();
        let Examples(count, examples) = special_bits;
        if count > 0 {
            warnings.push(Warning::SpecialBits { count, examples });
        }
        let pairs = layout.manifest.case_collisions(CASE_WARNINGS_MAX).into_iter();
        warnings.extend(pairs.map(|(a, b)| Warning::Case(name::shown(a), name::shown(b))));
        Ok(Self { layout, sources, warnings, totals })
    }

    /// Returns the manifest of the content.
    pub fn manifest(&self) -> &Manifest {
        &self.layout.manifest
    }

    /// Returns warnings about files left out unexpectedly, and about possible trouble at receivers.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the totals.
    pub const fn totals(&self) -> ScanTotals {
        self.totals
    }
}

const CASE_WARNINGS_MAX: usize = 10;

fn totals(layout: &Layout, skipped: Skipped) -> ScanTotals {
    let mut totals = ScanTotals { skipped, ..ScanTotals::default() };
    for entry in layout.manifest.entries() {
        totals.files += u32::from(entry.has_content());
        totals.directories += u32::from(entry.is_directory());
        totals.links += u32::from(entry.link_target().is_some());
        totals.hard_links += u32::from(entry.hard_link_to().is_some());
        totals.bytes += entry.content_bytes();
        totals.hole_bytes += entry.hole_bytes();
    }
    totals
}

fn nothing_in(paths: &[&Path], skipped: &[String]) -> FilesError {
    const SHOWN: usize = 3;
    let shown = listed(&paths[..paths.len().min(SHOWN)], paths.len() as u64);
    let reasons = match skipped {
        [] => ", and an empty directory is not sent by itself".to_string(),
        _ => format!(". {}", skipped.join(". ")),
    };
    FilesError::Unwanted(format!("nothing to send: there is no file in {shown}{reasons}"))
}

fn keep_links(entries: Vec<Entry>, sources: &Sources, skips: &mut Skips) -> Vec<Entry> {
    let inside = |entry: &Entry| match entry.link_target() {
        Some(target) => manifest::check_link(&entries, &entry.path, target).is_ok(),
        None => true,
    };
    let inside: Vec<bool> = entries.iter().map(inside).collect();
    let kept = entries.into_iter().zip(inside).filter(|(entry, inside)| {
        if !inside {
            skips.add(Skip::Outside, || sources.at(&entry.path));
        }
        *inside
    });
    kept.map(|(entry, _)| entry).collect()
}

fn root(path: &Path) -> Result<(BString, PathBuf)> {
    const CANNOT: &str = "cannot be found";
    let ends_in_dots =
        path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/.");
    let absolute = match ends_in_dots {
        // `.` and `..` have the names of their directories.
        true => fs::canonicalize(path).at(path, CANNOT)?,
        false => std::path::absolute(path).at(path, CANNOT)?,
    };
    let Some(name) = absolute.file_name() else {
        return refuse(path, "has no name under which it could be sent; give a directory in it");
    };
    Ok((name.as_bytes().into(), absolute))
}

/// Scans a block device as an image, if one is among `paths`.
fn scan_device(paths: &[&Path], name: &str) -> Result<Option<Scan>> {
    const CANNOT: &str = "cannot be read";
    let is_device = |path: &&&Path| {
        fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
    };
    let Some(path) = paths.iter().find(is_device) else { return Ok(None) };
    if paths.len() > 1 {
        return refuse(path, "is a device, which is sent alone; send it by itself");
    }
    let mut device = fs::File::open(path).at(path, CANNOT)?;
    let size = Some(device.seek(SeekFrom::End(0)).at(path, CANNOT)?);
    let metadata = device.metadata().at(path, CANNOT)?;
    // Without a modification time, repeated transfers are of the same object.
    let entry = Entry::new(name, Kind::Image { size }, 0o600, Mtime { seconds: 0, nanos: 0 });
    let absolute = std::path::absolute(path).at(path, CANNOT)?;
    let in_use = device_user(path).map(|user| Warning::InUse(path.to_path_buf(), user));
    let roots = BTreeMap::from([(name.into(), absolute)]);
    let sources = Sources { roots, identities: vec![identity(&metadata)] };
    let layout = Layout::new(Manifest::new(name, vec![entry])?);
    let totals = totals(&layout, Skipped::default());
    Ok(Some(Scan { layout, sources, warnings: Vec::from_iter(in_use), totals }))
}
