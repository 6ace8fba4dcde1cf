//! From bytes of the network to entries. Total: any bytes give entries or an error.

use super::{
    CONTENT_BYTES_MAX, ENTRIES_MAX, Entry, FIXED_BYTES, HEAD_BYTES, Kind, MAGIC,
    MANIFEST_BYTES_MAX, Mtime,
};
use crate::name::NameError;

/// Why something is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It does not begin as one, or is of another version.
    #[error("not a list of files of a version that this program knows; update the older side")]
    Version,
    /// It ends in the middle of something.
    #[error("the list of files is cut off")]
    Short,
    /// Something follows the last entry.
    #[error("the list of files has {0} bytes too many")]
    Trailing(u64),
    /// It has more than 1e6 entries.
    #[error("{0} files and directories; at most {ENTRIES_MAX} can be sent at once")]
    Entries(u64),
    /// It has more bytes than [`MANIFEST_BYTES_MAX`].
    #[error("the list of files has {0} bytes; at most {MANIFEST_BYTES_MAX} can be sent")]
    Bytes(u64),
    /// It has more content than [`CONTENT_BYTES_MAX`].
    #[error("{0} bytes of content; at most {CONTENT_BYTES_MAX} can be sent at once")]
    Content(u64),
    /// The sum of the sizes is not what the head says.
    #[error("the sizes in the list of files do not sum up")]
    Sum,
    /// An entry is of no kind that is known.
    #[error("`{0}` is neither a file nor a directory")]
    Kind(Box<str>),
    /// A directory has a size.
    #[error("directory `{0}` has a size")]
    DirectorySize(Box<str>),
    /// A path is not UTF-8.
    #[error("a name is not UTF-8: {0}")]
    NotUtf8(Box<str>),
    /// A path is not allowed.
    #[error("the name {path:?} cannot be used: {what}")]
    Name {
        /// The path.
        path: Box<str>,
        /// What is wrong with it.
        what: NameError,
    },
    /// A mode has more than permission bits.
    #[error("the mode of `{0}` has more than permission bits")]
    Mode(Box<str>),
    /// A time has 1e9 nanoseconds or more.
    #[error("the time of `{0}` is no time")]
    Time(Box<str>),
    /// A path is there twice.
    #[error("`{0}` is there twice")]
    Twice(Box<str>),
    /// Entries are not in order.
    #[error("`{0}` is not in its place in the list of files")]
    Order(Box<str>),
    /// A path's directory is no entry before it, or is a file.
    #[error("the directory of `{0}` is not in the list of files")]
    NoDirectory(Box<str>),
}

/// Reads entries; their names, order and sums are not checked yet, the head's sum is.
pub(super) fn entries(bytes: &[u8]) -> Result<Vec<Entry>, ManifestError> {
    if bytes.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(ManifestError::Bytes(bytes.len() as u64));
    }
    let mut input = Input(bytes);
    if input.take::<4>().map_err(|_| ManifestError::Version)? != MAGIC {
        return Err(ManifestError::Version);
    }
    let count = u32::from_be_bytes(input.take()?);
    let content = u64::from_be_bytes(input.take()?);
    if count > ENTRIES_MAX {
        return Err(ManifestError::Entries(count.into()));
    }
    // A count that cannot be there must not reserve memory.
    if (bytes.len() - HEAD_BYTES) / (FIXED_BYTES + 1) < count as usize {
        return Err(ManifestError::Short);
    }
    let mut entries = Vec::with_capacity(count as usize);
    let mut sum = 0u64;
    for _ in 0..count {
        let entry = entry(&mut input)?;
        sum = sum.checked_add(entry.size()).ok_or(ManifestError::Sum)?;
        entries.push(entry);
    }
    if !input.0.is_empty() {
        return Err(ManifestError::Trailing(input.0.len() as u64));
    }
    if sum != content {
        return Err(ManifestError::Sum);
    }
    Ok(entries)
}

fn entry(input: &mut Input<'_>) -> Result<Entry, ManifestError> {
    let [kind] = input.take()?;
    let mode = u16::from_be_bytes(input.take()?);
    let seconds = i64::from_be_bytes(input.take()?);
    let nanos = u32::from_be_bytes(input.take()?);
    let size = u64::from_be_bytes(input.take()?);
    let len = u16::from_be_bytes(input.take()?);
    let path = input.slice(len.into())?;
    let path: Box<str> = match std::str::from_utf8(path) {
        Ok(path) => path.into(),
        Err(_) => {
            return Err(ManifestError::NotUtf8(path.escape_ascii().to_string().into()));
        }
    };
    let kind = match (kind, size) {
        (0, size) => Kind::File { size },
        (1, 0) => Kind::Directory,
        (1, _) => return Err(ManifestError::DirectorySize(path)),
        _ => return Err(ManifestError::Kind(path)),
    };
    Ok(Entry { path, kind, mode, mtime: Mtime { seconds, nanos } })
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ManifestError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(ManifestError::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], ManifestError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(ManifestError::Short)?;
        self.0 = rest;
        Ok(head)
    }
}
