//! The list of what an object has: names, kinds, sizes, holes, modes, times and owners.

mod attributes;
mod decode;
mod encode;
mod links;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bstr::BStr;

pub use attributes::{Owner, Xattr};
pub(crate) use attributes::{is_acl, travels};
pub use decode::ManifestError;
pub use links::LinkError;

use crate::name;

/// Bytes that are hashed, kept and claimed as one, a group: 1 MiB, of which each file has its own.
pub const GROUP_BYTES: u64 = 1 << 20;
/// Bytes of an encoded manifest.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Entries of an object: files, directories and links.
pub const ENTRIES_MAX: u32 = 1_000_000;
/// Bytes of all files of an object, holes included: 64 TiB.
pub const CONTENT_BYTES_MAX: u64 = 1 << 46;
/// Holes of all files of an object.
pub const HOLES_MAX: u64 = 1 << 20;

pub(crate) const MAGIC: [u8; 3] = *b"FCM";
pub(crate) const VERSION: u8 = 3;
pub(crate) const HEAD_BYTES: usize = 19;
pub(crate) const FIXED_BYTES: usize = 26;
pub(crate) const MODE_BITS: u16 = 0o777;
pub(crate) const NANOS_MAX: u32 = 999_999_999;

/// A file, a directory or a link of an object; or an image, which is alone in its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative path, components separated by `/`; any bytes that [`name::check_path`] takes.
    pub path: Box<BStr>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, at most 0o777; 0 of a symbolic or hard link, which has none of its own.
    pub mode: u16,
    /// Time of the last change; 0 of a hard link, which has that of its file.
    pub mtime: Mtime,
    /// Whose it is, where the sender tells.
    pub owner: Option<Arc<Owner>>,
    /// Extended attributes, ascending by name, where the sender tells.
    pub xattrs: Box<[Xattr]>,
}

impl Entry {
    /// An entry without owner and extended attributes.
    pub fn new(path: impl AsRef<[u8]>, kind: Kind, mode: u16, mtime: Mtime) -> Self {
        let path = boxed(path.as_ref());
        Self { path, kind, mode, mtime, owner: None, xattrs: Box::default() }
    }

    /// A further name of the file at `to`, which comes before it in the order of a manifest.
    pub fn hard_link(path: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Self {
        let kind = Kind::HardLink { to: boxed(to.as_ref()) };
        Self::new(path, kind, 0, Mtime { seconds: 0, nanos: 0 })
    }

    /// Bytes of a file, holes included, or of an image where they are known; 0 of others.
    pub const fn size(&self) -> u64 {
        match self.kind {
            Kind::File { size, .. } | Kind::Image { size: Some(size) } => size,
            _ => 0,
        }
    }

    /// Bytes that are sent: those of a file without its holes.
    pub fn content_bytes(&self) -> u64 {
        self.size() - self.hole_bytes()
    }

    /// Bytes of all holes of a file.
    pub fn hole_bytes(&self) -> u64 {
        self.hole_ranges().map(|range| range.end - range.start).sum()
    }

    /// The bytes of each hole of a file.
    pub fn hole_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.holes().iter().map(|hole| {
            let end = (u64::from(hole.first) + u64::from(hole.groups)) * GROUP_BYTES;
            u64::from(hole.first) * GROUP_BYTES..end.min(self.size())
        })
    }

    /// Holes of a file, ascending and apart; others have none.
    pub fn holes(&self) -> &[Hole] {
        match &self.kind {
            Kind::File { holes, .. } => holes,
            _ => &[],
        }
    }

    /// Whether it is a file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// Whether it has bytes of its own: a file or an image.
    pub const fn has_content(&self) -> bool {
        matches!(self.kind, Kind::File { .. } | Kind::Image { .. })
    }

    /// Whether it is a directory.
    pub const fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory)
    }

    /// Path of the entry as one of this system, relative to the directory that is received into.
    pub fn local_path(&self) -> PathBuf {
        name::local_path(&self.path)
    }

    /// Text of a symbolic link.
    pub fn link_target(&self) -> Option<&BStr> {
        match &self.kind {
            Kind::Link { target } => Some(target),
            _ => None,
        }
    }

    /// Path of the file of which a hard link is a further name.
    pub fn hard_link_to(&self) -> Option<&BStr> {
        match &self.kind {
            Kind::HardLink { to } => Some(to),
            _ => None,
        }
    }
}

/// Bytes as a path.
pub(crate) fn boxed(bytes: &[u8]) -> Box<BStr> {
    Box::<[u8]>::from(bytes).into()
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File {
        /// Bytes of the file, holes included.
        size: u64,
        /// Groups of nothing but zeros, which are not sent; ascending and apart.
        holes: Box<[Hole]>,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// The text of the link: relative, and leads to nowhere outside of the object.
        target: Box<BStr>,
    },
    /// A further name of a file of the object, with that file's content, mode, time and owner.
    HardLink {
        /// Path of the file; the entry of the file comes before.
        to: Box<BStr>,
    },
    /// What a device has or a pipe gives: no file, and alone in its object, whose name it has.
    Image {
        /// Bytes of it; `None` where that is not known before its end.
        size: Option<u64>,
    },
}

impl Kind {
    /// A file without holes.
    pub fn file(size: u64) -> Self {
        Self::File { size, holes: Box::default() }
    }
}

/// A hole of a file, in groups of [`GROUP_BYTES`]; the last one of a file may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Its first group, counted from the beginning of the file.
    pub first: u32,
    /// How many groups.
    pub groups: u32,
}

impl Hole {
    /// The first group after it. A hole that was checked does not overflow.
    pub const fn end(&self) -> u32 {
        self.first + self.groups
    }
}

/// A time of change, as file systems keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds after that, below 1e9.
    pub nanos: u32,
}

/// An object's name and its entries, in order: ascending component by component, so that each
/// directory comes directly before what is in it. Every path has its directories as entries, and
/// nothing lies below a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    name: Box<str>,
    entries: Vec<Entry>,
    content_bytes: u64,
}

impl Manifest {
    /// Puts the entries in order and checks them. `name` is what the object is called.
    ///
    /// # Errors
    /// The name could not be one of a file, something is there twice, lacks its directory, leads
    /// out of the object, or is beyond a limit.
    pub fn new(name: &str, mut entries: Vec<Entry>) -> Result<Self, ManifestError> {
        entries.sort_by(|a, b| name::compare(&a.path, &b.path));
        Self::checked(name.into(), entries)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (name, entries) = decode::decode(bytes)?;
        Self::checked(name, entries)
    }

    /// The bytes that go to receivers; the same entries give the same bytes. `docs/files.md` has
    /// them one by one.
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// Title of the object, which is no path of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All of it, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of this path.
    pub fn find(&self, path: impl AsRef<[u8]>) -> Option<&Entry> {
        find(&self.entries, path.as_ref())
    }

    /// Bytes that are sent: all files without their holes, or an image where its size is known.
    pub const fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Pairs of paths that would be one on a file system that ignores case; at most `limit`.
    pub fn case_collisions(&self, limit: usize) -> Vec<(&BStr, &BStr)> {
        let mut seen: BTreeMap<Vec<u8>, &BStr> = BTreeMap::new();
        let mut found = Vec::new();
        for entry in &self.entries {
            if found.len() == limit {
                break;
            }
            let path = &*entry.path;
            if let Some(other) = seen.insert(name::without_case(path), path) {
                found.push((other, path));
            }
        }
        found
    }

    /// `entries` are in any order; only the right one is taken.
    fn checked(name: Box<str>, entries: Vec<Entry>) -> Result<Self, ManifestError> {
        name::check_title(&name)
            .map_err(|what| ManifestError::ObjectName { name: name.clone(), what })?;
        if entries.len() > ENTRIES_MAX as usize {
            return Err(ManifestError::Entries(entries.len() as u64));
        }
        let (mut bytes, mut content_bytes, mut holes) = (0u64, 0u64, 0u64);
        let mut before: Option<&Entry> = None;
        // The directories that lead to the entry before, as indices.
        let mut open: Vec<usize> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            check_entry(entry)?;
            if let Some(before) = before {
                match name::compare(&before.path, &entry.path) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => {
                        return Err(ManifestError::Twice(said(entry)));
                    }
                    std::cmp::Ordering::Greater => {
                        return Err(ManifestError::Order(said(entry)));
                    }
                }
            }
            let parent = name::parent(&entry.path);
            while let Some(&last) = open.last()
                && Some(&*entries[last].path) != parent
            {
                open.pop();
            }
            if parent.is_some() && open.is_empty() {
                return Err(ManifestError::NoDirectory(said(entry)));
            }
            if entry.is_directory() {
                open.push(index);
            }
            if matches!(entry.kind, Kind::Image { .. })
                && (entries.len() > 1 || *entry.path != *name)
            {
                return Err(ManifestError::Image(said(entry)));
            }
            // 1e6 entries of at most 2^46 bytes and 2^27 holes each do not overflow.
            bytes = bytes.saturating_add(entry.size());
            content_bytes = content_bytes.saturating_add(entry.content_bytes());
            holes += entry.holes().len() as u64;
            before = Some(entry);
        }
        if bytes > CONTENT_BYTES_MAX {
            return Err(ManifestError::Content(bytes));
        }
        if holes > HOLES_MAX {
            return Err(ManifestError::Holes(holes));
        }
        for entry in &entries {
            if let Some(target) = entry.link_target() {
                check_link(&entries, &entry.path, target)
                    .map_err(|what| ManifestError::Link { path: said(entry), what })?;
            }
            if let Some(to) = entry.hard_link_to() {
                let before = name::compare(to, &entry.path).is_lt();
                if !before || !find(&entries, to).is_some_and(Entry::is_file) {
                    return Err(ManifestError::HardLink(said(entry)));
                }
            }
        }
        let manifest = Self { name, entries, content_bytes };
        encode::check(&manifest)?;
        Ok(manifest)
    }
}

/// Checks the text of the link at `path`, among entries in the order of a manifest.
pub(crate) fn check_link(entries: &[Entry], path: &[u8], target: &[u8]) -> Result<(), LinkError> {
    links::check(path, target, |path| find(entries, path))
}

fn find<'a>(entries: &'a [Entry], path: &[u8]) -> Option<&'a Entry> {
    let index = entries.binary_search_by(|entry| name::compare(&entry.path, path)).ok()?;
    Some(&entries[index])
}

/// Path of an entry as errors print it.
fn said(entry: &Entry) -> Box<str> {
    shown(&entry.path)
}

/// A path as errors print it.
pub(crate) fn shown(path: &[u8]) -> Box<str> {
    name::shown(path).into()
}

/// What can be known of an entry by itself.
fn check_entry(entry: &Entry) -> Result<(), ManifestError> {
    let path = || said(entry);
    name::check_path(&entry.path).map_err(|what| ManifestError::Name { path: path(), what })?;
    if entry.size() > CONTENT_BYTES_MAX {
        return Err(ManifestError::Content(entry.size()));
    }
    let is_hard = entry.hard_link_to().is_some();
    if is_hard && (entry.mtime != Mtime { seconds: 0, nanos: 0 } || entry.owner.is_some()) {
        return Err(ManifestError::HardLink(path()));
    }
    let is_link = is_hard || entry.link_target().is_some();
    if entry.mode > MODE_BITS || is_link && entry.mode != 0 {
        return Err(ManifestError::Mode(path()));
    }
    if entry.mtime.nanos > NANOS_MAX {
        return Err(ManifestError::Time(path()));
    }
    let mut least = 0;
    for hole in entry.holes() {
        let end = hole.first.checked_add(hole.groups).filter(|_| hole.groups > 0);
        // Holes that touch are one, and begin within the file.
        let apart = hole.first >= least;
        let end = end.filter(|end| apart && u64::from(*end) <= entry.size().div_ceil(GROUP_BYTES));
        least = end.ok_or_else(|| ManifestError::Hole(path()))?.saturating_add(1);
    }
    if (is_link || matches!(entry.kind, Kind::Image { .. })) && !entry.xattrs.is_empty() {
        return Err(ManifestError::Xattr(path()));
    }
    attributes::check(entry)
}
