//! Manifest of an object: names, kinds, sizes, holes, modes, times and owners.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bstr::BStr;
use faircast_base::is_format;

pub(crate) use decode::ManifestError;

use crate::name::{self, NameError, PATH_BYTES_MAX};

/// Bytes of a group, the unit of hashes, the journal and claims: 1 MiB. Groups do not span files.
pub(crate) const GROUP_BYTES: u64 = 1 << 20;
pub(crate) const MANIFEST_BYTES_MAX: u64 = 64 << 20;
pub(crate) const ENTRIES_MAX: u32 = 1_000_000;
/// Most bytes of all files of an object, holes included: 64 TiB.
pub(crate) const CONTENT_BYTES_MAX: u64 = 1 << 46;
pub(crate) const HOLES_MAX: u64 = 1 << 20;

pub(crate) const MAGIC: [u8; 3] = *b"FCM";
pub(crate) const VERSION: u8 = 3;
pub(crate) const HEAD_BYTES: usize = 19;
pub(crate) const FIXED_BYTES: usize = 26;
pub(crate) const MODE_BITS: u16 = 0o777;
pub(crate) const NANOS_MAX: u32 = 999_999_999;

/// File, directory or link of an object; or an image, the only entry of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative path of components between `/`, by the rules of `name::check_path`.
    pub path: Box<BStr>,
    /// Kind of the entry.
    pub kind: Kind,
    /// Permission bits, at most 0o777; 0 for symbolic and hard links, which have none.
    pub mode: u16,
    /// Time of the last change; 0 for a hard link, which has its file's.
    pub mtime: Mtime,
    /// Owner, if sent.
    pub owner: Option<Arc<Owner>>,
    /// Extended attributes if sent, ascending by name.
    pub xattrs: Box<[Xattr]>,
}

impl Entry {
    /// Creates an entry without owner and extended attributes.
    pub fn new(path: impl AsRef<[u8]>, kind: Kind, mode: u16, mtime: Mtime) -> Self {
        let path = boxed(path.as_ref());
        Self { path, kind, mode, mtime, owner: None, xattrs: Box::default() }
    }

    /// Creates a hard link to the file at `to`, which precedes it in the manifest.
    pub fn hard_link(path: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Self {
        let kind = Kind::HardLink { to: boxed(to.as_ref()) };
        Self::new(path, kind, 0, Mtime { seconds: 0, nanos: 0 })
    }

    /// Returns the bytes of a file, holes included, or of an image of known size; else 0.
    pub const fn size(&self) -> u64 {
        match self.kind {
            Kind::File { size, .. } | Kind::Image { size: Some(size) } => size,
            _ => 0,
        }
    }

    /// Returns the bytes to send: those of a file without its holes.
    pub fn content_bytes(&self) -> u64 {
        self.size() - self.hole_bytes()
    }

    /// Returns the bytes of all holes of a file.
    pub fn hole_bytes(&self) -> u64 {
        self.hole_ranges().map(|range| range.end - range.start).sum()
    }

    pub(crate) fn hole_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.holes().iter().map(|hole| {
            let end = (u64::from(hole.first) + u64::from(hole.groups)) * GROUP_BYTES;
            u64::from(hole.first) * GROUP_BYTES..end.min(self.size())
        })
    }

    /// Returns the holes of a file, ascending and apart; none for other entries.
    pub fn holes(&self) -> &[Hole] {
        match &self.kind {
            Kind::File { holes, .. } => holes,
            _ => &[],
        }
    }

    /// True for a file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// True for an entry with bytes of its own: a file or an image.
    pub const fn has_content(&self) -> bool {
        matches!(self.kind, Kind::File { .. } | Kind::Image { .. })
    }

    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory)
    }

    /// Returns the path on this system, relative to the target directory.
    pub fn local_path(&self) -> PathBuf {
        name::local_path(&self.path)
    }

    pub(crate) fn link_target(&self) -> Option<&BStr> {
        match &self.kind {
            Kind::Link { target } => Some(target),
            _ => None,
        }
    }

    pub(crate) fn hard_link_to(&self) -> Option<&BStr> {
        match &self.kind {
            Kind::HardLink { to } => Some(to),
            _ => None,
        }
    }
}

pub(crate) fn boxed(bytes: &[u8]) -> Box<BStr> {
    Box::<[u8]>::from(bytes).into()
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// File.
    File {
        /// Bytes of the file, holes included.
        size: u64,
        /// Groups of zeros, which are not sent; ascending and apart.
        holes: Box<[Hole]>,
    },
    /// Directory.
    Directory,
    /// Symbolic link.
    Link {
        /// Target: relative, and inside the object.
        target: Box<BStr>,
    },
    /// Further name of a file of the object, with that file's content, mode, time and owner.
    HardLink {
        /// Path of the file, whose entry comes before.
        to: Box<BStr>,
    },
    /// Content of a device or a pipe: the only entry, named like its object.
    Image {
        /// Bytes of the image; `None` if unknown before its end.
        size: Option<u64>,
    },
}

impl Kind {
    /// Creates a file without holes.
    pub fn file(size: u64) -> Self {
        Self::File { size, holes: Box::default() }
    }
}

/// Hole of a file, in groups of [`GROUP_BYTES`]; the last one of a file may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub first: u32,
    pub groups: u32,
}

impl Hole {
    /// Returns the first group after the hole; a checked hole does not overflow.
    pub const fn end(&self) -> u32 {
        self.first + self.groups
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1e9.
    pub nanos: u32,
}

/// Name of an object and its entries, ascending by components: directories precede their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    name: Box<str>,
    entries: Vec<Entry>,
    content_bytes: u64,
}

impl Manifest {
    /// Sorts and checks the entries of an object `name`.
    ///
    /// # Errors
    /// A name is invalid; an entry is duplicate, lacks its directory, leads out, or exceeds limits.
    pub fn new(name: &str, mut entries: Vec<Entry>) -> Result<Self, ManifestError> {
        entries.sort_by(|a, b| name::compare(&a.path, &b.path));
        Self::checked(name.into(), entries)
    }

    /// Decodes the output of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (name, entries) = decode::decode(bytes)?;
        Self::checked(name, entries)
    }

    /// Encodes the manifest in its only form, described in `docs/files.md`.
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// Returns the title of the object, which is not a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Finds the entry of a path.
    pub fn find(&self, path: impl AsRef<[u8]>) -> Option<&Entry> {
        find(&self.entries, path.as_ref())
    }

    /// Returns the bytes to send: all files without their holes, or an image of known size.
    pub const fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Returns at most `limit` pairs of paths that differ in case alone.
    pub(crate) fn case_collisions(&self, limit: usize) -> Vec<(&BStr, &BStr)> {
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

    fn checked(name: Box<str>, entries: Vec<Entry>) -> Result<Self, ManifestError> {
        name::check_title(&name)
            .map_err(|what| ManifestError::ObjectName { name: name.clone(), what })?;
        if entries.len() > ENTRIES_MAX as usize {
            return Err(ManifestError::Entries(entries.len() as u64));
        }
        let (mut bytes, mut content_bytes, mut holes) = (0u64, 0u64, 0u64);
        let mut before: Option<&Entry> = None;
        let mut open: Vec<usize> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            check_entry(entry)?;
            if let Some(before) = before {
                match name::compare(&before.path, &entry.path) {
                    Ordering::Less => {}
                    Ordering::Equal => return Err(ManifestError::Twice(said(entry))),
                    Ordering::Greater => return Err(ManifestError::Order(said(entry))),
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
            // No overflow: 1e6 entries of at most 2^46 bytes and 2^27 holes each.
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

/// Checks that the link at `path` does not lead out of its object. A `..` may only follow
/// directories, so a chain of links, each inside, cannot lead out. The destination may be missing.
pub(crate) fn check_link(entries: &[Entry], path: &[u8], target: &[u8]) -> Result<(), NameError> {
    if target.is_empty() || target.len() > PATH_BYTES_MAX {
        return Err(NameError::TargetLength);
    }
    if target.starts_with(b"/") {
        return Err(NameError::Absolute);
    }
    let mut at = name::parent(path).unwrap_or_default().to_vec();
    let mut in_directory = true;
    for part in name::components(target) {
        match part {
            b"" | b"." => {}
            b".." if !in_directory => return Err(NameError::Back),
            b".." if at.is_empty() => return Err(NameError::Outside),
            b".." => at.truncate(name::parent(&at).map_or(0, |parent| parent.len())),
            part => {
                name::check_component(part)?;
                if !at.is_empty() {
                    at.push(b'/');
                }
                at.extend_from_slice(part);
                in_directory = in_directory && find(entries, &at).is_some_and(Entry::is_directory);
            }
        }
    }
    let first = name::components(&at).next().unwrap_or_default();
    match find(entries, first) {
        Some(_) if !at.is_empty() => Ok(()),
        _ => Err(NameError::Outside),
    }
}

fn find<'a>(entries: &'a [Entry], path: &[u8]) -> Option<&'a Entry> {
    let index = entries.binary_search_by(|entry| name::compare(&entry.path, path)).ok()?;
    Some(&entries[index])
}

fn said(entry: &Entry) -> Box<str> {
    shown(&entry.path)
}

pub(crate) fn shown(path: &[u8]) -> Box<str> {
    name::shown(path).into()
}

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
        // Adjacent holes must be one, and holes begin within the file.
        let apart = hole.first >= least;
        let end = end.filter(|end| apart && u64::from(*end) <= entry.size().div_ceil(GROUP_BYTES));
        least = end.ok_or_else(|| ManifestError::Hole(path()))?.saturating_add(1);
    }
    if (is_link || matches!(entry.kind, Kind::Image { .. })) && !entry.xattrs.is_empty() {
        return Err(ManifestError::Xattr(path()));
    }
    check_attributes(entry)
}

/// Most bytes of names and values of an entry's extended attributes, as on Linux.
pub(crate) const XATTR_BYTES_MAX: usize = 64 << 10;
const NAME_BYTES_MAX: usize = 255;
/// Prefix of the attributes to send, besides [`ACLS`]. Capabilities and labels would grant rights.
const USER: &str = "user.";
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
    /// User name at the sender; empty if it has none.
    pub user: Box<str>,
    pub group: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    pub name: Box<str>,
    pub value: Box<[u8]>,
}

pub(crate) fn travels(name: &str) -> bool {
    let bare = name.strip_prefix(USER).is_some_and(|bare| !bare.is_empty());
    (bare || is_acl(name)) && name.len() <= NAME_BYTES_MAX && !name.contains(is_format)
}

pub(crate) fn is_acl(name: &str) -> bool {
    ACLS.contains(&name)
}

fn check_attributes(entry: &Entry) -> Result<(), ManifestError> {
    let mut bytes = 0;
    let mut before: Option<&str> = None;
    for xattr in &entry.xattrs {
        bytes += xattr.name.len() + xattr.value.len();
        let ascends = before.is_none_or(|before| before < &*xattr.name);
        if !travels(&xattr.name) || !ascends || bytes > XATTR_BYTES_MAX {
            return Err(ManifestError::Xattr(said(entry)));
        }
        before = Some(&xattr.name);
    }
    if let Some(owner) = &entry.owner {
        for name in [&owner.user, &owner.group] {
            if name.len() > NAME_BYTES_MAX || name.contains(is_format) {
                return Err(ManifestError::Owner(said(entry)));
            }
        }
    }
    Ok(())
}
