//! What an object is: names, kinds, sizes, modes and times of its files and directories.

mod decode;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use decode::ManifestError;

use crate::name;

/// Bytes of an encoded manifest.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Files and directories of an object.
pub const ENTRIES_MAX: u32 = 1_000_000;
/// Bytes of content of an object: 64 TiB.
pub const CONTENT_BYTES_MAX: u64 = 1 << 46;

pub(crate) const MAGIC: [u8; 4] = *b"FCM\x01";
pub(crate) const HEAD_BYTES: usize = 16;
pub(crate) const FIXED_BYTES: usize = 25;
pub(crate) const MODE_BITS: u16 = 0o777;
pub(crate) const NANOS_MAX: u32 = 999_999_999;

/// A file or a directory of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative path, components separated by `/`; checked by [`name::check_path`].
    pub path: Box<str>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, at most 0o777.
    pub mode: u16,
    /// When it was last changed.
    pub mtime: Mtime,
}

impl Entry {
    /// Bytes of content; 0 of a directory.
    pub const fn size(&self) -> u64 {
        match self.kind {
            Kind::File { size } => size,
            Kind::Directory => 0,
        }
    }

    /// Whether it is a file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File {
        /// Bytes of content.
        size: u64,
    },
    /// A directory.
    Directory,
}

/// A time of change, as file systems keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds after that, below 1e9.
    pub nanos: u32,
}

/// Files and directories of an object, in order: ascending component by component, so that each
/// directory comes directly before what is in it. Every path has its directories as entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
    content_bytes: u64,
}

impl Manifest {
    /// Puts the entries in order and checks them.
    ///
    /// # Errors
    /// Something is there twice, lacks its directory, or is beyond a limit.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, ManifestError> {
        entries.sort_by(|a, b| name::compare(&a.path, &b.path));
        Self::checked(entries)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The bytes are not a manifest, or not one that is safe to follow.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        Self::checked(decode::entries(bytes)?)
    }

    /// The bytes that go to receivers; the same entries give the same bytes. `docs/files.md` has
    /// them one by one.
    pub fn encode(&self) -> Vec<u8> {
        let paths: usize = self.entries.iter().map(|entry| entry.path.len()).sum();
        let mut out = Vec::with_capacity(HEAD_BYTES + FIXED_BYTES * self.entries.len() + paths);
        out.extend_from_slice(&MAGIC);
        let count = u32::try_from(self.entries.len()).expect("checked against ENTRIES_MAX");
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&self.content_bytes.to_be_bytes());
        for entry in &self.entries {
            out.push(u8::from(!entry.is_file()));
            out.extend_from_slice(&entry.mode.to_be_bytes());
            out.extend_from_slice(&entry.mtime.seconds.to_be_bytes());
            out.extend_from_slice(&entry.mtime.nanos.to_be_bytes());
            out.extend_from_slice(&entry.size().to_be_bytes());
            let len = u16::try_from(entry.path.len()).expect("checked against PATH_BYTES_MAX");
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(entry.path.as_bytes());
        }
        out
    }

    /// All of it, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Bytes of all files.
    pub const fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Pairs of paths that would be one on a file system that ignores case; at most `limit`.
    pub fn case_collisions(&self, limit: usize) -> Vec<(&str, &str)> {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        let mut found = Vec::new();
        for entry in &self.entries {
            if found.len() == limit {
                break;
            }
            if let Some(other) = seen.insert(entry.path.to_lowercase(), &entry.path) {
                found.push((other, &*entry.path));
            }
        }
        found
    }

    /// `entries` are in any order; only the right one is taken.
    fn checked(entries: Vec<Entry>) -> Result<Self, ManifestError> {
        if entries.len() > ENTRIES_MAX as usize {
            return Err(ManifestError::Entries(entries.len() as u64));
        }
        let mut content_bytes = 0u64;
        let mut encoded = HEAD_BYTES as u64;
        let mut before: Option<&Entry> = None;
        // The directories that lead to the entry before, as indices.
        let mut open: Vec<usize> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            check_entry(entry)?;
            if let Some(before) = before {
                match name::compare(&before.path, &entry.path) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => {
                        return Err(ManifestError::Twice(entry.path.clone()));
                    }
                    std::cmp::Ordering::Greater => {
                        return Err(ManifestError::Order(entry.path.clone()));
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
                return Err(ManifestError::NoDirectory(entry.path.clone()));
            }
            if !entry.is_file() {
                open.push(index);
            }
            // 1e6 entries of at most 2^46 bytes each do not overflow.
            content_bytes += entry.size();
            encoded += (FIXED_BYTES + entry.path.len()) as u64;
            before = Some(entry);
        }
        if content_bytes > CONTENT_BYTES_MAX {
            return Err(ManifestError::Content(content_bytes));
        }
        if encoded > MANIFEST_BYTES_MAX {
            return Err(ManifestError::Bytes(encoded));
        }
        Ok(Self { entries, content_bytes })
    }
}

fn check_entry(entry: &Entry) -> Result<(), ManifestError> {
    name::check_path(&entry.path)
        .map_err(|what| ManifestError::Name { path: entry.path.clone(), what })?;
    if entry.size() > CONTENT_BYTES_MAX {
        return Err(ManifestError::Content(entry.size()));
    }
    if entry.mode > MODE_BITS {
        return Err(ManifestError::Mode(entry.path.clone()));
    }
    if entry.mtime.nanos > NANOS_MAX {
        return Err(ManifestError::Time(entry.path.clone()));
    }
    Ok(())
}
