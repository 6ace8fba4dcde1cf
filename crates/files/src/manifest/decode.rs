//! Decoder from untrusted bytes to entries: any bytes give entries or an error.

use std::sync::Arc;

use bstr::BStr;

use super::encode::{HAS_HOLES, HAS_OWNER, HAS_XATTRS, UNKNOWN};
use super::{
    CONTENT_BYTES_MAX, ENTRIES_MAX, Entry, FIXED_BYTES, HEAD_BYTES, HOLES_MAX, Hole, Kind, MAGIC,
    MANIFEST_BYTES_MAX, Mtime, Owner, VERSION, Xattr,
};
use crate::name::NameError;

/// Error of an invalid manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    #[error("this is no list of files")]
    Magic,
    #[error(
        "the list of files is of version {found}, and this faircast reads version {VERSION} alone: \
         use a newer faircast {side}",
        found = .0,
        side = if *.0 > VERSION { "here" } else { "at the sender" }
    )]
    Version(u8),
    #[error("the list of files is cut off")]
    Short,
    #[error("the list of files has {0} bytes too many")]
    Trailing(u64),
    #[error("{0} files and directories; at most {ENTRIES_MAX} can be sent at once")]
    Entries(u64),
    #[error("the list of files has {0} bytes; at most {MANIFEST_BYTES_MAX} can be sent")]
    Bytes(u64),
    #[error("files of {0} bytes; at most {CONTENT_BYTES_MAX} can be sent at once")]
    Content(u64),
    #[error("the sizes in the list of files do not sum up")]
    Sum,
    #[error("files with {0} holes; at most {HOLES_MAX} can be sent at once")]
    Holes(u64),
    #[error("{0} different owners; at most 65535 can be sent at once")]
    Owners(usize),
    #[error(
        "the object cannot be called \"{name}\": {what}; send it with --name and another name",
        name = faircast_base::escaped(name)
    )]
    ObjectName { name: Box<str>, what: NameError },
    #[error("`{0}` is of a kind that this faircast does not know")]
    Kind(Box<str>),
    /// A hole is empty, adjacent to another, or outside of its file.
    #[error("a hole of `{0}` is none")]
    Hole(Box<str>),
    #[error("the link `{path}` cannot be made: {what}")]
    Link { path: Box<str>, what: NameError },
    /// A hard link has no earlier file, or has attributes of its own.
    #[error("the hard link `{0}` is none")]
    HardLink(Box<str>),
    #[error("the image `{0}` is not alone in its object, or is called otherwise")]
    Image(Box<str>),
    /// Owners are out of order or unused, or have an invalid name.
    #[error("the owner of `{0}` is none")]
    Owner(Box<str>),
    /// Extended attributes are too long, out of order, or not allowed.
    #[error("the extended attributes of `{0}` cannot be taken")]
    Xattr(Box<str>),
    #[error("directory `{0}` has a size")]
    DirectorySize(Box<str>),
    #[error("a name is not UTF-8: {0}")]
    NotUtf8(Box<str>),
    #[error("the name `{path}` cannot be used: {what}")]
    Name { path: Box<str>, what: NameError },
    #[error("the mode of `{0}` has more than permission bits")]
    Mode(Box<str>),
    #[error("the time of `{0}` is no time")]
    Time(Box<str>),
    #[error("`{0}` is there twice")]
    Twice(Box<str>),
    #[error("`{0}` is not in its place in the list of files")]
    Order(Box<str>),
    #[error("the directory of `{0}` is not in the list of files")]
    NoDirectory(Box<str>),
}

pub(super) fn decode(bytes: &[u8]) -> Result<(Box<str>, Vec<Entry>), ManifestError> {
    if bytes.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(ManifestError::Bytes(bytes.len() as u64));
    }
    let mut input = Input(bytes);
    if input.take::<3>().map_err(|_| ManifestError::Magic)? != MAGIC {
        return Err(ManifestError::Magic);
    }
    let [version] = input.take().map_err(|_| ManifestError::Magic)?;
    if version != VERSION {
        return Err(ManifestError::Version(version));
    }
    let count = u32::from_be_bytes(input.take()?);
    let content = u64::from_be_bytes(input.take()?);
    if count > ENTRIES_MAX {
        return Err(ManifestError::Entries(count.into()));
    }
    // A false count must not reserve memory.
    if bytes.len().saturating_sub(HEAD_BYTES) / (FIXED_BYTES + 1) < count as usize {
        return Err(ManifestError::Short);
    }
    let name = input.text8()?;
    let mut owners = owners(&mut input)?;
    let mut entries = Vec::with_capacity(count as usize);
    let mut sum = 0u64;
    for _ in 0..count {
        let entry = entry(&mut input, &mut owners)?;
        let bytes = match &entry.kind {
            Kind::File { size, holes } if holes.is_empty() => *size,
            // Unchecked holes may exceed the size.
            _ => {
                super::check_entry(&entry)?;
                entry.content_bytes()
            }
        };
        sum = sum.checked_add(bytes).ok_or(ManifestError::Sum)?;
        entries.push(entry);
    }
    if !input.0.is_empty() {
        return Err(ManifestError::Trailing(input.0.len() as u64));
    }
    if sum != content {
        return Err(ManifestError::Sum);
    }
    if let Some((unused, _)) = owners.iter().find(|(_, used)| !used) {
        return Err(ManifestError::Owner(super::shown(unused.user.as_bytes())));
    }
    Ok((name, entries))
}

fn owners(input: &mut Input<'_>) -> Result<Vec<(Arc<Owner>, bool)>, ManifestError> {
    let count = u16::from_be_bytes(input.take()?);
    let mut owners: Vec<(Arc<Owner>, bool)> = Vec::new();
    for _ in 0..count {
        let uid = u32::from_be_bytes(input.take()?);
        let gid = u32::from_be_bytes(input.take()?);
        let owner = Owner { uid, gid, user: input.text8()?, group: input.text8()? };
        if owners.last().is_some_and(|(before, _)| **before >= owner) {
            return Err(ManifestError::Owner(super::shown(owner.user.as_bytes())));
        }
        owners.push((owner.into(), false));
    }
    Ok(owners)
}

fn entry(input: &mut Input<'_>, owners: &mut [(Arc<Owner>, bool)]) -> Result<Entry, ManifestError> {
    let [kind, flags] = input.take()?;
    let mode = u16::from_be_bytes(input.take()?);
    let seconds = i64::from_be_bytes(input.take()?);
    let nanos = u32::from_be_bytes(input.take()?);
    let size = u64::from_be_bytes(input.take()?);
    let len = u16::from_be_bytes(input.take()?);
    let path = input.path(len.into())?;
    let said = |path| Err(ManifestError::Kind(super::shown(path)));
    let kind = match (kind, size) {
        (0, size) => Kind::File { size, holes: Box::default() },
        (1, 0) => Kind::Directory,
        (1, _) => return Err(ManifestError::DirectorySize(super::shown(&path))),
        (2 | 4, len) => {
            let target = input.path(usize::try_from(len).map_err(|_| ManifestError::Short)?)?;
            if kind == 2 { Kind::Link { target } } else { Kind::HardLink { to: target } }
        }
        (3, size) => Kind::Image { size: (size != UNKNOWN).then_some(size) },
        _ => return said(&path),
    };
    let mut entry = Entry { path, ..Entry::new("", kind, mode, Mtime { seconds, nanos }) };
    if flags & !(HAS_HOLES | HAS_OWNER | HAS_XATTRS) != 0 {
        return said(&entry.path);
    }
    if flags & HAS_HOLES != 0 {
        let found = holes(input)?;
        match &mut entry.kind {
            Kind::File { holes, .. } if !found.is_empty() => *holes = found,
            _ => return Err(ManifestError::Hole(super::said(&entry))),
        }
    }
    if flags & HAS_OWNER != 0 {
        let index = u16::from_be_bytes(input.take()?);
        let Some((owner, used)) = owners.get_mut(usize::from(index)) else {
            return Err(ManifestError::Owner(super::said(&entry)));
        };
        *used = true;
        entry.owner = Some(owner.clone());
    }
    if flags & HAS_XATTRS != 0 {
        entry.xattrs = xattrs(input)?;
        if entry.xattrs.is_empty() {
            return Err(ManifestError::Xattr(super::said(&entry)));
        }
    }
    Ok(entry)
}

fn holes(input: &mut Input<'_>) -> Result<Box<[Hole]>, ManifestError> {
    let count = u32::from_be_bytes(input.take()?);
    let mut holes = Vec::new();
    for _ in 0..count {
        let first = u32::from_be_bytes(input.take()?);
        holes.push(Hole { first, groups: u32::from_be_bytes(input.take()?) });
    }
    Ok(holes.into())
}

fn xattrs(input: &mut Input<'_>) -> Result<Box<[Xattr]>, ManifestError> {
    let count = u16::from_be_bytes(input.take()?);
    let mut xattrs = Vec::new();
    for _ in 0..count {
        let name = input.text8()?;
        let len = u32::from_be_bytes(input.take()?);
        let value = input.slice(usize::try_from(len).map_err(|_| ManifestError::Short)?)?.into();
        xattrs.push(Xattr { name, value });
    }
    Ok(xattrs.into())
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

    fn text8(&mut self) -> Result<Box<str>, ManifestError> {
        let [len] = self.take()?;
        let bytes = self.slice(len.into())?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(ManifestError::NotUtf8(bytes.escape_ascii().to_string().into())),
        }
    }

    fn path(&mut self, len: usize) -> Result<Box<BStr>, ManifestError> {
        self.slice(len).map(super::boxed)
    }
}
